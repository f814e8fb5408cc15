//! Replays what the fuzzer of the projections starts from, and what it has found: `make fuzz`.

#[allow(clippy::expect_used, clippy::panic, reason = "what must hold, in tests alone")]
#[path = "../fuzz/projections.rs"]
mod projections;

#[test]
fn what_the_api_server_accepts_neither_fails_a_page_nor_panics() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus");
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        eprintln!("{}", path.display());
        projections::hold(&std::fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files > 10, "{files} files in {folder}");
}
