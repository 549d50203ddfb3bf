#!/usr/bin/env python3
"""Times the verbs that read files of others: seconds and resident memory, the median of some runs.

  reading_bench.py PATH/TO/sparfuse [RUNS]

A training log of 1,000,000 lines (goal: 5 s), a table of 20,000 rows (2 s), a hostfile of 300,000
lines (2 s); CPU seconds count where other work runs beside.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from store_bench import measure

LINE = "2026-05-07 10:39:20,123 INFO step {} time {:.4f} s loss {:.4f}\n"
SETTING = "system = 'lab'\nsource = 'made'\n"
LOG_MAP = """workload = 'resnet50-imagenet'
method = 'dense'
workers = 8
batch_per_worker = 32
warmup = 10
patterns = ['step (?<step>\\d+) time (?<seconds>[\\d.]+) s loss (?<loss>[\\d.]+)']
"""
TABLE_MAP = "metric = 'throughput'\nunit = 'images/s'\nper = 'system'\n"
EXPERIMENT = """id = "reading"
[defaults]
mode = "measured"
workload = "digits-resnet"
workers = 4
ranks_per_node = 2
method = "dense"
"""


def make(folder):
    """Writes the files to read; returns [(name, arguments)] of the calls to time."""
    files = {
        "log": "".join(LINE.format(i, 0.1 + i % 7 * 1e-3, 2.3 - i % 100 * 1e-3) for i in range(1_000_000)),
        "log.toml": SETTING + LOG_MAP,
        "table": "workload,method,workers,value,run\n" + "".join(
            f"resnet50-imagenet,dense,{1 + i % 16},{100 + i % 50},{i}\n" for i in range(20_000)),
        "table.toml": SETTING + TABLE_MAP,
        "hosts": "".join(f"node{i} slots=8\n" for i in range(300_000)),
        "experiment.toml": EXPERIMENT,
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    taken = [(kind, ["import", kind, str(folder / kind), "--map", str(folder / f"{kind}.toml"), "--dry-run"])
             for kind in ("log", "table")]
    hosts = ["plan", str(folder / "experiment.toml"), "--hostfile", str(folder / "hosts"), "--commands"]
    return [*taken, ("hosts", hosts)]


def main():
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = [sys.argv[1], "--results", str(folder / "results")]
        print("seconds, CPU seconds, MB resident")
        for what, arguments in make(folder):
            seconds, memory, cpu = zip(*(measure([*program, *arguments]) for _ in range(runs)))
            print(f"{what:8} {statistics.median(seconds):8.2f} {statistics.median(cpu):8.2f} "
                  f"{max(memory):8.0f}   n = {runs}")


if __name__ == "__main__":
    main()
