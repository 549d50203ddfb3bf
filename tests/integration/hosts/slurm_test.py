"""Tests real trials on a real Slurm of two nodes, brought up for the test alone.

  slurm_test.py PATH/TO/sparfuse [unittest arguments]

Needs root and what scripts/setup does not install (tests/integration/hosts/slurm_nodes.py fetches it); exits
with 77, and says why, where it cannot be had.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import named
import small_experiment

SPARFUSE = None
ROOT = Path(__file__).resolve().parents[3]
SLACK = 3  # seconds: the nodes share this machine's cores with all its other work
SLURM = Path(__file__).with_name("slurm_nodes.py").resolve()
NODES = Path(os.environ.get("SLURM_NODES_FOLDER", "/"))


def ranks():
    """{rank: (node, process id)} of the running ranks."""
    found = {}
    for entry in sorted(Path("/proc").iterdir(), key=lambda entry: (len(entry.name), entry.name)):
        if not entry.name.isdigit():
            continue
        try:
            if b"sparfuse-worker" not in (entry / "cmdline").read_bytes().split(b"\0")[0]:
                continue
            variables = dict(v.split(b"=", 1) for v in (entry / "environ").read_bytes().split(b"\0") if b"=" in v)
        except OSError:
            continue
        # A rank's guardian is a child of the rank and has the same command line.
        if b"SLURM_PROCID" in variables and int(variables[b"SLURM_PROCID"]) not in found:
            found[int(variables[b"SLURM_PROCID"])] = (variables[b"SLURMD_NODENAME"].decode(), int(entry.name))
    return found


def wait_for(what, ready, seconds=30):
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            raise AssertionError(f"{what}: not within {seconds} s; ranks: {ranks()}")
        time.sleep(0.05)


class Nodes(unittest.TestCase):
    """Runs tests on the nodes in a temporary folder."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="t-", dir=os.environ["SLURM_TEST_SHARED"]))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.results = self.folder / "results"
        self.file = self.folder / "t.toml"

    def write(self, steps=3, **experiment):
        self.file.write_text(small_experiment.text(workers=4, ranks_per_node=2, steps=steps, **experiment))

    def command(self, verb, *arguments):
        # Others work on the test's machine.
        keep = ["--keep-disturbed"] if verb == "run" else []
        return [SPARFUSE, "--results", str(self.results), verb, *map(str, arguments), *keep]

    def in_allocation(self, verb, *arguments):
        return ["salloc", "--quiet", "-N2", "--ntasks-per-node=2", *self.command(verb, *arguments)]

    def call(self, command, code=0):
        done = subprocess.run(command, text=True, capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def trials(self):
        return [named.read_trial(path) for path in sorted(self.results.rglob("trial.json"))]

    @staticmethod
    def start_again(daemon):
        for _, process in ranks().values():
            os.kill(process, signal.SIGKILL)
        daemon.unlink()
        wait_for("both nodes", lambda: subprocess.run(["sinfo", "-h", "-o", "%D %T"], text=True, capture_output=True,
                                                      check=True).stdout.split() == ["2", "idle"], 30)

    def begin(self, *more, **experiment):
        """Starts a run and waits until ranks are in the midst of their steps."""
        self.write(steps=100000, **experiment)
        controller = subprocess.Popen(self.in_allocation("run", self.file, "--launch", "srun", *more), text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(controller.communicate)
        self.addCleanup(controller.terminate)
        wait_for("a step", lambda: controller.poll() is not None or any(
            "measuring 100002 steps" in log.read_text() for log in self.results.rglob("log.txt")))
        self.assertIsNone(controller.poll(), "the run ended before a step was made")
        return controller

    def end(self, controller, within, code=1, left=()):
        """Checks that the run ends in time, with no rank left but `left`; returns the trial."""
        began = time.monotonic()
        output, _ = controller.communicate(timeout=40)
        self.assertLess(time.monotonic() - began, within, output)
        self.assertEqual(controller.returncode, code, output)
        wait_for("the end of all ranks", lambda: sorted(ranks()) == list(left), 2)
        trial, = self.trials()
        self.assertNotIn("throughput", trial.get("metrics") or {})
        return trial


class SlurmTest(Nodes):
    def test_a_trial_of_two_nodes(self):
        self.write(methods=("dense", "safusion-inter"))
        said = self.call(self.in_allocation("run", self.file, "--launch", "srun"))
        self.assertIn("2 ran well, 0 failed", said)
        for trial in self.trials():
            self.assertEqual(trial["argv"][:4], ["srun", "--mpi=pmix", "--nodes=2", "--ntasks=4"])
            self.assertTrue(trial["checks"]["replicas_equal"])

    def test_ranks_without_pmix_are_told_what_they_lack(self):
        self.write()
        template = self.folder / "plain.toml"
        template.write_text("""command = ["srun", "--mpi=none", "--nodes={nodes}", "--ntasks={ranks}", "env",
            "{environment}", "{worker}", "{arguments}"]""")
        said = self.call(self.in_allocation("run", self.file, "--launch", template), code=1)
        self.assertIn("srun without PMIx starts ranks that cannot find one another", said)

    def test_doctor_finds_both_nodes_alike(self):
        self.write()
        said = self.call(self.in_allocation("doctor", "--launch", "srun", "--json"))
        said = json.loads(said[said.index("{"):])
        self.assertEqual([rank["host"] for rank in said["ranks"]], ["n1", "n2"])
        self.assertEqual([each for each in said["findings"] if each["level"] == "error"], [])

    def test_a_killed_rank_of_the_other_node_is_named(self):
        controller = self.begin(deadline=10)
        node, process = ranks()[3]
        self.assertEqual(node, "n2")
        os.kill(process, signal.SIGKILL)
        failure = self.end(controller, within=10)["failure"]
        self.assertEqual((failure["kind"], failure["rank"], failure["signal"]), ("comm", 3, signal.SIGKILL))

    def test_a_stopped_rank_of_the_other_node_is_named_and_ended(self):
        controller = self.begin(deadline=4)
        os.kill(ranks()[3][1], signal.SIGSTOP)
        failure = self.end(controller, within=4 + 5 + SLACK)["failure"]
        self.assertEqual(failure["kind"], "timeout")
        self.assertIn("rank 3 does not answer", failure["message"])

    def test_ranks_that_all_stop_end_with_the_time_of_the_launch(self):
        controller = self.begin(deadline=4, timeout=15)
        for _, process in ranks().values():
            os.kill(process, signal.SIGSTOP)
        trial = self.end(controller, within=15 + 5 + SLACK)
        self.assertEqual(trial["status"], "timeout")

    def test_a_node_without_slurmd_ends_its_ranks_itself(self):
        """The node's stopped rank gets no signal from elsewhere."""
        controller = self.begin(deadline=4, timeout=15)
        began = time.monotonic()
        daemon = NODES / "n2.pid"
        self.addCleanup(self.start_again, daemon)
        os.kill(int(daemon.read_text()), signal.SIGKILL)
        os.kill(ranks()[3][1], signal.SIGSTOP)
        failure = self.end(controller, within=4 + 5 + SLACK, left=[3])["failure"]
        self.assertEqual(failure["kind"], "timeout")
        self.assertIn("rank 3 does not answer", failure["message"])
        wait_for("the end of rank 3", lambda: not ranks(), 15 + 6 - (time.monotonic() - began))

    def test_a_node_without_slurmd_gets_no_more_launches(self):
        self.write(blocks=3)
        self.file.write_text(self.file.read_text().replace("workers = 4", "workers = 2"))
        daemon = NODES / "n1.pid"
        self.addCleanup(self.start_again, daemon)
        said = self.call(["salloc", "--quiet", "--no-kill", "-N2", "--ntasks-per-node=2", "sh", "-c",
                          'kill -9 "$0"; exec "$@"', daemon.read_text().strip(),
                          *self.command("run", self.file, "--launch", "srun")], code=1)
        self.assertRegex(said, r"warning: 2 launches failed on n1 \(the last: .*n1.*\): it is left out from here on")
        self.assertIn("3 ran well, 2 failed", said)
        for trial in self.trials():
            if trial["status"] == "ok":
                self.assertIn("--exclude=n1", trial["argv"])
                self.assertEqual(trial["launch"]["binding"]["hosts"], ["n2", "n2"])

    def test_a_killed_controller_leaves_no_rank(self):
        controller = self.begin(deadline=10)
        child, = [int(pid) for pid in Path(f"/proc/{controller.pid}/task/{controller.pid}/children").read_text().split()
                  if b"sparfuse" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(child, signal.SIGKILL)
        wait_for("the end of all ranks", lambda: not ranks(), 5)

    def blocks(self):
        return {block["block"]: block["state"] for block in
                json.loads(self.call(self.command("status", self.file, "--json")))["submitted"]}

    def test_blocks_are_submitted_followed_and_submitted_again(self):
        """Tests that no block which is done, queued or running is submitted twice, and that a cancelled job
        loses at most one trial."""
        self.write(steps=20, blocks=3, threads=2)  # more threads than this machine has cores
        submit = [*self.command("run", self.file, "--submit", "--oversubscribe", "--sbatch-options", "--time=5")]
        self.assertIn("block(s) 0-2 are job", self.call(submit))
        job = subprocess.run(["scontrol", "show", "job"], text=True, capture_output=True, check=True).stdout
        self.assertIn("CPUs/Task=2", job)
        self.assertIn("NumNodes=2", job)
        self.assertIn("block(s) 0-2 are done, queued or running", self.call(submit))
        self.assertLessEqual(set(self.blocks().values()), {"queued", "running"})
        wait_for("the second block", lambda: self.blocks()[1] == "running", 60)
        self.assertEqual(self.blocks()[0], "done")
        task = subprocess.run(["squeue", "-h", "-t", "RUNNING", "-o", "%i"], text=True, capture_output=True, check=True)
        self.call(["scancel", task.stdout.strip()])
        wait_for("its end", lambda: self.blocks()[1] == "ended early")
        said = self.call(submit)
        self.assertIn("block(s) 0,2 are done, queued or running", said)
        self.assertIn("block(s) 1 are job", said)
        wait_for("all blocks", lambda: set(self.blocks().values()) == {"done"}, 60)
        self.assertEqual(sorted(trial["block"] for trial in self.trials()), [0, 1, 2])
        self.assertIn("block(s) 0-2 are done", self.call(submit))


class PmixTest(Nodes):
    """Tests a Slurm that starts ranks by PMIx by default."""

    def test_trials_run_and_the_channel_does_too(self):
        self.write()
        self.assertIn("1 ran well", self.call(self.in_allocation("run", self.file, "--launch", "srun")))
        self.assertIn("1 ran well", self.call(self.in_allocation("run", self.file, "--fresh", "--launch", "srun", "--ship")))


class AwayTest(Nodes):
    """Tests nodes that see no folder of the program, its results, its libraries or its data."""

    def test_nodes_without_a_shared_folder_get_what_they_need(self):
        self.write(methods=("dense", "safusion-inter"))
        run = self.in_allocation("run", self.file, "--launch", "srun")
        said = self.call(run, code=1)
        self.assertRegex(said, r"slurmstepd-n[12]: error: execve\(\): .*sparfuse-worker: No such file or directory")
        self.assertIn("2 ran well, 0 failed", self.call([*run, "--ship"]))
        well = [trial for trial in self.trials() if trial["status"] == "ok"]
        self.assertEqual(len(well), 2)
        for trial in well:
            self.assertTrue(trial["checks"]["replicas_equal"])
            self.assertIn("steps.npy", trial["files"])

    def test_mpirun_is_a_channel_too(self):
        self.write()
        self.assertIn("1 ran well", self.call(self.in_allocation("run", self.file, "--launch", "mpirun", "--ship")))
        trial, = self.trials()
        self.assertTrue(trial["checks"]["replicas_equal"])

    def test_what_failed_there_is_told_here(self):
        controller = self.begin("--ship", deadline=10)
        os.kill(ranks()[3][1], signal.SIGKILL)
        failure = self.end(controller, within=10)["failure"]
        self.assertEqual((failure["kind"], failure["rank"], failure["signal"]), ("comm", 3, signal.SIGKILL))


def run_in(shared, tests, hidden, *options):
    """Runs a class of tests on nodes that do not see the hidden folders; returns the exit status."""
    environment = {**os.environ, "SLURM_TEST_SHARED": shared, "SLURM_TEST_CLASS": tests}
    # Nodes have a /tmp of their own, and so a checkout of this test in /tmp must be shared.
    seen = [shared] + [str(folder) for folder in (ROOT, (ROOT / ".venv").resolve(), Path(SPARFUSE).parent)
                       if folder.is_relative_to("/tmp") and folder.is_dir()]
    share = [] if hidden else [word for folder in seen for word in ("--share", folder)]
    return subprocess.run([sys.executable, SLURM, *options, *share, *(word for folder in hidden for word in ("--hide", folder)),
                           sys.executable, __file__, SPARFUSE, *sys.argv[1:]], env=environment, check=False).returncode


def main():
    if "SLURM_TEST_CLASS" in os.environ:
        return unittest.main(defaultTest=os.environ["SLURM_TEST_CLASS"])
    with tempfile.TemporaryDirectory(prefix="sparfuse-slurm-test-") as shared:
        return sys.exit(run_in(shared, "SlurmTest", []) or
                        run_in(shared, "PmixTest", [], "--set", "MpiDefault=pmix") or
                        run_in(shared, "AwayTest", [str(ROOT), str(Path(SPARFUSE).parent)]))


if __name__ == "__main__":
    SPARFUSE = str(Path(sys.argv.pop(1)).resolve())
    main()
