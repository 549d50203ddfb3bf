"""Tests fingerprints as their user takes and compares them, with real ranks (docs/comparing/systems.md).

  fingerprint_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import re
import shutil

from program import ProgramTest, main, with_all

LIVE = """
id = "live"
[defaults]
mode = "measured"
workload = "recorded-resnet"
batch_per_worker = 8
workers = 2
warmup_steps = 1
steps = 4
[[axis]]
method = ["dense", "wfbp"]
[repeat]
blocks = 1
"""
MODELLED = """
id = "modelled"
[defaults]
mode = "modelled"
cluster = "lab"
workload = "recorded-resnet"
batch_per_worker = 8
workers = 8
[[axis]]
method = ["dense", "wfbp"]
"""


class FingerprintTest(ProgramTest):
    def write(self, name, text):
        file = self.folder / name
        file.write_text(text)
        return file

    def test_a_system_is_measured_kept_and_compared_with_what_it_was(self):
        # The emulated link is known, and the measured numbers must be near it.
        said = self.call("system", "fingerprint", "lab", "--link", "1:1000")
        self.assertRegex(said, r"bandwidth between nodes +\| +[\d.]+ Gbit/s")
        file = self.results / "systems/lab.fingerprint.json"
        kept, = json.loads(file.read_text())
        quantities = kept["fingerprint"]["quantities"]
        self.assertLessEqual(quantities["inter_node_bandwidth"]["value"], 1.2)  # others delay the clock
        self.assertGreaterEqual(quantities["inter_node_start"]["value"], 1000e-6)
        for name, quantity in quantities.items():
            self.assertTrue(0 <= quantity["low"] <= quantity["value"] <= quantity["high"], name)
            self.assertGreaterEqual(quantity["n"], 5, name)
        self.assertEqual(kept["kind"], "measured")
        self.assertNotIn("placement", kept["machine"])
        # A second fingerprint, compared with one a hundred times as fast; edited by hand, it has no digest.
        del kept["kind"], kept["digest"]
        for bound in ("value", "low", "high"):
            quantities["inter_node_bandwidth"][bound] *= 100
        quantities["inter_node_bandwidth"].pop("worst", None)
        (self.results / "systems/fast.fingerprint.json").write_text(json.dumps([kept]))
        said = self.call("system", "fingerprint", "fast", "--link", "1:1000")
        changed = re.findall("changed: (.*)", said)
        self.assertRegex(changed[0], r"now's bandwidth between nodes is 0\.\d+ times that of 20")

    @with_all
    def test_cells_are_modelled_with_its_links(self):
        modelled = self.write("modelled.toml", MODELLED)
        self.call("system", "fingerprint", "lab", "--ranks", 2)
        self.assertIn("has links and no times of recorded-resnet", self.call("run", modelled, code=1))
        command = ["profile", "recorded-resnet", "--batch", 8, "--ranks", 1, "--name", "lab",
                   "--passes", 2, "--warmup", 1, "--sparsifiers", "topk", "--quantizers", "none"]
        self.call(*command)
        self.assertIn("2 ran well", self.call("run", modelled))
        self.assertRegex(self.call("cluster", "list"), r"lab .*links")

    def test_a_slow_link_is_named_first_of_what_differs_between_two_bundles(self):
        live = self.write("live.toml", LIVE)
        said = self.call("run", live, "--fingerprint", "--keep-disturbed")
        self.assertIn("measuring the fingerprint of the system again", said)
        files = sorted(self.results.glob("fingerprints/*/*.json"))
        self.assertEqual(len(files), 2)
        before, after = (json.loads(file.read_text())[0] for file in files)
        trials = [json.loads(file.read_text()) for file in self.results.rglob("trial.json")]
        self.assertEqual({trial["fingerprint"]["id"] for trial in trials}, {after["before"]})
        self.assertEqual(trials[0]["fingerprint"], trials[1]["fingerprint"])
        self.assertEqual(before["fingerprint"]["ranks"], 2)
        # An equal machine whose link is a tenth as fast.
        other = self.folder / "other"
        shutil.copytree(self.results, other)
        for file in other.rglob("trial.json"):
            trial = json.loads(file.read_text())
            link = trial["fingerprint"]["quantities"]["intra_node_bandwidth"]
            for bound in ("value", "low", "high"):
                link[bound] /= 10
            outcome_file = file.with_name("outcome.json")
            outcome = json.loads(outcome_file.read_text())
            for record, written in ((trial, file), (outcome, outcome_file)):
                record["software"]["compiler"] = "g++ 99"
                written.write_text(json.dumps(record))
        a, b = self.folder / "a.sparfuse", self.folder / "b.sparfuse"
        self.call("export", live, "--out", a)
        self.call("export", live, "--out", b, results=other)
        self.assertNotIn("fingerprint", self.call("compare", a, a, "--keep-disturbed"))
        said = self.call("compare", a, b, "--keep-disturbed")
        named = said.index("b's bandwidth within a node is 0.1 times that of a's")
        self.assertLess(named, said.index("Compared systems"))
        rows = said[said.index("Differences between the systems"):]
        self.assertLess(rows.index("fingerprint: bandwidth within a node"), rows.index("g++ 99"))
        self.call("verify", b)


if __name__ == "__main__":
    main()
