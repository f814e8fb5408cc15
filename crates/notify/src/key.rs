//! The operator's signing key, written and used as Standard Webhooks says: ed25519, `whsk_` and `whpk_`, signatures `v1a`.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::rand::SecureRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use thiserror::Error;

pub use ring::rand::SystemRandom;

const SECRET_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";
const SIGNATURE_PREFIX: &str = "v1a,";

/// Reads base64 with or without padding, because keys are copied by hand.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The secret key that webhooks are signed with. `Debug` shows its public half only.
pub struct SigningKey {
    seed: [u8; 32],
    pair: Ed25519KeyPair,
}

impl SigningKey {
    /// Makes a new key of 32 random bytes.
    pub fn generate(random: &dyn SecureRandom) -> Result<Self, KeyError> {
        let mut seed = [0; 32];
        random.fill(&mut seed).map_err(|_| KeyError::Random)?;
        Self::from_seed(seed)
    }

    /// Reads `whsk_` and base64 of the 32-byte seed, or of seed and public key together (64 bytes) as other libraries write it.
    pub fn from_secret(text: &str) -> Result<Self, KeyError> {
        let bytes = decode(text, SECRET_PREFIX)?;
        let Some((seed, public)) = bytes.split_first_chunk::<32>() else {
            return Err(KeyError::Length { bytes: bytes.len(), expected: "32 or 64" });
        };
        match public.len() {
            0 => Self::from_seed(*seed),
            32 => {
                let pair =
                    Ed25519KeyPair::from_seed_and_public_key(seed, public).map_err(|_| KeyError::Mismatch)?;
                Ok(Self { seed: *seed, pair })
            }
            _ => Err(KeyError::Length { bytes: bytes.len(), expected: "32 or 64" }),
        }
    }

    fn from_seed(seed: [u8; 32]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError::Mismatch)?;
        Ok(Self { seed, pair })
    }

    /// The secret as [`SigningKey::from_secret`] reads it, with the 32-byte seed. It belongs into a Secret and nowhere else.
    pub fn to_secret(&self) -> String {
        format!("{SECRET_PREFIX}{}", STANDARD.encode(self.seed))
    }

    /// What other keys are derived from.
    pub(crate) const fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// The public half, which anyone may read.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey { bytes }
    }

    /// Signs one attempt: `v1a,` and base64 of the signature over `{id}.{timestamp}.{body}`.
    ///
    /// `timestamp` is the attempt's, in seconds since 1970. The id must not contain a dot, or two different messages could have
    /// the same signature.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let signature = self.pair.sign(&signed_content(id, timestamp, body));
        format!("{SIGNATURE_PREFIX}{}", STANDARD.encode(signature))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public()).finish_non_exhaustive()
    }
}

/// The public key that receivers check signatures with; shown and read as `whpk_` and base64 of its 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey {
    bytes: [u8; 32],
}

impl PublicKey {
    /// Checks the value of a `webhook-signature` header, a list separated by spaces of which one must be right.
    ///
    /// It does not check the timestamp's age: a receiver must refuse timestamps far from its own clock, or a recorded request could
    /// be played again.
    pub fn verify(&self, id: &str, timestamp: i64, body: &[u8], signatures: &str) -> Result<(), VerifyError> {
        let key = UnparsedPublicKey::new(&ED25519, &self.bytes);
        let content = signed_content(id, timestamp, body);
        let mut found = false;
        for signature in signatures.split(' ').filter_map(|part| part.strip_prefix(SIGNATURE_PREFIX)) {
            found = true;
            if STANDARD.decode(signature).is_ok_and(|signature| key.verify(&content, &signature).is_ok()) {
                return Ok(());
            }
        }
        Err(if found { VerifyError::Wrong } else { VerifyError::Missing })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC_PREFIX}{}", STANDARD.encode(self.bytes))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = decode(text, PUBLIC_PREFIX)?;
        let length = bytes.len();
        let bytes = bytes.try_into().map_err(|_| KeyError::Length { bytes: length, expected: "32" })?;
        Ok(Self { bytes })
    }
}

/// Why a key could not be made or read. None of these shows any part of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The system gave no random bytes.
    #[error("the system gave no random bytes for a new signing key")]
    Random,
    /// Another kind of key, or none.
    #[error("the key does not begin with {expected:?}")]
    Prefix {
        /// What it should begin with.
        expected: &'static str,
    },
    /// Not base64.
    #[error("the key is not base64 behind its prefix")]
    Base64,
    /// Too short or too long.
    #[error("the key has {bytes} bytes; {expected} are expected")]
    Length {
        /// How many it has.
        bytes: usize,
        /// How many it should have.
        expected: &'static str,
    },
    /// The public half does not belong to the secret one.
    #[error("the two halves of the key do not belong together")]
    Mismatch,
}

/// Why a signature was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum VerifyError {
    /// There is no `v1a` signature.
    #[error("there is no v1a signature")]
    Missing,
    /// There are some, but none is this key's for this message.
    #[error("no v1a signature is right for this message and key")]
    Wrong,
}

fn decode(text: &str, prefix: &'static str) -> Result<Vec<u8>, KeyError> {
    let encoded = text.trim().strip_prefix(prefix).ok_or(KeyError::Prefix { expected: prefix })?;
    LENIENT.decode(encoded).map_err(|_| KeyError::Base64)
}

fn signed_content(id: &str, timestamp: i64, body: &[u8]) -> Vec<u8> {
    let mut content = format!("{id}.{timestamp}.").into_bytes();
    content.extend_from_slice(body);
    content
}

#[cfg(test)]
mod tests {
    use super::{KeyError, PublicKey, SigningKey, SystemRandom, VerifyError};
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    // A key pair and a message published with another implementation; the signature is the example in the specification.
    const SECRET: &str =
        "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
    const PUBLIC: &str = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";
    const SIGNATURE: &str =
        "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn new_key() -> SigningKey {
        SigningKey::generate(&SystemRandom::new()).unwrap()
    }

    #[test]
    fn signs_as_other_implementations_do() {
        let key = SigningKey::from_secret(SECRET).unwrap();
        assert_eq!(key.public().to_string(), PUBLIC);
        assert_eq!(key.sign(ID, AT, BODY), SIGNATURE);
        let public: PublicKey = PUBLIC.parse().unwrap();
        assert_eq!(public.verify(ID, AT, BODY, &format!("v1,AAAA v1a,AAAA {SIGNATURE}")), Ok(()));
    }

    #[test]
    fn a_signature_is_for_one_message_and_one_key() {
        let key = new_key();
        let signature = key.sign("a", 1, b"body");
        let public = key.public();
        assert_eq!(public.verify("a", 1, b"body", &signature), Ok(()));
        for (id, at, body) in [("b", 1, &b"body"[..]), ("a", 2, b"body"), ("a", 1, b"Body")] {
            assert_eq!(public.verify(id, at, body, &signature), Err(VerifyError::Wrong));
        }
        assert_eq!(new_key().public().verify("a", 1, b"body", &signature), Err(VerifyError::Wrong));
        assert_eq!(public.verify("a", 1, b"body", "v1,abc"), Err(VerifyError::Missing));
        assert_eq!(public.verify("a", 1, b"body", "v1a,%"), Err(VerifyError::Wrong));
    }

    #[test]
    fn a_key_survives_being_written_and_read() {
        let key = new_key();
        let secret = key.to_secret();
        for text in [secret.clone(), format!(" {secret}\n"), secret.trim_end_matches('=').to_owned()] {
            assert_eq!(SigningKey::from_secret(&text).unwrap().public(), key.public());
        }
        assert_eq!(key.public().to_string().parse(), Ok(key.public()));
        assert_ne!(key.public(), new_key().public());
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let mut pair = STANDARD.decode(&SECRET["whsk_".len()..]).unwrap();
        pair[40] ^= 1;
        let cases = [
            (PUBLIC.to_owned(), KeyError::Prefix { expected: "whsk_" }),
            (String::new(), KeyError::Prefix { expected: "whsk_" }),
            ("whsk_!".to_owned(), KeyError::Base64),
            ("whsk_AAAA".to_owned(), KeyError::Length { bytes: 3, expected: "32 or 64" }),
            (
                format!("whsk_{}", STANDARD.encode([0; 33])),
                KeyError::Length { bytes: 33, expected: "32 or 64" },
            ),
            (format!("whsk_{}", STANDARD.encode(pair)), KeyError::Mismatch),
        ];
        for (text, expected) in cases {
            assert_eq!(SigningKey::from_secret(&text).unwrap_err(), expected);
        }
        assert_eq!("whpk_AAAA".parse::<PublicKey>(), Err(KeyError::Length { bytes: 3, expected: "32" }));
    }

    #[test]
    fn debug_shows_no_secret() {
        let key = SigningKey::from_secret(SECRET).unwrap();
        assert_eq!(format!("{key:?}"), format!("SigningKey {{ public: {PUBLIC}, .. }}"));
    }
}
