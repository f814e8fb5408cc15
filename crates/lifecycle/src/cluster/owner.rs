//! Who owns a namespace, as records show it. Whom messages go to, `recipient.rs` says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coppice_api::channel::RecipientKind;
use coppice_api::owner::{MAX_OWNER, OwnerAnnotation, OwnerFormat, OwnerSource};

use super::recipient::{email, masked, slack};
use super::selection::annotation;
use crate::annotations::is_cut;
use crate::facts::{AnnotationNotRead, NamespaceFacts};
use crate::record::truncate_text;

/// Who owns a namespace, by the first of its annotations and labels that says so and can be understood; none if none does.
///
/// # Errors
/// If that depends on an annotation that was not read.
pub fn owner_of<'a>(
    source: &'a OwnerSource,
    namespace: &NamespaceFacts,
) -> Result<Option<String>, AnnotationNotRead<'a>> {
    let OwnerSource { annotations, labels, fallback: _ } = source;
    for OwnerAnnotation { key, format } in annotations.iter().flatten() {
        let owner = annotation(namespace, key)?.and_then(|value| understood(value, *format));
        if owner.is_some() {
            return Ok(owner);
        }
    }
    let mut values = labels.iter().flatten().filter_map(|key| namespace.labels.get(key));
    Ok(values.find_map(|value| understood(value, OwnerFormat::Plain)))
}

/// The name and the address in the annotation of the SKA Namespace Manager; none if it cannot be understood.
pub(super) fn ska(value: &str) -> Option<(String, String)> {
    let text = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
    let (name, address) = text.rsplit_once("::")?;
    Some((name.to_owned(), address.to_owned()))
}

/// The owner that a value names; none if it names none.
fn understood(value: &str, format: OwnerFormat) -> Option<String> {
    let owner = match format {
        OwnerFormat::Plain => value.to_owned(),
        // Of a part of it nothing can be said.
        OwnerFormat::Ska | OwnerFormat::Email | OwnerFormat::Slack if is_cut(value) => return None,
        OwnerFormat::Ska => ska(value)?.0,
        OwnerFormat::Email => masked(RecipientKind::Email, &email(value)?),
        OwnerFormat::Slack => masked(RecipientKind::Slack, &slack(value)?),
    };
    let mut owner = owner.trim().to_owned();
    truncate_text(&mut owner, MAX_OWNER as usize);
    (!owner.is_empty()).then_some(owner)
}
