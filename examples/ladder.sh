#!/bin/sh
# The same run in more and more memory, and whether each wrote the same tokens.
#
#   sh examples/ladder.sh MODEL
set -eu
for memory in 64M 96M 128M; do
    ids=$(k3 "$1" --ids 3,4,5 --gen 8 --ignore-eos --memory "$memory" --json --quiet |
        tr -d ' \n' | sed 's/.*"generated_ids":\[\([^]]*\)\].*/\1/')
    echo "$memory $ids"
done | awk '{ print; seen[$2] } END { n = 0; for (ids in seen) n++; exit n != 1 }'
