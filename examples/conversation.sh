#!/bin/sh
# A conversation of two turns. What the first has computed is kept in a directory,
# so that the second computes its new tokens alone, also days later.
#
#   sh examples/conversation.sh MODEL
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
ids() { tr -d ' \n' < "$work/report.json" | sed "s/.*\"$1\":\[\([^]]*\)\].*/\1/"; }
turn() { k3 "$model" --ids "$1" --gen 8 --prefix-cache "$work/states" --quiet --out "$work/report.json" > /dev/null; }
model=$1
turn 5,6,7,8
turn "$(ids prompt_ids),$(ids generated_ids),9,10"
echo "computed, and taken from the first turn:"
grep -E '"(positions|reused_positions)": [0-9]+,?$' "$work/report.json" | head -n 2
