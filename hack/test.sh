#!/usr/bin/env bash
# Every test of the project, ending in one line: N passed, N failed.
set -uo pipefail
# The errors of tests name their causes; a backtrace through the test harness would only push them out of sight.
export RUST_LIB_BACKTRACE=0
# The API servers of control planes would spend a quarter of their time on collecting garbage, and memory is not what is short.
export GOGC=${GOGC:-400}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

./hack/build-tests.sh || { echo "0 passed, 1 failed"; exit 1; }

# Runs a command. All that it says goes into the log of this name, and each step at once to the terminal.
run() {
  local name=$1
  shift
  "$@" 2>&1 | tee -a "$logs/$name" |
    grep --line-buffered -E '^(test |error|failures:| +(Compiling|Finished|Running|Doc-tests) )' | sed -u "s/^/$name | /"
  [ "${PIPESTATUS[0]}" -eq 0 ] || touch "$logs/$name.failed"
}
# The tests of what is written in Go, with the lines that cargo would print: each test, and in the end how many.
go_tests() {
  (cd tools/mail && GOWORK=off GOTOOLCHAIN=local go test -count=1 -v ./...) 2>&1 | awk '
    {print}
    $1 == "---" && /^---/ {
      result = $2 == "PASS:" ? "ok" : $2 == "FAIL:" ? "FAILED" : "ignored"
      n[result]++
      print "test mail::" $3 " ... " result
    }
    END {
      print "test result: " (n["FAILED"] ? "FAILED" : "ok") ". " n["ok"] + 0 " passed; " n["FAILED"] + 0 " failed; " n["ignored"] + 0 " ignored"
    }'
}
if command -v go >/dev/null 2>&1; then
  echo "== testing the mail server"
  run mail-server go_tests
else
  echo "== NOT testing the mail server: there is no Go (COPPICE_PLANE_BIN has it ready)"
fi
echo "== testing, and simulating in what time the tests leave"
# As many at once as two processors serve with control planes that answer in time: tests mostly wait.
run tests cargo test --locked --workspace --exclude coppice-sim --exclude coppice-campaign --no-fail-fast -- --test-threads="${COPPICE_TEST_THREADS:-24}" &
# Thousands of runs, so optimised. What is as nice as this takes a processor from no control plane.
run simulation nice -n 19 cargo test --locked --profile sim -p coppice-sim -p coppice-campaign --no-fail-fast
wait

sum() { cat "$logs"/* | awk -v field="$1" '/^test result:/ {n += $field} END {print n + 0}'; }
passed=$(sum 4) failed=$(sum 6)
for name in mail-server tests simulation; do
  [ -e "$logs/$name.failed" ] || continue
  # Something that did not compile or crashed has no line of its own.
  [ "$failed" -gt 0 ] || failed=1
  echo
  echo "== $name: what failed, in full"
  # The block that each test program ends with; or the end of the log, where something did not compile.
  awk '/^failures:$/ {on = 1} on {print} /^test result:/ {on = 0}' "$logs/$name" | grep . || tail -200 "$logs/$name"
  echo; echo "failed:"; grep -E '^test .* FAILED$|^error' "$logs/$name" | sort -u | sed 's/^/  /'
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
