"""Tests the real `sparfuse` on a store that holds what must not count: table, CSV, figures and
report say the same numbers, and what must not count is in none of them.

  one_truth_test.py PATH/TO/sparfuse [unittest arguments]
"""

import csv
import hashlib
import importlib.util
import io
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from harness_test import made_up_profile

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).resolve().parent / "fake_worker.sh"
SPARFUSE = None
HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None

EXPERIMENT = """
id = "truth"
title = "One truth"
[defaults]
workload = "digits-resnet"
workers = 2
[[part]]
id = "live"
reference = "dense"
[part.defaults]
mode = "measured"
transport = "threads"
[[part.axis]]
method = ["dense", "wfbp", "syncea"]
[part.repeat]
blocks = 3
[[part.claim]]
quote = "wfbp is faster"
metric = "throughput"
of = { method = "wfbp" }
over = { method = "dense" }
expect = "more"
[[part.figure]]
kind = "grouped_bars"
name = "plain"
[[part.figure]]
kind = "grouped_bars"
name = "ratios"
normalise = "dense"
[[part]]
id = "modelled"
[part.defaults]
mode = "modelled"
method = "dense"
cluster = "made-up"
link = { gbps = 1, alpha_us = 100 }
[[part.axis]]
workers = [2, 4]
[[part.figure]]
kind = "grouped_bars"
name = "computed"
"""
VALUES = {"dense": (100.0, 110.0, 120.0), "wfbp": (203.0, 219.0, 247.0)}
# Throughputs of trials that must not count; no number of the experiment is near any of them.
REPLACED, STALE, ELSEWHERE, BAD, ON_HOSTS = 3217.0, 4219.0, 5231.0, 6257.0, 7283.0
T = 4.302653  # quantile 0.975 of Student's t with two degrees of freedom, from tables


def geometric(values):
    """(geometric mean, low, high) with its 95 % interval, computed by hand."""
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)
    deviation = math.sqrt(sum((log - mean) ** 2 for log in logs) / (len(logs) - 1))
    half = T * deviation / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


RATIO = geometric([a / b for a, b in zip(VALUES["wfbp"], VALUES["dense"])])


def numbers(text):
    """All numbers of a text, with groups of thousands joined."""
    joined = re.sub(r"(?<=\d)[\u2009\u202f](?=\d{3}(?!\d))", "", text)
    return [float(found) for found in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?", joined)]


def content_hash(value):
    """The hash of a value's canonical form, as in trial.json."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def placed(*hosts):
    """The record of a trial's machine, with ranks on these hosts."""
    return {
        "placement": hosts, "communication_threads": "normal", "cores": 2, "kernels": "avx2",
        "cuda_devices": 0}


def leaves(tree):
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        return [leaf for branch in tree for leaf in leaves(branch)]
    return [tree] if isinstance(tree, (int, float)) and not isinstance(tree, bool) else []


class OneTruth(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="sparfuse-truth-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.results, cls.file = cls.folder / "results", cls.folder / "truth.toml"
        cls.file.write_text(EXPERIMENT)
        cls.profile(0.01)
        cls.call("run", cls.file)
        cls.profile(0.03)  # now the first modelled trials have an older profile
        cls.call("run", cls.file)
        trials = cls.trials()
        computed = [trial for trial in trials if trial["config"]["mode"] == "modelled"]
        computed.sort(key=lambda trial: trial["started_utc"])
        speeds = [trial["metrics"]["throughput"]["value"] for trial in computed]
        cls.of_old_profile, cls.modelled = speeds[:2], sorted(speeds[2:])
        assert len(speeds) == 4 and min(cls.of_old_profile) != max(cls.modelled)
        for trial in trials:
            if trial["config"]["mode"] == "modelled":
                continue
            method, block = trial["config"]["method"], trial["block"]
            if method == "syncea":  # none of its trials counts
                cls.write(trial, revisions={"method:syncea": 999}, throughput=STALE)
                continue
            newer = {"started_utc": "2098" + trial["started_utc"][4:]} if block == 2 else {}
            cls.write(trial, throughput=VALUES[method][block], machine=placed("h", "h"), **newer)
            if method == "wfbp" and block == 0:  # newer than the block's trial, but not the cell's newest
                cls.write(trial, ON_HOSTS, trial_id=f"{trial['trial_id']}-9994",
                          started_utc="2097" + trial["started_utc"][4:], machine=placed("h", "i"))
            if method == "dense" and block == 0:
                cls.add(trial, "0000", REPLACED)
            if method == "wfbp" and block == 1:
                machine = {**trial["system"], "cpu_model": "Another CPU"}
                cls.elsewhere = content_hash(machine)
                cls.add(trial, "9991", ELSEWHERE, system=machine, system_hash=cls.elsewhere)
                cls.add(trial, "9992", STALE, revisions={**trial["revisions"], "method:wfbp": 999})
                cls.bad = cls.add(trial, "9993", BAD)
        cls.call("index", "--rebuild")
        cls.call("annotate", cls.bad, "--reason", "the fan stood still")

    @classmethod
    def profile(cls, backward_seconds):
        folder = cls.results / "profiles"
        folder.mkdir(parents=True, exist_ok=True)
        profiles = [made_up_profile(ranks) for ranks in (1, 2)]
        for profile in profiles:
            profile["profile"]["backward"]["tensors"][0]["seconds"] = backward_seconds
        (folder / "made-up.json").write_text(json.dumps(profiles))

    @classmethod
    def call(cls, *arguments):
        command = [SPARFUSE, "--results", cls.results, "--worker", WORKER, *arguments]
        command = [str(word) for word in command]
        done = subprocess.run(command, text=True, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @classmethod
    def trials(cls):
        paths = sorted((cls.results / "trials").rglob("trial.json"))
        return [json.loads(path.read_text()) for path in paths]

    @classmethod
    def write(cls, trial, throughput, **changes):
        trial = {**trial, **changes}
        trial["metrics"] = {
            "throughput": {"value": throughput, "unit": "images/s"},
            "step_seconds": {"value": 1 / throughput, "unit": "s"},
        }
        folder = cls.results / "trials" / trial["trial_id"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "trial.json").write_text(json.dumps(trial))
        return trial["trial_id"]

    @classmethod
    def add(cls, trial, number, throughput, **changes):
        """Adds a trial of the same cell and block, earlier (number 0000) or later than `trial`."""
        year = "2020" if number == "0000" else "2099"
        return cls.write(
            trial,
            throughput,
            trial_id=f"{trial['trial_id']}-{number}",
            started_utc=year + trial["started_utc"][4:],
            **changes,
        )

    def excluded(self):
        return (REPLACED, STALE, ELSEWHERE, BAD, ON_HOSTS, *self.of_old_profile)

    def has(self, found, expected, within=5e-3):
        self.assertTrue(
            any(abs(value - expected) <= within * expected for value in found), (expected, found)
        )

    def has_none_that_must_not_count(self, found):
        for value in self.excluded():
            for near in (value, 1 / value, 1e3 / value, 1e6 / value):
                wrong = [each for each in found if near and abs(each / near - 1) < 2e-4]
                self.assertEqual(wrong, [], value)

    def test_markdown(self):
        text = self.call("table", self.file)
        rows = {}
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("| ").split("|")]
            rows.setdefault(cells[0], " ".join(cells[1:]))
        for method in ("dense", "wfbp"):
            self.has(numbers(rows[method]), geometric(VALUES[method])[0])
        for value in RATIO:
            self.has(numbers(rows["wfbp"]), value, within=1e-2)
        self.assertIn("stale", rows["syncea"])
        self.assertIn("left out: 2 of other machines, 4 of older revisions", text)
        self.has_none_that_must_not_count(numbers(text))

    def test_csv_and_json(self):
        text = self.call("table", self.file, "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(text)))
        self.check_records(rows)
        self.has_none_that_must_not_count(numbers(text))
        records = json.loads(self.call("table", self.file, "--json"))
        self.check_records(records)
        self.has_none_that_must_not_count([value for value in leaves(records) if value > 0])

    def check_records(self, records):
        def of(method, what):
            return [
                [float(record[name]) for name in ("value", "low", "high")]
                for record in records
                if (record["what"], record["method"], record["metric"], record["part"])
                == (what, method, "throughput", "live")
                and record["value"] not in (None, "")
            ]

        for method in ("dense", "wfbp"):
            self.equal(of(method, "result"), [geometric(VALUES[method])])
        self.equal(of("wfbp", "ratio"), [RATIO])
        self.assertEqual(of("syncea", "result"), [])

    def equal(self, found, expected):
        self.assertEqual(len(found), len(expected), found)
        for ours, theirs in zip(found, expected):
            for value, other in zip(ours, theirs):
                self.assertAlmostEqual(value / other, 1, places=6)

    @unittest.skipUnless(HAS_MATPLOTLIB, "no matplotlib in this Python")
    def test_explain_has_the_steps_that_count(self):
        pair = ("--of", "workers=4", "--over", "workers=2", "--part", "modelled")
        found = json.loads(self.call("explain", self.file, *pair, "--json"))
        for side, workers, speed in zip(("over", "of"), (2, 4), self.modelled):
            samples = 32 * workers
            self.assertAlmostEqual(found["step"][side] * speed / samples, 1, places=6)
        change = found["step"]["of"] - found["step"]["over"]
        self.assertAlmostEqual(found["step"]["difference"]["value"], change)
        self.assertTrue(found["paired"])

    @unittest.skipUnless(HAS_MATPLOTLIB, "no matplotlib in this Python")
    def test_spec_figures_and_report(self):
        self.call("report", self.file)
        folder = self.results / "reports" / "truth"
        spec = json.loads((folder / "spec.json").read_text())
        self.check_spec(spec)
        self.check_figures(folder)
        page = (folder / "report.html").read_text()
        page = re.sub(r"src='data:[^']*'", "", page)  # pictures; check_figures checks them
        page = re.sub(r"<[^>]*>", " ", page)
        page = re.sub(r"\b[0-9a-f]{12}\b", " ", page)  # hashes may begin like numbers
        found = numbers(page)
        self.has_none_that_must_not_count(found)
        words = "{:.2f}x [{:.2f}, {:.2f}]".format(*RATIO)
        self.assertIn(f"wfbp: {words} the throughput of dense", page)
        self.assertEqual(page.count(words), 3)  # in the findings, the table and the verdict
        for method in ("dense", "wfbp"):
            self.has(found, geometric(VALUES[method])[0])
        for value in self.modelled:
            self.has(found, value)
        self.assertIn("the fan stood still", page)
        self.assertIn("2 of other machines, 4 of older revisions, 2 of older profiles", page)

    def check_spec(self, spec):
        live, modelled = spec["parts"]
        counting = [cell["trials"] for part in spec["parts"] for cell in part["cells"]]
        self.assertEqual([len(trials) for trials in counting], [3, 3, 0, 1, 1])
        for cell, method in zip(live["cells"], VALUES):
            throughput = cell["metrics"]["throughput"]
            self.assertEqual(tuple(throughput["values"].values()), VALUES[method])
            for name, value in zip(("value", "low", "high"), geometric(VALUES[method])):
                self.assertAlmostEqual(throughput["geometric"][name] / value, 1, places=6)
        self.assertEqual(live["cells"][2]["failure"], "stale")
        ratio = live["cells"][1]["ratios"]["dense"]["metrics"]["throughput"]
        for name, value in zip(("value", "low", "high"), RATIO):
            self.assertAlmostEqual(ratio[name] / value, 1, places=6)
        words = "{:.2f}x [{:.2f}, {:.2f}]".format(*RATIO)
        self.assertEqual(ratio["text"], words)
        self.assertTrue(spec["headlines"][0].startswith(f"wfbp: {words} the throughput of dense"))
        [group] = spec["judged"]["groups"]
        self.assertEqual(group["sentences"][0]["settings"][0]["ours"], words)
        computed = [cell["metrics"]["throughput"]["values"] for cell in modelled["cells"]]
        self.assertEqual(computed, [{"0": value} for value in self.modelled])
        self.has_none_that_must_not_count([value for value in leaves(spec) if value > 0])
        systems = {system["hash"] for system in spec["provenance"]["systems"]}
        self.assertNotIn(self.elsewhere, systems)
        self.assertNotIn("Another CPU", json.dumps(spec))

    def check_figures(self, folder):
        data = folder / "data.json"
        command = [sys.executable, "-m", "sparfuse_report", "figure"]
        command += ["--results", self.results, "--experiment", "truth", "--out", folder / "figures"]
        command += ["--spec", folder / "spec.json", "--data", data]
        subprocess.run([str(word) for word in command], check=True, capture_output=True,
                       cwd=ROOT / "harness" / "figures")
        drawn = json.loads(data.read_text())
        heights = {
            name: [bar[3] for panel in figure["panels"] for bar in panel["bars"]]
            for name, figure in drawn.items()
        }
        for height, method in zip(heights["plain"], VALUES):
            self.assertAlmostEqual(height / geometric(VALUES[method])[0], 1, places=6)
        self.assertEqual(len(heights["ratios"]), 1)
        self.assertAlmostEqual(heights["ratios"][0], RATIO[0], places=6)
        for height, value in zip(heights["computed"], self.modelled, strict=True):
            self.assertAlmostEqual(height / value, 1, places=6)
        self.assertEqual(len(heights["plain"]), 2)
        self.has_none_that_must_not_count([value for value in leaves(drawn) if value > 0])


if __name__ == "__main__":
    SPARFUSE = sys.argv.pop(1)
    unittest.main()
