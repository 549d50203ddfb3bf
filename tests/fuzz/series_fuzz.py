"""Feeds damaged files to the reader of a trial's series, sparfuse_report/series.py: it returns an
array of what trial.json says, or raises SeriesError.

    series_fuzz.py CORPUS_FOLDER [--iterations N] [--seconds S] [--seed S]

An input is the text of a trial.json, an empty line, and the bytes of a series. Equal seeds try
equal inputs; those that fail are written to the current folder.
"""

import argparse
import hashlib
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

from sparfuse_report import series

TOKENS = [b"'descr'", b"'fortran_order': True", b"(-1,)", b"(10**12,)", b"|O", b"<f8", b"<U9999999",
          b"[('a', '<f8')]", b"\x93NUMPY\x02\x00", b"\xff\xff\xff\xff", b"null", b"[]", b"1e999", b"-1"]


def mutate(draw, corpus):
    data = bytearray(draw.choice(corpus))
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) + 1)
        kind = draw.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at : at + draw.randint(1, 16)]
        elif kind == 3:
            data[at:at] = draw.randbytes(draw.randint(1, 8))
        elif kind == 4:
            token = draw.choice(TOKENS)
            data[at : at + draw.choice([0, len(token)])] = token
        else:
            data[at:] = draw.choice(corpus)[at:]
    return bytes(data)


def check(folder, data):
    said, _, table = data.partition(b"\n\n")
    (folder / "trial.json").write_bytes(said)
    (folder / "steps.npy").write_bytes(table)
    try:
        read = series.read(folder / "steps.npy")
    except series.SeriesError as error:
        assert str(folder) in str(error), "the error names the file"
        return
    described = series.describe(folder / "steps.npy")
    assert read.shape == (described["rows"],)
    assert sorted(read.dtype.names) == sorted(described["units"])
    assert not read.dtype.hasobject, "an array of Python's objects runs what it is told to"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--iterations", type=int, default=10000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    corpus = [file.read_bytes() for file in sorted(given.corpus.iterdir())]
    draw = random.Random(given.seed)
    end = time.monotonic() + given.seconds
    done = 0
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="sparfuse-fuzz-") as folder:
        while done < given.iterations and time.monotonic() < end:
            data = corpus[done] if done < len(corpus) else mutate(draw, corpus)
            try:
                check(Path(folder), data)
            except Exception:
                name = "crash-" + hashlib.sha1(data).hexdigest()
                Path(name).write_bytes(data)
                print(f"failed: {name}", file=sys.stderr)
                raise
            done += 1
    print(f"{done} inputs, seed {given.seed}: no failure")


if __name__ == "__main__":
    main()
