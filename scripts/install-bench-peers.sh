#!/usr/bin/env bash
# Installs the peers that `load peers` measures the gateway against, beside what the tests talk to
# (scripts/install-test-tools.sh, which it runs first and which brings statsd/statsd):
#
#   vmagent, collectd   unpacked from their Debian packages
#   statsdproxy         built from crates.io
#
# All of it lands in .test-tools/; no service is started and nothing of the system is changed. A
# peer that cannot be had is named and left out, and so it is in the tables. Running it again is
# quick: what is there is kept.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/.test-tools
missing=()

main() {
  "$root/scripts/install-test-tools.sh" || missing+=(statsd/statsd)
  mkdir -p "$tools/bin"
  # Two runs at once, as from two shells, would tear each other's unpacking.
  exec 9>"$tools/lock"
  flock 9
  peer vmagent unpack victoria-metrics usr/bin/vmagent bin/vmagent
  # Its plugins and its types go with it.
  peer collectd unpack collectd-core usr collectd
  peer statsdproxy build statsdproxy 0.4.1
  ((${#missing[@]} == 0)) || say "left out: ${missing[*]}"
  say "ready in .test-tools/"
}

# peer NAME COMMAND...: runs the command, and remembers the name if that fails.
peer() {
  local name=$1
  shift
  # In a shell of its own, where a failure ends the steps and not the script.
  ("$@") || missing+=("$name")
}

# unpack PACKAGE FROM TO: puts one path of a Debian package into .test-tools/.
unpack() {
  local package=$1 from=$2 to=$tools/$3 work
  [[ -e $to ]] && return
  say "unpacking $to from Debian's $package"
  work=$(mktemp -d "$tools/unpack.XXXXXX")
  trap "rm -rf '$work'" EXIT
  # As root apt would hand the download to a user who may not write into the work directory.
  (cd "$work" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download "$package") >/dev/null &&
    dpkg-deb --extract "$work"/*.deb "$work" &&
    mv "$work/$from" "$to"
}

# build CRATE VERSION: builds a program of crates.io, as its own lock file says.
build() {
  [[ -x $tools/bin/$1 ]] && return
  say "building $1 $2 from crates.io"
  cargo install --quiet --locked --root "$tools" --version "$2" "$1"
}

say() { printf 'bench peers: %s\n' "$*"; }

main "$@"
