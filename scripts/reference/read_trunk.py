#!/usr/bin/env python3
"""Reads a packed trunk by docs/formats/trunk.md alone and compares it with its checkpoint.

    python3 read_trunk.py MODEL OUT...      OUT: every directory the trunk was packed into

Shares no line with k3. The checksums (BLAKE3, XXH3-128) are not computed: Python has neither.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter
from pathlib import Path

import numpy as np

PAGE = 4096
SIZES = (8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1, 1, 1, 1, 1, 1, 8)  # of the element types
ENTRY = struct.Struct("<HBBHHQIIIIQQQ16s32s")
HEADER = struct.Struct("<8sII32s32sHHIQIIQQ32sQ")


def pages(length: int) -> int:
    return -(-length // PAGE) * PAGE


def decode(payload: bytes, rows: int, cols: int) -> bytes:
    """The weights of a bf16-x3 block."""
    groups = -(-cols // 8)
    data = np.frombuffer(payload, np.uint8)
    directory = np.frombuffer(payload, "<u4", rows + 1)
    dictionaries = data[4 * (rows + 1) :][: 8 * rows].reshape(rows, 8)
    assert (dictionaries[:, 7] == 0xFF).all()
    bodies = data[4 * (rows + 1) + 8 * rows :][: 11 * groups * rows].reshape(rows, 11 * groups)
    escapes = data[4 * (rows + 1) + 8 * rows + 11 * groups * rows :]
    assert directory[0] == 0 and len(escapes) == directory[rows] + 64 and not escapes[-64:].any()
    codes, low = np.empty((2, rows, 8 * groups), np.uint8)
    for first in range(0, 8 * groups, 64):
        g = min(64, 8 * groups - first)
        group = bodies[:, 11 * first // 8 :][:, : 11 * g // 8]
        bits = np.unpackbits(group[:, : 3 * g // 8], axis=1, bitorder="little").reshape(rows, g, 3)
        codes[:, first : first + g] = bits @ np.array([1, 2, 4], np.uint8)
        low[:, first : first + g] = group[:, 3 * g // 8 :]
    assert not codes[:, cols:].any() and not low[:, cols:].any()
    exponents = np.take_along_axis(dictionaries, codes.astype(np.intp), axis=1)
    assert ((codes == 7).sum(axis=1) == np.diff(directory)).all()
    exponents[codes == 7] = escapes[:-64]
    rotated = exponents.astype(np.uint16) << 8 | low
    return ((rotated >> 1 | rotated << 15) & 0xFFFF)[:, :cols].astype("<u2").tobytes()


def stripes(directories: list[Path]) -> dict[int, tuple]:
    """The headers by index of the stripe, each with its file."""
    found, sets = {}, set()
    for directory in directories:
        for path in sorted(directory.glob("trunk-??-of-??.k3trunk")):
            data = path.read_bytes()
            fields = HEADER.unpack_from(data)
            magic, version, flags, _, name, index, count, _, block_bytes, blocks, zero = fields[:11]
            assert (magic, version, flags, zero) == (b"K3TRUNK\0", 2, 0, 0), path
            assert fields[14] == len(data) and not any(data[160:4064]), path
            sets.add((name, count, block_bytes, blocks, fields[13]))
            assert index not in found and index < count, path
            found[index] = (fields, data)
    assert len(sets) == 1 and len(found) == found[0][0][6], "one whole set"
    return found


def compare(model: Path, directories: list[Path]) -> Counter:
    """Decodes every block and compares it with the shards; gives the blocks of each codec."""
    found = stripes(directories)
    header, first = found[0]
    block_count, table_offset, table_bytes = header[9], header[11], header[12]
    shards = [path.read_bytes() for path in sorted(model.glob("*.safetensors"))]
    ends, codecs = dict.fromkeys(found, PAGE), Counter()
    assert table_bytes == pages(ENTRY.size * block_count) == len(first) - table_offset
    for index in range(block_count):
        entry = ENTRY.unpack_from(first, table_offset + index * ENTRY.size)
        shard, dtype, codec, stripe, zero, source, start, rows, total, cols = entry[:10]
        offset, stored, raw = entry[10:13]
        assert zero == 0 and start + rows <= total and raw == rows * cols * SIZES[dtype]
        assert raw <= header[8] or rows == 1 or codec == 0, "blocks of whole rows"
        assert offset == ends[stripe]
        ends[stripe] += pages(stored)
        payload = found[stripe][1][offset : offset + stored]
        assert not any(found[stripe][1][offset + stored : ends[stripe]])
        weights = payload if codec == 0 else decode(payload, rows, cols)
        assert weights == shards[shard][source : source + raw], f"block {index} differs"
        codecs["raw" if codec == 0 else "bf16-x3"] += 1
    assert ends[0] == table_offset and all(ends[i] == len(found[i][1]) for i in found if i)
    return codecs


if __name__ == "__main__":
    counts = compare(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
    if not counts["bf16-x3"] or not counts["raw"]:
        sys.exit(f"a check of both codecs needs blocks of both: {dict(counts)}")
    print(f"{counts.total()} blocks are those of the checkpoint: {dict(counts)}")
