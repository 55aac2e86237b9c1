#!/usr/bin/env bash
# Formats all C++ sources; or checks their format, the length of lines and the words of all texts, and runs clang-tidy
# over all C++ sources.
# usage: scripts/lint.sh format|check
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mapfile -t folders < <(ls -d include src framework apps bench tests examples python 2>/dev/null)
mapfile -t sources < <(find "${folders[@]}" -name '*.cpp' -o -name '*.hpp' | sort)

case "${1:-}" in
  format)
    clang-format -i "${sources[@]}"
    echo "format: ${#sources[@]} files"
    ;;
  check)
    echo "==== clang-format: ${#sources[@]} files"
    clang-format --dry-run -Werror "${sources[@]}"
    echo "==== columns"
    scripts/check_columns.py
    echo "==== words"
    scripts/check_words.py
    echo "==== clang-tidy"
    # The compiler of the database is g++; clang does not know all of its warnings.
    cmake --preset lint >/dev/null
    run-clang-tidy -p build/lint -quiet -j "$(nproc)" -extra-arg=-Wno-unknown-warning-option \
      "^$PWD/.*\.cpp$" 2> >(grep -v 'warnings generated' >&2)
    echo "lint: no findings"
    ;;
  *)
    echo "usage: scripts/lint.sh format|check" >&2
    exit 2
    ;;
esac
