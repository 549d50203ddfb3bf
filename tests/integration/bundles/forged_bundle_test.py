"""Attacks `verify` and `merge` with forged bundles of real trials, whose hashes all agree: tests/chaos/forgeries.py
has the forgeries. Each is refused, or what it changes is named among what was not checked.

  forged_bundle_test.py PATH/TO/sparfuse [unittest arguments]

With SPARFUSE_EVERY_KIND=1 each forgery is tried on a trial of each kind, else on the first that it fits.
SPARFUSE_FORGERIES=FILE writes what became of each.
"""

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path

for folder in (".", "..", "../../bench/store", "../../chaos"):
    sys.path.insert(0, str(Path(__file__).resolve().parent / folder))
import forgeries  # noqa: E402  (found by the path above)
import forgery  # noqa: E402  (found by the path above)
import trial_test  # noqa: E402  (found by the path above)

SETTINGS = """
id = "t"
[defaults]
mode = "measured"
workload = "digits-resnet"
transport = "threads"
workers = 2
batch_per_worker = 4
warmup_steps = 1
steps = 4
density = 0.01
[[part]]
id = "live"
[part.repeat]
blocks = 2
[[part.axis]]
method = ["dense", "wfbp"]
[[part]]
id = "emulated"
[part.defaults]
mode = "emulated"
method = "safusion-inter"
accumulation = 2
link = { gbps = 1, alpha_us = 100 }
[[part]]
id = "sums"
[part.defaults]
method = "gtopk"
[[part]]
id = "evaluated"
[part.defaults]
kind = "convergence"
method = "syncea"
warmup_steps = 0
steps = 8
evaluate_every = 2
target = 0.999
[[part]]
id = "target"
[part.defaults]
kind = "convergence"
method = "dense"
batch_per_worker = 16
warmup_steps = 0
steps = 24
evaluate_every = 2
target = 0.3
[[part]]
id = "modelled"
[part.defaults]
mode = "modelled"
batch_per_worker = 32
transport = "mpi"
[[part.axis]]
method = ["dense", "wfbp"]
cluster = ["gtopk-1gbe", "this-machine"]
workload = ["resnet50-imagenet", "digits-resnet"]
workers = [4, 2]
[[part]]
id = "parts"  # tensors of fewer elements than ranks: some parts of the ring are empty, and no messages
[part.defaults]
mode = "modelled"
method = "dense"
method_options = { planner = "layer-wise" }
cluster = "gtopk-1gbe"
workload = "resnet20-cifar10"
transport = "mpi"
workers = 32
"""


def only(members, trial):
    """A bundle with one trial, or with some."""
    kept = {trial} if isinstance(trial, str) else set(trial)
    manifest = json.loads(members["manifest.json"])
    manifest["trials"] = {name: of for name, of in manifest["trials"].items() if name in kept}
    manifest["annotations"] = {}
    return {name: content for name, content in members.items()
            if name == "table.json" or (name.startswith("trials/") and name[7:].rpartition("/")[0] in kept)} | {
                "manifest.json": forgery.written(manifest)}


def told(said):
    """Facts that `verify` names as not checked."""
    names = set(said["nothing_tells"])
    for note in said["not_checked"]:
        if "without steps" in note or "earlier bundles" in note:
            return names | {"*"}
        if "were disturbed is not known" in note:
            names.add("disturbed")
        listed = re.match(r"(?:(\w+\.npy): )?([\w., -]+) of \d+ trials: ", note)
        if listed:
            prefix = f"{listed[1]}: " if listed[1] else ""
            names |= {prefix + name for name in listed[2].split(", ")}
            names |= {f"metrics.{name}" for name in listed[2].split(", ") if not prefix}
    return names


def is_told(fact, names):
    """Whether `verify` names it: a key stands for all beneath it, and a metric for its column."""
    return "*" in names or fact.removeprefix("steps.npy: ") in names or any(
        fact == name or fact.startswith(f"{name}.") for name in names)


class ForgedBundleTest(trial_test.Trials):
    true = None  # the members of a bundle of true trials of each kind, which are run once

    def true_bundle(self):
        given = os.environ.get("SPARFUSE_TRUE_BUNDLE")
        if given:
            return forgery.unpacked(given)
        if ForgedBundleTest.true is None:
            self.file.write_text(SETTINGS)
            self.call("run", self.file)
            said = self.said("export", "t", "--out", self.folder / "t.sparfuse")
            self.assertNotIn("left out", said)
            ForgedBundleTest.true = forgery.unpacked(self.folder / "t.sparfuse")
        return dict(ForgedBundleTest.true)

    def write_bundle(self, members):
        file = self.folder / "forged.sparfuse"
        file.write_bytes(forgery.bundled(dict(members)))
        return file

    def verify(self, members):
        """(what `verify --json` says or None, its errors), after the table was made that fits the trials."""
        for _ in range(2):
            done = self.start("verify", self.write_bundle(members), "--json")
            self.assertIn(done.returncode, (0, 1, 2), done.stdout + done.stderr)
            self.assertNotIn("json.exception", done.stderr)
            if not done.stdout.startswith("{"):
                return None, done.stderr
            said = json.loads(done.stdout)
            if said["table"] == json.loads(members["table.json"]):
                break
            members["table.json"] = forgery.written(said["table"])
        return said, "; ".join(said["problems"])

    @staticmethod
    def kinds(members):
        """{kind: id of a trial}, one of each."""
        found = {}
        for name in sorted(members):
            if not name.endswith("/trial.json"):
                continue
            trial = json.loads(members[name])
            config = trial["config"]
            method = config.get("method", "")
            kind = f"{config['mode']} {config['kind']}" + (f" {method}" if config["kind"] == "throughput" else "")
            kind += " that reached its target" if "steps_to_target" in trial["metrics"] else ""
            kind += " with draws" if trial.get("draws") else ""
            if trial["status"] == "ok":
                found.setdefault(kind, trial["trial_id"])
        return found

    def forged(self, true, function):
        """(members, what `verify` says, its errors), of a forged bundle; raises Unfit."""
        for forgeries.NUDGE in range(4):
            trial = copy.deepcopy(true)
            try:
                function(trial)
            except KeyError as error:  # a key that this kind of trial lacks
                raise forgeries.Unfit from error
            members = trial.bundle()
            said, problems = self.verify(members)
            if "another form than `export` writes" not in problems:
                break
        return members, said, problems

    def verdict(self, true, function, facts):
        """(refused, counted or passed; why), of a forged bundle; raises Unfit."""
        _, said, problems = self.forged(true, function)
        if said is None or problems:
            return "refused", problems
        names = told(said)
        if all(is_told(fact, names) for fact in facts):
            return "counted", "; ".join(facts)
        return "passed", "; ".join(said["not_checked"])

    def test_every_forgery_is_refused_or_what_it_changes_is_counted(self):
        members = self.true_bundle()
        trues = {}
        for kind, trial in self.kinds(members).items():
            alone = only(members, trial)
            self.verify(alone)  # with the table of one
            trues[kind] = forgeries.Forged(alone).remember()
            # Else forgeries would be refused for what is not forged.
            _, _, problems = self.forged(trues[kind], lambda trial: "steps.npy" in trial.series and trial.make_again())
            self.assertEqual(problems, "", kind)
        self.assertGreaterEqual(len(trues), int(os.environ.get("SPARFUSE_KINDS", 7)))
        every_kind = os.environ.get("SPARFUSE_EVERY_KIND") == "1"
        lines, passed, unfit = [], [], []
        count = dict.fromkeys(("refused", "counted", "passed"), 0)
        for name, facts, function, unnoticed in forgeries.FORGERIES:
            fits = 0
            for kind, true in trues.items():
                if fits and not every_kind:
                    break
                try:
                    verdict, why = self.verdict(true, function, facts)
                except forgeries.Unfit:
                    continue
                fits += 1
                count[verdict] += 1
                lines.append(f"{verdict}  {kind}: {name.replace('_', ' ')}: {why.splitlines()[0] if why else ''}")
                if verdict == "passed" and not unnoticed:
                    passed.append(lines[-1])
            if not fits:
                unfit.append(name)
        report = "\n".join(lines)
        print(f"{len(lines)} forgeries of {len(trues)} kinds of trials: {count}")
        if file := os.environ.get("SPARFUSE_FORGERIES"):
            Path(file).write_text(report + "\n")
        self.assertEqual(passed, [])
        self.assertEqual(unfit, [])
        self.assertGreater(count["refused"], 100)

    def test_copies_are_named_and_left_out(self):
        """In a bundle, and beside the trials of a store."""
        members = self.true_bundle()
        other = self.folder / "other"
        for kind, trial in self.kinds(members).items():
            alone = only(members, trial)
            true = forgeries.Forged(alone).remember()
            if "steps.npy" not in true.series or not true.is_live:
                continue
            self.verify(alone)
            self.said("merge", self.write_bundle(alone), results=other)
            for function in forgeries.COPIES:
                try:
                    forged, _, problems = self.forged(true, function)
                except forgeries.Unfit:
                    continue
                with self.subTest(kind=kind, copy=function.__name__):
                    self.assertEqual(problems, "")
                    manifest = json.loads(forged["manifest.json"])
                    manifest["trials"] |= json.loads(alone["manifest.json"])["trials"]
                    both = {**forged, **{name: content for name, content in alone.items()
                                         if name.startswith("trials/")}, "manifest.json": forgery.written(manifest)}
                    _, problems = self.verify(both)
                    self.assertIn("steps.npy: ", problems)
                    self.assertRegex(problems, "to the last bit|to a millionth|which has seed")
                    said = self.said("merge", self.write_bundle(forged), results=other, code=1)
                    self.assertIn("0 trial(s) added, 0 already here, 0 annotation(s) added, 1 refused", said)
                    self.assertIn(f"of {trial}", said)

    def test_what_is_refused_is_neither_merged_nor_compared_nor_run(self):
        members = self.true_bundle()
        kind, trial = next((kind, trial) for kind, trial in self.kinds(members).items() if "measured thr" in kind)
        alone = only(members, trial)
        self.verify(alone)
        forged = forgeries.Forged(alone).remember()
        forged.state("throughput", 3 * forged.metric("throughput"))
        forged.state("step_seconds", forged.metric("step_seconds") / 3)
        bundle = forged.bundle()
        _, problems = self.verify(bundle)
        self.assertIn("step_seconds", problems, kind)
        file, other = self.write_bundle(bundle), self.folder / "others"
        said = self.said("merge", file, results=other, code=1)
        self.assertIn("0 trial(s) added", said)
        self.assertEqual(list(other.rglob("trial.json")), [])
        true = self.folder / "true.sparfuse"
        true.write_bytes(forgery.bundled(dict(alone)))
        done = subprocess.run([self.program, "compare", str(true), str(file)], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("step_seconds", done.stderr)


if __name__ == "__main__":
    trial_test.main()
