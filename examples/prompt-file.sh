#!/bin/sh
# Continues the text in a file, on standard output alone: progress and report
# are left out, so that it can go into a pipe.
#
#   sh examples/prompt-file.sh MODEL question.txt
set -eu
k3 "$1" --prompt-file "$2" --gen 8 --quiet
