#!/bin/sh
# Reads the JSON report of a run with the shell alone: what was generated, and
# how long each token took. Other languages have better tools for JSON.
#
#   sh examples/report.sh MODEL
set -eu
report=$(mktemp)
trap 'rm -f "$report"' EXIT
k3 "$1" --ids 3,4,5 --gen 4 --ignore-eos --quiet --out "$report" > /dev/null
list() { tr -d ' \n' < "$report" | sed "s/.*\"$1\":\[\([^]]*\)\].*/\1/"; echo; }
echo "ids      $(list generated_ids)"
echo "seconds  $(list token_seconds)"
