#![no_main]

#[path = "../projections.rs"]
mod projections;

libfuzzer_sys::fuzz_target!(|data: &[u8]| projections::hold(data));
