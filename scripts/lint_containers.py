"""Checks the files that containers are made by, where nothing is at hand that builds one."""

import pathlib
import re
import shlex

CONTAINERFILE = "scripts/container/Containerfile"
DEFINITION = "scripts/container/sparfuse.def"
IGNORES = (".containerignore", ".dockerignore")
INSTRUCTIONS = {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN",
                "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
SECTIONS = {"append", "arguments", "environment", "files", "help", "labels", "post", "pre", "runscript", "setup",
            "startscript", "test"}
HEADERS = {"bootstrap", "from", "stage", "registry", "namespace", "includecmd", "mirrorurl", "osversion", "include"}
SCRIPT = re.compile(r"(?:^|[;&|(]|\bthen\b|\bcd /sparfuse\b)\s*(?:[A-Z_]+=\S*\s+)*((?:\./)?scripts/\S+)", re.M)


def is_there(path, files):
    path = path.removeprefix("./").rstrip("/")
    return path in ("", ".") or path in files or any(name.startswith(path + "/") for name in files)


def instructions(text):
    """(line, instruction, rest) of each instruction, without comments; a backslash at its end joins a line
    to the next."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not line.strip() and not joined):
            continue
        first = first or number
        joined += line.rstrip().removesuffix("\\") + " "
        if line.rstrip().endswith("\\"):
            continue
        word, _, rest = joined.strip().partition(" ")
        yield first, word, rest.strip()
        joined, first = "", 0
    if joined:
        yield first, "\\", "the last line goes on"


def scripts_that_lack(place, text, files):
    for script in SCRIPT.findall(text):
        if not is_there(script, files):
            yield f"{place}: {script} is not there"


def containerfile(files, text):
    from_seen = False
    for number, word, rest in instructions(text):
        place = f"{CONTAINERFILE}:{number}"
        if word not in INSTRUCTIONS:
            yield f"{place}: {word} is no instruction"
            continue
        if word not in ("ARG", "FROM") and not from_seen:
            yield f"{place}: {word} before FROM"
        from_seen = from_seen or word == "FROM"
        if word in ("COPY", "ADD"):
            paths = [path for path in shlex.split(rest) if not path.startswith("--")]
            if len(paths) < 2:
                yield f"{place}: {word} expects sources and a destination"
            for path in paths[:-1]:
                if not is_there(path, files):
                    yield f"{place}: {path} is not of the tree"
        elif word == "RUN":
            yield from scripts_that_lack(place, rest, files)
        elif word in ("CMD", "ENTRYPOINT") and not re.fullmatch(r'\["[^"]*"(?:, "[^"]*")*\]', rest):
            yield f'{place}: {word} expects ["word", ...], which no shell reads'
    if not from_seen:
        yield f"{CONTAINERFILE}: no FROM"


def definition(files, text):
    section, copied, headers = None, set(), {}
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{DEFINITION}:{number}"
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.startswith("%"):
            section = line[1:].split()[0]
            if section not in SECTIONS:
                yield f"{place}: %{section} is no section"
        elif section is None:
            name, colon, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
            if not colon or name.strip().lower() not in HEADERS:
                yield f"{place}: {name.strip()} is no keyword of the header"
        elif section == "files":
            source = line.split()[0]
            copied.add(source)
            if source in (".", "/") or not (source == ".git" or is_there(source, files)):
                yield f"{place}: {source} is not of the tree"
        elif section == "post":
            yield from scripts_that_lack(place, line, files)
    for name in ("bootstrap", "from"):
        if not headers.get(name):
            yield f"{DEFINITION}: no {name.capitalize()}:"
    needed = {part for name in files for part in (name.split("/")[0],) if not name.startswith((".", "results/"))}
    needed |= {"/".join(name.split("/")[:2]) for name in files if name.startswith("results/")}
    for part in sorted(needed - copied - {"docs", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md"}):
        yield f"{DEFINITION}: {part} of the tree is not among %files"


def complaints(root, files):
    """Complaints about the files for containers. files: names of all files of the tree."""
    files = set(files)
    root = pathlib.Path(root)
    for name in (CONTAINERFILE, DEFINITION, *IGNORES):
        if name not in files:
            yield f"{name} is not there"
            return
    yield from containerfile(files, (root / CONTAINERFILE).read_text())
    yield from definition(files, (root / DEFINITION).read_text())
    if (root / IGNORES[0]).read_text() != (root / IGNORES[1]).read_text():
        yield f"{IGNORES[1]}: expected the same as {IGNORES[0]}"
