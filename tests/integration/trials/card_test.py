"""Tests real trials on a CUDA card, and what they learn on the host; its ranks share one card.

  card_test.py PATH/TO/sparfuse [unittest arguments]

Without a card it says why, and ends with status 77.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import trial_test  # noqa: E402  (found by the path above)

ONE_CARD = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}

# Plans by measured times may decide how tensors travel here, but not which of them are dense.
METHODS = {
    "dense": "",
    "safusion": "",
    "ssfusion": 'method_options = { form = "authors", model = "resnet50", partition = "all" }',
    "adtopk": "",
}
TOLERANCE = 2e-3  # relative, of a loss: orders of sums differ, and with them near ties in selections


def why_no_card(sparfuse):
    """The message of `sparfuse doctor` on CUDA; empty if there is a card."""
    done = subprocess.run([sparfuse, "doctor", "--json"], text=True, capture_output=True, timeout=60, check=False,
                          env={**os.environ, **ONE_CARD})
    (finding,) = [finding for finding in json.loads(done.stdout) if finding["what"] == "CUDA"]
    return "" if finding["level"] == "ok" else finding["message"]


class CardTest(trial_test.Trials):
    def losses(self, device, method):
        """The losses of a trial, sorted by step, then rank."""
        trial = self.run_trial(method=method, steps=8, deadline=30, environment=ONE_CARD,
                               more=f'device = "{device}"\n{METHODS[method]}')
        self.assertEqual(trial["status"], "ok", method)
        self.assertEqual((trial["checks"]["replicas_equal"], trial["checks"].get("mass_conserved", True)),
                         (True, True), method)
        steps = np.load(next(self.results.rglob("steps.npy")))
        by_step = sorted(zip(steps["step"], steps["rank"], steps["loss"]))
        self.assertEqual(len(by_step), 2 * (2 + 8), method)  # 2 ranks, 2 warm-up and 8 measured steps
        return [loss for _, _, loss in by_step]

    def test_what_is_learned_on_a_card_is_what_the_host_learns(self):
        for method in METHODS:
            here = self.losses("cpu", method)
            there = self.losses("cuda", method)
            for step, (expected, loss) in enumerate(zip(here, there)):
                self.assertAlmostEqual(loss, expected, delta=TOLERANCE * expected, msg=f"{method}, {step // 2}")

    def test_a_card_is_measured(self):
        done = subprocess.run(self.command("profile", "digits-resnet", "--device", "cuda", "--batch", 4, "--warmup", 1,
                                           "--sparsifiers", "topk", "--quantizers", "none", "--name", "here", "--json"),
                              text=True, capture_output=True, timeout=300, check=False,
                              env={**os.environ, **ONE_CARD})
        self.assertEqual(done.returncode, 0, done.stderr)
        outcomes = json.loads(done.stdout)
        self.assertEqual([outcome["config"]["workers"] for outcome in outcomes], [1, 2])
        for outcome in outcomes:
            profile = outcome["profile"]
            self.assertGreater(profile["dispatch_seconds"], 0)
            self.assertGreater(profile["backward"]["unhooked_seconds"], 0)
            self.assertGreater(profile["selection"]["topk"][0]["seconds"][-1][1], 0)


if __name__ == "__main__":
    if why := why_no_card(sys.argv[1]):
        print(f"no CUDA device: {why}")
        sys.exit(77)
    trial_test.main()
