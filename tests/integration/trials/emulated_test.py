"""Tests real trials on the emulated device, with the tests' own worker: minutes, because every
thread of a kernel is one of the host's.

  emulated_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import trial_test
from program import EVERYTHING, with_all


class EmulatedTrialTest(trial_test.Trials):
    def test_no_trial_of_the_product_runs_on_the_emulated_device(self):
        of_its_grid = b"threads wait at a barrier that others never reach"
        self.assertIn(of_its_grid, self.worker("sparfuse-emulated-worker").read_bytes())
        self.assertNotIn(of_its_grid, self.worker().read_bytes())
        environment = {"SPARFUSE_EMULATED_DEVICE": "1", "SPARFUSE_GPU_FAULT": "launch:1:700"}
        trial = self.run_trial(environment=environment)  # no kernel is launched, and so none fails
        self.assertEqual(trial["status"], "ok")
        self.assertNotIn("cards", trial["machine"])

    def on_emulated_device(self, method, emulated=True):
        """Runs a trial with the tests' own worker: streams, kernels and staging are real, memory is the
        host's. Returns its loss."""
        trial = self.run_trial(method=method, environment=self.emulated_worker() if emulated else {})
        self.assertEqual("cards" in trial["machine"], emulated)
        self.assertEqual((trial["status"], trial["checks"]["replicas_equal"]), ("ok", True), method)
        trace = json.loads(next(self.results.rglob("trace.json")).read_text())
        self.assertLessEqual({"backward", "exchange", "decompress", "update"},
                             {event["cat"] for event in trace["traceEvents"] if event["ph"] == "X"})
        return trial["metrics"]["loss"]["value"]

    def test_what_is_learned_on_a_device_is_what_the_host_learns(self):
        for method in ("safusion", "adtopk", "dense") if EVERYTHING else ("safusion",):
            here = self.on_emulated_device(method, emulated=False)
            self.assertAlmostEqual(self.on_emulated_device(method), here, delta=1e-5 * abs(here), msg=method)

    def test_local_steps_learn_on_a_device_what_they_learn_on_the_host(self):
        for method, options in (
                ("streaming-diloco", 'fragments = 2, stripes = 1, delay = 1, inner_state = "average"'),
                ("sparseloco", 'delay = 2, combine = "senders", clip = "median", inner_state = "reset"'),
                ("local-sgd", 'outer = "momentum", outer_momentum = 0.5, outer_clip = 0.5')):
            more = f"method_options = {{ every = 4, {options} }}\nthreads_per_worker = 1\n"
            losses = {}
            for emulated in (False, True):
                environment = self.emulated_worker() if emulated else {}
                trial = self.run_trial(method=method, steps=4, more=more, environment=environment)
                self.assertEqual("cards" in trial["machine"], emulated)
                self.assertEqual((trial["status"], trial["checks"]["anchors_equal"]), ("ok", True), method)
                self.assertGreater(trial["metrics"]["outer_seconds"]["value"], 0)
                self.assertGreater(trial["metrics"]["replica_divergence"]["value"], 0)
                losses[emulated] = trial["metrics"]["loss"]["value"]
            self.assertAlmostEqual(losses[True], losses[False], delta=1e-5 * abs(losses[False]), msg=method)

    @with_all
    def test_plans_that_decide_what_is_sent_are_made_on_a_device_too(self):
        for method in ("ssfusion", "adtopk-h"):  # their plans go by measured times, which differ
            self.on_emulated_device(method)

    def test_a_device_that_breaks_ends_its_trial_alone(self):
        trial = self.run_trial(code=1, environment={**self.emulated_worker(), "SPARFUSE_GPU_FAULT": "launch:40:700"})
        self.assertEqual((trial["status"], trial["failure"]["kind"]), ("failed", "internal"))
        self.assertIn("the context is lost", trial["failure"]["message"])
        self.assertEqual(self.run_trial()["status"], "ok")


if __name__ == "__main__":
    trial_test.main()
