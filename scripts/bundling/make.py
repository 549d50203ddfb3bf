#!/usr/bin/env python3
"""Makes an archive of a built tree that runs on machines without it: see scripts/bundle.

    scripts/bundling/make.py BUILD --out FILE.tar.xz [--with tests,bench] [--tests REGEX] [--ctest PROGRAM]

In the archive, beneath sparfuse-bundle/:

    run                     what its user calls (scripts/bundled/run)
    archive.json            what is in it, of which commit, and what it needs of the other machine
    bin/                    sparfuse, worker/sparfuse-worker, mpirun
    lib/                    libraries; beneath it, and in share/ and etc/, Open MPI as beneath its prefix,
                            and PMIx
    licences/               of the libraries
    experiments/ results/ harness/{data,figures}/ scripts/    of the tree, and the workloads' data
    tests/ (and the sources, which some tests read)    on request; benchmarks beneath bench/

Equal trees give equal bytes: members are sorted, and have neither times nor owners.
"""

import argparse
import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import libraries
import licences
import tests
from open_mpi import OpenMpi

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "sparfuse-bundle"
# Files and folders of the tree that travel, as far as git knows their files.
TRAVELS = ["LICENSE", "experiments", "harness/data", "harness/figures", "results/profiles", "results/published",
           "scripts/bench_programs.py", "scripts/bench_table.py", "scripts/bundled", "scripts/launchers",
           "scripts/shaped_network", "scripts/why_no_gpu.py"]
WITH_TESTS = ["baselines", "core", "harness", "tests", "workloads"]
# The programs of a trial are made of these. Other files, among them a user's own, change no result.
SOURCES = ["CMakeLists.txt", "CMakePresets.json", "core", "baselines", "workloads", "harness"]
DATA = "results/data"  # the workloads' data, which git does not know
# Programs resemble one another: the dictionary must reach from one to the next.
DICTIONARY_BYTES = 192 << 20
MOST_MIB = 50  # for one architecture and the program alone: many download it over slow links


class Archive:
    """A folder that becomes an archive."""

    def __init__(self, folder):
        self.folder = folder
        self.elf = {}  # {place in the archive: file here}

    def add(self, place, file):
        to = self.folder / place
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)
        to.chmod(0o755 if os.access(file, os.X_OK) else 0o644)
        return to

    def add_elf(self, place, file, library_folders=("lib",)):
        """Adds a program or library without symbols; it looks for libraries in `library_folders` first."""
        self.elf[str(place)] = file
        to = self.add(place, file)
        to.chmod(0o755)
        libraries.output("strip", "--strip-unneeded", str(to))
        up = os.path.relpath(self.folder, to.parent)
        # DT_RPATH comes before LD_LIBRARY_PATH, where a cluster may have other libraries of these names.
        libraries.output("patchelf", "--force-rpath", "--set-rpath",
                         ":".join(f"$ORIGIN/{up}/{folder}" for folder in library_folders), str(to))

    def write(self, place, text, mode=0o644):
        to = self.folder / place
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text)
        to.chmod(mode)

    def files(self):
        return sorted(path.relative_to(self.folder) for path in self.folder.rglob("*") if not path.is_dir())


def git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def source():
    """The commit and whether it has changes, in the form in which the program describes a checkout."""
    changes = git("status", "--porcelain", "--", *SOURCES)
    return {"commit": git("rev-parse", "HEAD").strip(), "dirty": bool(changes.strip())}


def add_tree(archive, names):
    """Adds the files that git knows; unknown files are somebody's own, and stay."""
    listed = git("ls-files", "--cached", "-z", "--", *names)
    for name in sorted(set(filter(None, listed.split("\0")))):
        if (ROOT / name).is_file():
            archive.add(name, ROOT / name)


def add_open_mpi(archive, mpi):
    for name, path in mpi.programs.items():
        archive.add_elf(f"bin/{name}", path)
    (archive.folder / "bin/mpirun").symlink_to("orterun")
    for path in mpi.plugins:
        archive.add_elf(mpi.beneath_prefix(path), path)
    for path in mpi.help_texts:
        archive.add(mpi.beneath_prefix(path), path)
    archive.write("etc/openmpi-mca-params.conf", mpi.settings.read_text() if mpi.settings else "")
    if pmix := mpi.pmix_prefix():
        for path in sorted((pmix / "lib/pmix").glob("pmix_mca_*.so")):
            archive.add_elf(f"lib/pmix/{path.name}", path)
        for path in sorted((pmix / "share/pmix").glob("help-*.txt")):
            archive.add(f"share/pmix/{path.name}", path)


def add_data(archive):
    files = sorted((ROOT / DATA).rglob("*.bin"))
    if not files:
        raise libraries.LibraryError(f"{ROOT / DATA} has no data files: scripts/setup makes them")
    for path in files:
        archive.add(path.relative_to(ROOT), path)


def add_benchmarks(archive, build):
    programs = sorted(path for path in (build / "tests").glob("*_bench") if os.access(path, os.X_OK))
    for path in programs:
        archive.add_elf(f"bench/{path.name}", path)
    return [path.name for path in programs]


def add_tests(archive, build, options):
    found, programs = tests.tests_that_travel(ROOT, build, options.ctest, options.tests)
    for path, place in sorted(programs.items()):
        if place not in archive.elf:
            archive.add_elf(place, path)
    for path in (build / "tests").glob("*.so"):  # tests load them
        archive.add_elf(f"tests/bin/{path.name}", path)
    add_tree(archive, WITH_TESTS)
    return found


def cache_of(build):
    return dict(re.findall(r"^([^:#/]+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M))


def torch_of(build):
    """The version of the LibTorch with which the build is linked."""
    text = (pathlib.Path(cache_of(build)["SPARFUSE_TORCH_DIR"]) / "version.py").read_text()
    return re.search(r"__version__ = '([^'+]+)", text).group(1)


def cuda_of(build):
    """{"toolkit": version, "code": targets of the kernels} of a build with CUDA; None for another
    build."""
    rules = (build / "build.ninja").read_text()
    if "-DSPARFUSE_CUDA" not in rules:
        return None
    flags = re.findall(r"arch=compute_\d+,code=\[?([^\"\]\s]+)", rules)
    codes = sorted({code for each in flags for code in each.split(",")})
    version = libraries.output(cache_of(build)["CMAKE_CUDA_COMPILER"], "--version")
    return {"toolkit": re.search(r"release (\d+\.\d+)", version).group(1), "code": codes}


def fill(archive, options):
    build = options.build.resolve()
    worker = build / "harness/worker/sparfuse-worker"
    archive.add_elf("bin/sparfuse", build / "harness/sparfuse")
    archive.add_elf("bin/worker/sparfuse-worker", worker)
    mpi = OpenMpi()
    add_open_mpi(archive, mpi)
    add_tree(archive, TRAVELS)
    add_data(archive)
    manifest = {"source": source(), "torch": torch_of(build), "cuda": cuda_of(build),
                "tests": [], "benchmarks": []}
    if "tests" in options.parts:
        manifest["tests"] = add_tests(archive, build, options)
    if "bench" in options.parts:
        manifest["benchmarks"] = add_benchmarks(archive, build)
    found = libraries.closure(archive.elf.values())
    for name, path in sorted(found.travels.items()):
        archive.add_elf(f"lib/{name}", path)
    own = [file for file in archive.elf.values() if not file.is_relative_to(build)]
    licences.take_along(own, archive.folder / "licences")
    manifest["needs"] = {**found.versions, "libraries": sorted(found.theirs)}
    archive.add("run", ROOT / "scripts/bundled/run")
    manifest["files"] = {str(path): hashlib.sha256((archive.folder / path).read_bytes()).hexdigest()
                         for path in archive.files()}
    archive.write("archive.json", json.dumps(manifest, indent=1) + "\n")


def plain(member):
    """The member without owner and time, which differ from one archive to the next."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def pack(archive, out):
    filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": DICTIONARY_BYTES}]
    partial = out.with_name(out.name + ".partial")
    with lzma.open(partial, "wb", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in archive.files():
            tar.add(archive.folder / path, f"{NAME}/{path}", recursive=False, filter=plain)
    partial.replace(out)


def too_big(mib, parts, cuda):
    """The reason why an archive of `mib` MiB is too big, or None."""
    architectures = {code.split("_")[-1] for code in cuda["code"]} if cuda else set()
    if parts or len(architectures) > 1 or mib <= MOST_MIB:
        return None
    return f"{mib:.1f} MiB, expected {MOST_MIB} at most for one architecture without --with"


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--with", dest="parts", default="", help="tests, bench")
    parser.add_argument("--tests", metavar="REGEX", default="", help="with tests: only tests whose names match")
    parser.add_argument("--ctest", default="ctest")
    options = parser.parse_args(arguments)
    options.parts = set(filter(None, options.parts.split(",")))
    if unknown := options.parts - {"tests", "bench"}:
        parser.error(f"--with {','.join(sorted(unknown))}: expected tests, bench or both")
    return options


def main():
    options = parse(sys.argv[1:])
    try:
        with tempfile.TemporaryDirectory(prefix="sparfuse-bundle-") as folder:
            archive = Archive(pathlib.Path(folder) / NAME)
            archive.folder.mkdir()
            fill(archive, options)
            files = archive.files()
            size = sum((archive.folder / path).lstat().st_size for path in files)
            pack(archive, options.out)
    except (libraries.LibraryError, licences.LicenceError) as error:
        print(f"bundle: {error}", file=sys.stderr)
        return 1
    packed = options.out.stat().st_size / 2**20
    print(f"{options.out}: {packed:.1f} MiB; unpacked {size / 2**20:.0f} MiB, {len(files)} files")
    if why := too_big(packed, options.parts, cuda_of(options.build.resolve())):
        print(f"bundle: {options.out}: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
