"""Tests real trials with sparsifiers written in Python.

  python_sparsifier_test.py PATH/TO/sparfuse PATH/TO/sparfuse_python_plugin.so [unittest arguments]
"""

import json
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from program import ProgramTest, main, read_trial, with_all

EXPERIMENT = """
id = "t"
[defaults]
mode = "{mode}"
workload = "digits-resnet"
method = "{method}"
workers = 2
batch_per_worker = 4
warmup_steps = 1
steps = 4
density = 0.01
deadline_seconds = 10
{more}
[[axis]]
sparsifier = [{sparsifiers}]
[repeat]
timeout_seconds = 100
"""

CLASSES = """
import os
import numpy

class TopK:
    def select(self, g, k):
        # Of equal magnitudes the first, as topk does.
        return numpy.argsort(-numpy.abs(g), kind="stable")[:k]

class Half:
    exact_count = False
    def __init__(self, part=2, seed=None):
        assert isinstance(seed, int), seed
        self.part = part
    def select(self, g, k):
        return TopK().select(g, max(1, k // self.part))

class First:
    def select(self, g, k):
        return numpy.arange(k)

class Raising(TopK):
    def select(self, g, k):
        raise RuntimeError("no good: k = %d" % k)

class OutOfRange(TopK):
    def select(self, g, k):
        return numpy.arange(k) + g.size

class Late:
    calls = 0
    def select(self, g, k):
        Late.calls += 1
        if Late.calls > 60:
            self.end()
        return TopK().select(g, k)

class RaisingLate(Late):
    def end(self):
        raise RuntimeError("no good")

class KillingLate(Late):
    def end(self):
        os.kill(os.getpid(), 9)

class WithoutSelect:
    pass
"""

TOLD = """
import numpy

class Told:
    def __init__(self):
        self.steps = {}
    def select(self, g, k, *, name, step):
        assert step > self.steps.get(name, -1), (name, step)
        self.steps[name] = step
        return numpy.argsort(-numpy.abs(g), kind="stable")[:k]
"""

METHOD = """
name = "mine"
title = "Mine"
paper = "unpublished"
summary = "tensor by tensor"
revision = 1
strategy = "ahead"
planner = "layer-wise"
sparsifier = "python:told.py:Told"
feedback = "residual"
collective = "sparse-allgather"
"""


class PythonSparsifierTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.source = self.folder / "classes.py"
        self.source.write_text(CLASSES)

    def start_with(self, *sparsifiers, mode="measured", method="wfbp", more="", environment=None):
        listed = ", ".join(f'"{name}"' for name in sparsifiers)
        file = self.folder / "t.toml"
        file.write_text(EXPERIMENT.format(mode=mode, method=method, more=more, sparsifiers=listed))
        return self.start("run", "--keep-disturbed", file, environment=environment)

    def run_trials(self, *sparsifiers, **experiment):
        """{sparsifier: its trial}; all trials must succeed."""
        done = self.start_with(*sparsifiers, **experiment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return self.trials()

    def trials(self):
        trials = [read_trial(path) for path in self.results.rglob("trial.json")]
        return {trial["config"]["sparsifier"]: trial for trial in trials if "sparsifier" in trial["config"]}

    def failure(self, sparsifier, **experiment):
        done = self.start_with(sparsifier, **experiment)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        (trial,) = self.trials().values()
        self.assertEqual(trial["failure"]["kind"], "config", trial["failure"])
        self.assertIn(sparsifier.rsplit(":", 1)[1], trial["failure"]["message"])
        self.assertIn(str(self.source), trial["failure"]["message"])
        return trial["failure"]["message"]

    def assert_as_topk(self, method, more=""):
        trials = self.run_trials("python:classes.py:TopK", "topk", method=method, more=more)
        topk = trials.pop("topk")
        ((name, python),) = trials.items()
        self.assertRegex(name, "^python:TopK@[0-9a-f]{12}$")
        self.assertTrue(all(python["checks"].values()), python["checks"])
        for metric in ("payload_bytes", "sent_bytes", "loss", "achieved_density", "residual_norm"):
            self.assertEqual(python["metrics"][metric]["value"], topk["metrics"][metric]["value"], metric)

    def test_numpy_top_k_is_topk(self):
        self.assert_as_topk("wfbp")

    def test_one_that_fails_or_dies_leaves_the_others_of_its_launch(self):
        for name, kind, more in (("RaisingLate", "config", ""), ("KillingLate", "comm", ""),
                                 ("RaisingLate", "config", 'transport = "threads"')):
            shutil.rmtree(self.results, ignore_errors=True)
            done = self.start_with("topk", f"python:classes.py:{name}", "python:classes.py:First", more=more)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            trials = self.trials()
            self.assertEqual(len(trials), 3)
            for sparsifier, trial in trials.items():
                if name in sparsifier:
                    self.assertEqual((trial["status"], trial["failure"]["kind"]), ("failed", kind), trial["failure"])
                else:
                    self.assertEqual((trial["status"], trial["checks"]["replicas_equal"]), ("ok", True), sparsifier)
                    self.assertEqual(trial["launch"]["trials"], 2)

    @with_all
    def test_fused_buffers_and_ranks_as_threads(self):
        self.assert_as_topk("safusion-inter")
        shutil.rmtree(self.results)
        self.assert_as_topk("wfbp", 'transport = "threads"')

    def test_counts_may_differ_where_the_class_says_so(self):
        more = "sparsifier_options = { part = 4 }"
        (trial,) = self.run_trials("python:classes.py:Half", more=more).values()
        self.assertEqual(trial["status"], "ok")
        outcome = json.loads(next(self.results.rglob("outcome.json")).read_text())
        by_hand = sum(8 * max(1, int(0.01 * tensor["numel"]) // 4) for tensor in outcome["layout"])
        self.assertEqual(trial["metrics"]["payload_bytes"]["value"], by_hand)

    def test_an_edited_file_is_another_cell(self):
        self.run_trials("python:classes.py:TopK")
        self.run_trials("python:classes.py:TopK")
        self.assertEqual(len(list(self.results.rglob("trial.json"))), 1)
        self.source.write_text(CLASSES + "\n# edited\n")
        self.assertEqual(len(self.run_trials("python:classes.py:TopK")), 2)
        hashes = {json.loads(path.read_text())["config_hash"] for path in self.results.rglob("trial.json")}
        self.assertEqual(len(hashes), 2)

    def test_a_method_s_file_names_one_that_is_told_names_and_steps(self):
        methods = self.folder / "methods"
        methods.mkdir()
        (methods / "told.py").write_text(TOLD)
        (methods / "mine.toml").write_text(METHOD)
        text = EXPERIMENT.format(mode="measured", method="methods/mine.toml", more="", sparsifiers="")
        (self.folder / "t.toml").write_text(text.replace("[[axis]]\nsparsifier = []\n", ""))
        self.call("run", "--keep-disturbed", self.folder / "t.toml")
        ((name, trial),) = self.trials().items()
        self.assertRegex(name, "^python:Told@[0-9a-f]{12}$")
        self.assertEqual((trial["status"], trial["config"]["method"]), ("ok", "mine"))
        self.assertTrue(all(trial["checks"].values()), trial["checks"])

    @with_all
    def test_the_profile_measures_them_and_the_model_takes_them(self):
        self.run_trials("python:classes.py:First", mode="modelled", more='cluster = "this-machine"')
        trials = [read_trial(path) for path in self.results.rglob("trial.json")]
        (modelled,) = [trial for trial in trials if trial["config"]["mode"] == "modelled"]
        self.assertEqual(modelled["status"], "ok")
        name = modelled["config"]["sparsifier"]
        profiles = [trial["config"]["sparsifiers"] for trial in trials if trial["config"]["kind"] == "profile"]
        self.assertEqual(profiles, [[name]] * 2)  # profiles of one rank and of two

    def test_what_python_raises_fails_the_trial(self):
        message = self.failure("python:classes.py:Raising")
        self.assertIn("RuntimeError: no good: k = ", message)
        line = 1 + CLASSES.splitlines().index('        raise RuntimeError("no good: k = %d" % k)')
        self.assertIn(f"{self.source}, line {line}", message)

    def test_indices_out_of_range(self):
        self.assertIn("expected indices in [0, ", self.failure("python:classes.py:OutOfRange"))

    def test_a_class_without_select(self):
        self.assertIn("has no method select(g, k)", self.failure("python:classes.py:WithoutSelect"))

    def test_an_option_that_the_constructor_does_not_take(self):
        message = self.failure("python:classes.py:Half", more="sparsifier_options = { parts = 4 }")
        self.assertIn("parts", message)

    def test_a_module_that_does_not_exist(self):
        self.source.write_text("import nonsense_that_is_not_there\n" + CLASSES)
        self.assertIn("ModuleNotFoundError: No module named 'nonsense_that_is_not_there'",
                      self.failure("python:classes.py:TopK"))

    def test_a_worker_without_the_plugin(self):
        worker = self.folder / "alone" / "sparfuse-worker"
        worker.parent.mkdir()
        shutil.copy(Path(PLUGIN).parent / "sparfuse-worker", worker)
        message = self.failure("python:classes.py:TopK", environment={"SPARFUSE_WORKER": str(worker)})
        self.assertIn(f"sparfuse_python_plugin.so is not in {worker.parent}", message)
        self.assertIn("install python3-dev", message)

    def test_what_is_missing_is_said_before_anything_starts(self):
        for name, expected in (("python:absent.py:TopK", str(self.folder / "absent.py")),
                               ("python:classes.py:TopJ", 'did you mean "TopK"?'),
                               ("python:classes.py", "python:FILE.py:ClassName")):
            done = self.start_with(name)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(expected, done.stdout + done.stderr)
            self.assertIn("t.toml:", done.stdout + done.stderr)
            self.assertEqual(self.trials(), {})


if __name__ == "__main__":
    PLUGIN = sys.argv.pop(2)
    if not os.path.exists(PLUGIN):
        print(f"skipped: {PLUGIN} is not built: install python3-dev and, in .venv, pybind11 and numpy")
        sys.exit(77)
    main()
