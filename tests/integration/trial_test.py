"""Tests real trials: the real `sparfuse`, the real worker, real mpirun, real data.

  trial_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from program import ROOT, ProgramTest, main, read_trial

EXPERIMENT = """
id = "t"
[defaults]
mode = "{mode}"
workload = "{workload}"
method = "{method}"
workers = {workers}
batch_per_worker = 4
warmup_steps = 2
steps = {steps}
deadline_seconds = {deadline}
{more}
[repeat]
timeout_seconds = 100
"""

# The checks of a trial with residuals, which keep the elements not sent.
KEPT = {"loss_finite": True, "mass_conserved": True, "mass_conserved_over_ranks": True, "replicas_equal": True}


class Trials(ProgramTest):
    """Runs trials in a temporary folder."""

    def setUp(self):
        super().setUp()
        self.file = self.folder / "t.toml"

    def write(self, mode="measured", workload="digits-resnet", method="safusion-inter", workers=2, steps=3, deadline=20,
              more=""):
        self.file.write_text(EXPERIMENT.format(mode=mode, workload=workload, method=method, workers=workers,
                                               steps=steps, deadline=deadline, more=more))

    def command(self, verb, *arguments, results=None):
        # Others work on the test's machine.
        keep = ["--keep-disturbed"] if verb == "run" else []
        return list(map(str, [self.program, "--results", results or self.results, verb, *arguments, *keep]))

    def run_trial(self, code=0, environment=None, **experiment):
        """Runs a trial in the place of earlier ones."""
        shutil.rmtree(self.results, ignore_errors=True)
        self.write(**experiment)
        self.call("run", self.file, code=code, environment=environment)
        return self.trial()

    def trial(self):
        paths = sorted(self.results.rglob("trial.json"))
        self.assertEqual(len(paths), 1)
        return read_trial(paths[0])

    def series(self, trial, name):
        """The series `name` as NumPy opens it; checks that it agrees with trial.json."""
        table = np.load(next(self.results.rglob(name)))
        self.assertEqual((len(table), set(table.dtype.names)),
                         (trial["series"][name]["rows"], set(trial["series"][name]["units"])))
        return table

    def ranks(self):
        """{rank: process id} of the worker's ranks."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                line = (entry / "cmdline").read_bytes().split(b"\0")
                if b"sparfuse-worker" not in line[0] or str(self.results).encode() not in b" ".join(line):
                    continue
                variables = dict(v.split(b"=", 1) for v in (entry / "environ").read_bytes().split(b"\0") if b"=" in v)
            except OSError:
                continue
            number = variables.get(b"OMPI_COMM_WORLD_RANK", variables.get(b"SPARFUSE_RANK"))
            if number is not None:
                rank, pid = int(number), int(entry.name)
                found[rank] = min(pid, found.get(rank, pid))  # on other hosts a rank has a guardian as its child
        return found

    def disturb(self, rank, what, workers=3, warmup=2, **experiment):
        """Runs a long trial and sends the signal `what` to a rank in the middle of its steps."""
        shutil.rmtree(self.results, ignore_errors=True)
        self.write(workers=workers, steps=100000, deadline=8, **experiment)
        controller = subprocess.Popen(self.command("run", self.file), text=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT)
        self.addCleanup(controller.kill)
        until = time.monotonic() + 120
        while not any(f"measuring {100000 + warmup} steps" in log.read_text() for log in self.results.rglob("log.txt")):
            self.assertLess(time.monotonic(), until, "no step was made")
            self.assertIsNone(controller.poll(), "the run ended before a step was made")
            time.sleep(0.05)
        os.kill(self.ranks()[rank], what)
        output, _ = controller.communicate(timeout=60)
        self.assertEqual(controller.returncode, 1, output)
        trial = self.trial()
        self.assertNotIn("throughput", trial.get("metrics") or {})
        return trial, output

    def worker(self, name="sparfuse-worker"):
        return self.program.parent / "worker" / name

    def emulated_worker(self):
        return {"SPARFUSE_WORKER": str(self.worker("sparfuse-emulated-worker"))}


class TrialsInTurnTest(Trials):
    """Tests several cells in one launch."""

    METHODS = ("dense", "wfbp", "safusion-inter")

    def run_all(self, code=0, interleave=True, **experiment):
        """({method: (trial, its directory)}, the run's output)."""
        self.write(**experiment)
        text = self.file.read_text().replace('method = "safusion-inter"\n', "")
        methods = ", ".join(f'"{method}"' for method in self.METHODS)
        text = text.replace("[repeat]", f"[[axis]]\nmethod = [{methods}]\n[repeat]")
        self.file.write_text(text + ("" if interleave else "interleave = false\n"))
        said = self.call("run", self.file, code=code)
        trials = {}
        for path in self.results.rglob("trial.json"):
            trial = read_trial(path)
            trials[trial["config"]["method"]] = (trial, path.parent)
        return trials, said

    def test_each_trains_as_it_would_alone(self):
        # 4 measured steps are 2 rounds of 2, each after a discarded one: 2 + 2 * 3 steps.
        for transport in ("mpi", "threads"):
            shutil.rmtree(self.results, ignore_errors=True)
            more = f'transport = "{transport}"'
            together, _ = self.run_all(steps=4, more=more)
            self.assertEqual(sorted(together), sorted(self.METHODS))
            self.assertEqual(len({trial["launch"]["id"] for trial, _ in together.values()}), 1)
            series = {}
            for method, (trial, directory) in together.items():
                self.assertEqual((trial["status"], trial["checks"]["replicas_equal"]), ("ok", True), method)
                self.assertEqual(trial["launch"]["trials"], 3)
                steps = np.load(directory / "steps.npy")
                series[method] = steps
                self.assertEqual(len(steps), 2 * 8)
                one = steps[steps["rank"] == 0]
                self.assertEqual(one["round"].tolist(), [0, 0, 1, 1, 1, 2, 2, 2])
                self.assertEqual(one["measured"].tolist(), [False, False] + 2 * [False, True, True])
                slowest = np.maximum(one["step_seconds"], steps[steps["rank"] == 1]["step_seconds"])
                by_hand = [np.median(slowest[3:5]), np.median(slowest[6:8])]
                self.assertEqual(trial["rounds"], by_hand)
                spans = np.load(directory / "spans.npy")
                self.assertEqual(sorted(set(spans["step"])), [4, 6, 7])  # the last three measured steps
            shutil.rmtree(self.results)
            alone, _ = self.run_all(steps=6, interleave=False, more=more)
            for method, (trial, directory) in alone.items():
                self.assertEqual(trial["launch"]["trials"], 1)
                self.assertNotIn("rounds", trial)
                steps = np.load(directory / "steps.npy")
                self.assertEqual(set(steps["round"]), {0})
                for column in ("loss", "residual_norm", "payload_bytes"):
                    self.assertEqual(series[method][column].tolist(), steps[column].tolist(), (method, column))


class EveryRunTest(Trials):
    """Tests that trials are complete, that ranks are processes or threads, and that a killed or stopped rank
    is named."""

    def test_a_trial_is_complete(self):
        trial = self.run_trial(mode="emulated", more="link = { gbps = 1.0, alpha_us = 100 }\ndensity = 0.01")
        self.assertEqual(trial["status"], "ok")
        self.assertEqual(trial["checks"], KEPT)
        outcome = json.loads(next(self.results.rglob("outcome.json")).read_text())
        # The payload by hand: 8 bytes for each of k = max(1, trunc(0.01 n)) elements of a tensor.
        by_hand = sum(8 * max(1, int(0.01 * tensor["numel"])) for tensor in outcome["layout"])
        self.assertEqual(trial["metrics"]["payload_bytes"]["value"], by_hand)
        self.assertEqual(trial["metrics"]["sent_bytes"]["value"], by_hand)  # to the only other rank
        self.assertEqual(trial["metrics"]["tensors_missing"]["value"], 0)
        self.assertEqual(sum(map(int, outcome["plan"].split(","))), len(outcome["layout"]))
        steps = self.series(trial, "steps.npy")
        self.assertEqual(len(steps), 2 * (2 + 3))  # 2 ranks, 2 warm-up and 3 measured steps
        self.assertEqual(steps["payload_bytes"][steps["measured"]].tolist(), [by_hand] * 6)
        self.assertLessEqual({"compute", "data"}, set(self.series(trial, "spans.npy")["lane"]))
        self.assertEqual(trial["metrics"]["exchanges"]["value"], len(outcome["plan"].split(",")))
        trace = json.loads(next(self.results.rglob("trace.json")).read_text())
        spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertEqual({event["pid"] for event in spans}, {0, 1})
        self.assertTrue({"forward", "backward", "sparsify", "exchange", "decompress", "update"}
                        <= {event["cat"] for event in spans})

    def test_one_worker_and_three(self):
        for workers in (1, 3):
            trial = self.run_trial(workers=workers, method="safusion-naive")
            self.assertEqual((trial["status"], trial["checks"]["replicas_equal"]), ("ok", True))

    def test_ranks_as_threads_of_one_process(self):
        trial = self.run_trial(more='transport = "threads"')
        self.assertEqual((trial["status"], trial["checks"]["replicas_equal"]), ("ok", True))

    def test_a_killed_rank_is_named_with_its_signal(self):
        trial, output = self.disturb(1, signal.SIGKILL)
        self.assertEqual((trial["failure"]["rank"], trial["failure"]["signal"]), (1, 9), trial["failure"])
        self.assertIn("rank 1", output)

    def test_a_stopped_rank_is_named_by_the_survivors(self):
        trial, _ = self.disturb(2, signal.SIGSTOP)
        self.assertEqual(trial["failure"]["kind"], "timeout", trial["failure"])
        self.assertIn("rank 2 does not answer", trial["failure"]["message"])
        self.assertEqual(self.ranks(), {})

    def test_missing_and_truncated_data_are_named_before_anything_starts(self):
        data = self.folder / "data"
        self.write()
        for truncate in (False, True):
            if truncate:
                shutil.copytree(ROOT / "results" / "data" / "digits", data / "digits")
                os.truncate(data / "digits" / "digits.bin", 1000)
            done = self.start("run", self.file, environment={"SPARFUSE_DATA": str(data)})
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("digits.bin", done.stdout + done.stderr)
            self.assertIn("fetch_data", done.stdout + done.stderr)


class TrialTest(Trials):
    def test_a_trial_beside_other_work_is_marked(self):
        # Twice as many programs as cores: no scheduler gives a rank more than half a core.
        for _ in range(2 * len(os.sched_getaffinity(0))):
            hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            self.addCleanup(hog.wait)
            self.addCleanup(hog.kill)
        self.write(mode="measured", steps=30, more='[quiet]\nreruns = 1')
        done = subprocess.run([self.program, "--results", str(self.results), "run", str(self.file)], text=True,
                              capture_output=True, timeout=200, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"warning: other work takes \d+ % of the cores at the moment")
        self.assertIn("1 of those that ran well were disturbed", done.stdout)
        trial = self.trial()
        quiet = trial["quiet"]
        self.assertTrue(quiet["disturbed"], quiet)
        self.assertGreater(quiet["causes"]["other_cpu"], 0.3, quiet)
        self.assertEqual(quiet["limits"], {"other_cpu": 0.05, "stolen": 0.02, "slowdown": 1.2})
        self.assertGreaterEqual(len(quiet["loop_seconds"]), 8)
        # Other work does not include the ranks' own.
        self.assertGreater(quiet["own_cpu_seconds"], 0)
        self.assertLess(quiet["other_cpu"] * quiet["cores"] * quiet["seconds"] + quiet["own_cpu_seconds"],
                        1.1 * quiet["cores"] * quiet["seconds"])
        table = self.call("table", self.file)
        self.assertIn("1 of 1 live trials were disturbed: other work took", table)
        self.assertIn("disturbed (", table)

    def test_without_a_card_a_trial_that_needs_one_says_so(self):
        trial = self.run_trial(code=1, environment={"CUDA_VISIBLE_DEVICES": ""}, more='device = "cuda"')
        self.assertEqual((trial["status"], trial["failure"]["kind"]), ("failed", "unsupported"))
        self.assertIn("this machine has no CUDA device", trial["failure"]["message"])

    def test_a_tensor_without_gradient_is_left_alone(self):
        trial = self.run_trial(method="syncea", more="workload_options = { unused_parameter = true }")
        self.assertEqual((trial["status"], trial["checks"]["replicas_equal"]), ("ok", True))

    def test_accumulation(self):
        trial = self.run_trial(workload="text-lstm", method="wfbp", more="accumulation = 2")
        self.assertEqual((trial["status"], trial["checks"]["replicas_equal"]), ("ok", True))

    def test_plans_follow_measured_times_and_change_nothing_that_is_sent(self):
        shared = {"mode": "emulated", "steps": 13}
        link = "link = { gbps = 1.0, alpha_us = 100 }\ndensity = 0.01"
        trials = {}
        for method, options in (("safusion", "method_options = { replan_every = 5 }"), ("safusion-inter", "")):
            trials[method] = self.run_trial(method=method, more=f"{link}\n{options}", **shared)
            self.assertEqual(trials[method]["checks"], KEPT)
            outcome = json.loads(next(self.results.rglob("outcome.json")).read_text())
            names = [tensor["name"] for tensor in outcome["layout"]]
            self.assertEqual(outcome["plans"][-1]["unit_sizes"], outcome["plan"])
            for plan in outcome["plans"]:
                self.assertEqual(sum(map(int, plan["unit_sizes"].split(","))), len(names))
                self.assertEqual(plan["tensors"], {"dense": 0, "offloaded": 0, "reduced": 0})
            steps = [plan["step"] for plan in outcome["plans"]]
            if method == "safusion-inter":
                self.assertEqual(steps, [0])
                self.assertNotIn("profile", outcome)
                continue
            self.assertEqual(steps, [0, 7, 12])  # every 5 steps after two warm-up steps
            profile = outcome["profile"]
            self.assertEqual([tensor["name"] for tensor in profile["backward"]["tensors"]], names)
            self.assertGreaterEqual(profile["backward"]["steps"], 5)
            self.assertGreater(sum(tensor["seconds"] for tensor in profile["backward"]["tensors"]), 0)
            (curve,) = profile["selection"]["topk"]
            self.assertEqual(curve["density"], 0.01)
            # 4 MiB take 34 ms on a link of 1 Gbit/s.
            self.assertEqual(profile["link"]["round_seconds"][-1][0], 4 << 20)
            self.assertGreater(profile["link"]["round_seconds"][-1][1], 0.033)
        # The grouping of tensors does not change sums. So neither the profile, taken beside the trial, nor a
        # new plan, which keeps residuals, may change a bit.
        for metric in ("loss", "residual_norm", "payload_bytes"):
            self.assertEqual(trials["safusion"]["metrics"][metric], trials["safusion-inter"]["metrics"][metric], metric)

    def test_plans_of_ranks_as_threads_follow_measured_times(self):
        trial = self.run_trial(method="ssfusion", steps=7, more='transport = "threads"\n'
                               "method_options = { replan_every = 3, payload_dense = \"fp16\" }")
        self.assertEqual((trial["status"], trial["checks"]["replicas_equal"]), ("ok", True))
        outcome = json.loads(next(self.results.rglob("outcome.json")).read_text())
        self.assertEqual([plan["step"] for plan in outcome["plans"]], [0, 5, 8])
        self.assertIn("fp16", outcome["profile"]["encode"])

    def test_a_machine_is_measured_into_a_file_that_models_take(self):
        measure = ("profile", "digits-resnet", "--batch", 4, "--warmup", 1, "--sparsifiers", "topk",
                   "--quantizers", "none", "--link", "1:100", "--name", "here", "--json")
        outcomes = json.loads(self.call(*measure, "--passes", "2"))
        shaped = {"alpha_us": 100.0, "gbps": 1.0}
        self.assertEqual([(o["config"]["workers"], o["config"]["link"]) for o in outcomes],
                         [(1, None), (2, None), (2, shaped)])
        for outcome in outcomes:
            self.assertLessEqual({"machine", "software", "system", "source", "started_utc"}, set(outcome))
            self.assertEqual(outcome["n"], 2)
            backward = outcome["profile"]["backward"]
            total = sum(tensor["seconds"] for tensor in backward["tensors"]) + backward["tail_seconds"]
            self.assertAlmostEqual(total, backward["unhooked_seconds"], delta=1e-9)
            self.assertIn("/backward/unhooked_seconds", outcome["profile"]["relative_errors"])
            self.assertEqual(outcome["profile"]["selection"]["topk"][0]["seconds"][-1][0], 1000000)
        self.assertNotIn("link", outcomes[0]["profile"])
        link = outcomes[2]["profile"]["link"]
        self.assertEqual((outcomes[1]["profile"]["link"]["class"], link["class"]), ("intra_node", "inter_node"))
        for size, seconds in link["round_seconds"]:  # at least the link's time; a busy machine adds some
            self.assertGreater(seconds, 0.9 * (100e-6 + 8e-9 * size), size)
        stored = json.loads((self.results / "profiles" / "here.json").read_text())
        self.assertEqual([o["config"] for o in stored], [o["config"] for o in outcomes])
        shutil.rmtree(self.results / "trials")
        again = self.call(*measure, "--passes", "2")
        self.assertEqual([outcome.pop("kind") for outcome in stored], ["measured"] * 3)
        self.assertEqual({len(outcome.pop("digest")) for outcome in stored}, {64})
        self.assertEqual(json.loads(again), stored)
        again = self.call(*measure, "--passes", "3", code=2)
        self.assertIn("here.json has digits-resnet with batch 4", again)
        self.assertIn("steps 2 -> 3", again)

        modelled = {"mode": "modelled", "workers": 16, "method": "wfbp",
                    "more": 'cluster = "here"\nlink = { gbps = 1, alpha_us = 100 }'}
        self.write(**modelled)
        self.call("run", self.file)
        (trial,) = (self.results / "trials" / "t").rglob("trial.json")
        self.assertGreater(json.loads(trial.read_text())["metrics"]["step_seconds"]["value"], 0)
        self.write(workload="text-gpt", **modelled)
        self.assertIn("`sparfuse profile text-gpt --batch 4 --threads 1 --link 1:100 --name here`",
                      self.call("run", self.file, code=1))

    def test_a_planner_that_looks_at_no_times_is_not_asked_again(self):
        self.write(more="method_options = { replan_every = 5 }")
        self.assertIn("replan_every = 5 with planner \"by-count\"", self.call("run", self.file, code=2))
        self.assertFalse(self.results.exists(), "a trial was started")

    def test_a_nan_in_a_gradient_is_never_a_throughput(self):
        for method in ("dense", "safusion-inter"):
            trial = self.run_trial(code=1, method=method, more="workload_options = { nan_step = 3 }")
            self.assertEqual(trial["status"], "invalid")
            self.assertEqual(trial["failure"]["kind"], "numeric")
            self.assertIn("nan", trial["failure"]["message"].lower())
            self.assertNotIn("throughput", trial.get("metrics") or {})

    def test_without_a_card_its_trials_fail_and_others_go_on(self):
        self.write(workers=1, more='[[axis]]\ndevice = ["cuda", "cpu"]\n')
        self.call("run", self.file, code=1, environment={"CUDA_VISIBLE_DEVICES": ""})
        trials = [read_trial(path) for path in self.results.rglob("trial.json")]
        by_device = {trial["config"].get("device", "cpu"): trial for trial in trials}
        self.assertEqual(by_device["cpu"]["status"], "ok")
        self.assertEqual(by_device["cuda"]["failure"]["kind"], "unsupported")
        self.assertIn("this machine has no CUDA device: ", by_device["cuda"]["failure"]["message"])

    def test_in_bfloat16_replicas_stay_equal(self):
        trial = self.run_trial(more='precision = "bf16"\ndensity = 0.01')
        self.assertEqual((trial["status"], trial["checks"]["replicas_equal"]), ("ok", True))
        self.assertEqual(trial["config"]["precision"], "bf16")

    def test_ranks_that_cannot_find_one_another_say_so(self):
        # Ranks started like by srun without PMIx, and like by another MPI's mpirun.
        for variables, said in (("SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$rank", "srun --mpi=pmix"),
                                ("NO=ONE", "MPI says rank 0 of 1, but 2 ranks were launched")):
            shutil.rmtree(self.results, ignore_errors=True)
            script = self.folder / "singletons.sh"
            script.write_text("for rank in 0 1; do\n"
                              f'  env {variables} "$@" &\n'
                              'done\nwait "$!"\n')
            template = self.folder / "singletons.toml"
            template.write_text('command = ["sh", "SCRIPT", "env", "RANKS={ranks}", "{environment}", "{worker}", '
                                '"{arguments}"]'.replace("SCRIPT", str(script)))
            self.write()
            self.call("run", self.file, "--launch", template, code=1)
            failure = self.trial()["failure"]
            self.assertEqual(failure["kind"], "config")
            self.assertIn(said, failure["message"])


if __name__ == "__main__":
    main()
