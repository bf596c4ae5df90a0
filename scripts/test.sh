#!/usr/bin/env bash
# The one test command: fetches the real servers and clients, then runs every test.
# Arguments go to cargo test: scripts/test.sh --test tools, scripts/test.sh -- --nocapture.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/install-test-tools.sh
cargo test --workspace --locked "$@"
