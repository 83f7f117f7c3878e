#!/bin/sh
# Continues the lines of a text file, all of them in the same sweeps, and prints
# what became of each. INPUT and OUTPUT of `k3 batch` are JSON, an object a line.
#
#   sh examples/batch.sh MODEL question.txt
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
# Quotes and backslashes are what JSON wants escaped in a line of text.
sed 's/[\\"]/\\&/g; s/.*/{"prompt": "&"}/' "$2" > "$work/in.jsonl"
k3 batch "$work/in.jsonl" "$work/out.jsonl" "$1" --gen 8 --quiet
sed 's/.*"text":"\(.*\)","stop_reason".*/\1/' "$work/out.jsonl"
