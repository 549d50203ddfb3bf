#!/usr/bin/env python3
"""Checks that each header compiles alone: it includes everything that it uses.

    scripts/lint_headers.py BUILD-FOLDER [--jobs N] [PATH ...]

Compiles every header by itself, or the headers of the files and folders PATH, with the options that
BUILD-FOLDER/compile_commands.json has for a source that includes it, else for the nearest. Leaves
out the precompiled header, which hides a missing include, as does a source that is compiled together
with others. Leaves out headers that include CUDA's own. A whole run takes minutes. Exit status: 0
each stands alone, 1 one does not, 2 there is nothing to take the options from.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from tree_size import files_of_the_tree

ROOT = pathlib.Path(__file__).resolve().parent.parent
CUDA = re.compile(r"^#include <cu", re.M)
# {option that names a result or the precompiled header: number of its words}.
DROPPED = {"-c": 1, "-o": 2, "-include": 2, "-Winvalid-pch": 1, "-MD": 1, "-MT": 2, "-MF": 2}
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def options_of(command):
    """The compiler and its options in `command`, without options that concern one source."""
    words = iter(shlex.split(command)[:-1])  # the last word is the source
    kept = []
    for word in words:
        if word not in DROPPED:
            kept.append(word)
        elif DROPPED[word] == 2:
            next(words)
    while kept and not re.search(r"(c\+\+|g\+\+|clang\+\+)(-[0-9]+)?$", kept[0]):
        kept.pop(0)  # a launcher of the compiler
    return kept


def options_by_source(folder):
    """{source of the tree: its options}, also for sources that are compiled together."""
    options = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if source.suffix not in (".cpp", ".cxx", ".cc") or "cmake_pch" in source.name:
            continue
        sources = [source]
        if "Unity" in source.parts or source.name.startswith("unity_"):
            sources = map(pathlib.Path, INCLUDE.findall(source.read_text()))
        words = options_of(entry["command"])
        for one in sources:
            if words and one.is_relative_to(ROOT):
                options.setdefault(str(one.relative_to(ROOT)), words)
    return options


def nearest(header, options, users=()):
    """The source whose options serve `header`: of those that share most folders with it, the header's
    own source, else the first by depth and name.

    users: sources that include it; if one of them has options, only such sources count.
    """
    folders = pathlib.PurePosixPath(header).parts[:-1]
    stem = header.rsplit(".", 1)[0]

    def distance(source):
        shared = os.path.commonprefix([folders, pathlib.PurePosixPath(source).parts[:-1]])
        return (-len(shared), source != stem + ".cpp", source.count("/"), source)

    return min([user for user in users if user in options] or options, key=distance)


def users_of_headers(sources):
    """{header: sources that include it directly}."""
    users = {}
    for source in sources:
        for header in INCLUDE.findall((ROOT / source).read_text(errors="replace")):
            users.setdefault(header, []).append(source)
    return users


def headers_of_the_tree(paths):
    for name in files_of_the_tree(ROOT, *paths):
        if name.endswith(".hpp") and not CUDA.search((ROOT / name).read_text()):
            yield name


def what_is_missing(header, words):
    """The compiler's first error in `header`; "" if the header stands alone."""
    ended = subprocess.run([*words, "-w", "-fsyntax-only", "-include", header, "-x", "c++",
                            "/dev/null"], cwd=ROOT, capture_output=True, text=True)
    if ended.returncode == 0:
        return ""
    errors = [line for line in ended.stderr.splitlines() if "error:" in line]
    return (errors or ended.stderr.splitlines() or ["the compiler said nothing"])[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if not (arguments.folder / "compile_commands.json").is_file():
        print(f"lint_headers: no {arguments.folder}/compile_commands.json: build first",
              file=sys.stderr)
        return 2
    options = options_by_source(arguments.folder.resolve())
    users = users_of_headers(options)
    headers = list(headers_of_the_tree(arguments.paths))

    def error_of(header):
        source = nearest(header, options, users.get(header, ()))
        return what_is_missing(header, options[source])
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        said = pool.map(error_of, headers)
        wrong = [f"{header}: {error}" for header, error in zip(headers, said) if error]
    if wrong:
        print("headers that do not stand alone:", *(f"    {line}" for line in wrong), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
