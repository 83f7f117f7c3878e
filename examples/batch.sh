#!/bin/sh
# Continues the lines of a text file, all of them in the same sweeps, and prints
# what became of each. INPUT and OUTPUT of `k3 batch` are JSON, an object a line.
#
#   sh examples/batch.sh MODEL question.txt
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
# JSON wants quotes, backslashes and tabs escaped, and has no place for other
# control characters.
tr -d '\000-\010\013-\037' < "$2" |
    sed -e '/^$/d' -e 's/[\\"]/\\&/g' -e "s/$(printf '\t')/\\\\t/g" -e 's/.*/{"prompt": "&"}/' > "$work/in.jsonl"
k3 batch "$work/in.jsonl" "$work/out.jsonl" "$1" --gen 8 --quiet
# The other way round, one character after the other; a line without a text says why.
awk 'BEGIN { as["n"] = "\n"; as["t"] = "\t"; as["r"] = "\r"; as["b"] = "\b"; as["f"] = "\f"
    for (n = 1; n < 32; n++) as[sprintf("u%04x", n)] = sprintf("%c", n) }
    !sub(/.*"text":"/, "") { print; next }
    { text = ""
      for (at = 1; (c = substr($0, at, 1)) != "\"" && c != ""; at++) {
          if (c == "\\") {
              c = substr($0, ++at, 1)
              if (c == "u") { c = substr($0, at, 5); at += 4 }
              if (c in as) c = as[c]
          }
          text = text c
      }
      print text }' "$work/out.jsonl"
