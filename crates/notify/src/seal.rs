//! Addresses in records that others may read: sealed with a key that follows from the operator's signing key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::hmac;

use crate::key::SigningKey;

/// What keys are derived for: others from the same secret have other names.
const PURPOSE: &[u8] = b"coppice.dev/recipients/v1";
/// The same for digests of addresses.
const DIGESTS: &[u8] = b"coppice.dev/recipient-digests/v1";

/// Seals and opens addresses. Another signing key opens none of them.
pub struct Seal {
    cipher: LessSafeKey,
    /// Makes nonces: the same for the same address and message, so that nothing random is needed, and never one for two texts.
    nonces: hmac::Key,
    digest_secret: [u8; 32],
}

/// A length of what is derived.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

impl Seal {
    /// The seal that follows from a signing key; none if it cannot be derived, which does not happen.
    pub fn new(key: &SigningKey) -> Option<Self> {
        let mut derived = [0; 64];
        let secret = Salt::new(HKDF_SHA256, &[]).extract(key.seed());
        secret.expand(&[PURPOSE], Bytes(derived.len())).ok()?.fill(&mut derived).ok()?;
        let mut digest_secret = [0; 32];
        secret.expand(&[DIGESTS], Bytes(digest_secret.len())).ok()?.fill(&mut digest_secret).ok()?;
        let (cipher, nonces) = derived.split_at(32);
        let cipher = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, cipher).ok()?);
        Some(Self { cipher, nonces: hmac::Key::new(hmac::HMAC_SHA256, nonces), digest_secret })
    }

    /// The secret for digests of addresses, by which records tell them apart.
    pub const fn digest_secret(&self) -> &[u8; 32] {
        &self.digest_secret
    }

    /// Seals the address of the message with this id, as base64; none if it cannot be, which does not happen.
    pub fn seal(&self, id: &str, address: &str) -> Option<String> {
        let nonce = self.nonce(id, address);
        let mut sealed = address.as_bytes().to_vec();
        let with = Nonce::assume_unique_for_key(nonce);
        self.cipher.seal_in_place_append_tag(with, Aad::from(id.as_bytes()), &mut sealed).ok()?;
        Some(STANDARD.encode([&nonce, &*sealed].concat()))
    }

    /// The address that was sealed for the message with this id; none if it was not, or by another key.
    pub fn open(&self, id: &str, sealed: &str) -> Option<String> {
        let bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let with = Nonce::assume_unique_for_key(*nonce);
        let opened = self.cipher.open_in_place(with, Aad::from(id.as_bytes()), &mut sealed).ok()?;
        String::from_utf8(opened.to_vec()).ok()
    }

    fn nonce(&self, id: &str, address: &str) -> [u8; NONCE_LEN] {
        let mut context = hmac::Context::with_key(&self.nonces);
        // Ids are hexadecimal and have no zero in them.
        for part in [id.as_bytes(), &[0], address.as_bytes()] {
            context.update(part);
        }
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&context.sign().as_ref()[..NONCE_LEN]);
        nonce
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::SystemRandom;

    #[test]
    fn only_the_same_key_opens_what_was_sealed_for_the_same_message() {
        let seal = || Seal::new(&SigningKey::generate(&SystemRandom::new()).unwrap()).unwrap();
        let (ours, other) = (seal(), seal());
        let sealed = ours.seal("notice-1", "grace@example.org").unwrap();
        assert!(!sealed.contains("grace"), "{sealed}");
        assert_eq!(ours.seal("notice-1", "grace@example.org").as_ref(), Some(&sealed), "the same each time");
        assert_ne!(ours.seal("notice-1", "grace@example.com").unwrap()[..16], sealed[..16], "no nonce twice");
        assert_eq!(ours.open("notice-1", &sealed).as_deref(), Some("grace@example.org"));
        assert_eq!(ours.open("notice-2", &sealed), None);
        assert_eq!(other.open("notice-1", &sealed), None);
        for nonsense in ["", "AAAA", "%", &sealed[..20]] {
            assert_eq!(ours.open("notice-1", nonsense), None, "{nonsense}");
        }
    }
}
