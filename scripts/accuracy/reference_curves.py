"""Compares curves of sparfuse's trials with the same training in plain PyTorch."""

import argparse
import csv
import pathlib
import sys
import time

import numpy as np


def of_trials(trials):
    """{step: metrics} of the folders of convergence trials, in their order."""
    found = {}
    for trial in trials:
        if not (trial / "evaluations.npy").exists():
            sys.exit(f"{trial}: has no evaluations.npy; expected the folder of a convergence trial")
        for row in np.load(trial / "evaluations.npy"):
            found.setdefault(int(row["step"]), []).append(float(row["metric"]))
    return found


def show(curves, theirs, out):
    """Prints a row for each evaluation, also to the CSV file `out` if there is one. curves: PyTorch's,
    [(step, metric)] of each seed; theirs: of_trials()."""
    rows = []
    for at, (step, _) in enumerate(curves[0]):
        ours, trials = [curve[at][1] for curve in curves], theirs.get(step, [])
        means = [sum(ours) / len(ours)] + ([sum(trials) / len(trials)] if trials else [])
        rows.append([step, *ours, *trials, *means])
    trials = max(map(len, theirs.values()), default=0)
    names = ["step", *(f"pytorch seed {i + 1}" for i in range(len(curves))),
             *(f"sparfuse trial {i + 1}" for i in range(trials)), "pytorch mean",
             *(["sparfuse mean"] if trials else [])]
    for row in [names, *rows]:
        print("  ".join(f"{value:.4f}" if isinstance(value, float) else f"{value}" for value in row))
    if out:
        with out.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([names, *rows])


def parser(description, every):
    """The options that each such training has; `every` so many steps it is evaluated."""
    made = argparse.ArgumentParser(description=description,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("folder", type=pathlib.Path)
    made.add_argument("--trials", nargs="*", type=pathlib.Path, default=[])
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--every", type=int, default=every)
    made.add_argument("--out", type=pathlib.Path)
    return made


def compare(asked, train):
    """Shows the curves of train(seed) for each seed, and the trials' curves."""
    theirs = of_trials(asked.trials)  # read first, since training takes minutes
    begun = time.process_time()
    show([train(seed) for seed in range(1, asked.seeds + 1)], theirs, asked.out)
    print(f"{time.process_time() - begun:.0f} s of processor time", file=sys.stderr)
