"""Tests trials of two nodes with two ranks each on one machine, and the model beside them: minutes.

  two_levels_test.py PATH/TO/sparfuse [--every-method] [unittest arguments]
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import trial_test

LINK = "{{ gbps = {gbps}, alpha_us = 100, intra_node_gbps = 10, intra_node_us = 100 }}"
METHODS = {
    "dense": {}, "wfbp": {}, "hitopkcomm": {}, "cupcake-hierarchical": {},
    "espresso 9": {"option": 9}, "hipress": {"compress_from": 1},
}
# Option 4 selects from shards of the nodes' sums. Option 9 selects before these sums and again between
# nodes, option 12 once more on the way back.
EVERY_METHOD = {
    **METHODS,
    "espresso 4": {"option": 4}, "espresso 12": {"option": 12}, "hipress-ring": {"compress_from": 1},
}
# With an exact count of elements, the bytes sent equal the modelled ones.
EXPERIMENT = """
id = "t"
[defaults]
mode = "emulated"
workload = "{workload}"
workers = 4
ranks_per_node = 2
link = {link}
density = 0.1
sparsifier = "topk"
warmup_steps = 3
steps = 8
[[axis]]
method = {methods}
method_options = [{options}]
[repeat]
predict = true
timeout_seconds = 100
"""


def other_work(trial):
    return (trial.get("quiet") or {}).get("other_cpu", 0)


class TwoLevelsTest(trial_test.Trials):
    def sparfuse(self, verb, *arguments, code=0):
        return self.said(verb, self.file, *arguments, code=code)

    def write_two_levels(self, workload, gbps):
        options = ", ".join("{" + ", ".join(f"{key} = {value}" for key, value in given.items()) + "}"
                            for given in METHODS.values())
        methods = json.dumps([name.split()[0] for name in METHODS])
        self.file.write_text(EXPERIMENT.format(workload=workload, link=LINK.format(gbps=gbps), methods=methods,
                                               options=options))

    def predicted(self, workload, gbps, retry=False):
        """{method: (live trial, modelled trial)}; of several live trials, the least disturbed one."""
        self.write_two_levels(workload, gbps)
        if retry:
            command = [self.program, "--results", self.results, "run", self.file, "--retry-disturbed"]
            done = subprocess.run(command, text=True, capture_output=True, timeout=600, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        else:
            self.sparfuse("run")
        trials = {}
        for path in self.results.rglob("trial.json"):
            trial = json.loads(path.read_text())
            self.assertEqual(trial["status"], "ok", trial["failure"])
            if "method" not in trial["config"] or trial["config"]["link"]["gbps"] != gbps:
                continue
            name = trial["config"]["method"]
            if name == "espresso":
                name += f" {trial['config']['method_options']['planner_options']['option']}"
            modes = trials.setdefault(name, {})
            mode = trial["config"]["mode"]
            if mode not in modes or other_work(trial) < other_work(modes[mode]):
                modes[mode] = trial
        self.assertEqual(set(trials), set(METHODS))
        return {method: (both["emulated"], both["modelled"]) for method, both in trials.items()}

    def median_error(self, pairs):
        errors = {method: model["metrics"]["step_seconds"]["value"] / live["metrics"]["step_seconds"]["value"] - 1
                  for method, (live, model) in pairs.items()}
        print({method: f"{100 * error:+.1f} %" for method, error in errors.items()}, flush=True)
        return statistics.median(map(abs, errors.values()))

    def close(self, workload, gbps, most):
        """Checks that the model's median error is at most `most`; returns the trials. Disturbed trials run
        again, and are then left out. If none is disturbed, the profile may have been: all is measured again."""
        pairs = self.predicted(workload, gbps)
        self.check_counts(pairs)
        error = self.median_error(pairs)
        if error > most and not any(live["quiet"]["disturbed"] for live, _ in pairs.values()):
            shutil.rmtree(self.results)
            pairs = self.predicted(workload, gbps)
            error = self.median_error(pairs)
        if error > most and any(live["quiet"]["disturbed"] for live, _ in pairs.values()):
            pairs = self.predicted(workload, gbps, retry=True)
            quiet = {method: both for method, both in pairs.items() if not both[0]["quiet"]["disturbed"]}
            if not quiet:
                self.skipTest(f"other work took the cores of every trial, twice; median error {100 * error:.0f} %")
            error = self.median_error(quiet)
        self.assertLessEqual(error, most)
        return pairs

    def check_counts(self, pairs):
        for method, (live, model) in pairs.items():
            self.assertTrue(all(live["checks"].values()), (method, live["checks"]))
            for count in ("exchanges", "sent_bytes", "received_bytes", "messages_sent"):
                self.assertEqual(live["metrics"][count]["value"], model["metrics"][count]["value"], (method, count))

    def test_what_is_modelled_is_what_a_slow_shared_card_does(self):
        pairs = self.close("recorded-resnet", 0.05, 0.15)
        # 1.1 MB a node go over the card, and from each rank: 4 of 277 kB, or 2 of 139 kB.
        seconds = {method: live["metrics"]["step_seconds"]["value"] for method, (live, _) in pairs.items()}
        for method in ("hitopkcomm", "cupcake-hierarchical"):
            self.assertLess(seconds[method], seconds["wfbp"])
        self.assertLess(seconds["wfbp"], seconds["dense"])

    def page(self):
        return "".join(path.read_text() for path in self.results.rglob("*.html"))

    def test_what_is_modelled_is_what_a_shared_card_does(self):
        self.close("recorded-resnet", 0.5, 0.15)
        table = self.sparfuse("table", "--keep-disturbed")
        self.assertIn("emulated;", table)
        self.assertIn("0.5 Gbit/s, 10 within nodes", self.sparfuse("report", "--keep-disturbed") + self.page())
        for verb in (["explain", "--of", "method=hitopkcomm,mode=emulated", "--over", "method=dense,mode=emulated"],):
            self.assertIn("emulated", self.sparfuse(*verb, "--keep-disturbed"))

    def test_what_is_modelled_is_what_ranks_that_compute_do(self):
        # Four ranks on two cores: docs/validation.md tells how far the model misses this goal.
        self.close("digits-resnet", 0.5, 0.25)

    def test_ranks_as_threads_share_a_card_too(self):
        trial = self.run_trial(mode="emulated", method="hitopkcomm", workers=4, workload="recorded-resnet",
                               more=f'transport = "threads"\nranks_per_node = 2\nlink = {LINK.format(gbps=0.5)}')
        self.assertEqual((trial["status"], trial["config"]["ranks_per_node"]), ("ok", 2))

    def test_a_killed_rank_is_named_and_leaves_nothing_behind(self):
        before = set(os.listdir("/dev/shm"))
        trial, _ = self.disturb(1, signal.SIGKILL, mode="emulated", method="hitopkcomm", workers=4,
                                more=f"ranks_per_node = 2\nlink = {LINK.format(gbps=0.5)}")
        self.assertEqual((trial["failure"]["rank"], trial["failure"]["signal"]), (1, 9), trial["failure"])
        self.assertEqual(self.ranks(), {})
        self.assertEqual([name for name in set(os.listdir("/dev/shm")) - before if "sparfuse" in name], [])
        self.assertEqual(self.holders_of_links(), [])

    def holders_of_links(self):
        """Processes of trials in this folder that map the memory of links."""
        found = []
        for maps in Path("/proc").glob("[0-9]*/maps"):
            try:
                line = (maps.parent / "cmdline").read_bytes()
                if str(self.results).encode() in line and "sparfuse-ranks" in maps.read_text():
                    found.append(maps)
            except OSError:
                continue
        return found

    def test_a_link_that_this_machine_is_too_slow_for_ends_the_trial(self):
        link = "{ gbps = 1, alpha_us = 100, intra_node_gbps = 90000, intra_node_us = 100 }"
        trial = self.run_trial(code=1, mode="emulated", workers=2, more=f"ranks_per_node = 2\nlink = {link}")
        self.assertEqual(trial["failure"]["kind"], "unsupported", trial["failure"])
        self.assertIn("9e+04 Gbit/s per rank while all 2 send at once; this host passed on ",
                      trial["failure"]["message"])


if __name__ == "__main__":
    if "--every-method" in sys.argv:
        sys.argv.remove("--every-method")
        METHODS = EVERY_METHOD
    trial_test.main()
