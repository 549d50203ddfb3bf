"""Tests the launchers of the real `sparfuse`, with a fake worker and a fake srun over real mpirun.

  launch_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import os
import re
import shutil
import unittest
from pathlib import Path

from program import ProgramTest, main, read_trial

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

# A fake srun: lists MPI plugins, and starts a step's tasks with mpirun.
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


# Like ssh, blaunch or pbs_tmrsh: AGENT [OPTION...] HOST COMMAND... Another host is a process without this
# process' environment, and with a folder of its own for daemons' files.
AGENT = """#!/bin/sh
while :; do
  case "$1" in
    -o) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
host="$1"; shift
echo "$0 $host" >> "$AGENT_CALLS"
own="$HOME/$(echo "$host" | cksum | cut -c 1-4)"
mkdir -p "$own"
exec env -i PATH="$PATH" HOME="$HOME" TMPDIR="$own" FAKE_HOST="$host" sh -c "$*"
"""

# A fake flux: runs tasks one after another, which suffices for tasks that only report, or by mpirun.
FLUX = """#!/bin/sh
echo "flux $*" >> "$AGENT_CALLS"
[ "$1" = run ] || exit 2
shift
while :; do
  case "$1" in
    --ntasks=*) tasks="${1#--ntasks=}"; shift ;;
    -o) shift 2 ;;
    --*) shift ;;
    *) break ;;
  esac
done
exec mpirun --allow-run-as-root --oversubscribe --bind-to none -np "$tasks" "$@"
"""


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun on this machine")
class LaunchTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.file = self.folder / "t.toml"
        self.write()
        programs = self.folder / "bin"
        programs.mkdir()
        self.programs = programs
        self.script("srun", SRUN)
        self.script("scontrol", "#!/bin/sh\necho n1\n")
        self.calls = self.folder / "calls"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
            "PATH": f"{programs}:{os.environ['PATH']}", "SRUN_CALLS": str(self.calls),
            "HOME": str(self.folder), "SRUN_PMIX": "\\tpmix\\n", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1",
            # The templates of launchers have no option for root, and this test may run as root.
            "OMPI_MCA_plm": "rsh", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def script(self, name, text):
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def write(self, mode="measured", transport="mpi", more=""):
        self.file.write_text(EXPERIMENT.format(mode=mode, transport=transport, more=more))

    def call(self, *arguments, code=0):
        return self.ended([self.program, "--results", self.results, "--worker", WORKER, *arguments], code,
                          env=self.environment)

    def trial(self):
        trial, = (read_trial(path) for path in self.results.rglob("trial.json"))
        return trial

    def assert_planned(self, *launch):
        """Checks that run starts the command that plan --commands prints, apart from random parts."""
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
        self.assertEqual((network["interface"], network["others"], len(network["hosts"])), (None, [[]], 1))
        for carried in network["bytes"][0].values():
            self.assertEqual(set(carried), {"received", "sent"})

    def test_srun_starts_ranks_with_the_pmi_that_it_has(self):
        trial = self.assert_planned("--launch", "srun", "--interface", "lo")
        self.assertEqual(trial["argv"][:4], ["srun", "--mpi=pmix", "--nodes=1", "--ntasks=2"])
        self.assertEqual(trial["environment"]["NCCL_SOCKET_IFNAME"], "=lo")
        self.assertEqual(trial["launch"]["network"]["interface"], "lo")
        self.assertIn("srun --mpi=pmix", self.calls.read_text())
        # The launcher is no part of a trial's identity.
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

    # {system: (its list of hosts in its own form, the program that starts processes there)}.
    SYSTEMS = {"pbs": ("n1\nn1\nn2\nn2\n", "pbs_tmrsh"), "lsf": ("n1\nn1\nn2\nn2\n", "blaunch"),
               "mpi-operator": ("t-worker-0.t.default.svc slots=2\nt-worker-1.t.default.svc slots=2\n", "ssh"),
               "flux": (None, "flux")}

    def test_shipped_templates_start_ranks(self):
        self.assertEqual(sorted(self.SYSTEMS), [path.stem for path in sorted(LAUNCHERS.glob("*.toml"))])
        for system, (hosts, agent) in self.SYSTEMS.items():
            with self.subTest(system):
                shutil.rmtree(self.results, ignore_errors=True)
                calls = self.folder / f"{system}.calls"
                self.environment |= {"AGENT_CALLS": str(calls), "OMPI_MCA_orte_keep_fqdn_hostnames": "true"}
                self.environment.pop("OMPI_MCA_plm_rsh_agent", None)
                if system == "pbs":
                    self.environment["OMPI_MCA_plm_rsh_agent"] = agent
                self.script(agent, FLUX if agent == "flux" else AGENT)
                launch = ["--launch", LAUNCHERS / f"{system}.toml"]
                names = ["here"]
                if hosts:
                    (self.folder / "hosts").write_text(hosts)
                    launch += ["--hostfile", self.folder / "hosts"]
                    names = sorted({line.split()[0] for line in hosts.splitlines()})
                trial = self.assert_planned(*launch)
                self.assertIn("OMP_NUM_THREADS=1", trial["argv"])
                self.assertIn(f"{agent} {names[0] if hosts else 'run'}", calls.read_text())
                if not hosts:
                    said = self.call("doctor", *launch, code=2)
                    self.assertIn("expected --ranks N", said)
                    launch += ["--ranks", 2]
                said = json.loads(self.call("doctor", "--json", *launch))
                self.assertEqual(sorted({rank["host"] for rank in said["ranks"]}), names)
                self.assertEqual(len(said["ranks"]), 2)

    def test_a_template_says_how_a_launch_is_ended(self):
        template = self.folder / "mine.toml"
        template.write_text(f"""command = ["sh", "-c", "trap '' TERM; sleep 100", "{{ranks}}", "env",
            "{{environment}}", "{{worker}}", "{{arguments}}"]
            end = ["sh", "-c", "echo $0 > {self.folder}/ended", "{{nonce}}"]""")
        self.file.write_text(self.file.read_text().replace("timeout_seconds = 60", "timeout_seconds = 1"))
        self.call("run", self.file, "--launch", template, code=1)
        self.assertEqual((self.folder / "ended").read_text().strip(),
                         self.trial()["environment"]["SPARFUSE_WORLD"].split(":")[1])

    def test_a_host_of_a_template_that_is_not_reached_is_named(self):
        self.environment["AGENT_CALLS"] = str(self.folder / "calls")
        self.script("blaunch", AGENT.replace('host="$1"; shift',
                                              'host="$1"; shift; [ "$host" = n2 ] && { echo no n2; exit 1; }'))
        (self.folder / "hosts").write_text("n1\nn1\nn2\nn2\n")
        said = json.loads(self.call("doctor", "--json", "--launch", LAUNCHERS / "lsf.toml", "--hostfile",
                                    self.folder / "hosts", code=1))
        errors = [each["message"] for each in said["findings"] if each["level"] == "error"]
        self.assertEqual(len(errors), 1, errors)
        self.assertTrue(errors[0].startswith("n2: "), errors)


if __name__ == "__main__":
    main()
