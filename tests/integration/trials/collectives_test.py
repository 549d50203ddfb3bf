"""Tests that a rank which stops in a step of a reducing collective, or of a chain of exchanges, is named by the others:
some seconds each.

  collectives_test.py PATH/TO/sparfuse [unittest arguments]
"""

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import trial_test
from program import EVERYTHING

COLLECTIVES = ("gtopk", "sparcml", "topk-dsa", "oktopk", "spardl", "omnireduce", "zen", "powersgd")
CHAINS = ("hitopkcomm", "cupcake-hierarchical", "hipress")
if not EVERYTHING:  # one each with a tree, with rounds of rings and with a server; one of two levels
    COLLECTIVES, CHAINS = ("gtopk", "oktopk", "omnireduce"), ("hitopkcomm",)
CASES = [*((method, {}) for method in COLLECTIVES),
         *((method, {"workers": 4, "more": "ranks_per_node = 2"}) for method in CHAINS)]


class ReducingTrialTest(trial_test.Trials):
    def test_a_stopped_rank_is_named_by_the_survivors(self):
        for method, setting in CASES:
            with self.subTest(method):
                trial, output = self.disturb(2, signal.SIGSTOP, method=method, **setting)
                self.assertEqual(trial["failure"]["kind"], "timeout", trial["failure"])
                self.assertIn("rank 2 does not answer", trial["failure"]["message"])
                self.assertIn(method, output)
                self.assertEqual(self.ranks(), {})

    def test_a_killed_rank_is_named_with_its_signal(self):
        for method, setting in CASES:
            with self.subTest(method):
                trial, _ = self.disturb(1, signal.SIGKILL, method=method, **setting)
                self.assertEqual((trial["failure"]["rank"], trial["failure"]["signal"]), (1, 9), trial["failure"])


if __name__ == "__main__":
    trial_test.main()
