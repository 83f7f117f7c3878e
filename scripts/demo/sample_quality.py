#!/usr/bin/env python3
"""Looks at what the model writes: 20 continuations through the k3 binary.

    python3 sample_quality.py K3_BINARY CHECKPOINT DATA_DIRECTORY [--show]

Temperature 0.8, top-p 0.95, 100 tokens each, one seed per prompt. At least 95 % of all words must be in Debian's word
list or among the words of the training text, and no run of five tokens may come more than 3 times in one continuation.
A word that the 100 tokens cut off at the end is not counted, nor is the rest of one that the prompt began. Exits with
1 if a bound does not hold.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

TOKENS, TEMPERATURE, TOP_P = 100, 0.8, 0.95
WORDS_AT_LEAST, RUN, RUNS_AT_MOST = 0.95, 5, 3
PROMPTS = [
    "In the beginning", "The President of the United States", "Call me", "And it came to pass", "The whale",
    "Our relations with foreign nations", "The LORD said unto Moses", "Captain Ahab stood upon the deck",
    "The Congress should consider", "Thou shalt not", "It was a cold morning, and the sea", "The revenue of the year",
    "My fellow citizens,", "And Jesus answered", "The old sailor looked at me and said", "A treaty with Great Britain",
    "Blessed is the man", "The harpooneers", "I recommend to your attention", "Now there was in the city a woman",
]  # fmt: skip
WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)*")


def known_words(data: Path) -> set[str]:
    """Lower case; possessives with and without their ending."""
    texts = [d["text"] for d in json.loads((data / "corpus.json").read_text()) if not d["heldout"]]
    listed = (data / "words.txt").read_text().split()
    return {w.lower() for w in listed} | {w.lower() for text in texts for w in WORD.findall(text)}


def is_known(word: str, known: set[str]) -> bool:
    return word.lower() in known or word.lower().removesuffix("'s") in known


def continuation(binary: str, checkpoint: Path, prompt: str, seed: int) -> tuple[str, list[int]]:
    command = [binary, str(checkpoint), "--prompt", prompt, "--gen", str(TOKENS), "--temperature", str(TEMPERATURE),
               "--top-p", str(TOP_P), "--seed", str(seed), "--ignore-eos", "--json", "--quiet"]  # fmt: skip
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return report["generated_text"], report["generated_ids"]


def whole_words(text: str) -> list[str]:
    spans = [m for m in WORD.finditer(text) if m.start() > 0 and m.end() < len(text)]
    return [m.group() for m in spans]


def most_repeated(ids: list[int]) -> int:
    return max(Counter(tuple(ids[i : i + RUN]) for i in range(len(ids) - RUN + 1)).values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--show", action="store_true", help="print the texts")
    args = parser.parse_args()
    known, total, unknown, worst = known_words(args.data), 0, [], 0
    for seed, prompt in enumerate(PROMPTS):
        text, ids = continuation(args.binary, args.checkpoint, prompt, seed)
        words = whole_words(text)
        total += len(words)
        unknown += [w for w in words if not is_known(w, known)]
        worst = max(worst, most_repeated(ids))
        if args.show:
            print(f"--- {prompt}|{text}\n")
    share = 1 - len(unknown) / total
    print(f"{total} words, {share:.2%} known (at least {WORDS_AT_LEAST:.0%}); unknown: {sorted(set(unknown))}")
    print(f"most often repeated run of {RUN} tokens: {worst} times (at most {RUNS_AT_MOST})")
    if share < WORDS_AT_LEAST or worst > RUNS_AT_MOST:
        sys.exit(1)


if __name__ == "__main__":
    main()
