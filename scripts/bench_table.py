#!/usr/bin/env python3
"""Prints Google Benchmark results as a table of kernels against their limits.

    scripts/bench_table.py NAME.json...

A benchmark is called KERNEL/key:value/.../variant. Of a file NAME.json, `limit/...` are the limit
kernels, NAME/... the kernel that the file is about (of NAME_gpu.json too), and the rest are its peers:
other ways to do the same, matched by the keys that both have. If nothing is called NAME, every row
but torch.topk is a kernel.

    x limit   median of the kernel / median of its limit, of the same n in the same run: limit/add
              with error feedback (variant `feedback`), else the limit that is registered first;
              `min x limit` is the same of the minima, and disturbed less by a busy machine
    x PEER    median of that peer / median of the kernel: how many times faster the kernel is
    selected  counter selected/k: achieved density over target density
"""

import argparse
import json
import pathlib
import re
import statistics
import sys

TO_MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
# Parts of a name that tell the way of measuring, not the benchmark.
BOOKKEEPING = re.compile(r"(real_time|process_time|manual_time|(min_time|repeats|iterations):.*)")


class Row:
    """All repetitions of one benchmark; times in microseconds."""

    def __init__(self, run_name):
        parts = [p for p in run_name.split("/") if not BOOKKEEPING.fullmatch(p)]
        self.kernel = parts[0]
        self.keys = dict(p.split(":", 1) for p in parts[1:] if ":" in p)
        self.variant = " ".join(p for p in parts[1:] if ":" not in p)
        self.times = []
        self.counters = {}
        self.error = None

    @property
    def median(self):
        return statistics.median(self.times)


def read_rows(path):
    """The rows of a file, in the order in which their benchmarks were registered."""
    runs = json.loads(path.read_text())["benchmarks"]
    rows = {}
    runs.sort(key=lambda run: (run["family_index"], run["per_family_instance_index"]))
    for run in runs:
        if run["run_type"] != "iteration":
            continue
        row = rows.setdefault(run["run_name"], Row(run["run_name"]))
        if run.get("error_occurred"):
            row.error = run["error_message"]
            continue
        row.times.append(run["real_time"] * TO_MICROSECONDS[run["time_unit"]])
        for counter in ("selected/k", "candidates/k", "fallbacks"):
            if counter in run:
                row.counters.setdefault(counter, []).append(run[counter])
    return list(rows.values())


def find_limit(row, limits):
    same_size = [limit for limit in limits if limit.keys.get("n") == row.keys.get("n")]
    if "feedback" in row.variant.split():
        same_size = [limit for limit in same_size if limit.variant == "add"] or same_size
    return same_size[0] if same_size else None


def find_peer(row, peers, kernel):
    for peer in peers:
        if peer.kernel != kernel:
            continue
        shared = peer.keys.keys() & row.keys.keys()
        if shared and all(peer.keys[k] == row.keys[k] for k in shared):
            return peer
    return None


def format_time(microseconds):
    return f"{microseconds:.1f}" if microseconds < 1000 else f"{microseconds:.0f}"


def table_of(path, name):
    rows = read_rows(path)
    failed = [r for r in rows if r.error or not r.times]
    rows = [r for r in rows if not r.error and r.times]
    limits = [r for r in rows if r.kernel == "limit"]
    rest = [r for r in rows if r.kernel != "limit"]
    own = [r for r in rest if r.kernel == name] or [r for r in rest if r.kernel != "torch.topk"]
    peers = [r for r in rest if r not in own]
    peer_kernels = list(dict.fromkeys(p.kernel for p in peers))
    shown_keys = list(dict.fromkeys(k for r in rest for k in r.keys))
    header = (["kernel", *shown_keys, "variant", "min us", "median us", "min x limit", "x limit",
               *(f"x {kernel}" for kernel in peer_kernels), "selected", "candidates", "fallbacks"])
    lines = []
    for row in limits + peers + own:
        limit = find_limit(row, limits) if row in rest else None
        own_peers = [find_peer(row, peers, kernel) if row in own else None for kernel in peer_kernels]
        mean = {k: f"{statistics.fmean(v):.3g}" for k, v in row.counters.items()}
        lines.append([row.kernel, *(row.keys.get(k, "") for k in shown_keys), row.variant,
                      format_time(min(row.times)), format_time(row.median),
                      f"{min(row.times) / min(limit.times):.2f}" if limit else "",
                      f"{row.median / limit.median:.2f}" if limit else "",
                      *(f"{peer.median / row.median:.1f}" if peer else "" for peer in own_peers),
                      mean.get("selected/k", ""), mean.get("candidates/k", ""),
                      mean.get("fallbacks", "")])
    used = [i for i in range(len(header)) if any(line[i] for line in lines)]
    return [[h[i] for i in used] for h in [header, *lines]], failed


def print_table(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for number, line in enumerate(lines):
        # Names to the left, numbers to the right.
        print("| " + " | ".join(
            cell.ljust(width) if lines[0][i] in ("kernel", "variant", "data") else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths))) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def print_tables(files):
    """Prints the tables of `files`; returns the number of benchmarks without a result."""
    failures = 0
    for path in files:
        lines, failed = table_of(path, path.stem.removesuffix("_gpu"))
        print(f"\n## {path.stem}\n")
        if len(lines) > 1:
            print_table(lines)
        for row in failed:
            failures += 1
            print(f"{row.kernel} {row.keys} {row.variant}: {row.error or 'no result'}",
                  file=sys.stderr)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="NAME.json")
    return 1 if print_tables(parser.parse_args().files) else 0


if __name__ == "__main__":
    sys.exit(main())
