"""Tests modelled trials of a model that a file describes: that of docs/model-tables.md.

  model_table_test.py PATH/TO/sparfuse [unittest arguments]
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys

from program import ROOT, ProgramTest, main

PAGE = ROOT / "docs/model-tables.md"
DESCRIBE = ROOT / "harness/python/sparfuse/describe.py"
HAS_NUMPY = importlib.util.find_spec("numpy") is not None

CLAIM = """
[[claim]]
quote = "wfbp sends less"
metric = "sent_bytes"
for_each = ["workload"]
of = { method = "wfbp", workload = "table:mymodel.json" }
over = { method = "dense" }
expect = "less"
"""


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]


class ModelTable(ProgramTest):
    def setUp(self):
        super().setUp()
        self.table = json.loads(block("json"))
        self.write()

    def write(self, *changes):
        """Writes the page's files, with each (old, new) of `changes` made in the experiment."""
        (self.folder / "mymodel.json").write_text(json.dumps(self.table))
        experiment = block("toml") + CLAIM
        for old, new in changes:
            self.assertIn(old, experiment)
            experiment = experiment.replace(old, new)
        (self.folder / "t.toml").write_text(experiment)

    def refusal(self, *arguments):
        done = self.start(*arguments)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def trials(self):
        return {path.parent.name: json.loads(path.read_text())
                for path in self.folder.rglob("trial.json")}

    def test_is_run_shown_and_explained_by_its_name(self):
        self.call("run", "t.toml")
        trials = self.trials()
        self.assertEqual(len(trials), 3)
        for name, trial in trials.items():
            self.assertRegex(name, r"^(dense|wfbp|safusion)-mymodel-w8-")
            self.assertEqual(trial["status"], "ok")
            self.assertRegex(trial["config"]["workload"], "^table:mymodel@[0-9a-f]{12}$")
            self.assertEqual(trial["config"]["batch_per_worker"], 32)
            outcome = next(self.folder.rglob(f"{name}/outcome.json"))
            self.assertEqual(json.loads(outcome.read_text())["table"],
                             {"source": self.table["source"], "measured_on": None})
            self.assertEqual([(t["name"], t["shape"]) for t in trial["layout"]],
                             [(t["name"], t["shape"]) for t in self.table["tensors"]])
            metrics = trial["metrics"]
            self.assertEqual(metrics["throughput"]["unit"], "images/s")
            self.assertAlmostEqual(
                metrics["throughput"]["value"] * metrics["step_seconds"]["value"], 8 * 32, places=6)
        shown = self.call("table", "t.toml")
        self.assertIn("| mymodel ", shown)
        self.assertIn("(mymodel)", shown)  # in the claim's setting
        self.assertNotIn("table:", shown)
        if HAS_NUMPY:
            explained = self.call("explain", "t.toml", "--json", "--of",
                                  "method=wfbp,workload=table:mymodel.json", "--over", "method=dense")
            self.assertIn("mymodel", explained)

    def test_an_edited_table_is_another_cell(self):
        self.call("run", "t.toml")
        self.assertIn("0 trial(s) to run", self.call("plan", "t.toml"))
        moved = self.folder / "there"
        moved.mkdir()
        shutil.copy(self.folder / "mymodel.json", moved)
        self.write(("table:mymodel.json", "table:there/mymodel.json"))
        self.assertIn("0 trial(s) to run", self.call("plan", "t.toml"))
        self.table["tensors"][1]["macs"] *= 2
        self.write()
        why = self.call("plan", "t.toml", "--why")
        self.assertIn("3 trial(s) to run", why)
        self.assertRegex(why, r"nearest stored: workload .*table:mymodel@.* -> .*table:mymodel@")
        self.call("run", "t.toml")
        self.assertEqual(len(self.trials()), 6)

    def test_twice_the_work_takes_longer(self):
        self.call("run", "t.toml")
        for tensor in self.table["tensors"]:
            tensor["macs"] *= 2
        self.write()
        self.call("run", "t.toml")
        seconds = {}
        for trial in self.trials().values():
            if trial["config"]["method"] == "dense":
                metrics = trial["metrics"]
                seconds[trial["started_utc"]] = metrics["backward_seconds"]["value"]
        first, second = (seconds[at] for at in sorted(seconds))
        self.assertAlmostEqual(second / first, 2, places=9)

    def test_buffers_are_broadcast_as_table_cell_and_stack_say(self):
        (self.folder / "own").mkdir()
        own = ("--own", self.folder / "own")
        self.call(*own, "cluster", "new", "mine", "--preset", "h100-nvlink-ib", "--nodes", "2")
        self.table["broadcast_bytes"] = 4_000_000
        self.write()

        def experiment(more):
            (self.folder / "b.toml").write_text(
                'id = "b"\n[defaults]\nmode = "modelled"\ncluster = "mine"\nworkers = 16\n'
                f'workload = "table:mymodel.json"\nmethod = "ddp"\n{more}')

        experiment("")
        self.call(*own, "run", "b.toml")
        # Cells that differ in bytes, or in ranks of a node, have profiles of their own.
        experiment("[[axis]]\nbroadcast_bytes = [0, 4000000, 40000000]\n[[axis]]\nranks_per_node = [8, 4]\n")
        self.call(*own, "run", "b.toml")
        seconds = {}
        for trial in self.trials().values():
            key = (trial["config"]["broadcast_bytes"], trial["config"]["ranks_per_node"])
            seconds[key] = trial["metrics"]["step_seconds"]["value"]
        self.assertEqual(len(seconds), 7)
        self.assertEqual(seconds[None, 8], seconds[4_000_000, 8])  # the table's
        for ranks in (8, 4):
            none, some, many = (seconds[each, ranks] for each in (0, 4_000_000, 40_000_000))
            self.assertLess(none, some)
            self.assertLess(some, many)
        self.assertNotEqual(seconds[40_000_000, 8], seconds[40_000_000, 4])
        advice = self.call(*own, "advise", "--workload", "table:mymodel.json", "--cluster", "mine", "--methods",
                           "dense", "--workers", "16")
        self.assertIn('buffers: 4000000 bytes are broadcast before each forward pass', advice)
        self.write(("safusion-local", "safusion-local\"\nbroadcast_bytes = 1 #"))
        self.assertIn("t.toml:17: broadcast_bytes = 1: cluster safusion-local of stack horovod-sparse leaves buffers",
                      self.refusal("plan", "t.toml"))

    def test_what_a_table_cannot_do_is_said(self):
        self.write(('"modelled"', '"measured"'))
        self.assertRegex(self.refusal("plan", "t.toml"),
                         r't\.toml:17: workload = "table:mymodel\.json" in mode measured: .* cannot train it')
        self.write(("safusion-local", "this-machine"))
        self.assertIn('cluster = "this-machine" with a model table', self.refusal("run", "t.toml"))
        for verb in (("profile",), ("check", "workload")):
            self.assertIn('workload "table:mymodel.json": a table lists a model\'s tensors',
                          self.refusal(*verb, "table:mymodel.json"))
        self.table["tensors"][2]["macs"] = -5
        self.write()
        self.assertIn(f't.toml:17: workload = "table:mymodel.json": {self.folder / "mymodel.json"}: '
                      'tensors[2] "0.weight": macs = -5: expected a number from 0',
                      self.refusal("plan", "t.toml"))

    def test_the_page_s_module_is_the_page_s_table(self):
        (self.folder / "mine.py").write_text(block("python"))
        done = subprocess.run(
            [sys.executable, DESCRIBE, "mine.py:mymodel", "--input-shape", "3,32,32", "--unit",
             "images", "--family", "vgg", "--batch", "32", "--source", self.table["source"], "-o",
             "mymodel.json"], cwd=self.folder, text=True, capture_output=True, check=False)
        # PyTorch for CUDA needs libraries that are installed only beside a card.
        if "No module named" in done.stderr or "cannot open shared object file" in done.stderr:
            self.skipTest(f"torch cannot be imported: {done.stderr.strip()}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads((self.folder / "mymodel.json").read_text()), self.table)
        self.assertIn("3 trial(s) to run", self.call("plan", "t.toml"))


if __name__ == "__main__":
    main()
