#!/usr/bin/env python3
"""Draws the pictures of docs/gallery.md again.

    scripts/pages/gallery.py [--sparfuse PROGRAM] [--out FOLDER] [NAME ...]

Makes the clusters, runs docs/examples/gallery.toml in a results folder of its own, draws, and writes
FOLDER/NAME.png (default: docs/pictures/gallery), small enough for a page. All of it is modelled: a minute of
processor time. Without NAME, draws all that PICTURES lists. Exit status: 0 drawn, 1 a command failed, 2 usage.
"""

import argparse
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/gallery.md"
EXPERIMENT = "docs/examples/gallery.toml"
WIDTH = 900  # pixels of a picture
COLOURS = 64

CLUSTERS = (
    "cluster new gallery --preset v100-10gbe --nodes 8",
    "cluster new gallery-2080ti --preset rtx2080ti-10gbe --nodes 8",
    "cluster new gallery-nvlink --preset v100-nvlink-100gbe --nodes 4",
)
RUN = f"run {EXPERIMENT}"
FIGURE = f"figure {EXPERIMENT}"
PHASE = ("advise --workload resnet50-cifar100 --cluster gallery --methods dense,wfbp,mg-wfbp,omgs,safusion "
         "--phase")
EXPLAIN = f"explain {EXPERIMENT} --part workers --of method=safusion,workers=16 --over method=dense,workers=16"

# {name: (command that draws it, beginning of the file's name)}
PICTURES = {
    "speedup": (FIGURE, "workers-grouped_bars"),
    "scaling": (FIGURE, "workers-scaling"),
    "breakdown": (FIGURE, "workers-breakdown"),
    "timeline": (FIGURE, "workers-gantt"),
    "bytes": (FIGURE, "workers-bytes"),
    "density": (FIGURE, "density-grouped_bars"),
    "sent": (FIGURE, "sums-scaling"),
    "densification": (FIGURE, "sums-scaling-2"),
    "ablation": (FIGURE, "steps-ablation"),
    "sensitivity": (FIGURE, "inputs-sensitivity"),
    "slopes": (FIGURE, "clusters-slopes"),
    "phase": (PHASE, "phase-"),
    "explain": (EXPLAIN, "explain-"),
}


def drawn(folder, beginning):
    """The folder's PNG with the name `beginning`, else the only one whose name begins with it."""
    exact = folder / f"{beginning}.png"
    found = [exact] if exact.is_file() else sorted(folder.glob(f"{beginning}*.png"))
    if len(found) != 1:
        sys.exit(f"gallery.py: {folder}: {len(found)} pictures {beginning}*.png: expected one")
    return found[0]


def small(source, target):
    """Writes the picture `source` to `target` with fewer pixels and colours."""
    from PIL import Image  # here, since listing the pictures needs no library

    with Image.open(source) as image:
        image = image.convert("RGB")
        size = (WIDTH, round(image.height * WIDTH / image.width))
        image.resize(size, Image.Resampling.LANCZOS).quantize(COLOURS).save(target, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sparfuse", type=pathlib.Path, default=ROOT / "sparfuse", metavar="PROGRAM")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/pictures/gallery", metavar="FOLDER")
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(PICTURES)}")
    options = parser.parse_args()
    for name in options.names:
        if name not in PICTURES:
            parser.error(f"{name}: expected one of {', '.join(PICTURES)}")
    names = options.names or list(PICTURES)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sparfuse-gallery-") as folder:
        figures = pathlib.Path(folder) / "figures"

        def call(command):
            words = [options.sparfuse.resolve(), "--root", ROOT, "--results", folder, *shlex.split(command)]
            if not command.startswith(("cluster", "run")):
                words += ["--out", figures]
            done = subprocess.run(list(map(str, words)), cwd=ROOT, check=False)
            if done.returncode != 0:
                sys.exit(1)

        for command in dict.fromkeys([*CLUSTERS, RUN, *(PICTURES[name][0] for name in names)]):
            call(command)
        for name in names:
            small(drawn(figures, PICTURES[name][1]), options.out / f"{name}.png")
            print(options.out / f"{name}.png")


if __name__ == "__main__":
    main()
