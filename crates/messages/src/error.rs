//! What is wrong with a template: where, what, and what to write instead.

use std::error::Error as _;

use coppice_api::notify::MessageAbout;
use minijinja::{Error, ErrorKind};

use crate::engine::FUEL;
use crate::escape::cut;
use crate::{FILTERS, Part, names};

/// The most characters that the engine says about an error: names in it are as long as users made them.
const MAX_DETAIL: usize = 300;

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct TemplateError {
    /// The template.
    pub part: Part,
    /// The line in it; none where it is wrong as a whole.
    pub line: Option<usize>,
    /// The kind of message that it fails for; none where it fails for every one.
    pub about: Option<MessageAbout>,
    /// What is wrong, and what to write instead.
    pub problem: String,
}

impl TemplateError {
    pub(crate) fn new(part: Part, about: Option<MessageAbout>, problem: impl Into<String>) -> Self {
        Self { part, line: None, about, problem: problem.into() }
    }

    /// What the engine says, with what there is instead.
    pub(crate) fn of_engine(part: Part, about: Option<MessageAbout>, error: &Error) -> Self {
        let mut said = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        let mut source = error.source();
        while let Some(cause) = source {
            said = format!("{said}: {cause}");
            source = cause.source();
        }
        let said = cut(&said, MAX_DETAIL);
        let undefined = undefined(&said);
        let problem = match (error.kind(), undefined) {
            (ErrorKind::OutOfFuel, _) => {
                format!(
                    "it takes more than {FUEL} steps: remove loops within loops, or text that is repeated"
                )
            }
            (ErrorKind::UnknownFilter, _) => {
                let filters: Vec<_> = FILTERS.iter().map(|(name, _)| *name).collect();
                format!("{said}; the filters are {}", filters.join(", "))
            }
            (ErrorKind::UnknownTest, _) => format!("{said}; there are no tests: compare with ==, != and in"),
            (ErrorKind::UnknownFunction, _) => format!("{said}; there are no functions"),
            (ErrorKind::SyntaxError, _) => format!("syntax error: {said}"),
            (_, Some(path)) => format!("{said}; {}", instead(path)),
            (_, None) => said.clone(),
        };
        // A name that is none is so whatever the message is about.
        let about = about.filter(|_| undefined.is_none_or(names::exists));
        Self { part, line: error.line(), about, problem }
    }

    fn text(&self) -> String {
        let line = self.line.map(|line| format!(", line {line}")).unwrap_or_default();
        let about = self.about.map(|about| format!(", in a message about {about}")).unwrap_or_default();
        format!("template {}{line}{about}: {}", self.part, self.problem)
    }
}

/// What the engine found undefined.
fn undefined(said: &str) -> Option<&str> {
    let before = said.split_once("` is undefined")?.0;
    Some(before.rsplit_once('`')?.1)
}

/// What to write instead of what is undefined.
pub(crate) fn instead(path: &str) -> String {
    let Some((parent, _)) = path.rsplit_once('.') else {
        return format!("the names are {}", names::below("").join(", "));
    };
    if names::exists(path) {
        return format!("{parent} is none there: write {{% if {parent} %}} and {{% endif %}} around it");
    }
    let below = names::below(&format!("{parent}."));
    if !below.is_empty() {
        return format!("the names of {parent} are {}", below.join(", "));
    }
    if names::exists(parent) {
        let items = names::below(&format!("{parent}[]."));
        if items.is_empty() {
            return format!("{parent} has no names below it");
        }
        return format!("{parent} is a list, whose items have {}", items.join(", "));
    }
    // What a loop calls its items is not known here.
    let items = names::lists();
    let items =
        items.iter().map(|list| format!("{list}: {}", names::below(&format!("{list}[].")).join(", ")));
    format!("the names of items are, of {}", items.collect::<Vec<_>>().join("; of "))
}
