//! Deliberate bugs ([`coppice_mutants`]): what they do instead. Never reached in a program.

use coppice_api::Reason;
use coppice_kinds::SubnamespaceObject;
use coppice_mutants::{remember, remembered};

use crate::admission::Review;
use crate::context::TreeContext;

/// What is let through is kept for it until it is there: nothing else below the same namespace is let through meanwhile.
pub(super) fn reserve(context: &TreeContext, object: &SubnamespaceObject) -> Review {
    let (parent, name) = (&*object.namespace, &*object.name);
    let comes = |kept: &String| {
        let kept = kept.split_once('/').filter(|(above, other)| *above == parent && *other != name);
        kept.is_some_and(|(above, other)| context.subnamespaces.get(above, other).is_none())
    };
    if let Some(kept) = remembered().into_iter().find(comes) {
        return Review::Denied { reason: Reason::QuotaRefused, message: format!("it is kept for {kept}") };
    }
    remember(format!("{parent}/{name}"));
    Review::Allowed
}
