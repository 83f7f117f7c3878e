#!/bin/sh
# Rewrites runtime/tokenizer/src/unicode_ranges.rs from the Unicode tables of the regex
# engine in Cargo.lock, and checks the result against it.
set -eu
cd "$(dirname "$0")/../.."
K3_UPDATE_CLASS_TABLE=1 cargo test --quiet -p k3-tokenizer --test suite class_table
