"""Tests the launchers of the real `sparfuse`, with a fake worker and a fake srun over real mpirun.

  launch_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SPARFUSE = None
HERE = Path(__file__).resolve().parent
WORKER = HERE / "fake_worker.sh"
LAUNCHERS = HERE.parent.parent / "scripts" / "launchers"

EXPERIMENT = """
id = "t"
[defaults]
mode = "{mode}"
workload = "digits-resnet"
method = "dense"
workers = 2
transport = "{transport}"
{more}
[repeat]
blocks = 1
timeout_seconds = 60
"""

# Says what Slurm has; starts a step's tasks with mpirun.
SRUN = """#!/bin/sh
echo "srun $*" >> "$SRUN_CALLS"
if [ "$1" = --mpi=list ]; then
  printf 'MPI plugin types are...\\n\\tnone\\n\\tpmi2\\n%b' "$SRUN_PMIX"
  exit 0
fi
while :; do
  case "$1" in
    --ntasks=*) tasks="${1#--ntasks=}"; shift ;;
    --*) shift ;;
    *) break ;;
  esac
done
exec mpirun --allow-run-as-root --oversubscribe --bind-to none -np "$tasks" "$@"
"""


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun on this machine")
class LaunchTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sparfuse-launch-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.results = self.folder / "results"
        self.file = self.folder / "t.toml"
        self.write()
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "srun").write_text(SRUN)
        (programs / "srun").chmod(0o755)
        self.calls = self.folder / "calls"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
            "PATH": f"{programs}:{os.environ['PATH']}", "SRUN_CALLS": str(self.calls),
            "SRUN_PMIX": "\\tpmix\\n", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}

    def write(self, mode="measured", transport="mpi", more=""):
        self.file.write_text(EXPERIMENT.format(mode=mode, transport=transport, more=more))

    def call(self, *arguments, code=0):
        done = subprocess.run(
            [SPARFUSE, "--results", str(self.results), "--worker", str(WORKER), *map(str, arguments)],
            env=self.environment, text=True, capture_output=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def trial(self):
        trial, = (json.loads(path.read_text()) for path in self.results.rglob("trial.json"))
        return trial

    def assert_planned(self, *launch):
        """What plan --commands prints is what run starts, but for what is drawn then."""
        planned, = json.loads(self.call("plan", self.file, "--commands", "--json", *launch))
        line = self.call("plan", self.file, "--commands", *launch)
        self.assertIn("ran well", self.call("run", self.file, *launch))
        trial = self.trial()
        drawn = trial["environment"]["SPARFUSE_WORLD"].split(":")[1]
        self.assertRegex(drawn, "^[0-9a-f]{16}$")
        argv = [re.sub(r"-[0-9a-f]{8}-b0-1$", "-ORIGIN-b0-N", word.replace(drawn, "NONCE"))
                for word in trial["argv"]]
        self.assertEqual(argv, planned["argv"])
        for name, value in planned["environment"].items():
            self.assertEqual(trial["environment"][name].replace(drawn, "NONCE"), value)
        self.assertEqual(planned["environment"]["SPARFUSE_WORLD"], "2:NONCE")
        self.assertIn(" ".join(planned["argv"][:3]), line)
        return trial

    def test_local_is_the_default(self):
        trial = self.assert_planned()
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca",
                 "mpi_yield_when_idle", "1", "-np", "2", str(WORKER)]
        if os.geteuid() != 0:
            words.remove("--allow-run-as-root")
        self.assertEqual(trial["argv"][:-1], words)
        self.assertIn("1 were in the store", self.call("run", self.file, "--launch", "local"))
        network = trial["launch"]["network"]
        self.assertEqual((network["interface"], network["others"]), (None, []))
        for carried in network["bytes"].values():
            self.assertEqual(set(carried), {"received", "sent"})

    def test_srun_starts_ranks_with_the_pmi_that_it_has(self):
        trial = self.assert_planned("--launch", "srun", "--interface", "lo")
        self.assertEqual(trial["argv"][:4], ["srun", "--mpi=pmix", "--nodes=1", "--ntasks=2"])
        self.assertEqual(trial["environment"]["NCCL_SOCKET_IFNAME"], "=lo")
        self.assertEqual(trial["launch"]["network"]["interface"], "lo")
        self.assertIn("srun --mpi=pmix", self.calls.read_text())
        # Who started a trial is no part of what it is.
        self.assertIn("1 were in the store", self.call("run", self.file))

    def test_srun_without_pmix_is_refused_with_what_it_has(self):
        self.environment["SRUN_PMIX"] = ""
        said = self.call("run", self.file, "--launch", "srun", code=2)
        self.assertIn("`srun --mpi=list` has no pmix", said)
        self.assertIn("pmi2", said)
        self.assertFalse(self.results.exists())

    def test_srun_outside_of_an_allocation_is_refused(self):
        del self.environment["SLURM_JOB_ID"]
        self.call("plan", self.file, "--commands", "--launch", "srun")
        said = self.call("run", self.file, "--launch", "srun", code=2)
        self.assertIn("SLURM_JOB_ID is not set", said)

    def test_a_template_starts_ranks(self):
        template = self.folder / "mine.toml"
        template.write_text("""command = ["mpirun", "--allow-run-as-root", "--oversubscribe",
            "-np", "{ranks}", "env", "{environment}", "{worker}", "{arguments}"]""")
        trial = self.assert_planned("--launch", template)
        self.assertIn("OMP_NUM_THREADS=1", trial["argv"])
        template.write_text('command = ["run", "-n", "{rank}"]')
        said = self.call("run", self.file, "--launch", template, code=2)
        self.assertIn('mine.toml:1: command = "{rank}": expected', said)

    def test_mpirun_starts_ranks_on_the_hosts_of_a_file(self):
        hosts = self.folder / "hosts"
        hosts.write_text("localhost slots=2\n")
        self.assert_planned("--hostfile", hosts)
        hosts.write_text("localhost slots=1\n")
        said = self.call("run", self.file, "--fresh", "--hostfile", hosts, code=2)
        self.assertIn("0 host(s) have slots=2 or more", said)

    def test_emulated_links_are_of_one_host(self):
        self.write(mode="emulated", more="link = { gbps = 1, alpha_us = 100 }")
        said = self.call("run", self.file, "--launch", "srun", code=2)
        self.assertIn("delays messages between ranks of one host", said)

    def test_shipped_templates_are_read(self):
        for template in sorted(LAUNCHERS.glob("*.toml")):
            hosts = ["--hostfile", "/dev/null"] if "{hostfile}" in template.read_text() else []
            line = self.call("plan", self.file, "--commands", "--launch", template, *hosts)
            self.assertIn("env OMP_NUM_THREADS=1", line)


if __name__ == "__main__":
    SPARFUSE = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
