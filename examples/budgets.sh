#!/bin/sh
# What a token costs the disk at several budgets, before anything is run. Only
# the configuration is needed: CONFIG is config.json or a directory with it.
#
#   sh examples/budgets.sh CONFIG
set -eu
for memory in 4G 8G 32G 128G; do
    plan=$(k3 plan --config "$1" --memory "$memory" --disk-gbps 3)
    printf '%-5s ' "$memory"
    echo "$plan" | sed -n 's/^bytes per token *//p'
done
