//! One attempt against a receiver on this machine.
#![allow(clippy::unwrap_used, reason = "the helpers of a test fail it by a panic")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use coppice_destination::{DestinationError, Special};
use coppice_notify::webhook::{
    Delivered, MAX_BODY_BYTES, NoConnection, SendError, WebhookClient, WebhookSettings,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{FixedResolver, now, request, settings, webhook_client};

type Received = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// A receiver that records what comes to `/` and misbehaves elsewhere.
async fn receiver() -> (SocketAddr, Received) {
    let received = Received::default();
    let record = |State(received): State<Received>, headers: HeaderMap, body: Bytes| async move {
        received.lock().unwrap().push((headers, body));
        StatusCode::ACCEPTED
    };
    let endless = || async {
        let chunks =
            futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 64 * 1024])));
        Body::from_stream(chunks)
    };
    let app = Router::new()
        .route("/", post(record))
        .route("/moved", post(|| async { (StatusCode::FOUND, [("location", "/")]).into_response() }))
        .route(
            "/broken",
            post(|| async { (StatusCode::INTERNAL_SERVER_ERROR, "no\u{1b}[31m\nluck \u{202e}today") }),
        )
        .route(
            "/busy",
            post(|| async { (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "90")]).into_response() }),
        )
        .route("/gone", post(|| async { StatusCode::GONE }))
        .route("/hang", post(std::future::pending::<()>))
        .route("/endless", post(endless))
        .route("/endless-error", post(move || async move { (StatusCode::BAD_GATEWAY, endless().await) }))
        .with_state(Arc::clone(&received));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, received)
}

/// A receiver that answers one request with these bytes and then keeps the connection open.
async fn raw_receiver(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        assert!(connection.read(&mut [0; 1024]).await.unwrap() > 0);
        connection.write_all(answer).await.unwrap();
        connection.read_to_end(&mut Vec::new()).await
    });
    address
}

/// Sends to a path of the receiver, which an IP entry permits.
async fn send(
    webhook_client: &WebhookClient,
    address: SocketAddr,
    path: &str,
) -> Result<Delivered, SendError> {
    webhook_client.send(request(&format!("http://{address}{path}"), &["127.0.0.1"])).await
}

#[tokio::test]
async fn delivers_with_a_signature_that_verifies_and_the_same_id_each_time() {
    let (address, received) = receiver().await;
    let settings = settings();
    let public = settings.key.public();
    let webhook_client = WebhookClient::new(settings).unwrap();
    let expected = Delivered { status: 202, address: Some(address) };
    assert_eq!(send(&webhook_client, address, "/").await, Ok(expected));
    assert_eq!(send(&webhook_client, address, "/").await, Ok(expected));

    let received = received.lock().unwrap();
    assert_eq!(received.len(), 2);
    for (headers, body) in received.iter() {
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        assert_eq!(&body[..], br#"{"policy":"ttl"}"#);
        assert_eq!(header("webhook-id"), "firing-1");
        assert_eq!(header("webhook-timestamp"), now().as_second().to_string());
        assert_eq!(public.verify("firing-1", now().as_second(), body, &header("webhook-signature")), Ok(()));
        assert_eq!(header("content-type"), "application/json");
        assert_eq!(header("user-agent"), concat!("coppice/", env!("CARGO_PKG_VERSION")));
        assert_eq!(header("content-length"), "16");
    }
}

#[tokio::test]
async fn a_redirect_is_an_error_and_is_not_followed() {
    let (address, received) = receiver().await;
    let error = send(&webhook_client(), address, "/moved").await.unwrap_err();
    assert_eq!(error, SendError::Redirect { code: 302 });
    assert!(error.to_string().contains("never followed"), "{error}");
    assert!(received.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_of_500_is_an_error_with_its_code() {
    let (address, _) = receiver().await;
    let error = send(&webhook_client(), address, "/broken").await.unwrap_err();
    assert_eq!(
        error,
        SendError::Status { code: 500, excerpt: "no [31m luck today".into(), retry_after: None }
    );
    assert_eq!(error.to_string(), "the webhook receiver answered 500");
    assert!(!error.is_permanent());
}

#[tokio::test]
async fn a_receiver_may_ask_for_a_delay_or_for_an_end() {
    let (address, _) = receiver().await;
    let busy = send(&webhook_client(), address, "/busy").await.unwrap_err();
    assert_eq!((busy.retry_after(), busy.is_permanent()), (Some(Duration::from_secs(90)), false));
    assert!(send(&webhook_client(), address, "/gone").await.unwrap_err().is_permanent());
}

#[tokio::test]
async fn a_receiver_that_hangs_is_given_up() {
    let (address, _) = receiver().await;
    let after = Duration::from_millis(200);
    let webhook_client = WebhookClient::new(WebhookSettings { timeout: after, ..settings() }).unwrap();
    let error = send(&webhook_client, address, "/hang").await.unwrap_err();
    assert_eq!(error, SendError::Timeout { after });
    assert_eq!(error.to_string(), "the webhook receiver did not answer within 0.2 s");
}

#[tokio::test]
async fn endless_answers_do_not_hurt() {
    let (address, _) = receiver().await;
    assert_eq!(send(&webhook_client(), address, "/endless").await.map(|delivered| delivered.status), Ok(200));
    let error = send(&webhook_client(), address, "/endless-error").await.unwrap_err();
    assert_eq!(error, SendError::Status { code: 502, excerpt: "x".repeat(200), retry_after: None });
}

#[tokio::test]
async fn an_answer_whose_body_never_comes_is_delivered() {
    let address = raw_receiver(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").await;
    let webhook_client = webhook_client();
    let sent = tokio::time::timeout(Duration::from_secs(30), send(&webhook_client, address, "/")).await;
    assert_eq!(sent.map(|sent| sent.map(|delivered| delivered.status)), Ok(Ok(200)));
}

#[tokio::test]
async fn a_listener_that_does_not_speak_http_is_an_error() {
    let address = raw_receiver(b"220 mail.example ESMTP\r\n").await;
    let error = send(&webhook_client(), address, "/").await.unwrap_err();
    assert!(matches!(error, SendError::Broken { .. }), "{error:?}");
    let text = "the webhook receiver closed the connection or did not answer as HTTP does";
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn a_closed_port_is_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = send(&webhook_client(), address, "/").await.unwrap_err();
    assert!(matches!(&error, SendError::Connect { why: NoConnection::Refused, .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "no connection to the webhook receiver: it is refused; check the port, and that the receiver runs"
    );
}

#[tokio::test]
async fn a_name_that_leads_to_loopback_is_refused_even_if_it_is_listed() {
    let (address, received) = receiver().await;
    let url = format!("http://localhost:{}/", address.port());
    let refused = webhook_client().send(request(&url, &["localhost"])).await.unwrap_err();
    let SendError::Refused(DestinationError::SpecialAddress { host, special, .. }) = &refused else {
        panic!("{refused}")
    };
    assert_eq!((host.as_str(), *special), ("localhost", Special::Loopback));
    assert!(refused.is_permanent());
    assert!(received.lock().unwrap().is_empty());
    // localhost may lead to either of them.
    let listed = webhook_client().send(request(&url, &["localhost", "127.0.0.0/8", "::1"])).await;
    assert_eq!(listed.map(|delivered| delivered.address), Ok(Some(address)));
}

#[tokio::test]
async fn a_host_that_is_not_listed_is_not_resolved() {
    let leads = FixedResolver::to(&["127.0.0.1:80".parse().unwrap()]);
    let webhook_client = WebhookClient::new(WebhookSettings { lookup: leads.clone(), ..settings() }).unwrap();
    // It is sent for namespace team-a.
    for (url, entry) in [("http://evil.example/", "*.svc"), ("http://hook.team-b.svc/", "*.{namespace}.svc")]
    {
        let error = webhook_client.send(request(url, &[entry])).await.unwrap_err();
        assert!(matches!(error, SendError::Refused(DestinationError::HostNotListed { .. })), "{error:?}");
    }
    assert_eq!(leads.lookups(), 0);
}

#[tokio::test]
async fn every_list_has_to_permit_host_and_address() {
    let (address, received) = receiver().await;
    let url = format!("http://localhost:{}/", address.port());
    let open = ["localhost", "127.0.0.0/8", "::1"];
    for (second, refused) in [
        (&["other"][..], "is not on the list"),
        (
            &["localhost"],
            "which no name may lead to; only the address itself in spec.limits.webhookHosts would",
        ),
    ] {
        let mut both = request(&url, &open);
        let second = request(&url, second).allow.remove(0).of_setting("spec.limits.webhookHosts");
        both.allow.push(second);
        let error = webhook_client().send(both).await.unwrap_err();
        assert!(error.to_string().contains(refused), "{error}");
    }
    assert!(received.lock().unwrap().is_empty());
    let mut both = request(&url, &open);
    both.allow.push(both.allow[0].clone());
    assert!(webhook_client().send(both).await.is_ok());
}

#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_checked() {
    let (address, received) = receiver().await;
    let leads = FixedResolver::to(&[address]);
    let webhook_client = WebhookClient::new(WebhookSettings { lookup: leads.clone(), ..settings() }).unwrap();
    // No resolver but ours knows this name, and it is asked once.
    let url = format!("http://hook.team.svc:{}/", address.port());
    let sent = webhook_client.send(request(&url, &["*.svc", "127.0.0.1"])).await;
    assert_eq!(sent.map(|delivered| delivered.address), Ok(Some(address)));
    assert_eq!((leads.lookups(), received.lock().unwrap().len()), (1, 1));
    // The name moves: what an earlier attempt was allowed counts for nothing.
    *leads.to.lock().unwrap() = vec![address, "169.254.169.254:80".parse().unwrap()];
    let error = webhook_client.send(request(&url, &["*.svc", "127.0.0.1"])).await.unwrap_err();
    assert!(
        matches!(
            error,
            SendError::Refused(DestinationError::SpecialAddress { special: Special::Metadata, .. })
        ),
        "{error:?}"
    );
    assert_eq!(received.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_trailing_dot_is_the_same_host() {
    let (address, received) = receiver().await;
    let webhook_client =
        WebhookClient::new(WebhookSettings { lookup: FixedResolver::to(&[address]), ..settings() }).unwrap();
    let url = format!("http://hook.team.svc.:{}/", address.port());
    assert!(webhook_client.send(request(&url, &["*.svc", "127.0.0.1"])).await.is_ok());
    assert_eq!(received.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_name_without_addresses_is_not_resolved() {
    let webhook_client =
        WebhookClient::new(WebhookSettings { lookup: FixedResolver::to(&[]), ..settings() }).unwrap();
    let error = webhook_client.send(request("http://hook.svc/", &["*.svc"])).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the webhook host \"hook.svc\" cannot be resolved: check the name, and that the Service exists"
    );
    assert!(!error.is_permanent());
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_at_once() {
    let mut large = request("http://10.0.0.1/", &["10.0.0.1"]);
    large.body = vec![b' '; MAX_BODY_BYTES + 1];
    assert_eq!(webhook_client().send(large).await, Err(SendError::TooLarge { bytes: MAX_BODY_BYTES + 1 }));
    for id in ["", "a.b", "a b", "a\r\nx: y", &"a".repeat(129)] {
        let mut bad = request("http://10.0.0.1/", &["10.0.0.1"]);
        id.clone_into(&mut bad.id);
        assert_eq!(webhook_client().send(bad).await, Err(SendError::Id { id: id.to_owned() }));
    }
}
