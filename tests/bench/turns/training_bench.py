#!/usr/bin/env python3
"""Times selections through the Python module as a training step calls them, and rivals beside them.

    tests/bench/turns/training_bench.py MODULE_FOLDER [--quick] [--repetitions N] [--page FILE]

In turn: six fresh gradients after one another, one thread. What is timed is a round of the six; a round of
each call, its limit included, is one repetition, so that other processes disturb all alike. A multiple is a
call's time over that of its limit in the same repetition: the median of all, and its 95 % interval by order
statistics. The limits: `r += g` with error feedback, a sum of the tensor without, a fill of the output for
decompression. Times are those of the thread, so that a busy machine counts by its caches and memory alone.

Rivals: torch.topk and NumPy's argpartition (x86-simd-sort where NumPy has it) on kinds of data that
selections have been slow on, each result compared with the same reference first: the k largest magnitudes.
(std::nth_element and Highway's vqsort, which are of C++: `scripts/bench topk`.)

--page rewrites what stands between <!-- bench --> and <!-- /bench --> in FILE.
"""

import argparse
import math
import os
import platform
import re
import statistics
import sys
import time
from pathlib import Path

import numpy

TURNS = 6
FEEDBACK = [("topk", 0.001), ("topk", 0.01), ("topk", 0.05)]
SELECT = [("topk", 0.001), ("topk", 0.01), ("topk", 0.05),
          *((name, 0.01) for name in ("redsync", "mstopk", "dgc", "gaussiank", "sidco", "block-topk", "randomk"))]
DECOMPRESS = [(4, 0.01), (4, 0.05)]


def aligned(n):
    """n floats that begin at a cache line, as in frameworks."""
    raw = numpy.zeros(n + 16, numpy.float32)
    skip = -raw.ctypes.data // raw.itemsize % 16
    return raw[skip:skip + n]


def data(kind, n, seed=0):
    """A tensor of the given kind of data; tests/bench/kernel_bench.hpp has the same kinds."""
    random = numpy.random.default_rng(seed)
    x = random.standard_normal(n, dtype=numpy.float32)
    at = numpy.arange(n, dtype=numpy.int64)
    if kind == "layers":
        x *= numpy.power(10.0, -4.0 * ((at * 32 // n) * 7 % 32) / 32).astype(numpy.float32)
    elif kind == "clustered":
        x *= numpy.where(at // (n // 50 + 1) == 20, 1, 1e-3).astype(numpy.float32)
    elif kind in ("sorted", "reversed"):
        x = x[numpy.argsort(numpy.abs(x))][::1 if kind == "sorted" else -1]
    elif kind == "equal":
        x[:] = 0.25
    elif kind == "two-valued":
        x = numpy.where(x < 0, 0.5, 1).astype(numpy.float32)
    elif kind == "99 % zero":
        x *= random.random(n, dtype=numpy.float32) < 0.01
    elif kind in ("one ulp apart", "staircase"):
        step = at * 2654435761 % n if kind == "one ulp apart" else (at * 64 // n) << 16
        x = (0x3f000000 + step | (at % 2) << 31).astype(numpy.uint32).view(numpy.float32)
    elif kind == "outlier of 1e38":
        x[n // 3] = 1e38
    elif kind == "denormal":
        x *= numpy.float32(1e-39)
    result = aligned(n)
    result[:] = x
    return result


KINDS = ("gaussian", "layers", "clustered", "sorted", "reversed", "equal", "two-valued", "99 % zero", "one ulp apart",
         "staircase", "outlier of 1e38", "denormal")


def repeat(calls, repetitions):
    """{name: seconds of each repetition} of calls, which take turns."""
    seconds = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repetitions):
        for name, call in calls.items():
            begin = time.thread_time()
            call()
            seconds[name].append(time.thread_time() - begin)
    return seconds


def interval(values):
    """The median and its 95 % interval by order statistics; of six values or fewer, their whole range."""
    values = sorted(values)
    n = len(values)
    low, tail = 0, 0.5 ** n
    while low + 1 < n // 2 and tail + math.comb(n, low + 1) * 0.5 ** n <= 0.025:
        low += 1
        tail += math.comb(n, low) * 0.5 ** n
    return statistics.median(values), values[low], values[n - 1 - low]


def multiple(times, limits):
    middle, low, high = interval([a / b for a, b in zip(times, limits)])
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def in_turn(sparfuse, n, repetitions):
    """Rows of the table of selections in the form in which a training step calls them."""
    gradients = [data("gaussian", n, seed) for seed in range(TURNS)]
    residual, out = aligned(n), aligned(n)

    def rounds(of_turn):
        return lambda: [of_turn(turn) for turn in range(TURNS)]

    def held(call):  # like a training step, holds a result until the next one
        results = [None] * TURNS

        def of_turn(turn):
            results[turn] = call(f"tensor {turn}", gradients[turn])
        return rounds(of_turn)

    calls = {"a sum": rounds(lambda turn: gradients[turn].sum()),
             "`r += g`": rounds(lambda turn: numpy.add(residual, gradients[turn], out=residual)),
             "a fill": rounds(lambda _: out.fill(0))}
    limit_of = {}

    def add(name, limit, call):
        calls[name] = call
        limit_of[name] = limit

    for name, density in FEEDBACK:
        feedback = sparfuse.ErrorFeedback(sparfuse.Sparsifier(name, density=density))
        add(f"{name} with error feedback, {density:.1%}", "`r += g`", held(feedback.step))
    for name, density in SELECT:
        sparsifier = sparfuse.Sparsifier(name, density=density)
        add(f"{name}, {density:.1%}", "a sum", held(lambda key, g, s=sparsifier: s.select(g, name=key)))
    for ranks, density in DECOMPRESS:
        payloads = []
        for rank in range(ranks):
            drawn = numpy.random.default_rng(rank).random(n, dtype=numpy.float32) < density
            indices = numpy.flatnonzero(drawn).astype(numpy.uint32)
            payloads.append((indices, gradients[rank][indices]))
        add(f"decompression of {ranks} ranks, {density:.1%}", "a fill",
            rounds(lambda _, p=payloads: sparfuse.decompress(p, n, out=out)))
    for call in calls.values():  # residuals and remembered thresholds settle
        call()
    seconds = repeat(calls, repetitions)
    lines = ["| call | limit | ms | multiple of the limit |", "|---|---|---|---|"]
    for name, limit in limit_of.items():
        middle = statistics.median(seconds[name]) / TURNS * 1e3
        lines.append(f"| {name} | {limit} | {middle:.2f} | {multiple(seconds[name], seconds[limit])} |")
    limits = ", ".join(f"{name} {statistics.median(seconds[name]) / TURNS * 1e3:.2f} ms"
                       for name in calls if name not in limit_of)
    return [*lines, "", f"Limits: {limits}."]


def check(name, kind, found, largest):
    if not numpy.array_equal(numpy.sort(numpy.abs(found)), largest):
        sys.exit(f"{name} on {kind} data does not select the {len(largest)} largest magnitudes")


def rivals(sparfuse, n, density, repetitions):
    """Rows of the table of rivals; the kind of data on which we gain least comes first."""
    try:
        import torch
        torch.set_num_threads(1)
    except ImportError:
        torch = None
    k = max(1, int(n * density))
    rows = []
    for kind in KINDS:
        x = data(kind, n)
        largest = numpy.sort(numpy.partition(numpy.abs(x), n - k)[n - k:])
        sparsifier = sparfuse.Sparsifier("topk", density=density)
        calls = {"a sum": x.sum, "topk": lambda x=x, s=sparsifier: s.select(x)[1],
                 "NumPy": lambda x=x: x[numpy.argpartition(numpy.abs(x), n - k)[n - k:]]}
        if torch is not None:
            tensor = torch.from_numpy(x)
            calls["torch"] = lambda t=tensor: t.gather(0, t.abs().topk(k).indices).numpy()
        for name, call in calls.items():
            if name != "a sum":
                check(name, kind, call(), largest)
        seconds = repeat(calls, repetitions)
        over = {name: interval([a / b for a, b in zip(times, seconds["topk"])])[0] for name, times in seconds.items()}
        rows.append((min(over[name] for name in over if name not in ("a sum", "topk")), kind, seconds, over))
    lines = ["| data | topk, multiple of a sum | torch.topk over topk | argpartition over topk |", "|---|---|---|---|"]
    for _, kind, seconds, over in sorted(rows, key=lambda row: row[:2]):
        torch_over = f"{over['torch']:.0f}" if "torch" in over else "no PyTorch"
        lines.append(f"| {kind} | {multiple(seconds['topk'], seconds['a sum'])} | {torch_over} | {over['NumPy']:.0f} |")
    return lines


def machine():
    model = platform.processor() or platform.machine()
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        model = found.group(1) if found else model
    except OSError:
        pass
    return f"{os.cpu_count()} cores of {model}, load {os.getloadavg()[0]:.0f}, NumPy {numpy.__version__}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="that has the package sparfuse")
    parser.add_argument("--quick", action="store_true", help="a million elements, three repetitions")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--page", type=Path, help="a page of documentation to write the tables into")
    options = parser.parse_args()
    sys.path.insert(0, str(options.folder.resolve()))
    import sparfuse
    sparfuse.set_threads(1)
    n = 1_000_000 if options.quick else 25_600_000
    repetitions = 3 if options.quick else options.repetitions
    lines = [f"Measured on {machine()}; {n:,} elements, one thread, n = {repetitions}; median [95 % interval].", "",
             *in_turn(sparfuse, n, repetitions), "", "Exact top-k at 1 % beside rivals:", "",
             *rivals(sparfuse, n, 0.01, max(3, repetitions // 5))]
    text = "\n".join(lines)
    print(text)
    if options.page is not None:
        page = options.page.read_text()
        whole = re.compile(r"(<!-- bench -->\n).*?(<!-- /bench -->)", re.DOTALL)
        if not whole.search(page):
            sys.exit(f"{options.page}: expected lines <!-- bench --> and <!-- /bench -->")
        options.page.write_text(whole.sub(lambda found: found.group(1) + text + "\n" + found.group(2), page))


if __name__ == "__main__":
    main()
