#!/usr/bin/env bash
# Runs a command without address space randomisation where that is permitted, else with it.
# ThreadSanitizer of g++ 12 gives up at start ("unexpected memory mapping") if the kernel randomises more bits than it
# knows of. Some containers forbid the personality call; there the command runs unchanged.
set -euo pipefail

if setarch "$(uname -m)" -R true 2>/dev/null; then
  exec setarch "$(uname -m)" -R "$@"
fi
exec "$@"
