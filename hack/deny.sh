#!/usr/bin/env bash
# cargo-deny, of one version, built into the cache where it is not installed. Advisories are looked up where their
# database can be had; licences, bans and sources always.
set -euo pipefail
version=0.20.2
cache="${COPPICE_CACHE:-$HOME/.cache/coppice}"
deny=$(command -v cargo-deny || true)
if [ -z "$deny" ]; then
  deny="$cache/cargo-deny-$version/bin/cargo-deny"
  if [ ! -x "$deny" ]; then
    echo "building cargo-deny $version (once, takes some minutes) ..." >&2
    CARGO_TARGET_DIR="$cache/cargo-deny-build" CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
      cargo install --quiet --locked --version "$version" --root "$cache/cargo-deny-$version" cargo-deny
    rm -rf "$cache/cargo-deny-build"
  fi
fi
"$deny" --locked check bans licenses sources
