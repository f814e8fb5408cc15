//! Who is notified of what becomes of a namespace.

use coppice_api::channel::RecipientKind;
use coppice_api::notify::MessageDelivery;
use coppice_api::owner::{FallbackRecipient, OwnerAnnotation, OwnerFormat, OwnerSource};
use coppice_mutants::{Mutant, active};
use ring::hmac;

use super::owner::ska;
use super::selection::annotation;
use crate::annotations::is_cut;
use crate::digest::hex;
use crate::facts::{AnnotationNotRead, NamespaceFacts};

/// The longest address, which is that of a mailbox by RFC 5321.
const MAX_ADDRESS: usize = 254;

/// Where messages to an owner go, by kind of channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipients {
    /// The owner's own addresses.
    own: Addresses,
    /// Those that are used where the owner has none for any channel.
    fallback: Addresses,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Addresses {
    slack: Option<String>,
    email: Option<String>,
}

impl Addresses {
    fn get(&self, kind: RecipientKind) -> Option<&str> {
        match kind {
            RecipientKind::None => None,
            RecipientKind::Slack => self.slack.as_deref(),
            RecipientKind::Email => self.email.as_deref(),
        }
    }
}

impl Recipients {
    /// The address for a channel of this kind, where those of `all` are the channels that there are; none if there is none.
    pub fn address(&self, kind: RecipientKind, all: &[RecipientKind]) -> Option<&str> {
        let owner_hears =
            all.iter().any(|kind| self.own.get(*kind).is_some()) && !active(Mutant::FallbackFirst);
        if owner_hears { self.own.get(kind) } else { self.fallback.get(kind) }
    }

    /// The address of the fallback for a channel of this kind.
    pub fn fallback(&self, kind: RecipientKind) -> Option<&str> {
        self.fallback.get(kind)
    }
}

/// Where messages about a namespace go. Of several annotations the first counts that has an address of a kind; one that cannot be
/// understood spoils no other.
///
/// # Errors
/// If that depends on an annotation that was not read.
pub fn recipients_of<'a>(
    source: &'a OwnerSource,
    namespace: &NamespaceFacts,
) -> Result<Recipients, AnnotationNotRead<'a>> {
    let OwnerSource { annotations, labels: _, fallback } = source;
    let mut own = Addresses::default();
    for OwnerAnnotation { key, format } in annotations.iter().flatten() {
        // Of a part of it nothing can be said.
        let Some(value) = annotation(namespace, key)?.filter(|value| !is_cut(value)) else { continue };
        match format {
            OwnerFormat::Plain => {}
            OwnerFormat::Ska => own.slack = own.slack.or_else(|| ska(value).and_then(|(_, id)| slack(&id))),
            OwnerFormat::Slack => own.slack = own.slack.or_else(|| slack(value)),
            OwnerFormat::Email => own.email = own.email.or_else(|| email(value)),
        }
    }
    let FallbackRecipient { slack: to_slack, email: to_email } = fallback.clone().unwrap_or_default();
    let fallback =
        Addresses { slack: to_slack.as_deref().and_then(slack), email: to_email.as_deref().and_then(email) };
    Ok(Recipients { own, fallback })
}

/// A member or channel of Slack: an id, or the name of a channel after `#`.
pub(super) fn slack(text: &str) -> Option<String> {
    let text = text.trim();
    let is_id = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    let is_name =
        |name: &str| !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    let valid = match text.strip_prefix('#') {
        Some(name) => is_name(name),
        None => !text.is_empty() && is_id(text),
    };
    (valid && text.len() <= 80).then(|| text.to_owned())
}

/// A mail address: a mailbox of a domain (RFC 5322, 3.2.3, and what RFC 6531 adds to it), so that what passes can be sent to. Whether
/// there is one the mail server knows.
pub(super) fn email(text: &str) -> Option<String> {
    let text = text.trim();
    let (mailbox, domain) = text.rsplit_once('@')?;
    let is_atext = |c: char| {
        let ascii = c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
        ascii || !c.is_ascii() && !c.is_whitespace() && !c.is_control()
    };
    let is_atom = |part: &str| !part.is_empty() && part.chars().all(is_atext);
    let is_label = |part: &str| {
        part.len() <= 63 && part.starts_with(char::is_alphanumeric) && part.ends_with(char::is_alphanumeric)
    };
    let is_mailbox = mailbox.len() <= 64 && mailbox.split('.').all(is_atom);
    let is_domain = domain.split('.').all(|part| is_atom(part) && is_label(part));
    (is_mailbox && is_domain && text.len() <= MAX_ADDRESS).then(|| text.to_owned())
}

/// An address as records show it: enough for whoever knows it, and no more.
pub fn masked(kind: RecipientKind, address: &str) -> String {
    let first = |text: &str| text.chars().next().map(String::from).unwrap_or_default();
    match kind {
        RecipientKind::Email => {
            let (mailbox, domain) = address.rsplit_once('@').unwrap_or((address, ""));
            format!("{}***@{domain}", first(mailbox))
        }
        // A channel is no person.
        RecipientKind::Slack if address.starts_with('#') => address.to_owned(),
        RecipientKind::Slack | RecipientKind::None => {
            let shown: String = address.chars().take(3).collect();
            format!("{shown}***")
        }
    }
}

/// Tells addresses apart that look the same in records, and shows no more of them.
#[derive(Clone, Debug)]
pub struct AddressKey(hmac::Key);

impl AddressKey {
    /// With a secret that is used for nothing else.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The digest of an address for messages about one namespace. Those about another one do not show that it is the same address.
    fn digest(&self, namespace_uid: &str, address: &str) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        // Uids have no zero in them.
        for part in [namespace_uid.as_bytes(), &[0], address.as_bytes()] {
            context.update(part);
        }
        hex(&context.sign().as_ref()[..8])
    }
}

/// A recipient as records have it; neither if the channel itself says who that is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordedRecipient {
    /// The address, masked.
    pub(crate) to: Option<String>,
    /// Which of those that look the same; none if there is no key, or the version that wrote it knew of none.
    pub(crate) digest: Option<String>,
}

impl RecordedRecipient {
    /// This address, for a message about the namespace with this uid.
    pub(crate) fn at(
        (kind, address): (RecipientKind, &str),
        namespace_uid: &str,
        key: Option<&AddressKey>,
    ) -> Self {
        let digest = key.map(|key| key.digest(namespace_uid, address));
        Self { to: Some(masked(kind, address)), digest }
    }

    /// To whom this message goes.
    pub(crate) fn of(message: &MessageDelivery) -> Self {
        Self { to: message.to.clone(), digest: message.to_digest.clone() }
    }

    /// Whether both are one, by what is known of both.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let differ = self.digest.is_some() && other.digest.is_some() && self.digest != other.digest;
        self.to == other.to && !differ
    }

    /// Writes down that the message goes to this one. A digest that cannot be made at present stays.
    pub(crate) fn write_to(self, message: &mut MessageDelivery) {
        if self.digest.is_some() || self.to != message.to {
            message.to_digest = self.digest;
        }
        message.to = self.to;
    }
}

#[cfg(test)]
mod tests {
    use super::email;

    #[test]
    fn only_what_can_be_sent_to_is_an_address() {
        for address in ["a@b", "grace.hopper+ci@example.org", "jürgen@bücher.example", " a@b.c "] {
            assert_eq!(email(address).as_deref(), Some(address.trim()), "{address}");
        }
        let long = format!("{}@example.org", "a".repeat(65));
        for none in [
            "",
            "a",
            "@b",
            "a@",
            "a@b..c",
            ".a@b",
            "a..b@c",
            "a b@c",
            "<a@b>",
            "a@b,c@d",
            "mailto:a@b",
            "a@b:25",
            "a@-b",
            "a@[1.2.3.4]",
            "a@b\n.c",
            &long,
        ] {
            assert_eq!(email(none), None, "{none:?}");
        }
    }
}
