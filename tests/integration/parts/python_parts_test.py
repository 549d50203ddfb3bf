"""Tests parts of methods that are written in Python, in experiments: copies of built-in ones, modelled and live, and
the commands of docs/python-parts.md.

  python_parts_test.py PATH/TO/sparfuse PATH/TO/sparfuse_python_plugin.so [--live] [unittest arguments]
"""

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from program import ROOT, ProgramTest, read_trial

PAGE = (ROOT / "docs/python-parts.md").read_text()


def copies():
    """The text of parts_test.py's classes, which copy built-in parts."""
    path = ROOT / "tests/harness/python/parts_test.py"
    return re.search(r'COPIES = """\n(.*?)"""', path.read_text(), re.DOTALL)[1].replace("\\\\0", "\\0").replace(
        "assert given.workers == 3 and", "assert")


METHOD = """
name = "{name}"
title = "{name}"
paper = "unpublished"
summary = "a copy"
revision = 1
deviations = ""
strategy = "{strategy}"
planner = "{planner}"
planner_options = {options}
sparsifier = "topk"
feedback = "{feedback}"
collective = "{collective}"
"""

BUILT_IN = {"strategy": "ahead", "planner": "layer-wise", "options": "{}", "feedback": "residual",
            "collective": "sparse-allgather"}

MODELLED = """
id = "t"
[defaults]
mode = "modelled"
cluster = "made-up"
workload = "digits-resnet"
workers = 4
density = 0.05
link = {{ gbps = 1, alpha_us = 100 }}
{more}
[[axis]]
method = [{methods}]
"""

# Elements of eight tensors; gradients, selections and messages take different times.
SIZES = [640, 64, 36864, 64, 9000, 3, 128, 4097]


def made_up_profile(ranks):
    curve = [[1, 1e-6], [1000000, 2e-3]]
    tensors = [{"name": f"t{i}", "shape": [n], "numel": n, "seconds": 1e-4 * (i + 1)} for i, n in enumerate(SIZES)]
    backward = {"steps": 5, "begin_seconds": 0, "forward_seconds": 0.005, "tail_seconds": 0, "update_seconds": 0.001,
                "tensors": tensors}
    profile = {"backward": backward, "dispatch_seconds": 0, "exchange_dispatch_seconds": 0, "pack": curve,
               "scale": curve, "clear": curve, "seconds_per_entry": 1e-9, "seconds_per_reduced_element": 1e-9,
               "selection": {"topk": [{"density": 0.05, "seconds": curve}]}}
    if ranks > 1:
        profile["link"] = {"round_seconds": [[0, 1e-3], [1000000, 11e-3]], "seconds_per_extra_message": 0,
                           "cpu_seconds": 0, "round_cpu_seconds": 0, "cpu_fraction": 0}
    options = {"nan_step": -1, "unused_parameter": False}
    return {"profile": profile,
            "machine": {"communication_threads": "normal", "cores": 2, "kernels": "avx2", "cuda_devices": 0},
            "software": {"compiler": "fake", "cuda_build": ""},
            "config": {"kind": "profile", "workload": "digits-resnet", "workers": ranks, "batch_per_worker": 32,
                       "workload_options": options, "threads_per_worker": 1,
                       "link": {"gbps": 1, "alpha_us": 100} if ranks > 1 else None}}


LIVE = """
id = "t"
[defaults]
mode = "measured"
workload = "digits-resnet"
workers = 2
batch_per_worker = 4
warmup_steps = 1
steps = 4
density = 0.05
deadline_seconds = 10
{more}
[[axis]]
method = [{methods}]
[repeat]
timeout_seconds = 100
"""


class Parts(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "mine.py").write_text(copies())
        (self.results / "profiles").mkdir(parents=True)
        (self.results / "profiles/made-up.json").write_text(json.dumps([made_up_profile(ranks) for ranks in (1, 2)]))

    def method(self, name, **parts):
        (self.folder / f"{name}.toml").write_text(METHOD.format(name=name, **{**BUILT_IN, **parts}))

    def trials(self, experiment, *methods, more=""):
        listed = ", ".join(f'"{name}.toml"' for name in methods)
        (self.folder / "t.toml").write_text(experiment.format(methods=listed, more=more))
        self.call("run", "--keep-disturbed", "t.toml")
        trials = [read_trial(path) for path in self.results.rglob("trial.json")]
        return {trial["config"]["method"]: trial for trial in trials}

    def assert_copies(self, experiment, metrics, **copied):
        self.method("original")
        for name, parts in copied.items():
            self.method(name, **parts)
        trials = self.trials(experiment, "original", *copied)
        original = trials.pop("original")
        self.assertEqual(len(trials), len(copied))
        for name, trial in trials.items():
            self.assertTrue(all(trial["checks"].values()), trial["checks"])
            for metric in metrics:
                self.assertEqual(trial["metrics"][metric]["value"], original["metrics"][metric]["value"],
                                 f"{name}: {metric}")
        return trials

    COPIES = {"planner_copy": {"planner": "python:mine.py:LayerWise"},
              "strategy_copy": {"strategy": "python:mine.py:Ahead"},
              "collective_copy": {"collective": "python:mine.py:Gather"}}

    def test_their_modelled_steps_are_the_originals(self):
        trials = self.assert_copies(MODELLED, ("step_seconds", "payload_bytes", "sent_bytes"), **self.COPIES)
        named = trials["planner_copy"]["config"]["method_options"]["planner"]
        self.assertRegex(named, "^python:LayerWise@[0-9a-f]{12}$")
        self.assertIn(f"planner:{named}", trials["planner_copy"]["revisions"])

    def test_parts_that_packages_name_are_modelled(self):
        info = self.folder / "packaged-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text("[sparfuse.parts]\nown-feedback = mine:Residual\nbad = mine\n")
        os.environ["PYTHONPATH"] = str(self.folder)
        self.addCleanup(os.environ.pop, "PYTHONPATH")
        self.method("copy", feedback="own-feedback")
        self.assertRegex(self.trials(MODELLED, "copy")["copy"]["config"]["feedback"], "^python:Residual@[0-9a-f]{12}$")
        self.method("copy", planner="bad")
        (self.folder / "t.toml").write_text(MODELLED.format(methods='"copy.toml"', more=""))
        self.assertIn('entry point bad = "mine" of packaged 1.5 names no class', self.call("plan", "t.toml", code=2))
        (self.folder / "own-feedback.toml").write_text('part = "python:mine.py:Residual"\n')
        self.method("copy", feedback="own-feedback")
        self.assertRegex(self.call("--plugins", ".", "plan", "t.toml", code=2),
                         'feedback "own-feedback" is in .*own-feedback.toml and in packaged 1.5; expected one')
        named = json.loads(self.call("--plugins", ".", "list", "parts", "--json"))
        self.assertEqual(sorted((part["name"], part["source"].split("/")[-1]) for part in named),
                         [("bad", "packaged 1.5"), ("own-feedback", "own-feedback.toml"), ("own-feedback", "packaged 1.5")])
        (info / "entry_points.txt").write_text("[sparfuse.parts]\nown-feedback = mine:Residual\nresidual = mine:Residual\n")
        self.assertIn('feedback "residual" is in sparfuse itself and in packaged 1.5; expected one of each name',
                      self.call("plan", "t.toml", code=2))

    def test_what_is_wrong_is_said_before_anything_runs(self):
        for part, expected in (({"planner": "python:absent.py:LayerWise"}, "absent.py is not there"),
                               ({"planner": "python:mine.py:LayerWide"}, 'did you mean "LayerWise"?'),
                               ({"planner": "python:mine.py"}, "python:FILE.py:ClassName"),
                               ({"strategy": "python:mine.py:LayerWise"}, 'kind = "planner"; expected "strategy"'),
                               ({"collective": "python:mine.py:Whole"}, "no method run(comm, mine)")):
            with self.subTest(expected):
                self.method("bad", **part)
                (self.folder / "t.toml").write_text(MODELLED.format(methods='"bad.toml"', more=""))
                done = self.start("plan", "t.toml")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(expected, done.stdout + done.stderr)
                self.assertIn("mine.py" if "absent" not in expected else "absent.py", done.stdout + done.stderr)

    def test_an_edited_file_is_another_cell(self):
        self.method("copy", planner="python:mine.py:LayerWise")
        self.trials(MODELLED, "copy")
        self.trials(MODELLED, "copy")
        self.assertEqual(len(list(self.results.rglob("trial.json"))), 1)
        with (self.folder / "mine.py").open("a") as file:
            file.write("\n# edited\n")
        self.trials(MODELLED, "copy")
        self.assertEqual(len(list(self.results.rglob("trial.json"))), 2)
        with (self.folder / "mine.py").open("a") as file:
            file.write("import beside\n")
        for cells, text in ((3, "x = 1\n"), (4, "x = 20\n")):
            (self.folder / "beside.py").write_text(text)
            self.trials(MODELLED, "copy")
            self.assertEqual(len(list(self.results.rglob("trial.json"))), cells)

    def test_a_model_without_the_page_s_laws_holds_them(self):
        """Runs the laws as in the page's `sparfuse check`, which would build their program first."""
        laws = Path(self.program).with_name("part-conformance")
        if not laws.exists():
            self.skipTest(f"{laws} is not built")
        blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:-1]
        (self.folder / "mine.py").write_text("import numpy\n\n\n" + "\n\n".join(blocks))
        (self.folder / "mine.toml").write_text(re.search(r"```toml\n(name .*?)```", PAGE, re.DOTALL)[1])
        of_methods = Path(self.program).with_name("harness_method_conformance_test")
        for kind, name in re.findall(r"sparfuse check (\w+) (\S+)", PAGE):
            command, more = [laws, kind, name], {}
            if kind == "method":
                command, more = [of_methods, "--gtest_filter=*_3:*_4_2_a_node"], {"SPARFUSE_CHECKED_METHOD": name}
            done = subprocess.run(command, cwd=self.folder, env=os.environ | more, text=True, capture_output=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"PASSED  ?\] [1-9]")

    def test_a_method_s_file_with_a_sparsifier_in_python_holds_the_laws(self):
        laws = Path(self.program).with_name("harness_method_conformance_test")
        if not laws.exists():
            self.skipTest(f"{laws} is not built")
        (self.folder / "mine.py").write_text(
            "import numpy\n\nclass Largest:\n    def select(self, g, k, *, name, step):\n"
            "        return numpy.argsort(-abs(g), kind='stable')[:k]\n")
        self.method("largest", sparsifier="python:mine.py:Largest")
        done = subprocess.run([laws, "--gtest_filter=*_2:*_4_2_a_node"], cwd=self.folder, text=True, check=False,
                              env=os.environ | {"SPARFUSE_CHECKED_METHOD": "largest.toml"}, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"PASSED  ?\] [1-9]")

    def test_laws_that_are_broken_are_named(self):
        laws = Path(self.program).with_name("part-conformance")
        if not laws.exists():
            self.skipTest(f"{laws} is not built")
        (self.folder / "bad.py").write_text(BAD)
        for kind, name, expected in (("planner", "Short", "units of 1 tensors together"),
                                     ("quantizer", "Biased", "Failure"),
                                     ("quantizer", "Far", "what is kept, and given"),
                                     ("feedback", "Loses", "LostMass|mass_violations"),
                                     ("collective", "Deaf", "never received"),
                                     ("strategy", "Wild", "exchange of nothing")):
            with self.subTest(name):
                done = subprocess.run([laws, kind, f"python:bad.py:{name}"], cwd=self.folder, text=True,
                                      capture_output=True, check=False)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertRegex(done.stdout + done.stderr, expected)


BAD = """
import numpy

class Short:
    def plan(self, layout, given): return [1]

class Biased:
    unbiased = True
    def encoded_bytes(self, n): return 4 * n
    def encode(self, x, random): return numpy.frombuffer((x + 1).astype("f4").tobytes(), numpy.uint8)
    def decode(self, b, n): return numpy.frombuffer(b, numpy.float32) * numpy.float32(1)

class Far:
    needs_feedback = True
    def encoded_bytes(self, n): return 4 * n
    def encode(self, x, random): return numpy.frombuffer((-3 * x).astype("f4").tobytes(), numpy.uint8)
    def decode(self, b, n): return numpy.frombuffer(b, numpy.float32) * numpy.float32(1)

class Loses:
    def compensate(self, name, g, r): return g + r
    def keep(self, name, x, indices, r): r[:] = 0

class Deaf:
    payload = "sparse"
    def run(self, comm, mine):
        if comm.size > 1:
            yield comm.send((comm.rank + 1) % comm.size, mine)
        return [mine] * comm.size

class Wild:
    sparsified = "ahead"
    def ready(self, e, tensor): e.exchange([])
"""


class Live(Parts):
    """Tests parts in live trials, with a worker."""

    def test_live_they_are_the_originals_bit_for_bit(self):
        copied = {**self.COPIES, "feedback_copy": {"feedback": "python:mine.py:Residual"}}
        trials = self.assert_copies(LIVE, ("payload_bytes", "sent_bytes", "loss", "residual_norm"), **copied)
        for name, trial in trials.items():
            self.assertEqual(trial["metrics"].get("python_seconds", {"value": 0})["value"] > 0,
                             name != "planner_copy", trial["metrics"])

    def test_what_python_raises_fails_the_trial(self):
        text = (self.folder / "mine.py").read_text()
        (self.folder / "mine.py").write_text(text.replace("        self.local[tensor] = e.sparsify(tensor)",
                                                          "        self.local[tensor] = 1 / 0"))
        self.method("bad", strategy="python:mine.py:Ahead")
        (self.folder / "t.toml").write_text(LIVE.format(methods='"bad.toml"', more=""))
        done = self.start("run", "--keep-disturbed", "t.toml")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        (trial,) = [read_trial(path) for path in self.results.rglob("trial.json")]
        self.assertEqual(trial["failure"]["kind"], "config", trial["failure"])
        self.assertRegex(trial["failure"]["message"], r"mine.py:Ahead.*ready.*ZeroDivisionError.*mine.py, line \d+\)")

    def test_what_never_returns_fails_the_trial(self):
        text = (self.folder / "mine.py").read_text()
        (self.folder / "mine.py").write_text(text.replace("        self.local[tensor] = e.sparsify(tensor)",
                                                          "        sum(range(10**13))"))
        self.method("bad", strategy="python:mine.py:Ahead")
        (self.folder / "t.toml").write_text(
            LIVE.replace("seconds = 10\n", "seconds = 1\n", 1).format(methods='"bad.toml"', more='transport = "threads"'))
        done = self.start("run", "--keep-disturbed", "t.toml")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        (trial,) = [read_trial(path) for path in self.results.rglob("trial.json")]
        self.assertRegex(trial["failure"]["message"],
                         r"mine.py:Ahead: ready\(e, tensor\) of .* has not returned for \d+ s, and a TimeoutError")
        (log,) = self.results.rglob("log.txt")
        self.assertRegex(log.read_text(), r'Stack \(most recent call first\):\n  File ".*mine.py", line \d+ in ready')


if __name__ == "__main__":
    ProgramTest.program = os.path.abspath(sys.argv.pop(1))
    plugin = sys.argv.pop(1)
    live = "--live" in sys.argv and sys.argv.remove("--live") is None
    if not os.path.exists(plugin):
        print(f"skipped: {plugin} is not built: install python3-dev and, in .venv, pybind11 and numpy")
        sys.exit(77)
    if not live:
        del Live
    unittest.main()
