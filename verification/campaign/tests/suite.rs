//! Every test in simulated clusters, in one program: what it links takes minutes to optimise.
//!
//! A new file here is a module of this program, or it does not run.

mod access;
mod campaign;
mod clocks;
mod dates;
mod findings;
mod input;
mod marker;
mod mutants;
mod reviews;
mod stopping;
mod suites;
mod trees_exhaustive;
mod without_faults;

/// Most of a run's time goes to small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
