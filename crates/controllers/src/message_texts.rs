//! The texts of messages to owners: from the templates of the settings, and from the built-in ones in place of what cannot be used.

use std::sync::{Arc, Mutex, PoisonError};

use coppice_api::channel::MessagesSpec;
use coppice_lifecycle::message::MessageContent;
use coppice_messages::{Overrides, Rendered, TemplateError, Templates};
use jiff::Timestamp;

/// The templates of the settings, compiled once: each is tried with messages of every kind.
#[derive(Default)]
pub(crate) struct MessageTexts(Mutex<Option<Arc<Compiled>>>);

/// The templates of one `spec.messages`.
struct Compiled {
    of: MessagesSpec,
    templates: Templates,
    problems: Vec<String>,
}

impl MessageTexts {
    /// What a message says by mail and in Slack.
    ///
    /// # Errors
    /// If neither the templates of the settings nor the built-in ones can say it.
    pub(crate) fn render(
        &self,
        spec: Option<&MessagesSpec>,
        content: &MessageContent,
        now: Timestamp,
    ) -> Result<Rendered, TemplateError> {
        let cluster = spec.and_then(|spec| spec.cluster.as_deref());
        self.compiled(spec).templates.render(content, now, cluster).or_else(|error| {
            tracing::warn!(namespace = content.namespace, %error, "a template fails for a message; the built-in ones are used");
            Templates::default().render(content, now, cluster)
        })
    }

    /// What is wrong with the templates of the settings, and what is used in their place.
    pub(crate) fn problems(&self, spec: Option<&MessagesSpec>) -> Vec<String> {
        self.compiled(spec).problems.clone()
    }

    fn compiled(&self, spec: Option<&MessagesSpec>) -> Arc<Compiled> {
        let of = spec.cloned().unwrap_or_default();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|known| known.of == of) {
            return Arc::clone(known);
        }
        let (templates, wrong) = Templates::or_built_in(Overrides::from(&of));
        let problem =
            |error: TemplateError| format!("spec.messages.{}: {error}; the built-in one is used", error.part);
        let problems = wrong.into_iter().map(problem).collect();
        let compiled = Arc::new(Compiled { of, templates, problems });
        *known = Some(Arc::clone(&compiled));
        compiled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_named_and_replaced_by_what_is_built_in() {
        let spec = MessagesSpec {
            subject: Some("{{ what }} [{{ cluster }}]".to_owned()),
            text: Some("{{ nonsense }}".to_owned()),
            ..MessagesSpec::default()
        };
        let texts = MessageTexts::default();
        let problems = texts.problems(Some(&spec));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("spec.messages.text: "), "{problems:?}");
        assert!(
            problems[0].contains("nonsense") && problems[0].ends_with("; the built-in one is used"),
            "{problems:?}"
        );
        assert!(texts.problems(None).is_empty());
    }
}
