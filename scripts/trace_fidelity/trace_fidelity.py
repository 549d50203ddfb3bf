#!/usr/bin/env python3
"""Measures how well a one-rank trace predicts the step of several ranks of torch's DDP over gloo.

    scripts/trace_fidelity/trace_fidelity.py --sparfuse build/release/harness/sparfuse \
        --ranks 2 --runs 3 --out FOLDER

Run by a Python that has PyTorch. In turns, RUNS times: a step of one rank alone, a step and a trace of
one rank beside RANKS - 1 equal ones that train for themselves, and a step of RANKS ranks. Ranks share
the memory of this machine, so a step beside others takes longer than one alone, without any exchange.
DDP of one rank gives the time of its hooks and copies. Then what the model makes of the trace, with
and without --step-ms, beside the measured step; of the model without a trace (multiply-accumulates at
the rate of a product); and of two formulas, the largest of computation and wire, and their sum. Writes
FOLDER/fidelity.json and prints a table. More ranks than cores tell nothing.
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
from statistics import median_high as median

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import training  # noqa: E402

ROOT = HERE.parent.parent


def run_ranks(world, out, profiled, port, copies=1):
    """What rank 0 found; with COPIES, of that many groups of WORLD ranks that train side by side."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    folders = [out] + [out / f"beside{copy}" for copy in range(1, copies)]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "training.py"), str(rank), str(world), str(folder), profiled],
            stdout=subprocess.PIPE,
            text=True,
            env=environment | {"MASTER_PORT": str(port + copy)},
        )
        for copy, folder in enumerate(folders)
        for rank in range(world)
    ]
    texts = [process.communicate(timeout=300)[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"training on {world} ranks failed")
    return json.loads(texts[0]) if profiled == "0" else None


def cluster_text(ranks, measured, alone):
    curve = sorted(measured["all_reduce"])
    for i in range(len(curve) - 2, -1, -1):  # the times of a curve must not fall
        curve[i][1] = min(curve[i][1], curve[i + 1][1])
    size, us = curve[-1]
    gbps = 8e-3 * 2 * (ranks - 1) / ranks * size / us
    inputs = {
        "inter_node_gbps": 2 * gbps,
        "inter_node_efficiency": 0.5,
        "inter_node_us": curve[0][1] / (2 * (ranks - 1)),
        "intra_node_gbps": 2 * gbps,
        "intra_node_us": curve[0][1] / (2 * (ranks - 1)),
        "memory_gbytes_per_s": alone["memory_gbytes_per_s"],
        "kernel_us": 2,
        "compute_tflops": alone["tflops"],
        "host_link_gbytes_per_s": alone["memory_gbytes_per_s"],
        "host_memory_gbytes_per_s": alone["memory_gbytes_per_s"],
        "exchange_host_us": 20,
        "hook_host_us_a_tensor": alone["hook_host_us_a_tensor"],
    }
    lines = [
        'title = "Processes of this machine, by gloo"',
        'source = "trace_fidelity.py"',
        'hardware = "this machine"',
        f"nodes = {ranks}",
        "ranks_per_node = 1",
        "[input]",
    ]
    for name, value in inputs.items():
        kind = "declared" if name in ("kernel_us", "exchange_host_us") else "measured"
        lines.append(f'{name} = {{ value = {value:.6g}, kind = "{kind}", source = "here" }}')
    lines += [
        "[[curve]]",
        'operation = "all-reduce"',
        f"ranks = {ranks}",
        f"bytes = {[float(size) for size, _ in curve]}",
        f"us = {[round(us, 3) for _, us in curve]}",
        'kind = "measured"',
        'source = "torch.distributed.all_reduce by gloo"',
    ]
    return "\n".join(lines) + "\n"


def throughput(arguments, results, *more):
    """Samples per second of the dense step, with their band, as `sparfuse advise` models them."""
    done = subprocess.run(
        [arguments.sparfuse, "--results", str(results), "advise", "--cluster", "here", "--methods",
         "dense", "--workers", str(arguments.ranks), "--batch", str(training.BATCH), "--json", *more],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    method = json.loads(done.stdout)["rankings"][0]["methods"][0]
    return method["throughput"]


def step_ms(rate, ranks):
    per_step = ranks * training.BATCH * 1e3
    return [per_step / rate[key] if rate.get(key) else None for key in ("value", "high", "low")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sparfuse", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    out = arguments.out
    profiles = out / "results" / "profiles"
    profiles.mkdir(parents=True, exist_ok=True)
    alone, beside, together, traces = [], [], [], []
    ranks = arguments.ranks
    for run in range(arguments.runs):  # in turns, so that a drift of the machine affects all
        folder = out / f"run{run}"
        port = 29600 + 4 * ranks * run
        alone.append(run_ranks(1, folder, "0", port))
        beside.append(run_ranks(1, folder, "0", port + ranks, copies=ranks))
        run_ranks(1, folder, "1", port + 2 * ranks, copies=ranks)
        together.append(run_ranks(ranks, folder, "0", port + 3 * ranks))
        traces.append(folder / "trace-rank0.json.gz")
    one = {key: median([each[key] for each in beside]) for key in beside[0]}
    measured = {"step_ms": median([each["step_ms"] for each in together])}
    measured["all_reduce"] = [
        [size, median([each["all_reduce"][i][1] for each in together])]
        for i, (size, _) in enumerate(together[0]["all_reduce"])
    ]
    (profiles / "here.toml").write_text(cluster_text(ranks, measured, one))
    table = out / "gpt.json"
    describe = ROOT / "harness/python/sparfuse/describe.py"
    subprocess.run(
        [sys.executable, str(describe), f"{HERE / 'training.py'}:gpt", "--batch",
         str(training.BATCH), "-o", str(table)],
        check=True,
    )  # fmt: skip
    workload = f"table:{table}"
    results = out / "results"

    with_trace, with_alone, without_step, in_band = [], [], [], 0
    for each, quiet, trace in zip(beside, alone, traces):
        common = ["--trace", str(trace), "--accept-spread", "--workload", workload]
        for found, step in ((with_trace, each), (with_alone, quiet)):
            rate = throughput(arguments, results, *common, "--step-ms", str(step["step_ms"]))
            found.append(step_ms(rate, ranks)[0])
        plain = step_ms(throughput(arguments, results, *common), ranks)
        without_step.append(plain)
        in_band += plain[1] <= measured["step_ms"] <= plain[2]
    untraced = step_ms(throughput(arguments, results, "--workload", workload), ranks)
    elements = sum(
        math.prod(tensor["shape"]) for tensor in json.loads(table.read_text())["tensors"]
    )
    size, us = measured["all_reduce"][-1]
    wire = us * 4 * elements / size / 1e3
    compute = one["step_ms"]
    rows = {
        "measured": [measured["step_ms"], min(t["step_ms"] for t in together),
                     max(t["step_ms"] for t in together)],
        "one-rank trace, --step-ms": [median(with_trace), min(with_trace), max(with_trace)],
        "the same, with the step of a rank alone": [median(with_alone), min(with_alone),
                                                    max(with_alone)],
        "one-rank trace alone": [median([p[0] for p in without_step]),
                                 min(p[1] for p in without_step), max(p[2] for p in without_step)],
        "no trace": untraced,
        "formula: largest of step of one rank and wire": [max(compute, wire)] * 3,
        "formula: their sum": [compute + wire] * 3,
    }  # fmt: skip
    found = {
        "ranks": ranks,
        "runs": arguments.runs,
        "cpu": re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[1],
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "one_rank_ms": one["step_ms"],
        "one_rank_runs_ms": [each["step_ms"] for each in beside],
        "one_rank_alone_runs_ms": [each["step_ms"] for each in alone],
        "rows": rows,
        "trace_alone_in_band": in_band,
    }
    (out / "fidelity.json").write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['cpu']}, {found['cores']} cores, load {found['load_average']:.1f}; "
          f"{ranks} ranks, n = {arguments.runs}")  # fmt: skip
    for name, (value, low, high) in rows.items():
        error = "" if name == "measured" else f"{100 * (value / measured['step_ms'] - 1):+6.1f} %"
        print(f"{name:48} {value:8.2f} ms [{low:.2f}, {high:.2f}] {error}")


if __name__ == "__main__":
    main()
