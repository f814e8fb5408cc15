//! Answers that every port has.

use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;

use crate::port::HttpResponse;

/// Text with this status.
pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> HttpResponse {
    let mut page = Response::new(Full::new(text.into()));
    *page.status_mut() = status;
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    page
}

/// There is nothing at this path.
pub(crate) fn nothing() -> HttpResponse {
    text(StatusCode::NOT_FOUND, "nothing is here; / lists what is\n")
}

/// That something else than a read is refused; nothing if it is one.
pub(crate) fn refused_but_read(method: &Method) -> Option<HttpResponse> {
    if method == Method::GET || method == Method::HEAD {
        return None;
    }
    let mut page = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
    page.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    Some(page)
}
