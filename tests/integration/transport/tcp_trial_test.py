"""Tests real trials over TCP: ranks are processes that nobody's MPI joins.

  tcp_trial_test.py PATH/TO/sparfuse [unittest arguments]
"""

import shutil
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import trial_test

TCP = 'transport = "tcp"'


class TcpTrialTest(trial_test.Trials):
    def values(self, transport, method):
        trial = self.run_trial(method=method, workers=3, more=f'transport = "{transport}"')
        self.assertEqual((trial["status"], trial["checks"]["replicas_equal"]), ("ok", True), transport)
        return {name: trial["metrics"][name]["value"] for name in ("loss", "payload_bytes", "sent_bytes")}

    def test_trials_learn_what_they_learn_as_threads(self):
        for method in ("dense", "safusion-inter"):
            self.assertEqual(self.values("tcp", method), self.values("threads", method), method)

    def test_a_launch_needs_no_mpi_and_leaves_no_notes(self):
        trial = self.run_trial(workers=2, more=TCP)
        self.assertEqual(trial["argv"][1:3], ["--ranks", "2"])
        self.assertNotIn("mpirun", " ".join(trial["argv"]))
        self.assertEqual(trial["launch"]["trials"], 1)
        self.assertFalse([file for file in trial["files"] if file.startswith("tcp-")])

    def test_an_emulated_link_delays_its_messages(self):
        link = "link = { gbps = 0.01, alpha_us = 5000 }"
        trial = self.run_trial(mode="emulated", method="wfbp", workers=2, more=f"{TCP}\n{link}")
        self.assertEqual((trial["status"], trial["checks"]["replicas_equal"]), ("ok", True))
        exchanges = trial["metrics"]["exchanges"]["value"]
        self.assertGreater(trial["metrics"]["step_seconds"]["value"], 5e-3 * min(exchanges, 2))

    def test_a_killed_rank_is_named_with_its_signal(self):
        trial, output = self.disturb(1, signal.SIGKILL, more=TCP)
        self.assertEqual((trial["failure"]["rank"], trial["failure"]["signal"]), (1, 9), trial["failure"])
        self.assertIn("rank 1 is lost", trial["failure"]["message"])
        self.assertIn("rank 1", output)
        self.assertEqual(self.ranks(), {})

    def test_a_stopped_rank_is_named_by_the_survivors(self):
        trial, _ = self.disturb(2, signal.SIGSTOP, more=TCP)
        self.assertEqual(trial["failure"]["kind"], "timeout", trial["failure"])
        self.assertIn("rank 2 does not answer", trial["failure"]["message"])
        self.assertEqual(self.ranks(), {})

    def launch_by(self, script, code):
        """Runs the trial with the shell script `script` as its launcher."""
        shutil.rmtree(self.results, ignore_errors=True)
        (self.folder / "ranks.sh").write_text(script)
        template = self.folder / "ranks.toml"
        template.write_text(f'command = ["sh", "{self.folder}/ranks.sh", "{{ranks}}", "env", "{{environment}}", '
                            '"{worker}", "{arguments}"]')
        self.write(more=TCP, deadline=3)
        self.call("run", self.file, "--launch", template, code=code)
        return self.trial()

    def test_launchers_of_one_s_own_number_the_ranks(self):
        start = "ranks=$1; shift\nfor rank in $(seq 0 $((ranks - 1))); do\n  {} \"$@\" &\ndone\nwait\n"
        self.assertEqual(self.launch_by(start.format("SPARFUSE_RANK=$rank"), 0)["status"], "ok")
        failure = self.launch_by(start.format("NO=ONE") + "exit 1\n", 1)["failure"]
        self.assertEqual(failure["kind"], "config")
        self.assertIn("expected a launcher that sets one of SPARFUSE_RANK, ", failure["message"])
        failure = self.launch_by('shift\nSPARFUSE_RANK=0 "$@"\n', 1)["failure"]
        self.assertEqual(failure["kind"], "timeout")
        self.assertIn("found no host of rank 1 in ", failure["message"])


if __name__ == "__main__":
    trial_test.main()
