#!/usr/bin/env bash
# One sentence for each thing that is missing. With `without-go` as argument for what can do without the control plane.
set -u
missing=0
need() { # command, what to do
  command -v "$1" >/dev/null 2>&1 || { echo "$1 is missing: $2" >&2; missing=1; }
}
need cargo "install Rust with rustup (https://rustup.rs); rust-toolchain.toml names the version"
need cc "install a C compiler (Debian: apt-get install gcc)"
if [ "${1:-}" != without-go ] && [ -z "${COPPICE_PLANE_BIN:-}" ]; then
  need go "install Go 1.26 or later (https://go.dev/dl), or set COPPICE_PLANE_BIN to a folder with the control plane's binaries"
fi
exit "$missing"
