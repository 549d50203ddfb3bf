"""Packs what was made in an archive's folder: `run pack`."""

import argparse
import hashlib
import pathlib
import tarfile

from machine import MachineError

ENDINGS = {".xz": "w:xz", ".gz": "w:gz", ".tar": "w"}


def made_here(machine):
    """The names of files that the archive did not have, or had with another content."""
    known = machine.manifest["files"]
    for path in sorted(machine.here.rglob("*")):
        name = str(path.relative_to(machine.here))
        if path.is_file() and not path.is_symlink() and name != "archive.json":
            if known.get(name) != hashlib.sha256(path.read_bytes()).hexdigest():
                yield name


def run(machine, arguments):
    parser = argparse.ArgumentParser(prog="run pack", description="Packs all files that were made here.")
    parser.add_argument("file", type=pathlib.Path, metavar="FILE.tar.xz", help="or .tar.gz, .tar")
    file = parser.parse_args(arguments).file.absolute()
    if file.suffix not in ENDINGS:
        raise MachineError(f"{file}: expected a name that ends in {', '.join(ENDINGS)}")
    names = [name for name in made_here(machine) if machine.here / name != file]
    if not names:
        raise MachineError(f"{machine.here}: nothing was made here yet")
    with tarfile.open(file, ENDINGS[file.suffix]) as tar:
        for name in names:
            tar.add(machine.here / name, name)
    print(f"{file}: {len(names)} files, {file.stat().st_size / 2**20:.1f} MiB")
    return 0
