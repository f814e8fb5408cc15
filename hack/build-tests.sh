#!/usr/bin/env bash
# What tests need: their programs, those that they start, and the binaries of the control plane. Nothing, where all is built.
set -uo pipefail
target=${CARGO_TARGET_DIR:-target}
# Each set of packages is compiled with the features that it needs together, so a build of one package would compile much of this
# again. The simulation is not among these: its programs are optimised.
packages=(--locked --workspace --exclude coppice-sim --exclude coppice-campaign)

echo "== building what builds the control plane"
cargo build "${packages[@]}" --bin coppice-plane || exit 1
# Beside cargo, whose last programs link one by one: downloads, and builds in Go. Nothing of it takes as long as cargo does.
control_plane() {
  local part
  for part in "" --promtool --mail-server --gardener --cluster-api; do
    # Unquoted: the first one has no argument.
    "$target/debug/coppice-plane" build $part || return 1
  done
}
echo "== building the control plane, promtool, the mail server, and Gardener's API server (once, about 15 minutes on two cores), and the tests beside them"
control_plane 2>&1 | sed -u 's/^/control plane | /' &
plane=$!
cargo build "${packages[@]}" --bins --tests &&
  cargo test --locked --profile sim -p coppice-sim -p coppice-campaign --no-run
built=$?
wait "$plane" && [ "$built" -eq 0 ]
