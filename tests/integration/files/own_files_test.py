"""Tests files of the user's own: where they are found, what is said of wrong ones, and what the store tells
without them. Trials are modelled, so that there is no worker.

  own_files_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness_test import made_up_profile
from program import ProgramTest, main

EXPERIMENT = """
id = "my/own"
title = "Mine"
[defaults]
mode = "modelled"
cluster = "made-up"
workload = "digits-resnet"
link = { gbps = 1, alpha_us = 100 }
[[axis]]
method = ["dense", "mine"]
[[axis]]
workers = [2, 4]
[[exclude]]
when = { method = "mine", workers = 4 }
reason = "not yet"
[[claim]]
quote = "mine is faster"
metric = "throughput"
of = { method = "mine", workers = 2 }
over = { method = "dense", workers = 2 }
expect = "more"
"""

METHOD = """
name       = "mine"
title      = "Mine"
paper      = "unpublished"
summary    = "buckets of a megabyte"
revision   = 1
strategy   = "ahead"
planner    = "by-bytes"
sparsifier = "topk"
feedback   = "residual"
collective = "sparse-allgather"
sparsifier_fixed = true
"""


class OwnFilesTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.own = self.folder / "own"
        self.write("experiments/my/own.toml", EXPERIMENT)
        self.write("methods/mine.toml", METHOD)
        profiles = [made_up_profile(1), made_up_profile(2)]
        for profile in profiles:  # selecting takes no time
            profile["profile"]["selection"] = {"topk": [{"density": 0.01, "seconds": [[1, 0.0]]}]}
        self.write("profiles/made-up.json", json.dumps(profiles))

    def write(self, name, text):
        file = self.own / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def call(self, *arguments, code=0, environment=None):
        done = self.start(*arguments, environment=environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.errors = done.stderr
        return done.stdout

    def run_own(self):
        self.assertIn("3 ran well, 0 failed, 0 were in the store", self.call("--own", self.own, "run", "my/own"))

    def test_methods_are_listed_beside_the_tree_s(self):
        wrong = self.write("methods/wrong.toml", METHOD.replace("ahead", "abreast").replace("mine", "wrong"))
        listed = {method["name"]: method for method in json.loads(self.call("--own", self.own, "list", "methods", "--json"))}
        self.assertEqual(listed["mine"]["file"], str(self.own / "methods/mine.toml"))
        self.assertEqual(listed["mine"]["strategy"], "ahead")
        self.assertNotIn("file", listed["dense"])
        self.assertEqual(listed["wrong"]["file"], str(wrong))
        self.assertIn('unknown strategy "abreast"', listed["wrong"]["summary"])
        self.assertIn("(sparfuse list strategies)", listed["wrong"]["summary"])
        self.assertIn(f"of the file {wrong}", self.call("--own", self.own, "list", "methods"))

    def test_are_found_where_the_user_says(self):
        self.run_own()
        there = {"SPARFUSE_OWN": str(self.own)}
        self.assertIn("nothing is missing", self.call("plan", "my/own", environment=there))
        listed = json.loads(self.call("list", "experiments", "--json", environment=there))
        self.assertEqual([entry["cells"] for entry in listed if entry["name"] == "my/own"], [3])
        self.assertIn("quick", [entry["name"] for entry in listed])
        clusters = self.call("list", "clusters", environment=there)
        self.assertIn("made-up", clusters)
        self.assertIn("safusion-local", clusters)
        self.call("system", "init", "here", environment=there)
        self.assertTrue((self.own / "systems" / "here.toml").exists())
        self.call("plan", "my/own", code=2)
        self.assertIn('unknown experiment "my/own"', self.errors)
        self.call("--own", self.folder / "nowhere", "plan", "my/own", code=2)
        self.assertIn("nowhere", self.errors)

    def test_the_store_tells_without_the_experiment_s_file(self):
        self.assertIn("0 experiment(s)", self.call("status"))
        self.run_own()
        self.assertRegex(self.call("status"), r"my/own +3 trial\(s\) of 3 cell\(s\); the newest of")
        (entry,) = json.loads(self.call("status", "--json"))["experiments"]
        self.assertEqual((entry["experiment"], entry["trials"], entry["failed"]), ("my/own", 3, 0))
        whole = self.call("--own", self.own, "table", "my/own", "--format", "csv")
        stored = self.call("table", "my/own", "--format", "csv")
        self.assertIn("no file of experiment my/own", self.errors)
        values = [[line for line in table.splitlines() if line.startswith(("value", "ratio"))] for table in (whole, stored)]
        self.assertTrue(values[0])
        self.assertEqual(*values)
        self.assertIn("main: 3 of 3 cells complete", self.call("status", "my/own"))
        self.call("table", "my/other", code=2)
        self.assertIn('unknown experiment "my/other"', self.errors)

    def test_a_method_s_file_that_is_wrong_is_an_error(self):
        plan = ["--own", self.own, "plan", "my/own", "--with-method"]
        for before, after, said in (
                ('"by-bytes"', '"by-byte"', 'unknown planner "by-byte"; did you mean "by-bytes"'),
                ('"topk"', '"topkk"', 'unknown sparsifier "topkk"; did you mean "topk"'),
                ("revision   = 1", "revision   = 0", "other.toml:6: revision = 0: expected"),
                ("revision   = 1", 'revision   = 1\npayload_values = "f8"', 'payload_values = "f8"'),
                ('"topk"', '"python:gone.py:Own"', "gone.py is not there; expected a Python file"),
                ('name       = "mine"', 'name       = "another"', "other.toml:2: name = \"another\"")):
            file = self.write("methods/other.toml", METHOD.replace('"mine"', '"other"', 1).replace(
                before if "name" not in before else 'name       = "other"', after))
            self.call(*plan, file, code=2)
            self.assertIn("other.toml", self.errors)
            self.assertIn(said, self.errors)
        self.call(*plan, self.folder / "none.toml", code=2)
        self.assertIn("none.toml: expected the file of a method", self.errors)

    def test_plan_counts_excluded_cells_and_says_why(self):
        said = self.call("--own", self.own, "plan", "my/own")
        self.assertRegex(said, r"main +1 cell\(s\) excluded: not yet")
        (excluded,) = json.loads(self.call("--own", self.own, "plan", "my/own", "--json"))["excluded"]
        self.assertEqual((excluded["cell"]["workers"], excluded["reason"]), (4, "not yet"))
        # An axis of sparsifiers, among them one for which the method is not defined.
        self.write("methods/other.toml", METHOD.replace('"mine"', '"other"', 1))
        both = EXPERIMENT.replace('"dense", "mine"', '"dense", "wfbp"').replace(
            '[[axis]]\nworkers', '[[axis]]\nsparsifier = ["topk", "dgc"]\n[[axis]]\nworkers').split("[[exclude]]")[0]
        self.write("experiments/both.toml", both.replace("my/own", "both"))
        said = self.call("--own", self.own, "plan", "both", "--with-method", "other")
        self.assertRegex(said, r'main +2 cell\(s\) excluded: .*sparsifier = "dgc": method other is defined with "topk" only')
        self.write("experiments/dgc.toml", both.replace("my/own", "dgc").replace('"topk", ', ""))
        self.call("--own", self.own, "plan", "dgc", "--with-method", "other", code=2)
        self.assertIn('--with-method', self.errors)
        self.assertRegex(self.errors, r'no cell is left, 2 excluded: .*defined with "topk" only')


if __name__ == "__main__":
    main()
