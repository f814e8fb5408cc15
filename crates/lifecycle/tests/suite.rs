//! Every test of what is decided about a namespace, in one program.
//!
//! A new file here is a module of this program, or it does not run.

mod blocked;
mod cluster_annotations;
mod cluster_approval;
mod cluster_evidence;
mod cluster_expiry;
mod cluster_health;
mod cluster_limits;
mod cluster_lint;
mod cluster_notices;
mod cluster_observed;
mod cluster_owner;
mod cluster_plan;
mod cluster_pods;
mod cluster_scale_down;
mod cluster_selection;
mod cluster_superseded;
mod cluster_ttl;
mod cluster_undelivered;
mod cluster_webhook;
mod conditions;
mod deletion_notification;
mod digests;
mod golden;
mod health_clocks;
mod health_failing;
mod keep;
mod limits;
mod lint;
mod losses;
mod notice;
mod other_deletion;
mod pending_webhook;
mod plan;
mod properties;
mod settings;
mod status_texts;
mod steady;
mod steps;
mod support;
mod valid_spec;
