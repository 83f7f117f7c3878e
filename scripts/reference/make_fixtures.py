#!/usr/bin/env python3
"""Writes the committed fixtures, or checks that the committed ones are what this script writes.

    python3 make_fixtures.py            write fixtures/ of this repository
    python3 make_fixtures.py --check    write to a temporary folder and compare byte for byte
    python3 make_fixtures.py --only tiny,golden
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

import bpe
import golden_kernels
import golden_sampling
from checkpoint import Checkpoint
from k3_reference import generate
from mistakes import mistakes_report
from model import Model
from prng import Stream
from shards import write_shards
from tiny_models import Tiny, config_of, shards_of, specs

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
GENERATED = 24
ALL_POSITIONS = ("odd", "p17rep")
PARTS = ("tiny", "odd", "flat", "mistakes", "golden", "sampling")
LATENT_BOUND = 2e-6  # of the largest |logit|: how far the two MLA forms may lie apart


def prompts_of(m: Tiny) -> dict[str, list[int]]:
    stream = Stream(f"{m.name}/prompts")
    ids = m.vocab - m.low_rows
    prompts = {f"p{n}": stream.below(ids, n).tolist() for n in (1, 5, 12)}
    four = stream.below(ids, 4).tolist()
    prompts["p17rep"] = (four * 5)[:17]
    return prompts | {f"p{n}": stream.below(ids, n).tolist() for n in (40, 70)}


def write_json(path: Path, value: object) -> None:
    """Indented, but a list of numbers stays on one line."""
    text = json.dumps(value, indent=1)
    path.write_text(re.sub(r"\[[\d\s,]+\]", lambda m: re.sub(r"\s+", " ", m[0]), text) + "\n")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_logits(path: Path, logits: np.ndarray) -> dict[str, str]:
    path.write_bytes(logits.astype("<f4").tobytes())
    return {"logits": path.name, "logits_sha256": sha256(path)}


def write_model(m: Tiny, directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)  # shards of an older layout must not stay behind
    directory.mkdir(parents=True)
    write_json(directory / "config.json", config_of(m))
    write_shards(directory, shards_of(m))
    if m.name == "tiny":
        tokens = bpe.vocabulary()
        (directory / "tiktoken.model").write_bytes(bpe.rank_file(tokens))
        (directory / "tokenizer_config.json").write_text(bpe.tokenizer_config(len(tokens)))


def expected_of(m: Tiny, directory: Path) -> dict:
    """Runs both forms over all prompts; refuses a model whose fixtures would be worth little."""
    files = sorted(p.name for p in directory.iterdir())
    checkpoint = Checkpoint(directory)
    models = {form: Model(checkpoint, form) for form in ("expanded", "latent")}
    cases = {}
    for prompt, ids in prompts_of(m).items():
        case: dict = {"ids": ids}
        last = {}
        for form, model in models.items():
            logits, generated = generate(model, ids, GENERATED)
            last[form] = logits[-1]
            entry = write_logits(directory / f"logits_{form}_{prompt}.bin", logits[-1])
            if (m.name, prompt) == ALL_POSITIONS:
                every = write_logits(directory / f"logits_{form}_{prompt}_all.bin", logits)
                entry |= {f"all_positions_{k}": v for k, v in every.items()}
            case[form] = entry | {"argmax": generated[0], "generated_ids": generated}
            assert m.eos not in generated and max(generated) < m.vocab - m.low_rows, f"{m.name} {prompt} stops"
        apart = np.abs(last["latent"] - last["expanded"]).max() / np.abs(last["expanded"]).max()
        assert apart <= LATENT_BOUND, f"{m.name} {prompt}: the two forms differ by {apart}"
        assert case["latent"]["generated_ids"] == case["expanded"]["generated_ids"], f"{m.name} {prompt}"
        cases[prompt] = case
    scales = [a for s in shards_of(m) for n, a in s.tensors.items() if n.endswith("weight_scale")]
    return {
        "numerics_version": 1,
        "purpose": m.purpose,
        "logits": f"raw little-endian f32[{m.vocab}], last prompt position, first step; "
                  f"all_positions: f32[positions][{m.vocab}]",
        "nan_scale_bytes": int(sum((a == 255).sum() for a in scales)),
        "sha256": {name: sha256(directory / name) for name in files},
        "prompts": cases,
    }  # fmt: skip


def text_examples() -> dict:
    tokens = bpe.vocabulary()
    ranks = {token: rank for rank, token in enumerate(tokens)}
    return {"mode": "content", "cases": [{"text": t, "ids": bpe.encode(ranks, t)} for t in bpe.EXAMPLES]}


def build(out: Path, parts: tuple[str, ...]) -> None:
    models = specs(len(bpe.vocabulary()), bpe.RESERVED_SLOTS)
    for m in models:
        if m.name in parts:
            directory = out / m.name
            write_model(m, directory)
            expected = expected_of(m, directory)
            write_json(directory / "expected.json", expected)
    if "tiny" in parts:
        write_json(out / "tiny" / "text.json", text_examples())
    if "golden" in parts:
        (out / "golden_kernels.json").write_text(golden_kernels.render())
    if "sampling" in parts:
        (out / "golden_sampling.json").write_text(golden_sampling.render())
    if "mistakes" in parts:
        cases = {m.name: (out / m.name, prompts_of(m)) for m in models}
        (out / "mistakes.json").write_text(mistakes_report(cases))


def check(parts: tuple[str, ...]) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        fresh = Path(temporary)
        build(fresh, parts)
        names = {p.relative_to(fresh) for p in fresh.rglob("*") if p.is_file()}
        if parts == PARTS:
            names |= {p.relative_to(FIXTURES) for p in FIXTURES.rglob("*") if p.is_file()}
        bad = [n for n in sorted(names) if not _same(fresh / n, FIXTURES / n)]
    for name in bad:
        print(f"differs or is missing: fixtures/{name}", file=sys.stderr)
    print(f"{len(names) - len(bad)} of {len(names)} files equal")
    return 1 if bad else 0


def _same(a: Path, b: Path) -> bool:
    return a.exists() and b.exists() and a.read_bytes() == b.read_bytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas: " + ", ".join(PARTS))
    args = parser.parse_args()
    parts = tuple(args.only.split(","))
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown parts {sorted(unknown)}")
    if args.check:
        return check(parts)
    build(FIXTURES, parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
