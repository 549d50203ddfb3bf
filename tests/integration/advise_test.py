"""Tests `sparfuse advise` and what `sparfuse explain` says of inputs.

  advise_test.py PATH/TO/sparfuse [unittest arguments]
"""

import importlib.util
import json
import unittest

from program import ProgramTest, main

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None
QUESTION = ["--workload", "digits-resnet", "--cluster", "mine", "--workers", "4,8",
            "--methods", "dense,wfbp,safusion"]
CLUSTER = """
title = "Four nodes of two"
source = "the test"
hardware = "none"
nodes = 4
ranks_per_node = 2
[input]
inter_node_gbps = { value = 10, kind = "data sheet", source = "t" }
inter_node_us = { value = 5, kind = "declared", source = "t" }
intra_node_gbps = { value = 400, kind = "data sheet", source = "t" }
intra_node_us = { value = 2, kind = "declared", source = "t" }
memory_gbytes_per_s = { value = 2000, kind = "data sheet", source = "t" }
kernel_us = { value = 4, kind = "declared", source = "t" }
compute_tflops = { value = 10, kind = "declared", source = "t" }
host_link_gbytes_per_s = { value = 20, kind = "data sheet", source = "t" }
host_memory_gbytes_per_s = { value = 100, kind = "declared", source = "t" }
exchange_host_us = { value = 50, kind = "declared", source = "t" }
selection_us = { value = 20, kind = "declared", source = "t" }
selection_ns_an_element = { value = 0.1, kind = "declared", source = "t" }
[selection_costs]
topk = 1.0
"""
TABLE = {
    "name": "mymodel", "unit": "images", "units_per_sample": 1, "batch_per_worker": 32,
    "family": "resnet", "source": "the test",
    "tensors": [{"name": "fc.weight", "shape": [1000, 2048], "macs": 2048000},
                {"name": "conv.weight", "shape": [256, 64, 3, 3], "macs": 462422016}],
}


class Advise(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "results/profiles").mkdir(parents=True)
        (self.folder / "results/profiles/mine.toml").write_text(CLUSTER)

    def test_text_says_what_json_does_and_nothing_is_stored(self):
        answer = json.loads(self.call("advise", *QUESTION, "--json"))
        text = self.call("advise", *QUESTION)
        self.assertEqual([each["workers"] for each in answer["rankings"]], [4, 8])
        for ranking in answer["rankings"]:
            best = ranking["methods"][0]
            self.assertIn(f"{ranking['workers']} workers, density 0.01: {best['method']} trains "
                          "fastest", text)
            for each in ranking["methods"]:
                self.assertLessEqual(each["throughput"]["low"], each["throughput"]["value"])
                self.assertLessEqual(each["of_best"]["value"], 1)
                self.assertEqual(each["undecided"], each is not best and not each["equal"]
                                 and each["of_best"]["high"] >= 1)
            shares = [each["share"] for each in ranking["deciding"]["inputs"]]
            self.assertAlmostEqual(sum(shares), 1)
            self.assertEqual(shares, sorted(shares, reverse=True))
            self.assertIn(ranking["deciding"]["inputs"][0]["measure"], text)
        self.assertFalse((self.folder / "results/trials").exists())

    def test_the_experiment_it_prints_has_the_same_numbers(self):
        answer = json.loads(self.call("advise", *QUESTION, "--json"))
        (self.folder / "advice.toml").write_text(self.call("advise", *QUESTION, "--toml"))
        self.call("run", "advice.toml")
        if not HAS_MATPLOTLIB:
            return
        said = self.call("explain", "advice.toml", "--of", "method=wfbp,workers=4", "--over",
                         "method=dense,workers=4", "--json")
        found = json.loads(said)
        rates = {each["method"]: each["step_seconds"]
                 for each in answer["rankings"][0]["methods"]}
        self.assertAlmostEqual(found["step"]["of"], rates["wfbp"])
        self.assertAlmostEqual(found["step"]["over"], rates["dense"])
        self.assertAlmostEqual(found["deciding"]["ratio"], rates["dense"] / rates["wfbp"])
        first = found["deciding"]["inputs"][0]
        text = self.call("explain", "advice.toml", "--of", "method=wfbp,workers=4", "--over",
                         "method=dense,workers=4")
        self.assertIn("deciding input", text)
        self.assertIn(first["input"], text)

    def test_a_model_table_on_a_calibrated_cluster_can_be_asked_about(self):
        (self.folder / "mymodel.json").write_text(json.dumps(TABLE))
        question = ["--workload", "table:mymodel.json", "--cluster", "safusion-local",
                    "--workers", "8", "--methods", "dense,wfbp"]
        (self.folder / "advice.toml").write_text(self.call("advise", *question, "--toml"))
        self.assertIn("2 trial(s) to run", self.call("plan", "advice.toml"))

    @unittest.skipUnless(HAS_MATPLOTLIB, "draws with matplotlib")
    def test_the_phase_diagram_is_drawn(self):
        self.call("advise", *QUESTION, "--phase", "--out", "figures")
        name = "figures/phase-digits-resnet-on-mine"
        points = json.loads((self.folder / f"{name}.json").read_text())["points"]
        self.assertEqual(len(points), 5 * 2)
        for kind in ("png", "pdf", "svg"):
            self.assertGreater((self.folder / f"{name}.{kind}").stat().st_size, 1000)

    def test_mistakes_are_named(self):
        for arguments, said in (
            (["--workers", "8,x"], "--workers 8,x: expected whole numbers separated by commas"),
            (["--workers", "4096"], "devices ("),
            (["--density", "0"], "--density 0.0: expected a number in (0, 1]"),
            (["--methods", "safusio"], 'did you mean "safusion"?'),
            (["--workload", "digits-resne"], 'did you mean "digits-resnet"?'),
            (["--cluster", "safusion-locl"], 'did you mean "safusion-local"?'),
        ):
            with self.subTest(arguments=arguments):
                question = dict(zip(QUESTION[::2], QUESTION[1::2]))
                question.update(zip(arguments[::2], arguments[1::2]))
                done = self.start("advise", *(word for pair in question.items() for word in pair))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(said, done.stderr)


if __name__ == "__main__":
    main()
