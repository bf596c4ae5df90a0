#!/usr/bin/env bash
# Installs what the tests talk to: real servers (InfluxDB 1.x, VictoriaMetrics, RabbitMQ, statsd/statsd)
# and real clients (hot-shots, Python statsd and datadog, nc, curl).
#
# Everything that only we need lands in .test-tools/ inside the repository: the servers are
# unpacked from their Debian packages rather than installed, so no service is started, no user
# is made, and an InfluxDB of your own is left alone. Only ordinary tools that are missing
# (nc, curl, gcc, node, python3-venv, ip) are installed by apt, as root or by sudo.
#
# Running it again is quick: each part is skipped while its stamp matches what it was made from.
# Packages come from wherever apt, npm and pip are set up to look.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/.test-tools
clients=$root/tests/clients

main() {
  mkdir -p "$tools/bin"
  # Two runs at once, as from two shells, would tear each other's unpacking.
  exec 9>"$tools/lock"
  flock 9
  rm -rf "$tools"/unpack.*   # left by a run that was cut short
  install_system_tools
  unpack_debian_server influxdb influxd
  unpack_debian_server victoria-metrics victoria-metrics
  unpack_rabbitmq
  install_node_modules
  install_python_clients
  say "ready in .test-tools/"
}

install_system_tools() {
  local missing=()
  has nc || missing+=(netcat-openbsd)
  has curl || missing+=(curl)
  has gcc || missing+=(gcc libc6-dev)
  has node || missing+=(nodejs)
  has npm || missing+=(npm)
  has python3 || missing+=(python3)
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  # Tests make networks of their own with it, which only root may.
  ((EUID != 0)) || has ip || missing+=(iproute2)
  # VictoriaMetrics is linked to it.
  ldconfig_knows libzstd.so.1 || missing+=(libzstd1)
  # Erlang is linked to these.
  ldconfig_knows libcrypto.so.3 || missing+=(libssl3)
  ldconfig_knows libsystemd.so.0 || missing+=(libsystemd0)
  ldconfig_knows libtinfo.so.6 || missing+=(libtinfo6)
  ((${#missing[@]} == 0)) && return
  need_apt "${missing[*]}"
  can_be_root || die "some tools are missing, and there is neither root nor sudo. Run once as root:
  apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  refresh_package_lists
  as_root env DEBIAN_FRONTEND=noninteractive apt-get "${apt_options[@]}" install -y -qq \
    --no-install-recommends "${missing[@]}" >/dev/null
}

# unpack_debian_server PACKAGE BINARY: puts one binary of a package into .test-tools/bin.
unpack_debian_server() {
  local package=$1 binary=$2
  [[ -x $tools/bin/$binary ]] && return
  say "unpacking $binary from Debian's $package"
  need_apt "$package"
  local work
  work=$(mktemp -d "$tools/unpack.XXXXXX")
  download_package "$package" "$work"
  dpkg-deb --extract "$work"/*.deb "$work"
  mv "$work/usr/bin/$binary" "$tools/bin/$binary"
  rm -rf "$work"
}

# RabbitMQ and the Erlang that it runs on; the tests start it by themselves, and no service does.
unpack_rabbitmq() {
  local stamp=$tools/rabbitmq/stamp
  [[ -e $stamp ]] && return
  say "unpacking RabbitMQ and Erlang from Debian's packages"
  need_apt rabbitmq-server
  local work package
  work=$(mktemp -d "$tools/unpack.XXXXXX")
  for package in rabbitmq-server erlang-{base,asn1,crypto,eldap,inets,mnesia,os-mon,parsetools} \
    erlang-{public-key,runtime-tools,ssl,syntax-tools,tools,xmerl}; do
    download_package "$package" "$work"
  done
  for package in "$work"/*.deb; do
    dpkg-deb --extract "$package" "$work/root"
  done
  rm -rf "$tools/rabbitmq"
  mkdir "$tools/rabbitmq"
  mv "$work/root/usr/lib/erlang" "$tools/rabbitmq/erlang"
  mv "$work"/root/usr/lib/rabbitmq/lib/rabbitmq_server-* "$tools/rabbitmq/server"
  rm -rf "$work"
  touch "$stamp"
}

download_package() {
  local package=$1 into=$2
  # A machine whose package lists are missing or old is refreshed once, then asked again.
  try_download "$package" "$into" 2>/dev/null && return
  refresh_package_lists
  try_download "$package" "$into" || die "apt offers no package '$package' here.
It is in Debian 12 (bookworm). Elsewhere, put a '$package' binary into .test-tools/bin yourself."
}

try_download() {
  # As root apt would hand the download to a user who may not write into the work directory.
  (cd "$2" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download "$1" >/dev/null)
}

install_node_modules() {
  local stamp=$tools/node.stamp
  cmp -s "$clients/package-lock.json" "$stamp" && [[ -d $tools/node_modules/statsd ]] && return
  say "installing statsd/statsd and hot-shots from npm"
  cp "$clients/package.json" "$clients/package-lock.json" "$clients/.npmrc" "$tools/"
  (cd "$tools" && npm ci --silent)
  cp "$clients/package-lock.json" "$stamp"
}

install_python_clients() {
  local stamp=$tools/python.stamp
  cmp -s "$clients/requirements.txt" "$stamp" && "$tools/venv/bin/python" -c '' 2>/dev/null && return
  say "installing the Python clients from PyPI"
  python3 -m venv --clear "$tools/venv"
  "$tools/venv/bin/pip" install --quiet --disable-pip-version-check \
    --requirement "$clients/requirements.txt"
  cp "$clients/requirements.txt" "$stamp"
}

refresh_package_lists() {
  [[ -n ${lists_are_fresh-} ]] && return
  lists_are_fresh=yes
  as_root apt-get "${apt_options[@]}" update -qq >/dev/null
}

as_root() {
  can_be_root || die "there is neither root nor sudo. Run once as root: $*"
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

need_apt() {
  has apt-get && return
  die "no apt-get here. Install by your own package manager, or put binaries into .test-tools/bin: $1"
}

can_be_root() { ((EUID == 0)) || has sudo; }
ldconfig_knows() { PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -F "$1" >/dev/null; }
has() { command -v "$1" >/dev/null 2>&1; }
say() { printf 'test tools: %s\n' "$*"; }
die() {
  printf 'test tools: %s\n' "$*" >&2
  exit 1
}

# Another apt at work, such as unattended upgrades, is waited for rather than failed on.
apt_options=(-o DPkg::Lock::Timeout=300)

main "$@"
