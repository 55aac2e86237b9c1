#!/usr/bin/env bash
# Builds the Python package with its trainer below build/python and installs it into the environment, if anything that
# it is made of changed.
# usage: scripts/python_package.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=${SPILLWAY_VENV:-.venv}
stamp=build/python/.installed
# The name of the compiler is part of what the compiler cache looks for. Without these it would be the one that
# Python was built with, and everything that the release build compiled would be compiled once more.
export CC=${CC:-cc} CXX=${CXX:-c++}

# What the package is made of, by content, and where it goes to.
expected_stamp() {
  {
    find CMakeLists.txt pyproject.toml cmake framework include src python/CMakeLists.txt python/build_info.py.in \
      python/exports.map python/src python/spillway -type f -not -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum
    "$venv/bin/python" -c 'import sys; print(sys.prefix, sys.version)'
    cat "$venv"/lib/python*/site-packages/torch/version.py
    # Another checkout may have put its own there since.
    cat "$venv"/lib/python*/site-packages/spillway-*.dist-info/RECORD 2>/dev/null || true
  } | sha256sum | cut -d ' ' -f 1
}

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(expected_stamp)" ]; then
  echo "python: the package is up to date"
  exit 0
fi
"$venv/bin/python" -m pip install --disable-pip-version-check --no-input --no-build-isolation --no-deps \
  --force-reinstall --quiet --config-settings=cmake.define.SPILLWAY_WERROR=ON \
  --config-settings=cmake.define.SPILLWAY_PYTHON_TRAINER=ON .
expected_stamp >"$stamp"
echo "python: the package is installed into $venv"
