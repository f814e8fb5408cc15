//! An API server that answers from a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use super::{NOW, Ran, run_at};

/// What was asked: method, path with query, body.
pub type RecordedRequest = (String, String, Value);
/// Method and path, then what is answered; used up from the front, the last answer of a path stays.
pub type Script = Vec<(&'static str, u16, Value)>;

struct Server {
    responses: Vec<(String, VecDeque<(u16, Value)>)>,
    requests: Vec<RecordedRequest>,
}

impl Server {
    fn respond(&mut self, method: &str, uri: &http::Uri, body: Value) -> (u16, Value) {
        let key = format!("{method} {}", uri.path());
        self.requests.push((method.to_owned(), uri.to_string(), body));
        let found = self.responses.iter_mut().find(|(path, _)| *path == key);
        let Some((_, queue)) = found else { return (404, status(404, "404 page not found")) };
        if queue.len() > 1 { queue.pop_front().unwrap() } else { queue[0].clone() }
    }
}

pub fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "", "code": code})
}

pub fn status_of(reason: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "reason": reason, "message": "not found", "code": 404})
}

pub fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
}

pub fn against(line: &str, script: Script) -> (Ran, Vec<RecordedRequest>) {
    let mut server = Server { responses: Vec::new(), requests: Vec::new() };
    for (path, code, body) in script {
        match server.responses.iter_mut().find(|(known, _)| known == path) {
            Some((_, queue)) => queue.push_back((code, body)),
            None => server.responses.push((path.to_owned(), VecDeque::from([(code, body)]))),
        }
    }
    let server = Arc::new(Mutex::new(server));
    let shared = Arc::clone(&server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&shared);
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            let (code, respond) = server.lock().unwrap().respond(parts.method.as_str(), &parts.uri, body);
            let response =
                Response::builder().status(code).body(Body::from(respond.to_string().into_bytes()));
            Ok::<_, std::io::Error>(response.unwrap())
        }
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = {
        let _inside = runtime.enter();
        kube::Client::new(service, "default")
    };
    let ran = run_at(line, "", NOW, Some(client));
    let requests = std::mem::take(&mut server.lock().unwrap().requests);
    (ran, requests)
}
