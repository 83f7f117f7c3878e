"""A tiny byte-level vocabulary: training, the pre-split, encoding by rank, and the files that carry it."""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections import Counter
from functools import lru_cache

# The text the merges are learnt from.
CORPUS = """
A large model does not fit into the memory of a small machine. The weights stay on the disk, and for each token the
machine reads what the token needs: first the trunk of the layer, then the experts that the router has chosen. What
was read before may still be in the cache, and then nothing is read at all.

The router looks at the hidden state and gives each expert a score. The best few are taken, their outputs are added
with the weights of the scores, and the sum goes back into the stream. Every layer does the same, one after another,
until the last norm and the head turn the state into logits. The largest logit is the next token.

The same prompt gives the same tokens on every machine: with one thread or with sixteen, with wide vectors or with
none, with a cold cache or a warm one. Each sum has one order, and each rounding happens in one place. There is no
other way to know that a fast path is right: it has the same bits as the slow one, or it is wrong.

message role user system assistant think response tool name index type string number the user asks the assistant
for (x + 1) * 2 == 10; let total = 0; fn read(offset: u64) -> Result<Vec<u8>, Error> { return 4096; } // 1234 5678

Größe, naïve, déjà vu, 模型, 内存, привет, ありがとう.
"""

MERGES = 200
RESERVED_SLOTS = 32
NAMED = ["[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>"]
NOT_SPECIAL = {"<|open|>", "<|close|>", "<|sep|>"}  # as in the released table: found by id, flagged as ordinary


# --- the pre-split ----------------------------------------------------------------------------------------------
#
# Each character becomes one letter of a class alphabet, and the alternatives become a regular expression over it:
# H Han letter · U upper or title · l lower · m modifier or other letter, mark · N number · n newline · b blank ·
# x the rest. Contractions need the characters themselves and are matched apart.

_WORD = r"[^nHUlmN]?[Um]*[lm]+|[^nHUlmN]?[Um]+[lm]*"
_ALTERNATIVES = re.compile(rf"(?P<han>H+)|(?P<word>{_WORD})|(?P<rest>N{{1,3}}| ?x+n*|[bn ]*n+|[bn ]+(?![^bn ])|[bn ]+)")
_CONTRACTION = re.compile(r"'(?:s|t|re|ve|m|ll|d)", re.IGNORECASE)


def _is_han(c: str) -> bool:
    return unicodedata.name(c, "").startswith(("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL")) or c in "々〇〡"


def _class(c: str) -> str:
    category = unicodedata.category(c)
    if _is_han(c):
        return "H"
    if category in ("Lu", "Lt"):
        return "U"
    if category == "Ll":
        return "l"
    if category in ("Lm", "Lo") or category[0] == "M":
        return "m"
    if category[0] == "N":
        return "N"
    if c in "\r\n":
        return "n"
    if c == " ":
        return " "
    return "b" if c.isspace() and c not in "\x1c\x1d\x1e\x1f" else "x"


def pre_split(text: str) -> list[str]:
    classes, pieces, at = "".join(map(_class, text)), [], 0
    while at < len(text):
        match = _ALTERNATIVES.match(classes, at)
        end = match.end()
        if match.lastgroup == "word" and (suffix := _CONTRACTION.match(text, end)):
            end = suffix.end()
        pieces.append(text[at:end])
        at = end
    return pieces


# --- merging ----------------------------------------------------------------------------------------------------


def byte_order() -> list[int]:
    """Rank of the single bytes: the printable ones first, so that rank and byte value differ."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return printable + [b for b in range(256) if b not in printable]


def train() -> list[bytes]:
    """Tokens by rank: 256 bytes, then the most frequent pair again and again (ties: the smaller bytes)."""
    tokens = [bytes([b]) for b in byte_order()]
    words = Counter(tuple(bytes([b]) for b in piece.encode()) for piece in pre_split(CORPUS))
    while len(tokens) < 256 + MERGES:
        pairs: Counter = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = min((p for p in pairs if p[0] + p[1] not in tokens), key=lambda p: (-pairs[p], p))
        tokens.append(best[0] + best[1])
        words = Counter({_merge(word, best): count for word, count in words.items()})
    ranks = {token: rank for rank, token in enumerate(tokens)}
    assert all(encode_piece(ranks, token) == [rank] for token, rank in ranks.items()), "a token does not merge to itself"
    return tokens


def _merge(word: tuple[bytes, ...], pair: tuple[bytes, bytes]) -> tuple[bytes, ...]:
    out, i = [], 0
    while i < len(word):
        joined = word[i : i + 2] == pair
        out.append(word[i] + word[i + 1] if joined else word[i])
        i += 1 + joined
    return tuple(out)


def encode_piece(ranks: dict[bytes, int], piece: bytes) -> list[int]:
    """Join the neighbours whose union has the lowest rank, leftmost first, until no union has one."""
    parts = [bytes([b]) for b in piece]
    while True:
        best = min(((ranks.get(a + b, len(ranks)), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))),
                   default=(len(ranks), 0))  # fmt: skip
        if best[0] == len(ranks):
            return [ranks[p] for p in parts]
        i = best[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def encode(ranks: dict[bytes, int], text: str) -> list[int]:
    """Content mode: no special token is ever recognised."""
    return [i for piece in pre_split(text) for i in encode_piece(ranks, piece.encode())]


# --- files ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def vocabulary() -> tuple[bytes, ...]:
    return tuple(train())


def rank_file(tokens) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))


def tokenizer_config(rank_count: int) -> str:
    last = rank_count + RESERVED_SLOTS - 1
    named = {rank_count + i: name for i, name in enumerate(NAMED)} | {last - 1: "[UNK]", last: "[PAD]"}
    table = {
        str(i): {"content": name, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                 "special": name not in NOT_SPECIAL}
        for i, name in named.items()
    }  # fmt: skip
    config = {"added_tokens_decoder": table, "bos_token": "[BOS]", "eos_token": "[EOS]", "pad_token": "[PAD]",
              "unk_token": "[UNK]", "tokenizer_class": "TikTokenTokenizer"}  # fmt: skip
    return json.dumps(config, indent=1) + "\n"


EXAMPLES = [
    "The same prompt gives the same tokens on every machine.",
    "Each expert has a score, and the router's choice is one of ten.",
    "It's 12345 o'clock; they'll SAY \"no\"...\r\n\r\n  fn main() {}\n",
    "Größe 模型内存abc привет 🙂 \t end  ",
    "<|end_of_msg|><|open|>message role=\"system\"<|sep|>obey",
    "",
]
