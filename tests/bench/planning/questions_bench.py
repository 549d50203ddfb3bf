#!/usr/bin/env python3
"""Times `sparfuse advise` on large tables and steps of sparfuse.Method on many ranks.

    tests/bench/planning/questions_bench.py PATH/TO/sparfuse MODULE_FOLDER [--tensors N] [--ranks P]
        [--cluster NAME] [--methods A,B] [--elements N]

For advise: a table of N tensors of few sizes, as models have them, over all methods or those given, on a cluster
of results/profiles. For Method: each step of P ranks on tensors of so many elements together; each method in a
process of its own, whose peak memory is printed. CPU seconds are those of all threads.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
METHODS = ["wfbp", "safusion", "ssfusion", "dense", "oktopk", "zen"]
LAYOUT = [("head.bias", (100,)), ("head.weight", (100, 300)), ("body.weight", (300, 230)), ("body.bias", (900,))]


def table(tensors, name):
    """A model table of biases, and of matrices with multiply-accumulates."""
    draw = random.Random(7)
    entries = []
    for i in range(tensors):
        if i % 3 == 0:
            entries.append({"name": f"layer{i}.bias", "shape": [draw.choice([64, 256, 512, 1024])], "macs": 0})
            continue
        shape = [draw.choice([64, 128, 256, 512]), draw.choice([64, 128, 256, 512])]
        entries.append({"name": f"layer{i}.weight", "shape": shape,
                        "macs": shape[0] * shape[1] * draw.choice([1, 49, 196])})
    return {"name": name, "unit": "images", "units_per_sample": 1, "batch_per_worker": 32,
            "family": "vgg", "source": "questions_bench.py", "tensors": entries}


def timed(command):
    """(seconds, CPU seconds, peak memory in MiB, output) of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True)
    seconds = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, after.ru_maxrss / 1024, done.stdout


def steps_of(module, method, ranks, elements):
    """Prints, in a process of its own, seconds and CPU seconds to make the ranks and of each step, and peak MiB."""
    sys.path.insert(0, module)
    import numpy

    import sparfuse

    factor = elements / sum(numpy.prod(shape) for _, shape in LAYOUT)
    layout = [(name, (*shape[:-1], max(1, round(shape[-1] * factor)))) for name, shape in LAYOUT]
    draw = numpy.random.default_rng(0)
    one = [{name: draw.standard_normal(shape, dtype=numpy.float32) for name, shape in layout}
           for _ in range(min(ranks, 8))]
    gradients = [one[rank % len(one)] for rank in range(ranks)]
    times = []

    def note(call):
        begin = time.monotonic(), time.process_time()
        result = call()
        times.append((time.monotonic() - begin[0], time.process_time() - begin[1]))
        return result

    made = note(lambda: sparfuse.Method(method, ranks, layout, density=0.01))
    for _ in range(3):
        note(lambda: made.step(gradients))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(" ".join(f"{seconds:.2f}/{cpu:.2f}" for seconds, cpu in times), f"{peak:.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sparfuse")
    parser.add_argument("module")
    parser.add_argument("--tensors", type=int, default=5000)
    parser.add_argument("--cluster", default="safusion-cloud")
    parser.add_argument("--methods", default="")
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--elements", type=int, default=100_000)
    parser.add_argument("--of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.of:
        return steps_of(given.module, given.of, given.ranks, given.elements)
    if given.tensors > 0:
        with tempfile.TemporaryDirectory() as folder:
            name = f"tensors-{given.tensors}"
            (Path(folder) / f"{name}.json").write_text(json.dumps(table(given.tensors, name)))
            command = [given.sparfuse, "advise", "--workload", f"table:{folder}/{name}.json",
                       "--cluster", given.cluster, "--json"]
            seconds, cpu, peak, _ = timed(command + (["--methods", given.methods] if given.methods else []))
        print(f"advise, {given.tensors} tensors, {given.methods or 'all methods'}: "
              f"{seconds:.1f} s, {cpu:.1f} CPU seconds, {peak:.0f} MiB")
    if given.ranks > 0:
        print(f"Method, {given.ranks} ranks, {given.elements} elements: seconds/CPU seconds of making it and of three steps, MiB")
        for method in given.methods.split(",") if given.methods else METHODS:
            command = [sys.executable, __file__, given.sparfuse, given.module, "--of", method,
                       "--ranks", str(given.ranks), "--elements", str(given.elements)]
            print(f"  {method:12} {timed(command)[3].strip()}", flush=True)


if __name__ == "__main__":
    main()
