//! The texts of messages to owners of namespaces: a subject, plain text, HTML, and text for Slack.
//!
//! The sentences are written once (`words.rs`); templates lay them out, in the language of Jinja. Users may replace each of them. A
//! template of theirs is tried when it is loaded, with messages of every kind, so that what is wrong with it is known before the first
//! message. What others wrote, such as the message of a pod, is escaped for where it goes, and no template can turn that off.
//!
//! Pure: neither files nor a clock.

mod context;
mod digest;
mod engine;
mod error;
mod escape;
mod names;
mod nesting;
mod samples;
#[cfg(test)]
mod tests;
mod times;
mod words;

use std::fmt;

use coppice_api::channel::MessagesSpec;
use coppice_api::notify::MessageAbout;
use coppice_lifecycle::message::MessageContent;
use jiff::Timestamp;
use minijinja::Environment;
use minijinja::value::{Serde, Value};

use crate::context::Context;
pub use crate::digest::{DigestLine, digest};
pub use crate::error::TemplateError;
pub use crate::names::{FILTERS, NAMES};

/// The most characters of a template.
pub const MAX_SOURCE: usize = 16 * 1024;
/// The most bytes of what a template makes.
pub const MAX_OUTPUT: usize = 256 * 1024;
/// The most characters of a subject.
pub const MAX_SUBJECT: usize = 200;

/// A part of a message, and the template that makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The subject of a mail.
    Subject,
    /// The plain text of a mail.
    Text,
    /// Its HTML.
    Html,
    /// A message in Slack.
    Slack,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 4] = [Self::Subject, Self::Text, Self::Html, Self::Slack];

    /// As it is written in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::Text => "text",
            Self::Html => "html",
            Self::Slack => "slack",
        }
    }

    /// The source of its built-in template, for users to begin with.
    pub const fn built_in(self) -> &'static str {
        match self {
            Self::Subject => include_str!("../templates/subject.txt"),
            Self::Text => include_str!("../templates/text.txt"),
            Self::Html => include_str!("../templates/message.html"),
            Self::Slack => include_str!("../templates/slack.txt"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A message as channels send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// One line of at most [`MAX_SUBJECT`] characters.
    pub subject: String,
    /// Plain text, which says the same as `html`.
    pub text: String,
    /// A page of HTML that loads nothing.
    pub html: String,
    /// Text in Slack's mrkdwn, with `&`, `<` and `>` of others escaped. It is for the `text` of a message, which Slack cuts at 40 000
    /// characters, not for a block, which Slack refuses beyond 3000.
    pub slack: String,
}

/// The templates that users replace; none for the built-in ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides<'a> {
    /// Of the subject.
    pub subject: Option<&'a str>,
    /// Of the plain text.
    pub text: Option<&'a str>,
    /// Of the HTML.
    pub html: Option<&'a str>,
    /// Of the message in Slack.
    pub slack: Option<&'a str>,
}

impl<'a> From<&'a MessagesSpec> for Overrides<'a> {
    fn from(spec: &'a MessagesSpec) -> Self {
        let MessagesSpec { cluster: _, subject, text, html, slack } = spec;
        Self {
            subject: subject.as_deref(),
            text: text.as_deref(),
            html: html.as_deref(),
            slack: slack.as_deref(),
        }
    }
}

impl<'a> Overrides<'a> {
    fn get(&self, part: Part) -> Option<&'a str> {
        match part {
            Part::Subject => self.subject,
            Part::Text => self.text,
            Part::Html => self.html,
            Part::Slack => self.slack,
        }
    }
}

/// The templates of messages, ready for use.
#[derive(Clone, Debug)]
pub struct Templates {
    engine: Environment<'static>,
}

impl Default for Templates {
    /// The built-in ones.
    fn default() -> Self {
        let mut engine = engine::environment();
        for part in Part::ALL {
            let added = engine.add_template(part.as_str(), part.built_in());
            debug_assert!(added.is_ok(), "built-in template {part}: {added:?}");
        }
        Self { engine }
    }
}

impl Templates {
    /// The built-in templates with those of users in their place, each of which has been tried with messages of every kind. One that
    /// cannot be used is an error.
    pub fn new(overrides: Overrides<'_>) -> Result<Self, TemplateError> {
        let (templates, errors) = Self::or_built_in(overrides);
        errors.into_iter().next().map_or(Ok(templates), Err)
    }

    /// The same with the built-in template in place of each that cannot be used, and why it cannot.
    pub fn or_built_in(overrides: Overrides<'_>) -> (Self, Vec<TemplateError>) {
        let mut templates = Self::default();
        let replaced = Part::ALL.into_iter().filter_map(|part| Some((part, overrides.get(part)?)));
        let replaced: Vec<_> = replaced.collect();
        if replaced.is_empty() {
            return (templates, Vec::new());
        }
        let samples: Vec<_> =
            samples::all().map(|(about, sample)| (about, Value::from(Serde(&sample)))).collect();
        let tried = replaced.into_iter().map(|(part, source)| templates.replace(part, source, &samples));
        let errors = tried.filter_map(Result::err).collect();
        (templates, errors)
    }

    /// Puts a template of users in place of the one that there is, unless something is wrong with it.
    fn replace(
        &mut self,
        part: Part,
        source: &str,
        samples: &[(MessageAbout, Value)],
    ) -> Result<(), TemplateError> {
        let length = source.chars().count();
        if length > MAX_SOURCE {
            let problem = format!("it has {length} characters: write at most {MAX_SOURCE}");
            return Err(TemplateError::new(part, None, problem));
        }
        nesting::check(source).map_err(|(line, problem)| TemplateError {
            line: Some(line),
            ..TemplateError::new(part, None, problem)
        })?;
        let before = self.engine.clone();
        let added = self.engine.add_template_owned(part.as_str(), source.to_owned());
        let tried = added
            .map_err(|error| TemplateError::of_engine(part, None, &error))
            .and_then(|()| {
                samples.iter().try_for_each(|(about, sample)| self.part(part, *about, sample).map(drop))
            })
            .and_then(|()| self.check_names(part, source));
        if tried.is_err() {
            self.engine = before;
        }
        tried
    }

    /// The texts of a message, at this time; `cluster` is what users call the cluster.
    ///
    /// It fails only where a template of users does with this message what it does with no sample. The built-in ones remain then:
    /// `Templates::default()`.
    pub fn render(
        &self,
        content: &MessageContent,
        now: Timestamp,
        cluster: Option<&str>,
    ) -> Result<Rendered, TemplateError> {
        self.render_context(content.about, &Context::new(content, now, cluster))
    }

    fn render_context(&self, about: MessageAbout, context: &Context) -> Result<Rendered, TemplateError> {
        let context = Value::from(Serde(context));
        Ok(Rendered {
            subject: self.part(Part::Subject, about, &context)?,
            text: self.part(Part::Text, about, &context)?,
            html: self.part(Part::Html, about, &context)?,
            slack: self.part(Part::Slack, about, &context)?,
        })
    }

    fn part(&self, part: Part, about: MessageAbout, context: &Value) -> Result<String, TemplateError> {
        let template = self.engine.get_template(part.as_str());
        let made = template.and_then(|template| template.render(context.clone()));
        let made = made.map_err(|error| TemplateError::of_engine(part, Some(about), &error))?;
        let made = match part {
            Part::Subject => escape::one_line(&made, MAX_SUBJECT),
            Part::Text | Part::Html | Part::Slack => escape::tidy(&made),
        };
        let problem = match made.len() {
            0 => "it makes an empty text: write what such a message says".to_owned(),
            length if length > MAX_OUTPUT => {
                format!("it makes {length} bytes: at most {MAX_OUTPUT} are sent")
            }
            _ => return Ok(made),
        };
        Err(TemplateError::new(part, Some(about), problem))
    }

    /// Names in branches that no sample takes, such as those for one cluster.
    fn check_names(&self, part: Part, source: &str) -> Result<(), TemplateError> {
        let template = self.engine.get_template(part.as_str());
        let template = template.map_err(|error| TemplateError::of_engine(part, None, &error))?;
        let mut used: Vec<_> = template.undeclared_variables(true).into_iter().collect();
        used.sort();
        let unknown = used.into_iter().find(|path| {
            let first = path.split('.').next().unwrap_or_default();
            !names::exists(path) && !is_set(source, first)
        });
        let Some(path) = unknown else { return Ok(()) };
        let line = source.lines().position(|line| has_word(line, &path)).map(|before| before + 1);
        let problem = format!("`{path}` is undefined; {}", error::instead(&path));
        Err(TemplateError { line, ..TemplateError::new(part, None, problem) })
    }
}

/// Whether a template gives this name a value of its own: the engine's list of names does not see that of one in a condition.
fn is_set(source: &str, name: &str) -> bool {
    let mut assignments = source.split("set").skip(1).filter(|rest| rest.starts_with(char::is_whitespace));
    assignments.any(|rest| rest.split(['=', '%']).next().is_some_and(|names| has_word(names, name)))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').any(|one| one == word)
}
