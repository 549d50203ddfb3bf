#!/usr/bin/env python3
"""Finds the shared libraries that programs need on another machine.

    scripts/bundling/libraries.py FILE...      prints a line for each: name, path here

`closure` is the interface: it follows what each file asks for (DT_NEEDED) to where the dynamic loader
finds it here, and stops at what must be the other machine's own:

  the C library and the compiler's run-time libraries: the kernel's, the driver's and Python's fit to
      theirs, and one process has one of each. Newer ones run what older ones were linked with.
  LibTorch with the CUDA libraries that it brings, and the driver.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys

THEIRS = re.compile(r"""^(?:
    ld-linux.*|lib(?:c|m|dl|pthread|rt|util|resolv|anl|nsl|mvec)|libgcc_s|libstdc\+\+|libgomp  # toolchain
    |libtorch.*|libc10.*|libcaffe2.*|libshm                                                    # LibTorch
    |libcu(?:da|dart|blas|blasLt|dnn|fft|file|pti|rand|solver|sparse|sparseLt)|libnccl|libnv.*   # CUDA
    )\.so(?:\.|$)""", re.VERBOSE)
VERSION = re.compile(r"\b(GLIBC|GLIBCXX)_(\d+(?:\.\d+)+)\b")


class LibraryError(Exception):
    """A file is no ELF file, or a library is not found here."""


@dataclasses.dataclass
class Closure:
    """The libraries that files need besides themselves."""
    travels: dict[str, pathlib.Path]  # {name: file here} of libraries that travel along
    theirs: set[str]  # names of libraries that the other machine must have
    versions: dict[str, str]  # {GLIBC or GLIBCXX: the newest symbol version needed}


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LibraryError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def examine(path):
    """(names of the libraries that `path` needs, [(GLIBC or GLIBCXX, version), ...])."""
    text = output("objdump", "-p", str(path))
    references = text.partition("Version References:")[2]
    return re.findall(r"^\s*NEEDED\s+(\S+)$", text, re.M), VERSION.findall(references)


def found_by_loader(files):
    """{library: the path where the loader finds it, or None} for all libraries that `files` need, directly
    or through other libraries."""
    done = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False)
    places = {}
    for name, place in re.findall(r"^\s*(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", done.stdout, re.M):
        if place != "not found" or name not in places:
            places[name] = None if place == "not found" else pathlib.Path(place)
    return places


def newest(versions, found):
    for name, version in found:
        key = [int(part) for part in version.split(".")]
        if name not in versions or key > [int(part) for part in versions[name].split(".")]:
            versions[name] = version


def closure(files, theirs=THEIRS):
    """The closure of `files`, programs and the plugins that they load. Raises LibraryError if a library is
    not found."""
    result = Closure({}, set(), {})
    left = [pathlib.Path(file) for file in files]
    places = found_by_loader(left)
    while left:
        path = left.pop()
        needed, versions = examine(path)
        newest(result.versions, versions)
        for name in needed:
            if theirs.match(name):
                result.theirs.add(name)
            elif name not in result.travels:
                if places.get(name) is None:
                    raise LibraryError(f"{path} needs {name}, which is not found here")
                result.travels[name] = places[name]
                left.append(places[name])
    return result


def main():
    found = closure(sys.argv[1:])
    for name, path in sorted(found.travels.items()):
        print(name, path)


if __name__ == "__main__":
    main()
