//! What an API server's audit log says about Coppice: what has to be logged ([`policy`]), and what of it is worth knowing
//! ([`Judge`]). Pure: files, cluster and terminal are in `command/audit`.

mod event;
mod finding;
mod judge;
mod lines;
mod ours;
pub(crate) mod policy;

pub(crate) use event::{Event, events};
pub(crate) use finding::{Counts, Finding, FindingType};
pub(crate) use judge::{Filter, Judge, Judgment};
pub(crate) use lines::{Line, Lines};
pub(crate) use ours::{Installation, SecretName, secrets_of_access, secrets_of_provider};
