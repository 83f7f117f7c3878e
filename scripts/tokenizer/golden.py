#!/usr/bin/env python3
"""Writes runtime/tokenizer/tests/golden.json: texts and their ids.

The ids come from Python's tiktoken, the encoder the release uses, with the released
pattern and the vocabulary file given:

    pip install tiktoken==0.14.0
    scripts/tokenizer/golden.py path/to/tiktoken.model

Run it again after adding a text; no other line of the file may change.
"""

import base64
import json
import sys
from pathlib import Path

import tiktoken

HAN_FREE = r"&&[^\p{Han}]]"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}" + HAN_FREE
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}" + HAN_FREE
LEAD = r"[^\r\n\p{L}\p{N}]?"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join(
    [
        r"[\p{Han}]+",
        LEAD + UPPER + "*" + LOWER + "+" + CONTRACTION,
        LEAD + UPPER + "+" + LOWER + "*" + CONTRACTION,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

SLOT_COUNT = 256
NAMED = {
    0: "[BOS]",
    1: "[EOS]",
    2: "<|end_of_msg|>",
    3: "<|open|>",
    4: "<|close|>",
    5: "<|sep|>",
    6: "[start_header_id]",
    7: "[end_header_id]",
    9: "[EOT]",
    18: "<|media_begin|>",
    19: "<|media_content|>",
    20: "<|media_end|>",
    21: "<|media_pad|>",
    65: "<osagent_mode>",
    254: "[UNK]",
    255: "[PAD]",
}

# The released wrapper cuts long text at these numbers of characters.
PART_CHARS = 400_000
RUN_CHARS = 25_000

TEXTS = [
    # Plain prose, punctuation, quotes.
    "",
    " ",
    "x",
    "A river does not hurry, and yet it reaches the sea.",
    "“Why,” she asked — twice — “is the lamp still lit…?”",
    "No. 7, Rue de l'Église; tel. +33 1 23 45 67 89 (ext. 4).",
    "well-known, so-called, e.g. this/that, and/or those & these @ 5% #tag $9.99",
    # Contractions in every case, at borders, with the long s, and what only looks like one.
    "she's WON'T They'Re we'VE i'm YOU'LL he'd",
    "'s 't 're 've 'm 'll 'd 'x 'l 'r",
    "dogs' tails, '90s, rock'n'roll, o'er, y'all'd've",
    "it\u2019s not it's; thi'\u017f thi'\u017ft",
    "\u6f22's 5's é's Ω'LL",
    # Case changes.
    "parseHTTPResponseCode XMLHttpRequest iPhoneX McDonald",
    "SCREAMING_SNAKE_CASE kebab-case Title Case dromedaryCase",
    "ABCdefGHI aBcDeF ÀÉÎõü ΑΒΓαβγ ДЕЖдеж",
    "\u01c5ungla \u01c8ubav \u01cb \u02b0a \u00aa\u00ba",
    # Digits: groups of three, other digits, letter numbers, fractions.
    "1 12 123 1234 12345 123456 1234567",
    "3.14159265358979 1e-9 0xDEADBEEF 1_000_000 2026-11-30T23:59:59Z",
    "\u0664\u0665\u0666\u0667 \u0967\u0968\u0969\u096a \u2163\u2164 \u00bd\u00b2\u2153 \U0001d7d8\U0001d7d9",
    "12\u3007\u3007 \u3007 \u4e00\u4e8c\u4e09 10\u5e74",
    # White space of every kind.
    "a b  c   d    e",
    "  leading two, trailing three   ",
    "\ttab\t\ttabs\t \tmixed \t end\t",
    "line\nline\n\nline\n\n\n",
    "dos\r\nlines\r\n\r\nand\rold\r\rmac",
    " \n \n  \n   x",
    "x \n",
    "x\n ",
    "\u00a0nbsp\u00a0\u00a0 em\u2003space ideographic\u3000\u3000space nel\u0085x ls\u2028x",
    "zero\u200bwidth\u200d joiner \ufeffbom \u1680ogham \u205fmath",
    "\x1c\x1d\x1e\x1f separators \x00\x01\x7f controls",
    # Symbols and what may follow them.
    "{\n  \"key\": [1, 2, {\"x\": null}],\r\n\t\"y\": \"z\"\n}\n",
    "if (a && !b || c >> 2 != 0) { return ~x ^ y; } // done\n\n",
    "https://example.org/a/b?c=d&e=f%20g#h ../../etc/passwd C:\\Temp\\x.txt",
    "===== ----- ..... !!!!! ????? ^^^^^ //////\n//",
    "(((((((((( )))))))))) [[[[]]]] <<<<>>>>",
    "a->b a=>b a:=b a::b a<-b a|>b ...c",
    # Code.
    "fn main() {\n    let v: Vec<u32> = (0..10).map(|n| n * n).collect();\n}\n",
    "def f(x):\n\tif x:\n\t\treturn [i for i in x if i]\n\treturn None\n",
    "SELECT a.id, COUNT(*) FROM t AS a WHERE a.x >= 10 GROUP BY 1;",
    "#include <stdio.h>\nint main(void){printf(\"%d\\n\",42);return 0;}",
    "\\begin{align} E &= mc^2 \\\\ \\nabla \\cdot B &= 0 \\end{align}",
    # Scripts.
    "\u5c71\u8def\u5f88\u957f\uff0c\u6211\u4eec\u6162\u6162\u8d70\u3002",
    "\u671d\u306e\u6d77\u306f\u9759\u304b\u3060\u3063\u305f\u3002\u30ab\u30e2\u30e1\u304c\u4e09\u7fbd\u3001\u98db\u3093\u3067\u3044\u304f\u3002",
    "\uac15\ubb3c\uc740 \uc11c\ub450\ub974\uc9c0 \uc54a\ub294\ub2e4. \u1112\u1161\u11ab",
    "\u0420\u0435\u043a\u0430 \u043d\u0435 \u0441\u043f\u0435\u0448\u0438\u0442, \u043d\u043e \u043f\u0440\u0438\u0445\u043e\u0434\u0438\u0442 \u043a \u043c\u043e\u0440\u044e.",
    "\u03a4\u03bf \u03c0\u03bf\u03c4\u03ac\u03bc\u03b9 \u03b4\u03b5 \u03b2\u03b9\u03ac\u03b6\u03b5\u03c4\u03b1\u03b9.",
    "\u0627\u0644\u0646\u0651\u0647\u0631\u064f \u0644\u0627 \u064a\u0633\u062a\u0639\u062c\u0644\u061f",
    "\u05d4\u05e0\u05b8\u05d4\u05b8\u05e8 \u05d0\u05d9\u05e0\u05d5 \u05de\u05de\u05d4\u05e8",
    "\u0928\u0926\u0940 \u0915\u094b \u091c\u0932\u094d\u0926\u0940 \u0928\u0939\u0940\u0902 \u0939\u0948\u0964",
    "\u0e41\u0e21\u0e48\u0e19\u0e49\u0e33\u0e44\u0e21\u0e48\u0e23\u0e35\u0e1a\u0e23\u0e49\u0e2d\u0e19",
    "\u10db\u10d3\u10d8\u10dc\u10d0\u10e0\u10d4 \u0563\u0565\u057f\u0568 \u12c8\u1295\u12d9 \u1019\u103c\u1005\u103a",
    "D\u00f2ng s\u00f4ng kh\u00f4ng v\u1ed9i. I\u0307stanbul \u0130\u0131 stra\u00dfe \u1e9e",
    "\u6771\u4eac\u30bf\u30ef\u30fc\u306eABC\u968e\u3067\u3059\u3001it's 333m\u3060\u3088",
    "\u2e80\u2f00\u3005\u3006\u3021 \U00020000\U0002a6d6x \u6f22 \u6f22a a\u6f22",
    # Marks, emoji, private use, the last character.
    "e\u0301 a\u0300\u0323 \u0301x \u0301X A\u0301B \u20dd!\u0301",
    "\U0001f600\U0001f680 \U0001f469\u200d\U0001f52c\U0001f44d\U0001f3fd \U0001f1eb\U0001f1f7 \u2764\ufe0f 1\ufe0f\u20e3",
    "\ue000\uf8ff \U000f0000 \ufffd \ufffe \U0010ffff",
    "AB\u3042CD \u3042A\u3042a \u3042\u3042A",
    # Long single pieces.
    "a" * 70,
    "abcabcabd" * 12,
    "\u3042\u308a\u304c\u3068" * 20,
    "=" * 100 + "\n" + " " * 100 + "-" * 65,
    # Control tokens: ordinary text in one mode, ids in the other.
    "<|open|>message role=\"tool\" index=\"2\"<|sep|>18 \u00b0C<|close|>message<|sep|><|end_of_msg|>",
    "role=\"user\"<|sep|>",
    "pay [BOS] and [EOS], [eos], <|sep|, |sep|> <|reserved_token_163592|> no more",
    "a   <|sep|>   b <<|open|>> [[PAD]]",
    "<|im_end|> <|endoftext|> <s></s>",
]

REPEATED = [
    ("a", 60_000),
    (" ", 60_000),
    ("^", 25_001),
    ("\n", 25_001),
    ("\u3042\u308a\u304c\u3068", 13_000),
    ("word ", 90_000),
    ("\x1f ", 20_000),
    ("12", 30_000),
]


def load(path):
    ranks = {}
    for line in Path(path).read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    base = len(ranks)
    specials = {
        NAMED.get(offset, f"<|reserved_token_{base + offset}|>"): base + offset
        for offset in range(SLOT_COUNT)
    }
    return tiktoken.Encoding(
        name="golden", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=specials
    )


def spans(text):
    """The released rule for long text."""
    for part_start in range(0, len(text), PART_CHARS):
        part = text[part_start : part_start + PART_CHARS]
        start, run, kind = 0, 0, part[0].isspace()
        for index, char in enumerate(part):
            if char.isspace() != kind:
                kind, run = not kind, 1
                continue
            run += 1
            if run > RUN_CHARS:
                yield part[start:index]
                start, run = index, 1
        yield part[start:]


def fnv1a(ids):
    value = 0xCBF29CE484222325
    for byte in b"".join(number.to_bytes(4, "little") for number in ids):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    encoding = load(sys.argv[1])
    texts = []
    for text in TEXTS:
        entry = {"text": text, "content": encoding.encode_ordinary(text)}
        structure = encoding.encode(text, allowed_special="all")
        if structure != entry["content"]:
            entry["structure"] = structure
        texts.append(entry)
    repeated = []
    for unit, times in REPEATED:
        ids = [number for span in spans(unit * times) for number in encoding.encode_ordinary(span)]
        repeated.append({"unit": unit, "times": times, "id_count": len(ids), "fnv1a": fnv1a(ids)})
    lines = {
        key: ",\n  ".join(json.dumps(entry) for entry in entries)
        for key, entries in (("texts", texts), ("repeated", repeated))
    }
    body = ",\n".join(f'"{key}": [\n  {entries}\n]' for key, entries in lines.items())
    root = Path(__file__).resolve().parents[2]
    (root / "runtime/tokenizer/tests/golden.json").write_text("{\n" + body + "\n}\n")


if __name__ == "__main__":
    main()
