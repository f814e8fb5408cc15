//! Kubeconfigs: which are used to issue credentials, and those that are written.
//!
//! Of a kubeconfig that others wrote only the fields that are named here are used: it must not run a program, read a file, or
//! send a credential unprotected.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The longest kubeconfig that is read, in bytes.
const MAX_BYTES: usize = 256 << 10;

/// A cluster, and who speaks there.
#[derive(Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    /// The cluster.
    pub cluster: Cluster,
    /// Who speaks.
    pub user: User,
}

/// Where a cluster is, and by what it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The URL of its API server.
    pub server: String,
    /// Its certificate authorities in base64; none for those that the system trusts.
    pub authorities: Option<String>,
    /// The name in its certificate, where that is not the host of the URL.
    pub server_name: Option<String>,
}

/// A credential.
#[derive(Clone, PartialEq, Eq)]
pub enum User {
    /// A bearer token.
    Token(String),
    /// A client certificate and its key, in base64.
    Certificate {
        /// The certificate.
        certificate: String,
        /// The key.
        key: String,
    },
}

impl Cluster {
    /// The SHA-256 of where it is and of what it is known by, in hexadecimal digits: no credential is in it.
    pub fn endpoint(&self) -> String {
        let of = |text: &Option<String>| text.clone().unwrap_or_default();
        sha256(format!("{}\n{}\n{}", self.server, of(&self.authorities), of(&self.server_name)).as_bytes())
    }
}

/// Without the credential.
impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Wire {
    current_context: String,
    clusters: Vec<Named>,
    contexts: Vec<Named>,
    users: Vec<Named>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    cluster: Value,
    context: Value,
    user: Value,
}

/// To which servers a credential may go unencrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unencrypted {
    /// To none.
    #[default]
    Nowhere,
    /// To this machine, where tests have proxies that read what is sent.
    ToLoopback,
}

/// Why a kubeconfig is not used, and what to write instead. Nothing of any credential is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// It is not UTF-8.
    #[error("it is no text")]
    NotText,
    /// It is longer than any that is read.
    #[error("it has more than {MAX_BYTES} bytes: write one with a single context")]
    TooLong,
    /// It has not the form of one.
    #[error("it is no kubeconfig: write one as kubectl reads it")]
    NotKubeconfig,
    /// Its current context is none of its contexts.
    #[error("current-context: write the name of one of its contexts")]
    NoContext,
    /// What its current context names is not there.
    #[error("the {what} of its current context is not among its {what}s")]
    NotListed {
        /// `cluster` or `user`.
        what: &'static str,
    },
    /// Data that is not base64.
    #[error("{field} is no base64")]
    NotBase64 {
        /// The field with it.
        field: &'static str,
    },
    /// A field that is not used.
    #[error("{field} of a {what} is not supported: leave it out")]
    Unsupported {
        /// `cluster` or `user`.
        what: &'static str,
        /// Its name, if kubeconfigs have such a field.
        field: &'static str,
    },
    /// The certificate authorities would be read from a file.
    #[error("certificate-authority names a file: write certificate-authority-data")]
    AuthorityFile,
    /// The server would not have to prove who it is.
    #[error("insecure-skip-tls-verify would send credentials to anybody: write certificate-authority-data")]
    Unverified,
    /// There is no server.
    #[error("the cluster has no server")]
    NoServer,
    /// The credential would be sent unprotected.
    #[error(
        "server: write an https:// URL without a user, a query or a fragment; by http:// the credential could be read on its way"
    )]
    Unprotected,
    /// A program would be run.
    #[error(
        "the user's credential comes from a program, which is not run: write a token, or client-certificate-data and client-key-data"
    )]
    CredentialProgram,
    /// The credential would be read from a file.
    #[error(
        "the user's credential is in a file, which is not read: write token, or client-certificate-data and client-key-data"
    )]
    CredentialFile,
    /// The credential is a password.
    #[error(
        "no API server takes a password any more: write a token, or client-certificate-data and client-key-data"
    )]
    Password,
    /// The token could not be sent in a header.
    #[error("the token has characters that no token has")]
    TokenCharacters,
    /// There is neither a token nor a certificate with its key.
    #[error("the user has no credential: write a token, or client-certificate-data and client-key-data")]
    NoCredential,
}

/// Reads a kubeconfig.
///
/// # Errors
/// If it is not used.
pub fn parse(value: &[u8], unencrypted: Unencrypted) -> Result<Kubeconfig, KubeconfigError> {
    let text = std::str::from_utf8(value).map_err(|_| KubeconfigError::NotText)?;
    if text.len() > MAX_BYTES {
        return Err(KubeconfigError::TooLong);
    }
    // The error of the parser may quote what it read.
    let wire: Wire = serde_yaml::from_str(text).map_err(|_| KubeconfigError::NotKubeconfig)?;
    let context = wire
        .contexts
        .iter()
        .find(|context| context.name == wire.current_context)
        .ok_or(KubeconfigError::NoContext)?;
    let named = |what: &'static str, all: &[Named], pick: fn(&Named) -> &Value| {
        let name = context.context[what].as_str().unwrap_or_default();
        let found = all.iter().find(|named| named.name == name).map(|named| pick(named).clone());
        found.ok_or(KubeconfigError::NotListed { what })
    };
    let cluster = cluster(&named("cluster", &wire.clusters, |named| &named.cluster)?, unencrypted)?;
    let user = user(&named("user", &wire.users, |named| &named.user)?)?;
    Ok(Kubeconfig { cluster, user })
}

/// The fields of an object, without those that are null or empty.
fn fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let is_set = |value: &Value| !(value.is_null() || value == "" || value == false || *value == json!([]));
    value
        .as_object()
        .into_iter()
        .flatten()
        .filter(move |(_, value)| is_set(value))
        .map(|(k, v)| (k.as_str(), v))
}

fn text(value: &Value, field: &str) -> Option<String> {
    value[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Data in base64.
fn data(value: &Value, field: &'static str) -> Result<Option<String>, KubeconfigError> {
    let Some(text) = text(value, field) else { return Ok(None) };
    let decodes = BASE64_STANDARD.decode(&text).is_ok();
    decodes.then_some(Some(text)).ok_or(KubeconfigError::NotBase64 { field })
}

fn cluster(value: &Value, unencrypted: Unencrypted) -> Result<Cluster, KubeconfigError> {
    for (field, _) in fields(value) {
        match field {
            "server"
            | "certificate-authority-data"
            | "tls-server-name"
            | "extensions"
            | "disable-compression" => {}
            "certificate-authority" => return Err(KubeconfigError::AuthorityFile),
            "insecure-skip-tls-verify" => return Err(KubeconfigError::Unverified),
            other => {
                return Err(KubeconfigError::Unsupported { what: "cluster", field: known(other) });
            }
        }
    }
    let server = text(value, "server").ok_or(KubeconfigError::NoServer)?;
    if !is_protected(&server, unencrypted) {
        return Err(KubeconfigError::Unprotected);
    }
    Ok(Cluster {
        server: server.trim_end_matches('/').to_owned(),
        authorities: data(value, "certificate-authority-data")?,
        server_name: text(value, "tls-server-name"),
    })
}

/// A field of kubeconfigs as it is known, so that no error quotes what somebody wrote in the wrong place.
fn known(field: &str) -> &'static str {
    const KNOWN: [&str; 6] = ["proxy-url", "as", "as-uid", "as-groups", "as-user-extra", "impersonate"];
    KNOWN.into_iter().find(|known| *known == field).unwrap_or("a field")
}

/// Encrypted, or to this machine if that is permitted.
fn is_protected(server: &str, unencrypted: Unencrypted) -> bool {
    let plain = server.bytes().all(|byte| byte.is_ascii_graphic() && !b"@?#\\\"".contains(&byte));
    let loopback = ["http://127.0.0.1", "http://[::1]"].iter().any(|start| {
        server.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
    });
    let encrypted =
        server.strip_prefix("https://").is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    plain && (encrypted || (loopback && unencrypted == Unencrypted::ToLoopback))
}

fn user(value: &Value) -> Result<User, KubeconfigError> {
    for (field, _) in fields(value) {
        match field {
            "token" | "client-certificate-data" | "client-key-data" | "extensions" => {}
            "exec" | "auth-provider" => return Err(KubeconfigError::CredentialProgram),
            "tokenFile" | "client-certificate" | "client-key" => return Err(KubeconfigError::CredentialFile),
            "username" | "password" => return Err(KubeconfigError::Password),
            other => return Err(KubeconfigError::Unsupported { what: "user", field: known(other) }),
        }
    }
    if let Some(token) = text(value, "token") {
        let one_line = token.bytes().all(|byte| byte.is_ascii_graphic());
        return one_line.then_some(User::Token(token)).ok_or(KubeconfigError::TokenCharacters);
    }
    match (data(value, "client-certificate-data")?, data(value, "client-key-data")?) {
        (Some(certificate), Some(key)) => Ok(User::Certificate { certificate, key }),
        _ => Err(KubeconfigError::NoCredential),
    }
}

impl Kubeconfig {
    /// A kubeconfig with these fields alone, as YAML; the same fields make the same text.
    pub fn text(&self) -> String {
        let mut cluster = json!({"server": self.cluster.server});
        if let Some(authorities) = &self.cluster.authorities {
            cluster["certificate-authority-data"] = json!(authorities);
        }
        if let Some(name) = &self.cluster.server_name {
            cluster["tls-server-name"] = json!(name);
        }
        let user = match &self.user {
            User::Token(token) => json!({"token": token}),
            User::Certificate { certificate, key } => {
                json!({"client-certificate-data": certificate, "client-key-data": key})
            }
        };
        let name = "coppice";
        // A text in JSON is one in YAML.
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\nclusters:\n- name: {name}\n  cluster: {cluster}\nusers:\n\
             - name: {name}\n  user: {user}\ncontexts:\n- name: {name}\n  context: {{\"cluster\": \"{name}\", \"user\": \"{name}\"}}\n"
        )
    }

    /// The same cluster, and somebody else.
    #[must_use]
    pub fn with_user(&self, user: User) -> Self {
        Self { cluster: self.cluster.clone(), user }
    }
}

/// The SHA-256 of a value, in hexadecimal digits.
pub fn sha256(value: &[u8]) -> String {
    Sha256::digest(value).iter().fold(String::new(), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: k, cluster: {cluster}}}]\n\
             users: [{{name: u, user: {user}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u, namespace: default}}}}]\n"
        )
    }

    fn read(text: &str) -> Result<Kubeconfig, KubeconfigError> {
        parse(text.as_bytes(), Unencrypted::Nowhere)
    }

    const CLUSTER: &str = "{server: 'https://10.0.0.1:6443/', certificate-authority-data: Y2E=}";
    const USER: &str = "{token: secret-token}";

    #[test]
    fn what_is_written_reads_back() {
        let found = read(&config(CLUSTER, USER)).unwrap();
        assert_eq!(found.cluster.server, "https://10.0.0.1:6443");
        assert!(found.user == User::Token("secret-token".to_owned()));
        let issued = found.with_user(User::Token("another".to_owned()));
        assert_eq!(read(&issued.text()).unwrap(), issued);
        let certificate = config(CLUSTER, "{client-certificate-data: Yw==, client-key-data: aw==}");
        let found = read(&certificate).unwrap();
        assert_eq!(read(&found.text()).unwrap(), found);
        assert!(!format!("{found:?}").contains("aw=="));
    }

    #[test]
    fn nothing_is_run_or_read_and_no_credential_goes_out_unprotected() {
        let refused = |cluster: &str, user: &str| read(&config(cluster, user)).unwrap_err().to_string();
        for (user, says) in [
            ("{exec: {command: sh}, token: t}", "is not run"),
            ("{auth-provider: {name: gcp}}", "is not run"),
            ("{tokenFile: /var/run/secrets/token}", "is not read"),
            ("{client-certificate: /a, client-key: /b}", "is not read"),
            ("{username: a, password: b}", "password"),
            ("{token: t, as: admin}", "as of a user is not supported"),
            ("{token: t, secret-token: x}", "a field of a user is not supported"),
            ("{client-certificate-data: Yw==}", "no credential"),
            ("{client-certificate-data: '%', client-key-data: aw==}", "no base64"),
            ("{token: \"a\\nb\"}", "characters"),
            ("{}", "no credential"),
        ] {
            let error = refused(CLUSTER, user);
            assert!(error.contains(says), "{user}: {error}");
        }
        for (cluster, says) in [
            ("{server: 'http://10.0.0.1'}", "https://"),
            ("{server: 'http://127.0.0.1:8080'}", "https://"),
            ("{server: 'http://[::1]'}", "https://"),
            ("{server: 'https://user@10.0.0.1'}", "https://"),
            ("{server: 'file:///etc/passwd'}", "https://"),
            ("{}", "no server"),
            ("{server: 'https://a', insecure-skip-tls-verify: true}", "anybody"),
            ("{server: 'https://a', certificate-authority: /ca.crt}", "names a file"),
            ("{server: 'https://a', proxy-url: 'http://b'}", "proxy-url of a cluster is not supported"),
        ] {
            let error = refused(cluster, USER);
            assert!(error.contains(says), "{cluster}: {error}");
        }
        assert_eq!(read("no: [yaml").unwrap_err(), KubeconfigError::NotKubeconfig);
        assert_eq!(read("{}").unwrap_err(), KubeconfigError::NoContext);
        assert_eq!(parse(&[0xff], Unencrypted::Nowhere).unwrap_err(), KubeconfigError::NotText);
        let without_cluster = config(CLUSTER, USER).replace("cluster: k", "cluster: z");
        let error = read(&without_cluster).unwrap_err().to_string();
        assert_eq!(error, "the cluster of its current context is not among its clusters");
    }

    #[test]
    fn a_loopback_address_needs_no_encryption_where_that_is_permitted() {
        let read = |server: &str| {
            let text = config(&format!("{{server: '{server}'}}"), USER);
            parse(text.as_bytes(), Unencrypted::ToLoopback).is_ok()
        };
        assert!(read("http://127.0.0.1:8080") && read("http://[::1]"));
        assert!(!read("http://127.0.0.1.example.org") && !read("http://10.0.0.1"));
    }

    #[test]
    fn an_endpoint_is_the_server_with_its_authorities_whoever_speaks_there() {
        let endpoint = |cluster: &str, user: &str| read(&config(cluster, user)).unwrap().cluster.endpoint();
        let known = endpoint(CLUSTER, USER);
        assert_eq!(endpoint(CLUSTER, "{token: another}"), known);
        for other in [
            "{server: 'https://10.0.0.2:6443', certificate-authority-data: Y2E=}",
            "{server: 'https://10.0.0.1:6443', certificate-authority-data: Y2I=}",
            "{server: 'https://10.0.0.1:6443', certificate-authority-data: Y2E=, tls-server-name: a}",
        ] {
            assert_ne!(endpoint(other, USER), known, "{other}");
        }
    }
}
