#!/bin/sh
# Looks at a run while it goes on, the way Prometheus does: any free port, and one
# request to it.
#
#   sh examples/metrics.sh MODEL
set -eu
work=$(mktemp -d)
# There before the run is: it is looked into at once.
: > "$work/said"
k3 "$1" --ids 3,4,5 --gen 100000 --context 200000 --ignore-eos --metrics-listen 127.0.0.1:0 \
    > /dev/null 2> "$work/said" &
run=$!
trap 'kill "$run" 2> /dev/null || true; wait "$run" || true; rm -r "$work"' EXIT
until port=$(grep -o 'http://127.0.0.1:[0-9]*' "$work/said" | grep -o '[0-9]*$'); do
    kill -0 "$run" 2> /dev/null || { cat "$work/said" >&2; exit 1; }
    sleep 0.1
done
sleep 1
# bash can open a connection; curl does as well where there is one.
bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1"; printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; cat <&3' - "$port" |
    grep -E '^k3_(generated_tokens_total|counts_trunk_bytes_total|plan_bytes)' | head -n 8
