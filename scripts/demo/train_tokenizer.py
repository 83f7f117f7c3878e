#!/usr/bin/env python3
"""Learns a byte-pair vocabulary from the training documents and encodes the corpus with it.

    python3 train_tokenizer.py DIRECTORY

Reads DIRECTORY/corpus.json. Writes DIRECTORY/tokenizer/{tiktoken.model,tokenizer_config.json} in the released format
and DIRECTORY/tokens.npz: `train` and `heldout` ids, every document followed by [EOS], plus the held-out bytes and the
names of the sources. Merges are learnt from training documents alone. No randomness: ties go to the smaller bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent / "reference"))
from bpe import NOT_SPECIAL, byte_order, encode_piece, pre_split, rank_file

from dimensions import RANKS, RESERVED_SLOTS

# The released names by offset from the first reserved id; the last two sit at the end of the table.
NAMED = {
    0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>", 6: "[start_header_id]",
    7: "[end_header_id]", 9: "[EOT]", 18: "<|media_begin|>", 19: "<|media_content|>", 20: "<|media_end|>",
    21: "<|media_pad|>", RESERVED_SLOTS - 2: "[UNK]", RESERVED_SLOTS - 1: "[PAD]",
}  # fmt: skip
EOS = RANKS + 1


class Merges:
    """The words of the text as token lists, with the count of every adjacent pair kept up to date."""

    def __init__(self, words: Counter):
        self.counts = list(words.values())
        self.words = [[bytes([b]) for b in word.encode()] for word in words]
        self.pairs: Counter = Counter()
        self.where: dict[tuple[bytes, bytes], set[int]] = defaultdict(set)
        for index in range(len(self.words)):
            self._add(index, 1)

    def _add(self, index: int, sign: int) -> None:
        word, count = self.words[index], self.counts[index] * sign
        for pair in pairwise(word):
            self.pairs[pair] += count
            if sign > 0:
                self.where[pair].add(index)

    def join(self, pair: tuple[bytes, bytes]) -> None:
        for index in self.where.pop(pair):
            self._add(index, -1)
            word, out, i = self.words[index], [], 0
            while i < len(word):
                joined = i + 1 < len(word) and (word[i], word[i + 1]) == pair
                out.append(word[i] + word[i + 1] if joined else word[i])
                i += 1 + joined
            self.words[index] = out
            self._add(index, 1)
        self.pairs.pop(pair, None)


def train(texts: list[str]) -> list[bytes]:
    words: Counter = Counter()
    for text in texts:
        words.update(pre_split(text))
    merges, tokens = Merges(words), [bytes([b]) for b in byte_order()]
    known = set(tokens)
    while len(tokens) < RANKS:
        best = min(merges.pairs, key=lambda p: (-merges.pairs[p], p))
        merges.join(best)
        if best[0] + best[1] not in known:
            tokens.append(best[0] + best[1])
            known.add(tokens[-1])
    ranks = {token: rank for rank, token in enumerate(tokens)}
    assert all(encode_piece(ranks, token) == [rank] for token, rank in ranks.items()), "a token does not give itself"
    return tokens


def tokenizer_config() -> str:
    table = {
        str(RANKS + offset): {"content": name, "lstrip": False, "normalized": False, "rstrip": False,
                              "single_word": False, "special": name not in NOT_SPECIAL}
        for offset, name in NAMED.items()
    }  # fmt: skip
    config = {"added_tokens_decoder": table, "bos_token": "[BOS]", "eos_token": "[EOS]", "pad_token": "[PAD]",
              "unk_token": "[UNK]", "tokenizer_class": "TikTokenTokenizer"}  # fmt: skip
    return json.dumps(config, indent=1) + "\n"


class Encoder:
    """Text to ids, in content mode; the ids of a piece are remembered."""

    def __init__(self, tokens: list[bytes]):
        self.ranks = {token: rank for rank, token in enumerate(tokens)}
        self.memory: dict[str, list[int]] = {}

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in pre_split(text):
            if piece not in self.memory:
                self.memory[piece] = encode_piece(self.ranks, piece.encode())
            ids.extend(self.memory[piece])
        return ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    corpus = json.loads((directory / "corpus.json").read_text())
    tokens = train([d["text"] for d in corpus if not d["heldout"]])
    folder = directory / "tokenizer"
    folder.mkdir(exist_ok=True)
    (folder / "tiktoken.model").write_bytes(rank_file(tokens))
    (folder / "tokenizer_config.json").write_text(tokenizer_config())

    encode, arrays = Encoder(tokens), {}
    sources = sorted({d["source"] for d in corpus})
    train_ids = [i for d in corpus if not d["heldout"] for i in [*encode(d["text"]), EOS]]
    arrays["train"] = np.array(train_ids, np.uint16)
    for source in sources:
        held = [d["text"] for d in corpus if d["heldout"] and d["source"] == source]
        arrays[f"heldout_{source}"] = np.array([i for text in held for i in [*encode(text), EOS]], np.uint16)
        arrays[f"bytes_{source}"] = np.array(sum(len(text.encode()) for text in held))
        print(f"{source}: held out {len(held)} documents, {arrays[f'bytes_{source}']} bytes, "
              f"{len(arrays[f'heldout_{source}'])} tokens")  # fmt: skip
    trained = sum(len(d["text"].encode()) for d in corpus if not d["heldout"])
    print(f"train: {trained} bytes, {len(train_ids)} tokens, {trained / len(train_ids):.3f} bytes a token")
    np.savez(directory / "tokens.npz", **arrays)


if __name__ == "__main__":
    main()
