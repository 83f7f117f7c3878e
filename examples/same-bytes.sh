#!/bin/sh
# The same logits, bit for bit, from two budgets and from every weight in
# memory. Ends with 1 if one of them differs.
#
#   sh examples/same-bytes.sh MODEL
set -eu
there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT
k3 "$1" --ids 3,4,5 --gen 0 --quiet --memory 4G --dump-logits "$there/a"
k3 "$1" --ids 3,4,5 --gen 0 --quiet --memory 1G --dump-logits "$there/b"
k3 "$1" --ids 3,4,5 --gen 0 --quiet --resident --dump-logits "$there/c"
k3 compare "$there/a" "$there/b"
k3 compare "$there/a" "$there/c"
