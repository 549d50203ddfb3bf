"""The machine that an archive was unpacked on: its LibTorch, and the environment that programs run in."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import why_no_gpu

WORKER = "bin/worker/sparfuse-worker"


class MachineError(Exception):
    """Something is missing here; the message says the expected form."""


class Torch:
    """LibTorch in the Python package `folder`."""

    def __init__(self, folder):
        try:
            text = (folder / "version.py").read_text()
            self.version = re.search(r"__version__ = '([^']+)'", text).group(1)
        except (OSError, AttributeError):
            raise MachineError(f"{folder}: expected the folder of the Python package torch, with version.py") from None
        cuda = re.search(r"^cuda\b[^=]*= '([^']+)'", text, re.M)
        self.cuda = cuda.group(1) if cuda else None  # as "13.0"; None for a build without CUDA
        self.folder = folder

    def library_folders(self):
        """The library folders of LibTorch, and of the CUDA libraries installed beside it."""
        return [self.folder / "lib", *sorted(self.folder.parent.glob("nvidia/*/lib"))]


def installed_torch():
    """The folder of Python's own torch, or None. It is not imported, which would take seconds."""
    spec = importlib.util.find_spec("torch")
    return None if spec is None or not spec.submodule_search_locations else spec.submodule_search_locations[0]


class Machine:
    """The machine, and an archive in the folder `here`. Raises MachineError for a LibTorch of another
    version."""

    def __init__(self, here, torch_folder):
        self.here = here
        self.manifest = json.loads((here / "archive.json").read_text())
        self.torch = self._find_torch(torch_folder)
        self.environment = self._environment()

    def _find_torch(self, given):
        folder = given if given is not None else installed_torch()
        if folder is None:
            return None
        torch = Torch(pathlib.Path(folder).resolve())
        wanted, cuda = self.manifest["torch"], self.manifest["cuda"]
        if torch.version.split("+")[0] != wanted:
            raise MachineError(f"{torch.folder} is PyTorch {torch.version}; expected {wanted}, with which this "
                               "archive was compiled: another with --torch DIR, or an archive made with this one")
        if cuda and (torch.cuda or "").split(".")[0] != cuda["toolkit"].split(".")[0]:
            has = f"for CUDA {torch.cuda}" if torch.cuda else "without CUDA"
            raise MachineError(f"{torch.folder} is PyTorch {torch.version}, {has}; this archive is for CUDA "
                               f"{cuda['toolkit']}: expected a build for that, or an archive made without --arch")
        return torch

    def _environment(self):
        """The environment of all programs: the archive's programs come first in PATH, and Open MPI finds
        its parts here."""
        environment = dict(os.environ)
        folders = [str(folder) for folder in self.torch.library_folders()] if self.torch else []
        folders += filter(None, [environment.get("LD_LIBRARY_PATH")])
        if folders:
            environment["LD_LIBRARY_PATH"] = ":".join(folders)
        environment.update({
            "PATH": f"{self.here / 'bin'}:{environment.get('PATH', os.defpath)}",
            "OPAL_PREFIX": str(self.here),
            "OPAL_SYSCONFDIR": str(self.here / "etc"),
            "PMIX_PKGLIBDIR": str(self.here / "lib/pmix"),
            "PMIX_PKGDATADIR": str(self.here / "share/pmix"),
            "HWLOC_PLUGINS_PATH": str(self.here / "lib/hwloc"),  # empty: this machine's fit another hwloc
        })
        if not any(shutil.which(agent, path=environment["PATH"]) for agent in ("ssh", "rsh")):
            # Without either, mpirun ends, even if it starts nothing elsewhere.
            environment.setdefault("OMPI_MCA_plm_rsh_agent", "false")
        return environment

    def missing(self, program):
        """Names that keep `program` from starting: libraries not found, symbol versions too new for here."""
        done = subprocess.run([str(self.here / program)], capture_output=True, text=True, check=False,
                              env={**self.environment, "LD_TRACE_LOADED_OBJECTS": "1"})
        libraries = re.findall(r"^\s*(\S+) => not found", done.stdout, re.M)
        versions = re.findall(r"version [`']([^']+)' not found", done.stdout + done.stderr)
        return sorted(set(libraries)) + sorted(set(versions))

    def check_program(self, program):
        """Raises MachineError unless `program` can start."""
        if not (missing := self.missing(program)):
            return
        needs = self.manifest["needs"]
        here = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else "another C library"
        lines = [f"{program} needs {', '.join(missing)}, not found here",
                 f"expected glibc {needs['GLIBC']} or newer (here: {here}) and a libstdc++ of the same age"]
        if any(name.startswith("lib") for name in missing):
            lines.append(self.torch_words())
        raise MachineError("\n     ".join(lines))

    def torch_words(self):
        if self.torch:
            return f"LibTorch {self.torch.version} in {self.torch.folder}"
        return f"no LibTorch: python3 has no torch; expected PyTorch {self.manifest['torch']}, or --torch DIR"

    def warn_without_worker(self, what):
        """Warns if ranks cannot start; `what` is the consequence to print."""
        if missing := self.missing(WORKER):
            print(f"run: {what}: {WORKER} needs {', '.join(missing)}, not found here; {self.torch_words()}",
                  file=sys.stderr, flush=True)

    def lines(self):
        """The lines to print before sparfuse's own findings."""
        source, cuda = self.manifest["source"], self.manifest["cuda"]
        yield (f"archive: commit {source['commit'][:10]}{' with changes' if source['dirty'] else ''}, "
               + (f"CUDA {cuda['toolkit']} for {', '.join(cuda['code'])}" if cuda else "without CUDA"))
        yield self.torch_words()

    def need_card(self):
        """Raises MachineError unless kernels can run here."""
        if self.manifest["cuda"] is None:
            raise MachineError("--gpu needs an archive for cards: made with --arch")
        if reason := why_no_gpu.why():
            raise MachineError(f"--gpu needs a CUDA card: {reason}")

    def run(self, words):
        """Runs a program of the archive to its end; returns its exit status."""
        process = subprocess.Popen([str(self.here / words[0]), *words[1:]], env=self.environment)
        while True:
            try:
                status = process.wait()
                break
            except KeyboardInterrupt:  # the program gets it, too, and ends in order
                pass
        return status if status >= 0 else 128 - status
