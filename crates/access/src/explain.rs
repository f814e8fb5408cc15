//! Why a target did not do something, in words of our own.
//!
//! Nothing of an answer's text is repeated: a status can be read by those who may not read Secrets, and a target may answer with what it
//! was sent.

use std::error::Error;
use std::io::ErrorKind as Kind;

use coppice_runtime::client::{LengthLimitError, NoResponse};

/// The reasons of the Kubernetes API, which are repeated.
const REASONS: [&str; 19] = [
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "Expired",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "RequestEntityTooLarge",
    "ServerTimeout",
    "ServiceUnavailable",
    "StoreReadError",
    "Timeout",
    "TooManyRequests",
    "Unauthorized",
    "UnsupportedMediaType",
];

/// Why a request got no answer that was asked for.
pub(crate) fn why(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => {
            let reason = REASONS.iter().find(|reason| **reason == status.reason);
            let reason = reason.map_or(String::new(), |reason| format!(" {reason}"));
            format!("{}{reason}: {}", status.code, meaning(status.code))
        }
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
            "its answer is not that of a Kubernetes API server".to_owned()
        }
        error => no_answer(error),
    }
}

/// What a code says to whoever wrote the kubeconfig or the rights.
const fn meaning(code: u16) -> &'static str {
    match code {
        401 => "it does not take the credential of the kubeconfig",
        403 => {
            "the user of the kubeconfig has no right to do that, or does not have the rights that it is to grant"
        }
        404 => "something that it needs does not exist there, such as a namespace",
        409 => "an object of that name, or of another owner, is there already",
        400 | 422 => "it does not accept what was asked for",
        429 => "it has too many requests",
        500.. => "it failed",
        _ => "it refuses",
    }
}

fn no_answer(error: &kube::Error) -> String {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(words) = known(error) {
            return words;
        }
        cause = error.source();
    }
    "it could not be connected to".to_owned()
}

fn known(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(none) = error.downcast_ref::<NoResponse>() {
        return Some(format!("it did not answer within {} s", none.within.as_secs()));
    }
    if error.is::<LengthLimitError>() {
        return Some("its answer is longer than any of a Kubernetes API server".to_owned());
    }
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return Some(unencrypted(tls).to_owned());
    }
    let io = error.downcast_ref::<std::io::Error>()?;
    if let Some(tls) = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return Some(unencrypted(tls).to_owned());
    }
    let words = match io.kind() {
        Kind::ConnectionRefused => "the connection is refused",
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::UnexpectedEof => {
            "the connection broke"
        }
        Kind::TimedOut => "there was no connection in time",
        Kind::HostUnreachable | Kind::NetworkUnreachable => "there is no way to it",
        _ => return None,
    };
    Some(words.to_owned())
}

const fn unencrypted(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(_) => {
            "its certificate is not trusted: compare certificate-authority-data and the server of the kubeconfig with it"
        }
        _ => "no encrypted connection could be made",
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn api(code: u16, reason: &str, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure(message, reason).with_code(code)))
    }

    #[test]
    fn code_and_reason_are_shown_and_nothing_of_the_answer_is_repeated() {
        let shown = why(&api(403, "Forbidden", "users \"x\" with token eyJhbGciOiJ"));
        assert!(shown.starts_with("403 Forbidden: the user of the kubeconfig"), "{shown}");
        for error in [
            api(401, "eyJhbGciOiJ", "Bearer eyJhbGciOiJ"),
            api(500, "", "eyJhbGciOiJ"),
            api(302, "eyJhbGciOiJ", ""),
            kube::Error::SerdeError(serde_json::from_str::<bool>("\"eyJhbGciOiJ\"").unwrap_err()),
            kube::Error::Service(std::io::Error::other("eyJhbGciOiJ").into()),
        ] {
            let shown = why(&error);
            assert!(!shown.contains("eyJ") && !shown.is_empty(), "{shown}");
        }
    }

    #[test]
    fn no_connection_is_explained() {
        let of = |kind: Kind| why(&kube::Error::Service(std::io::Error::from(kind).into()));
        assert_eq!(of(Kind::ConnectionRefused), "the connection is refused");
        assert_eq!(of(Kind::BrokenPipe), "the connection broke");
        let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let tls = std::io::Error::new(Kind::InvalidData, tls);
        assert!(why(&kube::Error::Service(tls.into())).contains("certificate is not trusted"));
    }
}
