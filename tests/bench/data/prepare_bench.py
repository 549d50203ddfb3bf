#!/usr/bin/env python3
"""Times `sparfuse data prepare` on a folder of photographs that it makes: megabytes a second of one core.

  tests/bench/data/prepare_bench.py SPARFUSE [--images N]

The goal is 100 MB/s where bytes are kept, as of JPEGs in colour or grey.
"""

import argparse
import io
import os
import pathlib
import random
import resource
import subprocess
import tempfile
import time

import numpy
from PIL import Image


def photograph(rng):
    """A JPEG of 500 x 375 pixels: smooth colours with grain, about 50 kB."""
    small = numpy.frombuffer(rng.randbytes(8 * 6 * 3), numpy.uint8).reshape(6, 8, 3)
    pixels = numpy.asarray(Image.fromarray(small).resize((500, 375), Image.BICUBIC)).astype(int)
    grain = numpy.frombuffer(rng.randbytes(500 * 375 * 3), numpy.uint8).reshape(375, 500, 3) % 28
    file = io.BytesIO()
    Image.fromarray((pixels + grain).clip(0, 255).astype(numpy.uint8)).save(file, "JPEG", quality=88)
    return file.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--images", type=int, default=2000)
    asked = parser.parse_args()
    rng = random.Random(1)
    made = [photograph(rng) for _ in range(20)]
    with tempfile.TemporaryDirectory() as home:
        home, size = pathlib.Path(home), 0
        for i in range(asked.images):
            place = home / "set" / ("test" if i % 20 == 0 else "train") / f"class{i // 20 % 10}"
            place.mkdir(parents=True, exist_ok=True)
            data = made[i % len(made)]
            (place / f"{i:06}.jpg").write_bytes(data)
            size += len(data)
        begun = time.monotonic()
        subprocess.run([asked.program, "data", "prepare", "set", "--from", home / "set"], check=True,
                       stdout=subprocess.DEVNULL, env=os.environ | {"SPARFUSE_DATA": str(home)})
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu, wall = used.ru_utime + used.ru_stime, time.monotonic() - begun
        print(f"{asked.images} JPEGs, {size / 1e6:.0f} MB: {size / 1e6 / cpu:.0f} MB/s of processor time, "
              f"{size / 1e6 / wall:.0f} MB/s elapsed, {used.ru_maxrss / 1e3:.0f} MB of memory")


if __name__ == "__main__":
    main()
