#!/usr/bin/env python3
"""Runs built benchmark programs and prints their tables: what `scripts/bench` and an archive's `run bench`
have in common.

    scripts/bench_programs.py FOLDER --out FOLDER [--quick] [--gpu] [--page] [NAME...]
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

import bench_table

SUFFIX = {False: "_bench", True: "_gpu_bench"}
FULL = ["--benchmark_repetitions=15"]
QUICK = ["--benchmark_repetitions=3", "--benchmark_filter=-data:(layers|equal|sparse)"]
STEP_QUICK = ["--elements", "1000000", "--repetitions", "3"]
SHAPED_GBPS = ("1", "10")
# The benchmark through the Python module; only a tree with a build has it.
ROOT = pathlib.Path(__file__).resolve().parents[1]
TRAINING = ROOT / "tests" / "bench" / "turns" / "training_bench.py"


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def names_in(folder, gpu):
    """The names of the benchmarks in `folder`, sorted."""
    names = sorted(path.name.removesuffix(SUFFIX[gpu]) for path in folder.glob(f"*{SUFFIX[gpu]}"))
    if not gpu and TRAINING.is_file() and any(module_in(folder).glob("_core.*")):
        names.append("training")
    return [name for name in names if gpu or not name.endswith("_gpu")]


def module_in(folder):
    """The folder of a build's Python package; `folder` is the folder of its benchmarks."""
    return folder.parent / "harness" / "python" / "sparfuse"


def run_printing(name, head, commands, out, environment):
    """Runs commands that print tables of their own, kept in NAME.md; returns whether all ended well."""
    runs = [subprocess.run(list(map(str, command)), env=environment, stdout=subprocess.PIPE, text=True, check=False)
            for command in commands]
    text = head + "".join(done.stdout for done in runs)
    print(text, flush=True)
    (out / f"{name}.md").write_text(text)
    return not any(done.returncode for done in runs)


def run_training(folder, options, out, environment):
    """Times selections as in a training step."""
    more = ["--quick"] if options.quick else []
    if options.page:
        more += ["--page", ROOT / "docs" / "performance.md"]
    command = [sys.executable, TRAINING, module_in(folder).parent, *more]
    return run_printing("training", "\n## training\n\n", [command], out, environment)


def run_step(program, options, out, environment):
    """Times whole exchange steps."""
    more = STEP_QUICK if options.quick else []
    commands = [[program, *more]]
    shaped = pathlib.Path(__file__).parent / "shaped_network"
    if os.geteuid() == 0 and all(shutil.which(tool, path=environment.get("PATH")) for tool in ("ip", "tc", "mpirun")):
        commands += [[shaped, gbps, program, "--gbps", gbps, *more] for gbps in SHAPED_GBPS]
    else:
        say("step: no shaped network, which needs root, iproute2 and mpirun; emulated links only")
    return run_printing("step", "\n## step\n", commands, out, environment)


def run_kernel(program, output, options, environment):
    """Runs a program of Google Benchmark; returns whether it wrote `output`. A log beside it has the rest."""
    output.unlink(missing_ok=True)
    log = output.with_suffix(".log")
    say(f"running {program.name} ...")
    started = time.monotonic()
    command = [str(program), "--benchmark_enable_random_interleaving=true", "--benchmark_out_format=json",
               *(QUICK if options.quick else FULL), f"--benchmark_out={output}"]
    with log.open("w") as text:
        status = subprocess.run(command, env=environment, stdout=text, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        say("\n".join(log.read_text(errors="replace").splitlines()[-30:]))
        say(f"    failed with status {status}; the whole output is in {log}")
        return False
    say(f"    done in {time.monotonic() - started:.1f} s")
    return True


def run(options, folder, out, environment):
    """Runs benchmarks; returns the exit status: 1 if one failed, 2 if there are none, or none of a name."""
    known = names_in(folder, options.gpu)
    if not known:
        say(f"there are no *{SUFFIX[options.gpu]} in {folder}")
        return 2
    for name in options.names:
        if name not in known:
            say(f"no benchmark '{name}'; known: {' '.join(known)}")
            return 2
    if not options.quick:
        environment = {**environment, "SPARFUSE_BENCH_LARGE": "1"}
    out.mkdir(parents=True, exist_ok=True)
    whole = True
    outputs = []
    for name in options.names or known:
        program = folder / (name + SUFFIX[options.gpu])
        if name == "training":
            whole = run_training(folder, options, out, environment) and whole
            continue
        if program.name == "step_bench":
            whole = run_step(program, options, out, environment) and whole
            continue
        output = out / f"{program.name.removesuffix('_bench')}.json"
        if run_kernel(program, output, options, environment):
            outputs.append(output)
        else:
            whole = False
    whole = bench_table.print_tables(outputs) == 0 and whole
    return 0 if whole else 1


def parse(arguments, prog, folder=False):
    parser = argparse.ArgumentParser(prog=prog, description="Runs benchmarks and prints their tables.")
    if folder:
        parser.add_argument("folder", type=pathlib.Path, help="of the programs")
        parser.add_argument("--out", type=pathlib.Path, required=True, help="a folder for raw data and logs")
    parser.add_argument("--quick", action="store_true", help="short runs to see that benchmarks work, not to quote")
    parser.add_argument("--gpu", action="store_true", help="kernels on a CUDA card")
    parser.add_argument("--page", action="store_true", help="training: write docs/performance.md's tables")
    parser.add_argument("names", nargs="*", metavar="NAME", help="topk, accumulate, ... (default: all)")
    return parser.parse_intermixed_args(arguments)


def main():
    options = parse(sys.argv[1:], "bench_programs.py", folder=True)
    return run(options, options.folder, options.out, dict(os.environ))


if __name__ == "__main__":
    sys.exit(main())
