"""Tests the real `sparfuse` with a fake worker: what a run leaves behind, whatever happens to it.

  harness_test.py PATH/TO/sparfuse [unittest arguments]
"""

import csv
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import time
import unittest
from pathlib import Path

from program import EVERYTHING, ProgramTest, main, read_trial

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None
WORKER = Path(__file__).resolve().parent / "fake_worker.sh"

EXPERIMENT = """
id = "t"
[defaults]
mode = "measured"
workload = "digits-resnet"
transport = "threads"
[[axis]]
method = ["dense", "wfbp", "syncea"]
[[axis]]
workers = [1, 2, 3]
[repeat]
blocks = {blocks}
timeout_seconds = {timeout}
"""

LIVE = """
id = "p/live"
title = "Live"
minutes = 1
[defaults]
mode = "measured"
workload = "digits-resnet"
transport = "threads"
workers = 2
[[axis]]
method = ["dense", "wfbp"]
[[claim]]
quote = "wfbp keeps up"
metric = "throughput"
of = {{ method = "wfbp" }}
over = {{ method = "dense" }}
{expect}
[[figure]]
kind = "grouped_bars"
x = "workers"
y = "throughput"
[[not_run]]
what = "a GPU"
reason = "there is none"
"""

MODELLED = """
id = "p/modelled"
title = "Modelled"
[defaults]
mode = "modelled"
cluster = "made-up"
workload = "digits-resnet"
method = "dense"
link = { gbps = 1, alpha_us = 100 }
[[axis]]
workers = [2, 4]
[[claim]]
quote = "four are faster"
metric = "throughput"
of = { workers = 4 }
over = { workers = 2 }
expect = "more"
"""


def made_up_profile(ranks):
    """A profile of 10 ms of backward, and a link of 1 ms and 10 ns a byte; all other work takes no time."""
    free = [[1, 0.0]]
    profile = {
        "backward": {
            "steps": 5, "begin_seconds": 0, "forward_seconds": 0.005, "tail_seconds": 0, "update_seconds": 0.001,
            "tensors": [{"name": "weight", "shape": [1000], "numel": 1000, "seconds": 0.01}]},
        "dispatch_seconds": 0, "exchange_dispatch_seconds": 0, "pack": free, "scale": free, "clear": free,
        "seconds_per_entry": 0, "seconds_per_reduced_element": 0, "selection": {}}
    if ranks > 1:
        profile["link"] = {
            "round_seconds": [[0, 1e-3], [1000000, 11e-3]], "seconds_per_extra_message": 0,
            "cpu_seconds": 0, "round_cpu_seconds": 0, "cpu_fraction": 0}
    return {
        "profile": profile,
        "machine": {"communication_threads": "normal", "cores": 2, "kernels": "avx2", "cuda_devices": 0},
        "software": {"compiler": "fake", "cuda_build": ""},
        "config": {
            "kind": "profile", "workload": "digits-resnet", "workers": ranks, "batch_per_worker": 32,
            "workload_options": {"nan_step": -1, "unused_parameter": False}, "threads_per_worker": 1, "link": {"gbps": 1, "alpha_us": 100} if ranks > 1 else None}}


class FakeTrials(ProgramTest):
    """Runs trials of the experiment `file` with the fake worker."""

    def setUp(self):
        super().setUp()
        self.file = self.folder / "t.toml"
        self.write(blocks=2)

    def write(self, blocks=1, timeout=60, text=EXPERIMENT, **replaced):
        text = text.format(blocks=blocks, timeout=timeout)
        for old, new in replaced.items():
            text = text.replace(old, new)
        self.file.write_text(text)

    def command(self, *arguments, results=None):
        command = [self.program, "--results", results or self.results, "--worker", WORKER, *arguments]
        return list(map(str, command))

    def environment(self, mode="ok", seconds="0"):
        return {**os.environ, "FAKE_MODE": mode, "FAKE_SECONDS": seconds}

    def call(self, *arguments, mode="ok", seconds="0", code=0):
        return self.ended(self.command(*arguments), code, env=self.environment(mode, seconds))

    def start(self, *arguments, seconds="0"):
        return subprocess.Popen(self.command(*arguments), env=self.environment(seconds=seconds), text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def trials(self):
        return [read_trial(path) for path in sorted(self.results.rglob("trial.json"))]

    def dump(self):
        with sqlite3.connect(self.results / "index.sqlite") as database:
            return {table: sorted(map(repr, database.execute(f"SELECT * FROM {table}")))
                    for table in ("trial", "metric", "check_result", "revision", "annotation")}

    def processes_of(self):
        """The command lines of processes that work in this test's results folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                if str(self.results / "trials") in line:
                    found.append(line)
        return found

    def assert_no_processes(self):
        self.wait_for("processes are left", lambda: not self.processes_of(), 10)


class HarnessTest(FakeTrials):
    def test_run_is_idempotent_and_the_index_can_be_made_again(self):
        self.assertIn("18 ran well, 0 failed, 0 were in the store", self.call("run", self.file))
        self.assertIn("0 ran well, 0 failed, 18 were in the store", self.call("run", self.file))
        trial = self.trials()[0]
        self.call("annotate", trial["trial_id"], "--reason", "the fan stood still")
        before = self.dump()
        self.assertEqual(len(before["trial"]), 18)
        self.call("index", "--rebuild")
        self.assertEqual(self.dump(), before)
        self.assertIn("called bad: the fan stood still", self.call("plan", "--why", self.file))
        self.assertIn("1 ran well, 0 failed, 17 were in the store", self.call("run", self.file))
        self.assertIn("images/s", self.call("table", self.file))
        rows = [*csv.DictReader(self.call("table", self.file, "--format", "csv").splitlines())]
        steps = [row for row in rows if (row["what"], row["metric"]) == ("result", "step_seconds")]
        self.assertEqual({(float(row["value"]), row["unit"], row["n"], row["mode"]) for row in steps},
                         {(0.25, "seconds", "2", "measured")})
        self.assertEqual(len(json.loads(self.call("table", self.file, "--json"))), len(rows))
        self.assertEqual(json.loads(self.call("plan", self.file, "--json"))["missing"], [])

    def test_blocks_share_a_seed_and_cells_of_a_block_are_shuffled(self):
        self.call("run", self.file)
        trials = sorted(self.trials(), key=lambda trial: trial["started_utc"])
        self.assertEqual([trial["block"] for trial in trials], [0] * 9 + [1] * 9)
        self.assertEqual({trial["seed"] - trial["block"] for trial in trials}, {1})
        orders = [[trial["config_hash"] for trial in trials[9 * block:9 * block + 9]] for block in (0, 1)]
        self.assertEqual(sorted(orders[0]), sorted(orders[1]))
        launched = [[trial["argv"][1:] for trial in trials[9 * block:9 * block + 9]] for block in (0, 1)]
        methods = [[Path(path).name.split("-b")[0] for paths in block for path in paths] for block in launched]
        self.assertNotEqual(methods[0], methods[1])

    def test_a_new_method_reruns_nothing_else(self):
        self.write(blocks=1, **{'"wfbp", "syncea"': '"wfbp"'})
        self.call("run", self.file)
        self.write(blocks=1)
        self.assertIn("3 ran well, 0 failed, 6 were in the store", self.call("run", self.file))
        self.assertIn("9 ran well", self.call("run", self.file, "--fresh"))

    def test_failed_trials_are_rows_and_run_again(self):
        self.assertIn("0 ran well, 18 failed", self.call("run", self.file, mode="data", code=1))
        trial = self.trials()[0]
        self.assertEqual(trial["status"], "failed")
        self.assertEqual(trial["failure"]["kind"], "data")
        self.assertIn("digits.bin is truncated", trial["failure"]["message"])
        self.assertIn("no data", trial["failure"]["log_tail"])
        self.assertIn("failed before (data)", self.call("plan", "--why", self.file))
        self.assertIn("18 ran well, 0 failed, 0 were in the store", self.call("run", self.file))
        self.assertEqual(len(self.dump()["trial"]), 36)

    def launches(self):
        """The number of trials in each trial's launch, as the trial records it."""
        return [trial["launch"]["trials"] for trial in self.trials()]

    def test_cells_that_differ_in_method_share_a_launch(self):
        plan = self.call("plan", "--why", self.file)
        self.assertIn("one launch of 3 trials, in turn:", plan)
        self.assertIn("18 trial(s) to run in 6 launch(es)", plan)
        self.call("run", self.file)
        self.assertEqual(self.launches(), [3] * 18)
        for trial in self.trials():
            self.assertEqual(len(trial["argv"]), 1 + 3)
            self.assertEqual(len({one["launch"]["id"] for one in self.trials()
                                  if one["argv"] == trial["argv"]}), 1)
        self.assertEqual(len({trial["launch"]["id"] for trial in self.trials()}), 6)
        # The launch is no part of a trial's identity.
        self.write(blocks=2, **{"[repeat]": "[repeat]\ninterleave = false"})
        self.assertIn("18 were in the store", self.call("run", self.file))
        self.call("run", self.file, "--fresh")
        self.assertEqual(sorted(self.launches()), [1] * 18 + [3] * 18)

    def test_a_trial_that_ends_its_launch_fails_alone(self):
        for mode, kind in (("ok", "data"), ("dies", "internal")):
            shutil.rmtree(self.results, ignore_errors=True)
            os.environ["FAKE_GUILTY"] = "wfbp"
            self.addCleanup(os.environ.pop, "FAKE_GUILTY", None)
            output = self.call("run", self.file, mode=mode, code=1)
            self.assertIn("12 ran well, 6 failed", output)
            for trial in self.trials():
                failed = trial["config"]["method"] == "wfbp"
                self.assertEqual(trial["status"], "failed" if failed else "ok")
                if failed:
                    self.assertEqual(trial["failure"]["kind"], kind, trial["failure"])
                self.assertNotIn("turn", trial["files"])
                self.assertIn("log.txt", trial["files"])
            self.assertEqual(len(self.dump()["trial"]), 18)
            self.assertRegex(output, r"[12] trial\(s\) of this launch are launched again")
        os.environ["FAKE_GUILTY"] = "nobody"
        self.assertIn("6 ran well, 0 failed, 12 were in the store", self.call("run", self.file))

    def test_an_interrupted_launch_leaves_nothing(self):
        run = self.start("run", self.file, seconds="100")
        self.wait_for("no trial started", self.processes_of)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=30)
        self.assertEqual((run.returncode, self.configs()), (130, set()))
        self.assert_no_processes()
    def test_disturbed_trials_run_again_within_half_of_the_time(self):
        output = self.call("run", self.file, mode="disturbed", seconds="0.2")
        again = int(re.search(r"(\d+) time\(s\) a disturbed trial ran again at once", output)[1])
        # Half of 18, in launches of three; none before the first durations are known. A busy machine changes it.
        self.assertIn(again, (3, 6, 9, 12, 15), output)
        self.assertIn("18 ran well, 0 failed, 0 were in the store", output)
        self.assertIn("18 of those that ran well were disturbed", output)
        trials = self.trials()
        self.assertEqual(len(trials), 18 + again)
        runs = [sum(t["config_hash"] == trial["config_hash"] and t["block"] == trial["block"] for t in trials)
                for trial in trials]
        self.assertLessEqual(max(runs), 3)
        quiet = trials[0]["quiet"]
        self.assertEqual((quiet["disturbed"], quiet["why"]), (True, "other work took 50 % of the cores"))

        self.assertIn("0 ran well, 0 failed, 18 were in the store", self.call("run", self.file))
        self.assertIn("18 of those in the store were disturbed", self.call("plan", self.file))
        table = self.call("table", self.file)
        self.assertTrue(table.startswith("**Warning:** 18 of 18 live trials were disturbed: other work took 50 % of the "
                                         "cores (median of 18). Their times do not count"), table)
        self.assertIn("disturbed (10", table)
        rows = json.loads(self.call("table", self.file, "--json").split("warning:")[0])
        self.assertEqual({row["value"] for row in rows if row["metric"] == "throughput"}, {None})
        kept = self.call("table", self.file, "--keep-disturbed")
        self.assertIn("count all the same", kept)
        self.assertNotIn("disturbed (", kept)

        self.assertIn("18 ran well, 0 failed, 0 were", self.call("run", self.file, "--retry-disturbed"))
        self.assertNotIn("isturbed", self.call("plan", self.file) + self.call("table", self.file))
        self.assertIn("0 ran well, 0 failed, 18 were", self.call("run", self.file, "--retry-disturbed"))

    def test_disturbed_trials_are_kept_on_request(self):
        output = self.call("run", self.file, "--keep-disturbed", mode="disturbed")
        self.assertIn("18 of those that ran well were disturbed", output)
        self.assertNotIn("again", output)
        self.assertEqual(len(self.trials()), 18)

    def test_replicas_that_differ_have_no_throughput(self):
        self.call("run", self.file, mode="diverged", code=1)
        self.assertEqual({trial["status"] for trial in self.trials()}, {"invalid"})
        self.assertEqual(self.dump()["metric"], [])
        self.assertNotIn("images/s", self.call("table", self.file))

    def test_a_worker_that_leaves_nothing_has_failed(self):
        self.call("run", self.file, mode="silent", code=1)
        self.assertIn("left no outcome", self.trials()[0]["failure"]["message"])

    def test_a_rank_that_prints_megabytes_and_dies_has_failed_with_its_last_words(self):
        self.write(**{"[1, 2, 3]": "[1]", '"dense", "wfbp", "syncea"': '"dense"'})
        output = self.call("run", self.file, mode="loud", code=1)
        self.assertIn("0 ran well, 1 failed", output)
        failure = self.trials()[0]["failure"]
        self.assertEqual(
            failure["message"], "the launcher exited with status 127; its log ends: no library"
        )

    def test_a_trial_that_does_not_end_is_ended(self):
        self.write(timeout=0.3, **{"[1, 2, 3]": "[1]", '"dense", "wfbp", "syncea"': '"dense"'})
        self.call("run", self.file, seconds="100", code=1)
        self.assertEqual([trial["status"] for trial in self.trials()], ["timeout"])
        self.assert_no_processes()

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun on this machine")
    def test_a_killed_rank_is_named(self):
        self.write(**{'"threads"': '"mpi"', "[1, 2, 3]": "[2]", '"dense", "wfbp", "syncea"': '"wfbp"'})
        output = self.call("run", self.file, mode="killed", code=1)
        failure = self.trials()[0]["failure"]
        self.assertEqual((failure["rank"], failure["signal"]), (1, 9), failure)
        self.assertIn("rank 1 ended by signal 9 (Killed)", output)
        self.assert_no_processes()

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun on this machine")
    def test_ranks_die_with_the_controller(self):
        self.write(**{'"threads"': '"mpi"', "[1, 2, 3]": "[2]", '"dense", "wfbp", "syncea"': '"wfbp"'})
        run = self.start("run", self.file, seconds="100")
        self.wait_for("the ranks did not start", lambda: sum(
            "fake_worker" in line and "mpirun" not in line for line in self.processes_of()) >= 2)
        run.kill()
        run.wait()
        run.stdout.close()
        self.assert_no_processes()

    def test_two_runs_at_once(self):
        run = self.start("run", self.file, seconds="0.5")
        self.wait_for("no trial started", self.processes_of)
        output = self.call("run", self.file, code=2)
        self.assertIn(f"in use by process {run.pid}", output)
        self.assertIn("cell", self.call("status", self.file))  # readers need no lock
        run.send_signal(signal.SIGINT)
        text = run.communicate(timeout=30)[0]
        self.assertEqual(run.returncode, 130, text)
        self.assertIn("goes on from here", text)
        self.assert_no_processes()
        self.assertIn("0 failed", self.call("run", self.file))
        self.assertEqual(len({trial["config_hash"] + str(trial["block"]) for trial in self.trials()}), 18)
        self.assertEqual(len(self.trials()), 18)

    def configs(self):
        """The config.json of all trials; looks again if a running program removes unfinished ones."""
        while True:
            try:
                return set((self.results / "trials").rglob("config.json"))
            except FileNotFoundError:
                pass

    def test_kill_9_at_any_moment_loses_at_most_the_launch_in_flight(self):
        self.write(blocks=400)
        moments = random.Random(5)
        seen = ended = 0
        for _ in range(100 if EVERYTHING else 30):
            before = self.configs()
            run = self.start("run", self.file, seconds=moments.choice(["0", "0.01"]))
            # Kills in start-up, or after `begun` trials began in launches of three, of which only the last runs.
            begun = moments.choice([0, 1, 4, 7])
            until = time.monotonic() + 60
            while len(self.configs() - before) < begun:
                self.assertLess(time.monotonic(), until, "no trial begins")
                time.sleep(0.002)
            time.sleep(moments.uniform(0, 0.05))
            ended += max(0, begun - 3)
            run.kill()
            run.wait()
            run.stdout.close()
            trials = self.trials()  # raises if one is half-written
            self.assertGreaterEqual(len(trials), seen)
            seen = len(trials)
        self.assertGreaterEqual(seen, ended)
        self.assert_no_processes()
        self.write(blocks=1)
        self.assertNotIn("warning", self.call("run", self.file, "--keep-disturbed"))
        ids = {trial["trial_id"] for trial in self.trials()}
        with sqlite3.connect(self.results / "index.sqlite") as database:
            rows = {row[0] for row in database.execute("SELECT trial_id FROM trial")}
        self.assertEqual(rows, ids)
        cells = [(trial["config_hash"], trial["block"]) for trial in self.trials()]
        self.assertEqual(len(cells), len(set(cells)), "a cell that was there has run again")
        for config in self.configs():
            self.assertTrue((config.parent / "trial.json").exists(), f"{config.parent} is unfinished")
        before = self.dump()
        self.call("index", "--rebuild")
        self.assertEqual(self.dump(), before)

    def test_a_corrupt_trial_is_reported_and_left_out(self):
        self.call("run", self.file)
        victim = next(self.results.rglob("trial.json"))
        victim.write_text(victim.read_text()[:100])
        output = self.call("index", "--rebuild")
        self.assertIn(f"warning: {victim}: not valid JSON", output)
        self.assertEqual(len(self.dump()["trial"]), 17)

    def test_a_full_disk_is_an_error_that_names_the_file(self):
        if os.geteuid() != 0:
            self.skipTest("mounting a small tmpfs needs root")
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)],
                          capture_output=True, check=False).returncode != 0:
            self.skipTest("tmpfs cannot be mounted here")
        self.addCleanup(subprocess.run, ["umount", str(disk)], check=False)
        self.results = disk / "results"
        output = self.call("run", self.file, code=1)
        self.assertRegex(output, r"error: .*(/disk/results/.*(No space left on device|full))")
        trials = self.trials()  # raises if one is half-written
        self.assertGreater(len(trials), 0)
        subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        self.assertIn("0 failed", self.call("run", self.file))
        ok = {(trial["config_hash"], trial["block"]) for trial in self.trials() if trial["status"] == "ok"}
        self.assertEqual(len(ok), 18)

    def test_mistakes_are_found_before_anything_starts(self):
        for old, new, line, said in (
                ("transport", "transprot", 6, 'did you mean "transport"'),
                ('"measured"', '"mesured"', 4, 'did you mean "measured"'),
                ('"wfbp"', '"wfbq"', 8, 'did you mean "wfbp"'),
                ('transport = "threads"', "density = 2", 6, "a number in (0, 1]"),
                ('transport = "threads"', 'density = "a lot"', 6, "a number in (0, 1]"),
                ("[1, 2, 3]", "[0, 2]", 10, "an integer from 1 to 65536")):
            self.write(**{old: new})
            output = self.call("run", self.file, code=2)
            self.assertIn(f"{self.file}:{line}: ", output)
            self.assertIn(said, output)
        self.assertFalse(self.results.exists())
        self.assertIn("unknown experiment", self.call("run", "qick", code=2))
        self.assertIn('unknown verb "frobnicate"; known: list,', self.call("frobnicate", code=2))
        self.assertIn('did you mean "table"?', self.call("--root", "/", "tabel", self.file, code=2))
        self.assertIn('did you mean "methods"?', self.call("list", "method", code=2))

    def test_verbs_that_read_speak_json(self):
        self.call("run", self.file)
        for verb in (["list", "methods"], ["list", "workloads"], ["list", "clusters"],
                     ["list", "collectives", "--rounds"], ["plan", self.file],
                     ["status", self.file], ["table", self.file], ["doctor"]):
            self.assertTrue(json.loads(self.call(*verb, "--json")))

    def test_check_builds_the_laws_of_a_kind_and_runs_those_of_one_part(self):
        build, root = self.folder / "build", self.folder / "root"
        program = build / "harness" / "sparfuse"
        program.parent.mkdir(parents=True)
        shutil.copy(self.program, program)

        def script(path, text):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/bin/sh\n" + text)
            path.chmod(0o755)

        def check(*arguments, code=0):
            done = subprocess.run([program, "--root", root, "check", *arguments], text=True,
                                  capture_output=True, check=False)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            return done.stdout + done.stderr

        script(root / ".venv" / "bin" / "cmake", 'echo "cmake $*"')
        self.assertIn("no CMakeCache.txt in", check("method", "wfbp", code=2))
        (build / "CMakeCache.txt").touch()
        self.assertIn("was built and is not in", check("method", "wfbp", code=1))
        script(build / "tests" / "harness_method_conformance_test", """case "$1 $2" in
          *list_tests*wfbp*) printf 'Suite.\\n  Law/wfbp_1\\n' ;;
          *list_tests*) ;;
          *) echo "laws $*"; exit "${BROKEN:-0}" ;;
        esac""")
        output = check("method", "wfbp")
        self.assertIn(f"cmake --build {build} --target harness_method_conformance_test", output)
        self.assertIn("laws --gtest_filter=*/wfbp_?", output)
        self.assertIn("no law tests dense", check("method", "dense", code=1))
        os.environ["BROKEN"] = "1"
        self.addCleanup(os.environ.pop, "BROKEN")
        check("method", "wfbp", code=1)
        self.assertIn('did you mean "wfbp"', check("method", "wfbq", code=2))
        self.assertIn('did you mean "method"', check("methods", "wfbp", code=2))
        self.assertIn("it belongs to a transport", check("collective", "native-allreduce", code=2))
        self.assertIn("of its family, which has data", check("workload", "resnet152-imagenet", code=2))
        script(root / ".venv" / "bin" / "cmake", "exit 1")
        self.assertIn("SPARFUSE_TESTS=ON", check("collective", "ring-allreduce", code=2))

    def test_new_methods_open_blocks_with_their_references(self):
        self.write(blocks=2, **{'"wfbp", "syncea"': '"wfbp"', "[1, 2, 3]": "[2]"})
        self.call("run", self.file)
        plan = json.loads(self.call("plan", self.file, "--with-method", "syncea", "--json"))["missing"]
        self.assertEqual(sorted((trial["config"]["method"], trial["block"]) for trial in plan),
                         [("dense", 2), ("dense", 3), ("syncea", 2), ("syncea", 3)])
        run = ("run", self.file, "--with-method", "syncea")
        self.assertIn("4 ran well, 0 failed, 4 were in the store", self.call(*run))
        self.assertIn("0 ran well, 0 failed, 8 were in the store", self.call(*run))
        both = [*run, "--with-method", "safusion-inter"]
        self.assertIn("4 ran well, 0 failed, 8 were in the store", self.call(*both))
        self.assertIn("0 ran well, 0 failed, 4 were in the store", self.call("run", self.file))
        self.assertIn('did you mean "syncea"', self.call("plan", self.file, "--with-method", "synca", code=2))
        self.write(blocks=1, **{'method = ["dense", "wfbp", "syncea"]': 'density = [0.1]',
                                'transport = "threads"': 'transport = "threads"\nmethod = "wfbp"'})
        self.assertIn("lists methods on an [[axis]]",
                      self.call("plan", self.file, "--with-method", "syncea", code=2))

    def test_every_experiment_of_the_tree_can_be_read(self):
        listed = json.loads(self.call("list", "experiments", "--json"))
        self.assertIn("accuracy/safusion", [entry["name"] for entry in listed])
        self.assertEqual([entry["summary"] for entry in listed if "cells" not in entry], [])

    @unittest.skipUnless(HAS_MATPLOTLIB, "no matplotlib in this Python")
    def test_joined_methods_are_in_every_table_and_figure(self):
        modelled = MODELLED.replace('method = "dense"\n', "") + """
[[axis]]
method = ["dense"]
method_options = [{ threshold_bytes = 1048576 }]
[[figure]]
kind = "grouped_bars"
x = "workers"
y = "throughput"
methods = ["dense"]
"""
        modelled = modelled.replace("of = {", 'of = { method = "dense",').replace("over = {", 'over = { method = "dense",')
        root = self.paper(modelled=modelled)
        self.assertIn("2 ran well", self.call(*root, "run", "p/modelled"))
        output = self.call(*root, "reproduce", "p/modelled", "--with-method", "horovod-fusion")
        self.assertIn("2 ran well, 0 failed, 2 were in the store", output)
        self.assertRegex(output, r"\| horovod-fusion +\|")
        spec = json.loads((self.results / "reports" / "p" / "modelled" / "spec.json").read_text())
        self.assertEqual(spec["parts"][0]["figures"][0]["methods"], ["dense", "horovod-fusion"])
        self.assertIn("horovod-fusion", (self.results / "reports" / "p" / "modelled" / "report.html").read_text())

    def paper(self, expect='expect = "at_least"', **files):
        """Makes a root of its own with the paper "p"; returns the option that names it."""
        root = self.folder / "root"
        folder = root / "experiments" / "p"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("harness", ".venv"):
            there = Path(__file__).resolve().parents[2] / name
            if there.exists() and not (root / name).exists():
                (root / name).symlink_to(there)
        for name, text in {"live": LIVE.format(expect=expect), "modelled": MODELLED, **files}.items():
            (folder / f"{name}.toml").write_text(text)
        profiles = self.results / "profiles"
        profiles.mkdir(parents=True, exist_ok=True)
        (profiles / "made-up.json").write_text(json.dumps([made_up_profile(1), made_up_profile(2)]))
        return ["--root", root]

    def test_a_paper_is_planned_listed_and_run_whole(self):
        root = self.paper()
        plan = self.call(*root, "plan", "p")  # the store has no trial of it yet
        self.assertIn("p/live main", plan)
        self.assertIn("4 trial(s) to run", plan)
        listed = {entry["name"]: entry for entry in json.loads(self.call(*root, "list", "experiments", "--json"))}
        self.assertEqual(listed["p/live"]["cells"], 2)
        self.assertEqual(listed["p/live"]["minutes"], 1)
        self.assertEqual(listed["p/modelled"]["modes"], ["modelled"])
        self.assertIn("2 cells, measured; about 1 min", self.call(*root, "list", "experiments"))
        self.assertIn("p is a folder of experiments: expected one of p/live, p/modelled",
                      self.call(*root, "table", "p", code=2))
        output = self.call(*root, "run", "p")
        self.assertIn("4 ran well", output)
        trials = sorted(self.trials(), key=lambda trial: trial["started_utc"])
        self.assertEqual(len(trials), 4)
        self.assertLess(output.index("p/modelled/main"), output.index("p/live/main"))
        self.assertIn("[4/4]", output)  # one count for all experiments

    @unittest.skipUnless(HAS_MATPLOTLIB, "no matplotlib in this Python")
    def test_reproducing_a_paper_makes_one_page_over_its_reports(self):
        root = self.paper()
        output = self.call(*root, "reproduce", "p", "--modelled", "--strict")
        self.assertIn("2 ran well", output)
        self.assertEqual({trial["experiment"] for trial in self.trials()}, {"p/modelled"})
        page = self.results / "reports" / "p" / "report.html"
        text = page.read_text()
        self.assertIn("2 of 2 cells of part &#34;Live&#34;, measured", text)
        self.assertIn("there is none", text)
        # Missing trials fail --strict, but not if only modelled trials were asked for.
        self.call(*root, "reproduce", "p", "--strict")
        text = page.read_text()
        self.assertNotIn("cells of part", text)
        said = ("the throughput of dense", "<figure", "2 claims", "wfbp keeps up", "there is none")
        order = [text.index(words) for words in said]
        self.assertEqual(order, sorted(order))
        for own in ("live", "modelled"):
            self.assertIn(f"href='{own}/report.html'", text)
            self.assertTrue((page.parent / own / "report.html").is_file())
        page.unlink()
        self.call(*root, "report", "p")
        self.assertTrue(page.is_file())
        root = self.paper(expect="stated = 2")
        self.call(*root, "reproduce", "p", "--strict", code=3)
        self.call(*root, "reproduce", "p", "--strict", "--modelled")
        self.call(*root, "reproduce", "p", "--fresh", mode="data", code=1)


if __name__ == "__main__":
    main()
