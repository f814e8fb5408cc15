//! Structured logs to standard error: text for people, JSON for machines.

use std::io::IsTerminal as _;

use coppice_api::text::acts_on_terminal;
use tracing::field::Field;
use tracing::subscriber::SetGlobalDefaultError;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{ParseError, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt as _;

/// What is logged unless something else is asked for.
pub const DEFAULT_FILTER: &str = "info,kube=warn,tower=warn,hyper=warn,rustls=warn";

/// What is not logged unless it is named. kube logs the whole of an answer that it does not understand, which may hold a credential, and
/// every request that fails as an error of its own: whoever made it says so already, with what it means.
const ANSWERS: &str = "kube_client::client";

/// How a log line looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Text, Self::Json];

    /// As which it is chosen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }

    /// What the help of a program says of it.
    pub const fn help(self) -> &'static str {
        match self {
            Self::Text => "Lines for people",
            Self::Json => "One JSON object a line",
        }
    }
}

impl std::str::FromStr for LogFormat {
    type Err = LoggingError;

    fn from_str(text: &str) -> Result<Self, LoggingError> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| LoggingError::Format(text.to_owned()))
    }
}

impl std::fmt::Display for LogFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The format does not exist.
    #[error("{0:?} is not a log format; choose text or json")]
    Format(String),
    /// The filter cannot be understood.
    #[error(
        "the log filter {filter:?} cannot be understood; write for example `info`, or `info,coppice_runtime::lease=debug`"
    )]
    Filter {
        /// As it was given.
        filter: String,
        /// Why.
        #[source]
        source: ParseError,
    },
    /// Logging is set up for the whole process, and it was already.
    #[error("logging was set up already")]
    Twice(#[source] SetGlobalDefaultError),
}

/// Sends the logs of the whole process to standard error. `filter` is in the syntax of `tracing-subscriber` and counts instead of
/// [`DEFAULT_FILTER`]. Call once.
pub fn init(format: LogFormat, filter: Option<&str>) -> Result<(), LoggingError> {
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let subscriber = subscriber(format, filter, colours, std::io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(LoggingError::Twice)
}

fn subscriber<W>(
    format: LogFormat,
    filter: Option<&str>,
    colours: bool,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, LoggingError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = filter.unwrap_or(DEFAULT_FILTER);
    let parsed = EnvFilter::builder()
        .parse(filter)
        .map_err(|source| LoggingError::Filter { filter: filter.to_owned(), source })?;
    // Beside the filter and not in it: one that names a span logs everything in that, whatever else it says.
    let named = named_of_client(filter);
    let is_kept = filter_fn(move |metadata: &Metadata<'_>| {
        let target = metadata.target();
        !target.starts_with(ANSWERS) || named.iter().any(|named| target.starts_with(named.as_str()))
    });
    let builder = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(writer);
    Ok(match format {
        LogFormat::Text => {
            let fields = debug_fn(field).delimited(" ");
            Box::new(builder.with_ansi(colours).fmt_fields(fields).finish().with(is_kept))
        }
        LogFormat::Json => {
            let lines = builder.json().flatten_event(true).with_current_span(true).with_span_list(false);
            Box::new(lines.finish().with(is_kept))
        }
    })
}

/// What a filter names of the client: with `kube_client` all of it, with a part of it that part alone.
fn named_of_client(filter: &str) -> Vec<String> {
    let targets = filter.split(',').filter_map(|directive| directive.trim().split(['[', '=']).next());
    targets.filter(|target| target.starts_with("kube_client")).map(str::to_owned).collect()
}

/// Writes a field on one line and without characters that a terminal acts on: errors and messages contain tenants'
/// text, and tracing-subscriber escapes only the message, and no line breaks.
fn field(to: &mut Writer<'_>, field: &Field, value: &dyn std::fmt::Debug) -> std::fmt::Result {
    match field.name() {
        "message" => {}
        name => write!(to, "{name}=")?,
    }
    for c in format!("{value:?}").chars() {
        if acts_on_terminal(c) { write!(to, "{}", c.escape_default())? } else { to.write_char(c)? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{LogFormat, subscriber};
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, filter: Option<&str>) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = subscriber(format, filter, false, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("decision", id = "d-1").entered();
            tracing::info!(namespace = "ci-1", "deleted");
            tracing::debug!("detail");
            let theirs = "\u{1b}[2Jx\n2026 ERROR y\u{9b}";
            tracing::warn!(error = %theirs, quoted = theirs, "{theirs}");
            tracing::error!(target: "kube_client::client::builder", "failed with status 404");
            tracing::warn!(target: "kube_client::client", "{{\"token\": \"eyJhbGciOi\"}}");
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_is_plain_and_filtered() {
        let text = logged(LogFormat::Text, None);
        assert!(text.contains("deleted namespace=\"ci-1\"") && text.contains("id=\"d-1\""), "{text}");
        assert!(
            !text.contains("detail") && !text.contains("status 404") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(logged(LogFormat::Text, Some("debug")).contains("detail"));
    }

    #[test]
    fn what_tenants_write_stays_text_on_one_line() {
        let text = logged(LogFormat::Text, None);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert_eq!(text.lines().count(), 2, "{text}");
        let theirs = r"\u{1b}[2Jx\n2026 ERROR y\u{9b}";
        assert!(text.contains(&format!("{theirs} error={theirs} quoted=\"{theirs}\"")), "{text}");
        assert!(!logged(LogFormat::Json, None).contains('\u{1b}'));
    }

    #[test]
    fn json_is_one_object_per_line() {
        let text = logged(LogFormat::Json, None);
        let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(line["message"], "deleted");
        assert_eq!(line["namespace"], "ci-1");
        assert_eq!(line["span"]["id"], "d-1");
    }

    #[test]
    fn answers_are_logged_only_where_that_is_asked_for() {
        let of_another_part = "info,kube=warn,kube_client::client::builder=off";
        let by_span = "info,[decision]=trace";
        for filter in [None, Some("debug"), Some("info,kube=trace"), Some(of_another_part), Some(by_span)] {
            let text = logged(LogFormat::Text, filter);
            assert!(!text.contains("eyJ") && !text.contains("status 404"), "{filter:?}: {text}");
        }
        assert!(logged(LogFormat::Text, Some("info,kube_client=debug")).contains("eyJ"));
    }

    #[test]
    fn an_invalid_filter_is_named() {
        let error =
            subscriber(LogFormat::Text, Some("info,coppice=loud"), false, std::io::sink).err().unwrap();
        assert!(error.to_string().starts_with("the log filter \"info,coppice=loud\" cannot be understood"));
        let error = "xml".parse::<LogFormat>().unwrap_err();
        assert_eq!(error.to_string(), "\"xml\" is not a log format; choose text or json");
    }
}
