#!/usr/bin/env bash
# Every test of the project, ending in one line: N passed, N failed.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT

echo "== building the control plane's binaries (once, about 5 minutes on two cores)"
cargo run -q --locked -p coppice-plane -- build || { echo "0 passed, 1 failed"; exit 1; }
echo "== building"
cargo build --locked --workspace --bins || { echo "0 passed, 1 failed"; exit 1; }
code=0
run() { "$@" 2>&1 | tee -a "$log"; local ended=${PIPESTATUS[0]}; [ "$ended" -eq 0 ] || code=$ended; }
echo "== testing"
# One crate's tests after the other, and few at once within one: real control planes run beside them.
run cargo test --locked --workspace --exclude coppice-sim --no-fail-fast -- --test-threads="${COPPICE_TEST_THREADS:-6}"
echo "== simulating"
# Thousands of runs: optimised.
run cargo test --locked --profile sim -p coppice-sim --no-fail-fast
echo "== bugs on purpose"
run cargo test --locked --profile sim -p coppice-sim --no-fail-fast --features mutants --test mutants

passed=$(awk '/^test result:/ {n += $4} END {print n + 0}' "$log")
failed=$(awk '/^test result:/ {n += $6} END {print n + 0}' "$log")
# Something that did not compile or crashed has no line of its own.
if [ "$code" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
if [ "$failed" -gt 0 ]; then
  echo; echo "failed:"; grep -E '^test .* FAILED$|^error' "$log" | sort -u | sed 's/^/  /'
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$code" -eq 0 ]
