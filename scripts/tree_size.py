#!/usr/bin/env python3
"""Measures the tree: its lines by room, the grain of its files, and where records have no type.

    scripts/tree_size.py [--base REVISION] [--brief]

Prints the numbers of the present tree (every file that git knows or would add). With --base it
prints the numbers of REVISION and the change beside them; nothing is checked out. --brief leaves
the rooms out. The text alone decides each number, so that grep and wc can repeat it:

* A line is a line of a file, blank or not. Product lies in core, baselines, workloads, harness and
  scripts. It is C++ or CUDA (.hpp .cpp .cu .cuh .inc), Python (.py .pyi), web (.html .css .js .j2
  .jinja) or shell (.sh). The first line of a file without an ending tells whether it is Python or
  shell. Tests are files of the same kinds in tests/. A room is a folder in core or harness, or the
  whole of baselines, workloads or scripts.
* A small file is a file of product with fewer than 40 lines.
* A header (.hpp, .cuh) serves one file if exactly one file of product includes it. Its own source,
  the .cpp or .cu of its name in its folder, does not count, and neither do includes in raw strings,
  which are templates of files.
* A header passes raw JSON if it says nlohmann::json or nlohmann::ordered_json outside comments and
  is in harness, but not in harness/records or harness/files, where JSON is the subject.
* The keys of a cell are the members of `struct CellConfig`, in whichever header of harness it is. A
  place that spells a key is the key in double quotes ("accumulation") in C++ of harness, outside
  comments. Some keys are common words ("kind"): places that mean another's key count as well.
"""

import argparse
import collections
import io
import pathlib
import re
import statistics
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ("core", "baselines", "workloads", "harness", "scripts")
PARTS_OF_ROOMS = ("core", "harness")
SMALL = 40
WORST = 5
CPP, PYTHON, WEB, SHELL = KINDS = ("C++/CUDA", "Python", "web", "shell")
KIND_OF_ENDING = {".hpp": CPP, ".cpp": CPP, ".cu": CPP, ".cuh": CPP, ".inc": CPP, ".py": PYTHON,
                  ".pyi": PYTHON, ".html": WEB, ".css": WEB, ".js": WEB, ".j2": WEB, ".jinja": WEB,
                  ".sh": SHELL}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
# Literals are tokens too, since a literal may hold "//", and a comment may hold a quote.
TOKEN = re.compile(r'(?P<raw>R"(?P<mark>[^()\\\s]*)\(.*?\)(?P=mark)")'
                   r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
                   r"|(?P<character>(?<![0-9A-Za-z_])'(?:[^'\\\n]|\\.)+')"
                   r"|(?P<comment>//[^\n]*|/\*.*?\*/)", re.S)
QUOTED = re.compile(r'"(\w+)"')
RAW_JSON = re.compile(r"\bnlohmann::(ordered_)?json\b")
CELL = re.compile(r"^struct CellConfig(?: [^;{]*)?\{$(.*?)^\};$", re.M | re.S)
NAME = r"(\w+)(?: = [^,;]+|\{[^;}]*\})?"
MEMBERS = re.compile(rf"^  (?:const )?[\w:]+(?:<[^;()]*>)? ({NAME}(?:, {NAME})*);[ \t]*$", re.M)


@dataclass
class Sizes:
    """The numbers of one tree."""

    rooms: dict = field(default_factory=dict)  # {room: {kind: lines}}
    tests: dict = field(default_factory=dict)
    files: int = 0
    small: int = 0
    headers: int = 0
    serving_one: list = field(default_factory=list)
    harness_headers: int = 0
    raw_json: list = field(default_factory=list)
    places: dict = field(default_factory=dict)  # {key of a cell: number of places that spell it}


def kind_of(name, text):
    suffix = pathlib.PurePosixPath(name).suffix
    if suffix:
        return KIND_OF_ENDING.get(suffix)
    first = text.partition("\n")[0]
    if not first.startswith("#!"):
        return None
    return PYTHON if "python" in first else SHELL if re.search(r"\b(ba)?sh\b", first) else None


def room_of(name):
    """The room of a file; None if it lies in no room."""
    parts = name.split("/")
    if len(parts) == 1:
        return None
    if parts[0] in PARTS_OF_ROOMS or parts[0] == "tests":
        return "/".join(parts[:2]) if len(parts) > 2 else parts[0]
    return parts[0] if parts[0] in PARTS else None


def without(text, *groups):
    """C++ `text` without its tokens of the given groups of TOKEN; line ends stay."""
    def kept(match):
        return "\n" * match[0].count("\n") if match.lastgroup in groups else match[0]
    return TOKEN.sub(kept, text)


def lines_of(text):
    """The number of lines as of wc -l, and one more if the last line has no end."""
    return text.count("\n") + (text != "" and not text.endswith("\n"))


def lines_in(texts, names):
    lines = collections.defaultdict(collections.Counter)
    for name in names:
        lines[room_of(name)][kind_of(name, texts[name])] += lines_of(texts[name])
    return lines


def users_of_headers(texts, cpp):
    """{header of `cpp`: files that include it, without its own source}."""
    users = {name: [] for name in cpp if name.endswith((".hpp", ".cuh"))}
    for name in cpp:
        for header in set(INCLUDE.findall(without(texts[name], "raw", "comment"))):
            own = name.rsplit(".", 1)[0] == header.rsplit(".", 1)[0]
            if header in users and not own:
                users[header].append(name)
    return users


def keys_of_a_cell(texts, headers):
    """The members of CellConfig; raises ValueError unless it is defined exactly once."""
    found = [(name, match[1]) for name in headers for match in CELL.finditer(texts[name])]
    if len(found) != 1:
        names = ", ".join(name for name, _ in found) or "no header"
        raise ValueError(f"harness: struct CellConfig is in {names}: expected one header")
    members = MEMBERS.finditer(without(found[0][1], "comment"))
    return [name[1] for member in members for name in re.finditer(NAME, member[1])]


def places_of_keys(texts, names, keys):
    places = dict.fromkeys(keys, 0)
    for name in names:
        for word in QUOTED.findall(without(texts[name], "comment")):
            if word in places:
                places[word] += 1
    return places


def measure(texts):
    """The sizes of a tree. texts: {file: its text}."""
    known = {name: text for name, text in texts.items() if room_of(name) and kind_of(name, text)}
    product = sorted(name for name in known if not name.startswith("tests/"))
    tests = sorted(name for name in known if name.startswith("tests/"))
    cpp = [name for name in product if kind_of(name, known[name]) == CPP]
    users = users_of_headers(known, cpp)
    of_harness = [name for name in cpp if name.startswith("harness/")]
    harness_headers = [name for name in of_harness if name.endswith(".hpp")]
    return Sizes(
        rooms=lines_in(known, product), tests=lines_in(known, tests), files=len(product),
        small=sum(lines_of(known[name]) < SMALL for name in product), headers=len(users),
        serving_one=[name for name, files in users.items() if len(files) == 1],
        harness_headers=len(harness_headers),
        raw_json=[name for name in harness_headers
                  if not name.startswith(("harness/records/", "harness/files/"))
                  and RAW_JSON.search(without(known[name], "comment"))],
        places=places_of_keys(known, of_harness, keys_of_a_cell(known, harness_headers)))


def files_of_the_tree(root, *paths):
    """The files that git knows or would add, sorted; those beneath `paths`, if there are any."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths],
                            cwd=root, check=True, capture_output=True, text=True).stdout
    return [name for name in sorted(set(listed.split("\0"))) if (root / name).is_file()]


def present_tree(root):
    return {name: (root / name).read_text(errors="replace") for name in files_of_the_tree(root) if room_of(name)}


def tree_of(root, revision):
    packed = subprocess.run(["git", "archive", "--format=tar", revision], cwd=root, check=True,
                            capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {file.name: archive.extractfile(file).read().decode(errors="replace")
                for file in archive if file.isfile() and room_of(file.name)}


def all_lines(rooms, *kinds):
    return sum(lines[kind] for lines in rooms.values() for kind in kinds or KINDS)


def numbers(sizes, worst):
    """[(title, number)] of the rows below the rooms. worst: the keys to name."""
    places = sizes.places.values()
    return [
        ("lines of product", all_lines(sizes.rooms)),
        *((f"  {kind}", all_lines(sizes.rooms, kind)) for kind in KINDS),
        ("lines of tests", all_lines(sizes.tests)),
        ("files of product", sizes.files),
        (f"  below {SMALL} lines", sizes.small),
        ("headers of product", sizes.headers),
        ("  that serve one other file", len(sizes.serving_one)),
        ("headers of harness", sizes.harness_headers),
        ("  that pass raw JSON", len(sizes.raw_json)),
        ("keys of a cell", len(places)),
        ("  places that spell a key, median", statistics.median_low(places)),
        ("  places that spell a key, most", max(places)),
        ("  places that spell a key, all keys", sum(places)),
        *((f"    {key}", sizes.places.get(key, 0)) for key in worst)]


def row(title, now, before):
    """A printed row: the title, the number now and, if `before` is given, that number and the change."""
    columns = f"{title:40}{now:>9,}"
    return columns if before is None else f"{columns}{before:>12,}{now - before:>+9,}"


def rows_of_rooms(now, before):
    nothing = collections.Counter()
    for room in sorted({*now, *(before or ())}):
        lines = now.get(room, nothing)
        kinds = ", ".join(f"{kind} {lines[kind]:,}" for kind in KINDS if lines[kind])
        was = None if before is None else sum(before.get(room, nothing).values())
        yield f"{row('  ' + room, sum(lines.values()), was)}   {kinds}".rstrip()


def report(now, before=None, revision="", brief=False):
    """The lines to print."""
    if before is not None:
        yield f"{'':40}{'now':>9}{revision[:11]:>12}{'change':>9}"
    if not brief:
        yield "lines of product by room"
        yield from rows_of_rooms(now.rooms, before and before.rooms)
        yield "lines of tests by folder"
        yield from rows_of_rooms(now.tests, before and before.tests)
    worst = sorted(now.places, key=lambda key: (-now.places[key], key))[:WORST]
    was = dict(numbers(before, worst)) if before else {}
    for title, number in numbers(now, worst):
        yield row(title, number, was.get(title))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", metavar="REVISION", default="", help="print the numbers of REVISION beside")
    parser.add_argument("--brief", action="store_true", help="print no table of rooms")
    arguments = parser.parse_args()
    try:
        before = measure(tree_of(ROOT, arguments.base)) if arguments.base else None
        now = measure(present_tree(ROOT))
    except ValueError as error:
        print(f"tree_size: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        said = error.stderr if isinstance(error.stderr, str) else error.stderr.decode()
        print(f"tree_size: {said.strip()}", file=sys.stderr)
        return 2
    print(*report(now, before, arguments.base, arguments.brief), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
