#!/usr/bin/env python3
"""Checks what one file cannot show: rooms, floors, and names that two files share.

    scripts/lint_tree.py

Reads every file that git knows or would add. Complains of an include that runs up a floor of
scripts/floors.txt, of a source that has no room there, of a room that is not there, of a folder
with more than 25 files, of two types of one name in one namespace, of comment blocks that
clang-format has broken, and of files for containers that cannot be right. Exit status: 0 clean, 1
something is wrong.
"""

import collections
import pathlib
import re
import sys

import lint_containers
from tree_size import files_of_the_tree

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_FILES = 25
COLUMNS = 100
# Folders that hold data, with one file for each item.
DATA_FOLDERS = re.compile(r"^(results|tests/fuzz/corpus)(/|$)")
SOURCE = re.compile(r"\.(hpp|cpp|cu|cuh|inc)$")
ROOMS = re.compile(r"^(core|baselines|workloads|harness)/")
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
COMMENT = re.compile(r"(\s*)//( *)(.*)$")
TYPE = re.compile(r"(?:class|struct|union|enum(?: class| struct)?)\s+(?:alignas\(\w+\) )?(\w+)"
                  r"(?:\s+final)?(?=\s*(?::(?!:)|\{|$))")


def read_floors():
    """{room: floor} of scripts/floors.txt, with floors counted from the ground."""
    rooms = {}
    for floor, line in enumerate((ROOT / "scripts/floors.txt").read_text().splitlines()):
        for room in line.split("#")[0].split():
            rooms[room] = floor
    return rooms


def room_of(name, rooms):
    """The innermost room of the file `name`; a header's source is of the header's room."""
    stem = re.sub(r"\.cpp$", ".hpp", name)
    for candidate in (name, stem, *map(str, pathlib.PurePosixPath(name).parents)):
        if candidate in rooms:
            return candidate
    return None


def includes_that_run_up(sources, rooms):
    for name, lines in sources.items():
        if not ROOMS.match(name):
            continue
        room = room_of(name, rooms)
        if room is None:
            yield f"{name}: its folder has no line in scripts/floors.txt"
            continue
        in_raw_string = False  # raw strings are templates of files of other rooms
        for number, line in enumerate(lines, 1):
            if 'R"(' in line:
                in_raw_string = True
            if in_raw_string:
                in_raw_string = ')"' not in line.partition('R"(')[2 if 'R"(' in line else 0]
                continue
            if not (match := INCLUDE.match(line)):
                continue
            other = room_of(match.group(1), rooms)
            if other is None:
                yield f"{name}:{number}: {match.group(1)} is in no room of scripts/floors.txt"
            elif rooms[other] > rooms[room]:
                yield f"{name}:{number}: {room} includes {match.group(1)} of {other}, a floor above"


def crowded_folders(files):
    counts = collections.Counter(str(pathlib.PurePosixPath(name).parent) for name in files)
    for folder, count in sorted(counts.items()):
        if count > MAX_FILES and not DATA_FOLDERS.match(folder):
            yield f"{folder}: {count} files"


def types_of(lines):
    """(namespace, name, line) of each type defined at namespace scope; "" for an unnamed one.

    Relies on the layout: definitions at namespace scope begin in the first column.
    """
    scopes = []
    for number, line in enumerate(lines, 1):
        if match := re.match(r"(?:inline )?namespace(?: ([\w:]+))? \{$", line):
            scopes.append(match.group(1) or "")
        elif line.startswith("}  // namespace"):
            if scopes:
                scopes.pop()
        elif match := TYPE.match(line):
            after = lines[number] if number < len(lines) else ""
            if line.endswith(";") and "{" not in line or "{" not in line + after:
                continue
            yield "::".join(scopes), match.group(1), number


def types_of_one_name(sources):
    """Complaints about types of one name in one namespace. A type in an unnamed namespace counts only if
    it hides a type that all files see."""
    named = collections.defaultdict(list)
    unnamed = collections.defaultdict(list)
    for name, lines in sources.items():
        for scope, type_name, number in types_of(lines):
            if scope == "":
                continue  # a global type, in a test's own main file
            places = unnamed if scope.endswith("::") else named
            if places is unnamed and not ROOMS.match(name):
                continue  # a test may give its own types any name
            places[scope.removesuffix("::"), type_name].append(f"{name}:{number}")
    for (scope, type_name), places in sorted(named.items()):
        if len(places) > 1:
            yield f"{scope}::{type_name}: {', '.join(places)}"
        for place in unnamed.get((scope, type_name), []):
            yield f"{scope}::{type_name}: {places[0]}, and in an unnamed namespace {place}"


def broken_comments(lines):
    """Line numbers where clang-format broke a comment that was laid out by hand.

    clang-format breaks a line that is too long before its last words, and puts these on a line of
    their own at the margin. The next line of the comment is then indented further than they are. For
    a trailing comment that is too long, it breaks the declaration behind its "=".
    """
    for i in range(len(lines) - 1):
        if lines[i].endswith(" =") and re.match(r"\s*[^;]{1,20};\s+//", lines[i + 1]):
            yield i + 2
        full, rest, further = (COMMENT.match(line) for line in (lines[i:i + 3] + [""])[:3])
        if not (full and rest and further and full[3] and rest[3] and further[3]):
            continue
        if (len(rest[0].strip()) <= COLUMNS * 2 // 5 and not rest[3].endswith(":")
                and len(lines[i]) + 1 + len(rest[3].split()[0]) > COLUMNS
                and len(further[2]) >= len(rest[2]) + 4):
            yield i + 2


def main():
    files = files_of_the_tree(ROOT)
    sources = {name: (ROOT / name).read_text().splitlines() for name in files
               if SOURCE.search(name)}
    complaints = {
        "includes that run up a floor (scripts/floors.txt)":
            includes_that_run_up(sources, read_floors()),
        "rooms of scripts/floors.txt that are not there":
            (room for room in read_floors() if not (ROOT / room).exists()),
        f"folders of more than {MAX_FILES} files": crowded_folders(files),
        "types of one name in one namespace": types_of_one_name(sources),
        "comments that clang-format has broken (lay them out anew, within the columns)":
            (f"{name}:{number}" for name, lines in sources.items()
             for number in broken_comments(lines)),
        "files for containers": lint_containers.complaints(ROOT, files),
    }
    wrong = False
    for title, found in complaints.items():
        found = list(found)
        if found:
            wrong = True
            print(f"{title}:", *(f"    {line}" for line in found), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
