#!/usr/bin/env python3
"""Our reference forward pass of Kimi K3: slow, readable, exact to docs/numerics.md.

    python3 k3_reference.py fixtures/tiny --ids 3,4,5 --gen 8
    python3 k3_reference.py fixtures/tiny --ids 3,4,5 --attention expanded --dump-logits out.bin --all-positions
    python3 k3_reference.py fixtures/tiny --ids 3,4,5 --mistake norm_order

Prints one JSON object; logits are dumped as raw little-endian f32.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import arithmetic as ar
from checkpoint import Checkpoint
from model import MISTAKES, Model, State


def generate(model: Model, ids: list[int], count: int):
    """Greedy: (logits of every prompt position, the ids chosen). Stop ids are not looked at."""
    state = State()
    prompt_logits = logits = model.forward(ids, state)
    chosen: list[int] = []
    while len(chosen) < count:
        chosen.append(ar.argmax(logits[-1]))
        if len(chosen) < count:
            logits = model.forward(chosen[-1:], state)
    return prompt_logits, chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="a directory with config.json and safetensors shards")
    parser.add_argument("--ids", required=True, help="prompt ids, separated by commas")
    parser.add_argument("--gen", type=int, default=0, help="generate so many ids greedily")
    parser.add_argument("--attention", choices=("latent", "expanded"), default="latent")
    parser.add_argument("--dump-logits", type=Path, help="write the last prompt position's logits")
    parser.add_argument("--all-positions", action="store_true", help="dump every prompt position instead")
    parser.add_argument("--mistake", action="append", default=[], metavar="NAME", help="one of: " + ", ".join(MISTAKES))
    args = parser.parse_args()

    model = Model(Checkpoint(args.checkpoint), args.attention, args.mistake)
    ids = [int(i) for i in args.ids.split(",")]
    logits, generated = generate(model, ids, args.gen)
    if args.dump_logits:
        args.dump_logits.write_bytes((logits if args.all_positions else logits[-1]).astype("<f4").tobytes())
    last = logits[-1]
    top = sorted(range(len(last)), key=lambda i: (-last[i], i))[:5]
    report = {"prompt_ids": ids, "attention": args.attention, "mistakes": args.mistake, "argmax": ar.argmax(last),
              "top": [[i, float(last[i])] for i in top], "generated_ids": generated}  # fmt: skip
    print(json.dumps(report))


if __name__ == "__main__":
    main()
