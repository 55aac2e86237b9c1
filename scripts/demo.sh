#!/usr/bin/env bash
# The demonstration behind `make demo`: what this machine can do, and the transfer engine beside plain copies.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build/release/bin/spillway doctor
build/release/bin/bench_transfer --quick
