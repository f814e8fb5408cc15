#!/usr/bin/env bash
# Fuzzes the projections (crates/kinds/fuzz): what of every object is read. What it finds goes into the cache; a file that
# fails belongs, made small, into crates/kinds/fuzz/corpus, which `make test` replays.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
  echo "make fuzz needs a nightly toolchain and cargo-fuzz: rustup toolchain install nightly && cargo install --locked cargo-fuzz" >&2
  exit 1
fi
found="$COPPICE_CACHE/fuzz/projections"
mkdir -p "$found"
export CARGO_TARGET_DIR="$COPPICE_CACHE/target-fuzz"
exec cargo +nightly fuzz run --fuzz-dir crates/kinds/fuzz projections "$found" crates/kinds/fuzz/corpus -- \
  -max_total_time="${FUZZ_SECONDS:-300}" -max_len=65536 -artifact_prefix="$COPPICE_CACHE/fuzz/"
