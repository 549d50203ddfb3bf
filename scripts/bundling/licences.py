"""Says under which licences the libraries of an archive travel, and takes their texts along.

All may be passed on. Those of the LGPL are separate files that another build of the same library may
replace; their sources are Debian's of the version that is named.
"""

import collections
import shutil
import subprocess

# {source package of Debian: licence of its library}; tools and tests of the package do not count.
LICENCES = {
    "benchmark": "Apache-2.0",
    "fmtlib": "MIT",
    "googletest": "BSD-3-Clause",
    "hwloc": "BSD-3-Clause",
    "libcap2": "BSD-3-Clause",
    "libevent": "BSD-3-Clause",
    "libjpeg-turbo": "BSD-3-Clause AND IJG AND Zlib",
    "munge": "LGPL-3.0-or-later",
    "openmpi": "BSD-3-Clause",
    "openssl": "Apache-2.0",
    "pmix": "BSD-3-Clause",
    "re2": "BSD-3-Clause",
    "sqlite3": "public domain",
    "systemd": "LGPL-2.1-or-later",
    "tomlplusplus": "MIT",
    "zlib": "Zlib",
}
COMMON_TEXTS = ["Apache-2.0", "GPL-3", "LGPL-2.1", "LGPL-3"]


class LicenceError(Exception):
    """The licence of a library is not listed here."""


def packages_of(paths):
    """{path: Debian's package} for the paths that dpkg knows."""
    if not shutil.which("dpkg-query"):
        return {}
    names = {}  # {name: path}; dpkg may know a file of /usr/lib by its name in /lib
    for path in paths:
        for name in (str(path), str(path.resolve()), str(path.resolve()).removeprefix("/usr")):
            names[name] = path
    found = subprocess.run(["dpkg-query", "--search", *names], capture_output=True, text=True, check=False).stdout
    return {names[name]: package.split(",")[0] for package, name in
            (line.split(": ", 1) for line in found.splitlines()) if name in names}


def source_of(package):
    """[source package, version] of a package."""
    shown = subprocess.run(["dpkg-query", "--show", "--showformat=${source:Package} ${Version}", package],
                           capture_output=True, text=True, check=True).stdout
    return shown.split()


def take_along(libraries, folder):
    """Writes LIBRARIES.txt and the packages' copyright files to `folder`. libraries: files here."""
    folder.mkdir(parents=True)
    packages = packages_of(libraries)
    names = collections.defaultdict(list)
    for path in sorted(libraries):
        if path not in packages:
            raise LicenceError(f"{path} belongs to no Debian package: expected libraries whose licence is known")
        names[packages[path]].append(path.name)
    lines = ["Files of other projects in this archive, as Debian's packages have them, stripped of symbols.",
             "The texts of their licences are beside this file.", ""]
    for package in sorted(names):
        source, version = source_of(package)
        if source not in LICENCES:
            raise LicenceError(f"{', '.join(names[package])} is of {source}, whose licence has not been checked: "
                               "expected an entry in scripts/bundling/licences.py")
        name = package.split(":")[0]
        shutil.copyfile(f"/usr/share/doc/{name}/copyright", folder / f"{name}.txt")
        lines += [f"{name} ({source} {version}): {LICENCES[source]}", *(f"    {each}" for each in names[package])]
    for text in COMMON_TEXTS:  # the copyright files refer to them
        shutil.copyfile(f"/usr/share/common-licenses/{text}", folder / f"{text}.txt")
    (folder / "LIBRARIES.txt").write_text("\n".join(lines) + "\n")
