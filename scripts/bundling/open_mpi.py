"""Finds the parts of this machine's Open MPI that ranks of one machine, and of others over TCP, need.

Open MPI finds its plugins, help texts and settings beneath a prefix, which OPAL_PREFIX moves: the parts
lie in an archive as they lie beneath the prefix here.
"""

import pathlib
import re
import shutil
import subprocess

from libraries import LibraryError, found_by_loader

# Plugins for hardware that an archive's machine may lack (each needs drivers of its own), for other
# schedulers and languages, and for OpenSHMEM.
LEFT_OUT = re.compile(r"""mca_(?:
    .*_(?:ofi|openib|uct|ucx|psm2?|flux|jsm|monitoring)|(?:atomic|memheap|scoll|spml|sshmem)_.*|reachable_netlink
    )\.so$|libompi_dbg""", re.VERBOSE)


class OpenMpi:
    """Open MPI here: programs by name, plugins, help texts, its prefix, folders in `paths`, and settings
    (a file, or None)."""

    def __init__(self):
        self.paths = {}
        if not shutil.which("ompi_info"):
            raise LibraryError("ompi_info is not found: expected Open MPI with its programs (Debian: openmpi-bin)")
        listed = subprocess.run(["ompi_info", "--parsable", "--path", "all"], capture_output=True,
                                text=True, check=True)
        for line in listed.stdout.splitlines():
            _, name, path = line.split(":", 2)
            self.paths[name] = pathlib.Path(path)
        self.prefix = self.paths["prefix"]
        found = {name: shutil.which(name) for name in ("orterun", "orted")}
        if missing := [name for name, path in found.items() if not path]:
            raise LibraryError(f"{', '.join(missing)} is not found: expected Open MPI 4")
        self.programs = {name: pathlib.Path(path) for name, path in found.items()}
        plugins = self.paths["pkglibdir"].glob("mca_*.so")
        self.plugins = sorted(path for path in plugins if not LEFT_OUT.search(path.name))
        self.help_texts = sorted(self.paths["pkgdatadir"].glob("help-*.txt"))
        settings = self.paths["sysconfdir"] / "openmpi-mca-params.conf"
        self.settings = settings if settings.is_file() else None

    def beneath_prefix(self, path):
        return path.relative_to(self.prefix)

    def pmix_prefix(self):
        """The prefix of the PMIx with which plugins are linked; None if PMIx is part of Open MPI."""
        for name, path in found_by_loader(self.plugins).items():
            if name.startswith("libpmix.so") and path is not None:
                prefix = path.resolve().parent.parent
                return prefix if (prefix / "share" / "pmix").is_dir() else None
        return None
