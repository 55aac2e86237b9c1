#!/usr/bin/env bash
# Makes a bare Debian 12 able to build Spillway: Debian packages from debian-packages.txt, and a Python environment
# with torch and HiGHS from requirements.txt; and what tests and tools need, from debian-packages-develop.txt and
# requirements-develop.txt. Installs only what is missing; run twice, the second run does nothing.
# usage: scripts/setup.sh [demo]     (demo: only what the program needs)
#
# Environment:
#   SPILLWAY_VENV=DIR        where the Python environment is (default: .venv in the repository folder)
#   SPILLWAY_SKIP_SETUP=1    do nothing, trust that everything is there
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${SPILLWAY_VENV:-$root/.venv}
package_files=("$root/scripts/debian-packages.txt")
requirements=("$root/scripts/requirements.txt")
# With what was installed from these there is nothing missing either.
all_requirements=("${requirements[@]}" "$root/scripts/requirements-develop.txt")
case "${*:-all}" in
  demo) ;;
  all)
    package_files+=("$root/scripts/debian-packages-develop.txt")
    requirements=("${all_requirements[@]}")
    ;;
  *)
    echo "usage: scripts/setup.sh [demo]" >&2
    exit 2
    ;;
esac

# Installs Python packages in a third of the time that pip takes.
uv=uv==0.13.8

say() { printf 'setup: %s\n' "$*"; }
fail() {
  printf 'setup: error: %s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf 'setup:   %s\n' "$@" >&2
  exit 1
}

# Sets `missing` (lines "name prefix") and warns about installed packages of another version.
find_missing_packages() {
  local -A installed=()
  local name prefix status version
  # shellcheck disable=SC2016  # dpkg-query's own placeholders
  while read -r name status version; do
    if [ "$status" = ii ]; then installed[$name]=$version; fi
  done < <(sed 's/#.*//' "${package_files[@]}" | awk 'NF { print $1 }' |
    xargs dpkg-query -W -f='${Package} ${db:Status-Abbrev} ${Version}\n' 2>/dev/null || true)
  missing=()
  while read -r name prefix; do
    version=${installed[$name]:-}
    if [ -z "$version" ]; then
      missing+=("$name $prefix")
    elif [[ $version != "$prefix"* ]]; then
      say "warning: $name is $version here; Spillway is tested with $prefix*"
    fi
  done < <(sed 's/#.*//' "${package_files[@]}" | awk 'NF { print $1, $2 }')
}

install_packages() {
  command -v dpkg-query >/dev/null || {
    say "warning: no dpkg here, so Debian packages are not checked; see ${package_files[*]#"$root"/} for what is needed"
    return 0
  }
  local missing
  find_missing_packages
  [ ${#missing[@]} -gt 0 ] || return 0

  local name prefix
  local -a wanted=() as_root=()
  say "Debian packages that are missing:"
  while read -r name prefix; do
    say "  $name $prefix"
    wanted+=("$name=$prefix*")
  done < <(printf '%s\n' "${missing[@]}")

  local -a apt=(apt-get install -y --no-install-recommends)
  local by_hand="apt-get update && ${apt[*]} ${wanted[*]@Q}"
  command -v apt-get >/dev/null || fail "there is no apt-get to install them with." \
    "On another distribution, install the packages above by its own means."
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "installing them needs root, and there is no sudo. As root, type:" "$by_hand"
    say "not root, so apt-get runs through sudo"
    as_root=(sudo)
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive)

  # The package lists are fetched only if they do not know a package, or what they know is gone from the mirror.
  if apt-get install -s --no-install-recommends "${wanted[@]}" >/dev/null 2>&1 &&
    "${as_root[@]}" "${apt[@]}" "${wanted[@]}"; then
    return 0
  fi
  say "fetching the package lists (apt-get update)"
  "${as_root[@]}" apt-get update || say "warning: apt-get update failed, see above"
  "${as_root[@]}" "${apt[@]}" "${wanted[@]}" || fail "apt-get could not install them (its message is above)." \
    "Without a network, bring the packages by other means. With another Debian release, the pinned" \
    "versions are not there. By hand: $by_hand"
}

# Prints the first Python of at least 3.11 that can make an environment; 3.11 is preferred.
find_python() {
  local python
  for python in /usr/bin/python3.11 python3.11 /usr/bin/python3 python3; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      command -v "$python"
      return 0
    fi
  done
  return 1
}

# What the environment says when it was made of the given files of requirements.
stamp_of() {
  { cat "$@" && "$venv/bin/python" --version; } | sha256sum | cut -d ' ' -f 1
}

# pip's settings of where packages come from (files and variables), as options of uv in `uv_options`.
read_pip_settings() {
  local key value
  uv_options=()
  while IFS== read -r key value; do
    value=${value#\'}
    value=${value%\'}
    case $key in
      *.index-url) uv_options+=(--index-url "$value") ;;
      *.extra-index-url) uv_options+=(--extra-index-url "$value" --index-strategy unsafe-best-match) ;;
      *.find-links) if [[ -d $value || $value == *://* ]]; then uv_options+=(--find-links "$value"); fi ;;
      *.no-index) uv_options+=(--no-index) ;;
      *.cert) export SSL_CERT_FILE=${SSL_CERT_FILE:-$value} ;;
    esac
  done < <("$venv/bin/python" -m pip config list 2>/dev/null)
}

# With uv; where that cannot be had, or fails, with pip.
install_packages_of_python() {
  local -a uv_options pip=("$venv/bin/python" -m pip install --disable-pip-version-check --no-input)
  read_pip_settings
  if "${pip[@]}" --quiet "$uv" &&
    "$venv/bin/python" -m uv pip install --python "$venv/bin/python" "${uv_options[@]}" "$@"; then
    return 0
  fi
  say "uv could not install them; trying pip"
  "${pip[@]}" "$@"
}

install_environment() {
  local stamp_file=$venv/.spillway-stamp stamp python file
  local -a pip_files=()
  if ! "$venv/bin/python" -c '' >/dev/null 2>&1; then
    python=$(find_python) || fail "no Python >= 3.11 with the venv module was found." \
      "On Debian 12: apt-get install python3 python3-venv"
    say "making the Python environment $venv with $python"
    "$python" -m venv --clear "$venv"
  fi
  if [ -f "$stamp_file" ]; then
    stamp=$(cat "$stamp_file")
    if [ "$stamp" = "$(stamp_of "${requirements[@]}")" ] || [ "$stamp" = "$(stamp_of "${all_requirements[@]}")" ]; then
      return 0
    fi
  fi

  say "installing into $venv (torch and its CUDA libraries are about 4.7 GB installed):"
  sed 's/#.*//' "${requirements[@]}" | awk 'NF { print "setup:   " $1 }'
  for file in "${requirements[@]}"; do pip_files+=(-r "$file"); done
  # A torch of the right version that is there already (also a CPU-only one) satisfies the pin and is not changed.
  install_packages_of_python "${pip_files[@]}" ||
    fail "pip could not install the packages above (its message is above)." \
      "A network is needed, or PIP_INDEX_URL / PIP_FIND_LINKS pointing at a mirror or a folder of wheels." \
      "By hand: $venv/bin/python -m pip install ${pip_files[*]}"
  stamp_of "${requirements[@]}" >"$stamp_file"
}

if [ "${SPILLWAY_SKIP_SETUP:-0}" = 1 ]; then
  say "skipped (SPILLWAY_SKIP_SETUP=1)"
  exit 0
fi
install_packages
install_environment
say "everything is there"
