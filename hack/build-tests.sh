#!/usr/bin/env bash
# What tests need: their programs, those that they start, and the binaries of the control plane. Nothing, where all is built.
set -uo pipefail
./hack/prerequisites.sh || exit 1
target=${CARGO_TARGET_DIR:-target}
# Each set of packages is compiled with the features that it needs together, so a build of one package would compile much of this
# again. The simulation is not among these: its tests are optimised.
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
# In a group of its own, which ends as a whole when cargo fails or somebody stops this.
set -m
control_plane 2>&1 | sed -u 's/^/control plane | /' &
plane=$!
group=$(jobs -p %%)
set +m
trap 'kill -- "-$group" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cargo build "${packages[@]}" --bins --tests || exit 1
# Tests start it, too. With a test beside it, whatever that is of, it has the features of all of them.
cargo build --locked --workspace --exclude coppice-campaign --bin coppice-sim --test ports || exit 1
cargo test --locked --profile sim -p coppice-sim -p coppice-campaign --no-run || exit 1
wait "$plane"
