#!/usr/bin/env bash
# Prints the N-th command of the README's section "Two commands", so that CI
# runs what the README says and not a copy of it.
set -euo pipefail
number=${1:?usage: readme-command.sh NUMBER}
readme=$(dirname "$0")/../README.md
command=$(awk '/^## Two commands/ { inside = 1; next } /^## / { inside = 0 }
    inside && /^cargo / { print }' "$readme" | sed -n "${number}p")
[ -n "$command" ] || { echo "the README has no command $number" >&2; exit 1; }
printf '%s\n' "$command"
