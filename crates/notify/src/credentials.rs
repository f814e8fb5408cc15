//! Credentials: files of mounted Secrets, read again for every attempt, so that a rotated one is used at once.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The largest file that is read, in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// The directory with the credentials of channels; none if the operator has none.
#[derive(Clone, Debug, Default)]
pub struct Credentials(Option<PathBuf>);

/// What a file holds. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// The text. It belongs into a request and nowhere else.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Why a credential cannot be had. None of these shows any part of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CredentialError {
    /// The operator has no directory of credentials.
    #[error("the credential {name:?} is not there: the operator runs without --credentials-dir")]
    NoDirectory {
        /// The name of the file.
        name: String,
    },
    /// No name of a file in the directory.
    #[error("{name:?} is no name of a file in the operator's --credentials-dir")]
    Name {
        /// The name as written.
        name: String,
    },
    /// There is no such file.
    #[error("the operator's --credentials-dir has no file {name:?}: add the key to the mounted Secret")]
    Missing {
        /// The name of the file.
        name: String,
    },
    /// It cannot be read.
    #[error("the operator cannot read {name:?} in its --credentials-dir: {why}")]
    Unreadable {
        /// The name of the file.
        name: String,
        /// The kind of the error.
        why: ErrorKind,
    },
    /// Empty, too large, or not text.
    #[error("{name:?} in the operator's --credentials-dir is {why}")]
    Content {
        /// The name of the file.
        name: String,
        /// What it is.
        why: &'static str,
    },
}

impl Credentials {
    /// The files of a directory.
    pub fn of_directory(directory: Option<PathBuf>) -> Self {
        Self(directory)
    }

    /// What a file holds, without white space around it.
    pub(crate) async fn read(&self, name: &str) -> Result<Secret, CredentialError> {
        let owned = || name.to_owned();
        let Some(directory) = &self.0 else { return Err(CredentialError::NoDirectory { name: owned() }) };
        // Whoever writes CoppiceConfig must not have another file sent anywhere, such as the token of the operator's account.
        if !is_name(name) {
            return Err(CredentialError::Name { name: owned() });
        }
        let bytes = read(&directory.join(name)).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound => CredentialError::Missing { name: owned() },
            why => CredentialError::Unreadable { name: owned(), why },
        })?;
        let content = |why| CredentialError::Content { name: owned(), why };
        if bytes.len() > MAX_BYTES {
            return Err(content("larger than 256 KiB"));
        }
        let text = String::from_utf8(bytes).map_err(|_| content("no text"))?;
        match text.trim() {
            "" => Err(content("empty")),
            text => Ok(Secret(text.to_owned())),
        }
    }
}

async fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    use tokio::io::AsyncReadExt as _;
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_BYTES + 1).unwrap_or(u64::MAX);
    tokio::fs::File::open(path).await?.take(most).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// As keys of Secrets are written; a leading `..` is what the kubelet keeps for itself.
fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    matches!(name.len(), 1..=253) && name != "." && !name.starts_with("..") && name.bytes().all(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_of_the_directory_are_read_again_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("credentials");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(folder.path().join("outside"), "secret").unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(directory.join(name), bytes).unwrap();
        write("slack-token", b"xoxb-1\n");
        write("empty", b" \n");
        write("binary", &[0xff, 0xfe]);
        write("large", &vec![b'a'; MAX_BYTES + 1]);
        let credentials = Credentials::of_directory(Some(directory.clone()));
        let read = async |name: &str| {
            let read = credentials.read(name).await;
            read.map(|secret| secret.expose().to_owned()).map_err(|error| error.to_string())
        };
        assert_eq!(read("slack-token").await.as_deref(), Ok("xoxb-1"));
        write("slack-token", b"xoxb-2");
        assert_eq!(read("slack-token").await.as_deref(), Ok("xoxb-2"), "a rotated one is used at once");
        for name in ["../outside", "..data", ".", "", "a/b", "/etc/passwd"] {
            let error = read(name).await.unwrap_err();
            assert!(error.contains("no name of a file"), "{name}: {error}");
        }
        for (name, why) in [
            ("missing", "has no file \"missing\": add the key to the mounted Secret"),
            ("empty", "is empty"),
            ("binary", "is no text"),
            ("large", "is larger than 256 KiB"),
        ] {
            let error = read(name).await.unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let none = Credentials::default().read("slack-token").await.unwrap_err().to_string();
        assert!(none.contains("runs without --credentials-dir"), "{none}");
    }
}
