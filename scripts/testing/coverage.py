#!/usr/bin/env python3
"""Prints which share of the lines of core and baselines the tests of a build ran.

    scripts/testing/coverage.py BUILD [--below PERCENT]

BUILD was configured with SPARFUSE_COVERAGE, as the preset asan is, and its tests ran. Lines are those
that the compiler made code of, in sources and headers; a line counts as run if it ran in any program.
Prints a line a room and the sum; --below names each file whose share is smaller than that.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def lines_of(counts, root=ROOT):
    """[(file below root, line, whether it ran)] from one object's counts."""
    done = subprocess.run(["gcov", "--json-format", "--stdout", str(counts)], capture_output=True, check=True,
                          cwd=counts.parent)
    lines = []
    for document in map(json.loads, filter(None, done.stdout.splitlines())):
        for source in document["files"]:
            file = pathlib.Path(os.path.normpath(os.path.join(document["current_working_directory"], source["file"])))
            if file.is_relative_to(root):
                name = str(file.relative_to(root))
                lines += [(name, line["line_number"], line["count"] > 0) for line in source["lines"]]
    return lines


def united(objects):
    """{file: {line: whether it ran}} from the lines of all objects; a line ran if it did in any of them."""
    every = collections.defaultdict(dict)
    for file, number, did in itertools.chain.from_iterable(objects):
        every[file][number] = every[file].get(number, False) or did
    return every


def lines_of_build(build):
    objects = sorted(build.glob("core/**/*.gcda")) + sorted(build.glob("baselines/**/*.gcda"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return united(pool.map(lines_of, objects))


def shares(every):
    """[(room, number of lines that ran, number of lines)] for each folder of core and for baselines."""
    rooms = collections.defaultdict(lambda: [0, 0])
    for file, ran in every.items():
        parts = pathlib.Path(file).parts
        room = "/".join(parts[:2]) if parts[0] == "core" and len(parts) > 2 else parts[0]
        rooms[room][0] += sum(ran.values())
        rooms[room][1] += len(ran)
    return [(room, *rooms[room]) for room in sorted(rooms)]


def percent(ran, lines):
    return 100 * ran / lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--below", type=float, metavar="PERCENT", help="name the files whose share is below PERCENT")
    given = parser.parse_args()
    every = lines_of_build(given.build.resolve())
    if not every:
        sys.exit(f"coverage: no counts in {given.build}: expected a build with SPARFUSE_COVERAGE whose tests ran")
    rooms = shares(every)
    for room, ran, lines in rooms:
        print(f"{percent(ran, lines):6.1f} %  {room} ({ran} of {lines} lines)")
    ran = sum(room[1] for room in rooms)
    lines = sum(room[2] for room in rooms)
    print(f"{percent(ran, lines):6.1f} %  of the lines of core and baselines ran in the tests ({ran} of {lines})")
    if given.below is not None:
        for file, each in sorted(every.items()):
            if percent(sum(each.values()), len(each)) < given.below:
                print(f"{percent(sum(each.values()), len(each)):6.1f} %  {file}")


if __name__ == "__main__":
    main()
