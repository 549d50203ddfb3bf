"""Finds parts and methods of other places by name: folders of SPARFUSE_PATH, installed packages."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator, Mapping
from typing import Any

try:
    import tomllib
except ImportError:  # before Python 3.11
    import tomli as tomllib  # type: ignore[no-redef]

from sparfuse import _core

PREFIXES = ("python:", "library:")  # of names of parts in files
# {key of a method's file or of options: kind of the part that it names}.
KINDS = {kind: kind for kind in ("strategy", "planner", "sparsifier", "feedback", "collective")}
KINDS["payload_dense"] = "quantizer"


def parts(table: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the table of a method's file or of options, in which each part's name is resolved."""
    found = dict(table)
    for key, kind in KINDS.items():
        name = table.get(key)
        if isinstance(name, str) and name not in ("none", "indexed"):
            found[key] = part(kind, name)
    return found


def part(kind: str, name: str) -> str:
    """The part that a name means: the name itself, or a class or library in another place."""
    if not isinstance(name, str) or name.startswith(PREFIXES):
        return name
    places = [("sparfuse itself", name)] if name in _core._part_names()[kind] else []
    places += [*_in_folders(name), *_in_packages(name)]
    if len(places) > 1:
        where = " and in ".join(place for place, _ in places)
        raise _core.ConfigError(f'{kind} "{name}" is in {where}; expected one of each name')
    return places[0][1] if places else name


def method(name: str) -> str | None:
    """The path of the method's file NAME.toml; None if there is none."""
    paths = [path for path, content in _files(name) if "strategy" in content]
    if len(paths) > 1:
        raise _core.ConfigError(f'method "{name}" is in {" and in ".join(paths)}; expected one of each name')
    return paths[0] if paths else None


def _files(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, content) of each file NAME.toml in the folders of SPARFUSE_PATH."""
    for folder in os.environ.get("SPARFUSE_PATH", "").split(os.pathsep):
        path = os.path.join(folder, name + ".toml")
        if not folder or not os.path.isfile(path):
            continue
        try:
            with open(path, "rb") as file:
                yield path, tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            raise _core.ConfigError(f"{path}: {error}; expected a method's file, or part = ...") from None


def _in_folders(name: str) -> Iterator[tuple[str, str]]:
    """(place, part) of each file NAME.toml that names one."""
    for path, content in _files(name):
        folder = os.path.dirname(os.path.abspath(path))
        if "library" in content:
            library = os.path.join(folder, str(content["library"]))
            yield path, f"library:{library}:{name}"
        if "part" in content:
            given = content["part"]
            if not isinstance(given, str) or not given.startswith("python:"):
                raise _core.ConfigError(f'{path}: part = {given!r}: expected "python:FILE.py:Class"')
            yield path, "python:" + os.path.join(folder, given[len("python:") :])


def _in_packages(name: str) -> Iterator[tuple[str, str]]:
    """(distribution, part) of each entry point NAME of installed packages."""
    for entry, value, of in _entry_points():
        if entry != name:
            continue
        module, _, attribute = value.partition(":")
        try:
            spec = importlib.util.find_spec(module)
        except ImportError:
            spec = None
        if spec is None or spec.origin is None or not attribute.isidentifier():
            raise _core.ConfigError(
                f'entry point {name} = "{value}" of {of} names no class in a module; expected '
                '"package.module:Class"'
            )
        yield of, f"python:{spec.origin}:{attribute}"


@functools.cache
def _entry_points() -> list[tuple[str, str, str]]:
    """(name, "package.module:Class", distribution) of each part in installed packages."""
    found = set()
    for distribution in importlib.metadata.distributions():
        for entry in distribution.entry_points:
            if entry.group == "sparfuse.parts":
                of = f"{distribution.metadata['Name']} {distribution.version}"
                found.add((entry.name, entry.value, of))
    return sorted(found)
