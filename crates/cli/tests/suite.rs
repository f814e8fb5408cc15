//! Every test of the command line, in one program, which links once what they all need.
//!
//! A new file here is a module of this program, or it does not run.

mod audit;
mod binary;
mod cluster;
mod create;
mod delete;
mod deleted;
mod detach;
mod doctor_trees;
mod explain_quota;
mod from_ska;
mod governed;
mod import;
mod import_kim;
mod import_ska;
mod import_ska_report;
mod live;
mod message;
mod namespace_records;
mod offline;
mod plan_trees;
mod probe;
mod progress;
mod refused_pods;
mod support;
mod transfer_arguments;
mod transfers;
mod trees;
