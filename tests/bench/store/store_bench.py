#!/usr/bin/env python3
"""Times the verbs that read a store: seconds and resident memory, the median of some runs.

  store_bench.py PATH/TO/sparfuse FOLDER [RUNS]

FOLDER is one that make_store.py has made. `index --rebuild` runs once.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path


def measure(command):
    """(seconds, peak resident memory in MB, CPU seconds of the process itself)."""
    begin = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{command}: ended with status {status}")
    return time.monotonic() - begin, usage.ru_maxrss * 1024 / 1e6, usage.ru_utime + usage.ru_stime


def main():
    folder, runs = Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 5
    program = [sys.argv[1], "--results", str(folder / "results")]
    file = str(folder / "large.toml")
    trials = sum(1 for _ in (folder / "results" / "trials" / "large" / "main").iterdir())
    print(f"{trials} trials; seconds, CPU seconds, MB resident")
    for verb in (["index", "--rebuild"], ["status", file], ["table", file], ["plan", file]):
        times = 1 if verb[0] == "index" else runs
        seconds, memory, cpu = zip(*(measure([*program, *verb]) for _ in range(times)))
        print(f"{' '.join(verb[:1]):8} {statistics.median(seconds):8.2f} "
              f"{statistics.median(cpu):8.2f} {max(memory):8.0f}   n = {times}")


if __name__ == "__main__":
    main()
