"""Runs experiments for scripts that check measurements (quiet_check, turns_check)."""

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# {values: Student's t at 97.5 % for their mean}; for more an approximation within 1.5 %
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


def parsed(parser, folder):
    """The options of `parser` and of both scripts; `folder` beneath .setup is where results stay."""
    parser.add_argument("--results", type=Path, default=ROOT / ".setup" / folder)
    builds = ROOT.glob("build/*/harness/sparfuse")
    parser.add_argument("--sparfuse", type=Path, default=max(builds, key=os.path.getmtime, default=None))
    options = parser.parse_args()
    if options.sparfuse is None or not options.sparfuse.exists():
        sys.exit("no sparfuse: expected a build (scripts/setup), or --sparfuse PATH")
    options.results = options.results.resolve()
    return options


def call(options, results, *words):
    """What sparfuse prints; ends the script if it fails."""
    command = [options.sparfuse, "--results", results, *words]
    done = subprocess.run(list(map(str, command)), text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{command} ended with status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def fresh(options, name):
    """A new folder of results."""
    results = options.results / name
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    return results


def run(options, results, text):
    """Runs the experiment `text`, whose trials count as they are; returns its file."""
    file = results / "check.toml"
    file.write_text(text)
    call(options, results, "run", "--keep-disturbed", file)
    return file


def live_trials(results):
    """The trial.json of each trial that ran live."""
    trials = [json.loads(path.read_text()) for path in results.rglob("trial.json")]
    return [trial for trial in trials if trial["config"]["kind"] == "throughput"]


def interval(values):
    """(low, high, mean): the mean of two values or more, with its 95 % t interval."""
    count, mean = len(values), statistics.mean(values)
    half = STUDENT.get(count, 1.96 + 2.4 / (count - 1)) * statistics.stdev(values) / math.sqrt(count)
    return mean - half, mean + half, mean
