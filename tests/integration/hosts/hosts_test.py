"""Tests trials over two hosts, which are network namespaces of this machine: real worker, real mpirun,
real links of which one is slow.

  hosts_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import named
import namespaces
import small_experiment

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import trial_test  # noqa: E402  (found by the path above)

SPARFUSE = None
ROOT = Path(__file__).resolve().parents[3]
SLOW = 200  # Mbit/s of a slow link
WHY_NOT = namespaces.why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class HostsTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sparfuse-hosts-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.made = 0
        self.write()

    def write(self, **experiment):
        self.file = self.folder / "t.toml"
        self.file.write_text(small_experiment.text(**experiment))

    def hosts(self, links, **options):
        self.made += 1
        hosts = namespaces.Hosts(f"sf{os.getpid() % 100000}{self.made}", self.folder, links, **options)
        self.addCleanup(hosts.remove)
        return hosts

    def command(self, hosts, *arguments, results="results"):
        """(command, environment) of a verb on the first of the hosts; on this machine if hosts is None."""
        command = [SPARFUSE, "--results", str(self.folder / results), *map(str, arguments)]
        environment = {"SPARFUSE_DATA": str(ROOT / "results" / "data"), **os.environ}
        if not hosts:
            return command, environment
        return hosts.command(*command), environment | hosts.environment()

    def call(self, hosts, *arguments, results="results", code=0, **variables):
        command, environment = self.command(hosts, *arguments, results=results)
        done = subprocess.run(command, env=environment | variables, text=True, capture_output=True, timeout=200, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def run_over(self, hosts, *options, results="results", code=0, **variables):
        return self.call(hosts, "run", self.file, "--keep-disturbed", "--hostfile", hosts.hostfile, *options,
                         results=results, code=code, **variables)

    def trials(self, results="results"):
        return {path.parent: named.read_trial(path) for path in (self.folder / results).rglob("trial.json")}

    def test_a_second_interface_with_traffic_is_named_host_by_host(self):
        hosts = self.hosts([None, SLOW])
        said = self.run_over(hosts, results="unpinned")
        trial, = self.trials("unpinned").values()
        network = trial["launch"]["network"]
        self.assertEqual((network["interface"], network["hosts"]), (None, hosts.names))
        for host, carried, others in zip(hosts.names, network["bytes"], network["others"]):
            # Open MPI uses both links; the bytes that one host sends on a link, the other receives.
            self.assertLessEqual({"net0", "net1"}, set(carried))
            self.assertEqual(len(others), 1)
            self.assertIn(f"warning: {host}: beside the busiest interface also {others[0]} had traffic", said)
        first, second = network["bytes"]
        for link in ("net0", "net1"):
            self.assertAlmostEqual(first[link]["sent"], second[link]["received"], delta=0.02 * first[link]["sent"])
        said = self.run_over(hosts, "--interface", "net0", results="pinned")
        self.assertNotIn("had traffic", said)
        trial, = self.trials("pinned").values()
        network = trial["launch"]["network"]
        self.assertEqual((network["interface"], network["others"]), ("net0", [[], []]))
        self.assertEqual(trial["launch"]["binding"]["interface"], ["net0", "net0"])
        # Every step sends and receives all gradients once, and the counters have at least these bytes.
        steps = 2 + 6
        payload = steps * trial["metrics"]["sent_bytes"]["value"]
        for carried in network["bytes"]:
            self.assertGreater(carried["net0"]["sent"], payload)

    def test_ranks_on_two_hosts_join_by_tcp(self):
        values = []
        for transport in ("tcp", "mpi"):
            self.write(transport=transport, methods=("wfbp",))
            hosts = self.hosts([None, SLOW])
            self.run_over(hosts, "--interface", "net0", results=transport)
            trial, = self.trials(transport).values()
            self.assertTrue(trial["checks"]["replicas_equal"])
            self.assertEqual(trial["launch"]["binding"]["hosts"], hosts.names)
            carried = trial["launch"]["network"]["bytes"]
            for host in carried:
                self.assertGreater(host["net0"]["sent"], (2 + 6) * trial["metrics"]["sent_bytes"]["value"])
                self.assertLess(host.get("net1", {"sent": 0})["sent"], 10_000)
            values.append([trial["metrics"][name]["value"] for name in ("loss", "payload_bytes", "sent_bytes")])
        self.assertEqual(*values)

    def test_binding_is_recorded_and_oversubscription_refused(self):
        hosts = self.hosts([None])
        cores = sorted(os.sched_getaffinity(0))
        self.write(threads=len(cores) + 1)
        said = self.run_over(hosts, code=1)
        self.assertRegex(said, rf"{hosts.names[0]}: 1 rank\(s\) of {len(cores) + 1} thread\(s\) each on "
                               rf"{len(cores)} core\(s\): expected fewer ranks or threads, or --oversubscribe")
        shutil.rmtree(self.folder / "results")
        self.run_over(hosts, "--oversubscribe")
        trial, = self.trials().values()
        binding = trial["launch"]["binding"]
        self.assertEqual(binding["hosts"], hosts.names)
        for written in binding["cores"]:
            bounds = [list(map(int, part.split("-"))) for part in written.split(",")]
            self.assertEqual([core for low, *high in bounds for core in range(low, (high or [low])[0] + 1)], cores)
        self.assertEqual(binding["card"], [None, None])
        self.call(None, "export", "t", "--out", self.folder / "t.sparfuse")
        shown = self.call(None, "export", "t", "--show")
        self.assertIn("launch.binding.hosts", shown)
        self.assertNotIn(hosts.names[1], shown)

    def test_a_trial_is_of_the_nodes_that_ran_it_and_unlike_ones_stay_apart(self):
        here = re.search(r"(?m)^model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]
        self.write(methods=("dense", "wfbp"))
        hosts = self.hosts([None], processors=(None, "A CPU"))
        self.assertRegex(self.run_over(hosts), rf"2 host\(s\): nodes of A CPU, .*; and of {re.escape(here)}, ")
        for trial in self.trials().values():
            nodes = trial["launch"]["nodes"]
            self.assertEqual([(node.pop("cpu_model"), node.pop("count")) for node in nodes],
                             [(here, 1), ("A CPU", 1)])
            self.assertEqual(nodes[0], nodes[1])
            self.assertEqual(nodes[0]["network"], [{"kind": "virtual", "gbps": "unknown"}])
            self.assertEqual([node["cpu_model"] for node in trial["system"]["nodes"]], ["A CPU", here])
        bundle = self.folder / "t.sparfuse"
        self.call(None, "export", "t", "--out", bundle)
        self.assertRegex(self.call(None, "compare", bundle, bundle, "--keep-disturbed"),
                         rf"t has different nodes: 1 of {re.escape(here)}, .*; 1 of A CPU, ")

    def test_here_and_on_two_clusters_are_three_systems_of_one_store(self):
        self.write(methods=("dense", "wfbp"))
        near, far = self.hosts([None]), self.hosts([None], processors=("Another CPU",) * 2)
        places = [(None, ()), (near, ("--hostfile", near.hostfile)), (far, ("--hostfile", far.hostfile))]
        for counts in ("2 ran well, 0 failed, 0 were in the store", "0 ran well, 0 failed, 2 were in the store"):
            for hosts, options in places:
                self.assertIn(counts, self.call(hosts, "run", self.file, "--keep-disturbed", *options))
        trials = sorted(self.trials().values(), key=lambda trial: trial["started_utc"])
        hashes = [trial["system_hash"] for trial in trials]
        self.assertEqual([len(set(hashes[i:i + 2])) for i in (0, 2, 4)], [1, 1, 1])
        systems = dict.fromkeys(hashes)
        self.assertEqual(len(systems), 3)
        # Tables, comparisons, pages and plans keep the systems apart, like runs.
        said = self.call(None, "table", self.file, "--keep-disturbed")
        self.assertIn("trials left out: 4 of other machines", said)
        listed = re.findall(r"(?m)^  ([0-9a-f]{12})  (nodes of )?", self.call(None, "compare", code=2))
        self.assertEqual(sorted(listed), sorted((each[:12], "nodes of " if i else "")
                                                for i, each in enumerate(systems)))
        compared = json.loads(self.call(None, "compare", *(each[:12] for each in list(systems)[1:]), "--json",
                                        "--keep-disturbed"))
        cell, = compared["cells"]
        for side, ran in (("first", trials[2:4]), ("second", trials[4:])):
            wfbp, = (trial for trial in ran if trial["config"]["method"] == "wfbp")
            self.assertAlmostEqual(cell[f"{side}_absolute"]["value"], wfbp["metrics"]["throughput"]["value"])
        data = json.loads(self.call(None, "site", "--json", "--keep-disturbed"))
        self.assertEqual(sorted((system["key"], system["hosts"]) for system in data["systems"]),
                         sorted((each[:12], 2 if i else 1) for i, each in enumerate(systems)))
        # The plan goes by the newest trials, those of the far system.
        plan = json.loads(self.call(None, "plan", self.file, "--hostfile", far.hostfile, "--json"))
        self.assertEqual((plan["present"], plan["missing"]), (2, []))

    def test_a_link_that_slows_down_during_a_run_is_in_its_trials(self):
        self.write(methods=("dense", "wfbp"))
        hosts = self.hosts([2 * SLOW])
        command, environment = self.command(hosts, "run", self.file, "--keep-disturbed", "--fingerprint",
                                            "--hostfile", hosts.hostfile)
        with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) as controller:
            self.addCleanup(controller.kill)
            until = time.monotonic() + 100
            kept = self.folder / "results/fingerprints"
            while not list(kept.glob("[0-9a-f]*/*.json")) and time.monotonic() < until:
                time.sleep(0.05)
            hosts.shape(0, SLOW / 2)
            said = controller.communicate(timeout=300)[0]
        self.assertEqual(controller.returncode, 0, said)
        changed = re.search("warning: the system changed during this run: (the end's bandwidth between nodes is .*)",
                            said)
        self.assertTrue(changed, said)
        for trial in self.trials().values():
            self.assertIn(changed[1], trial["fingerprint"]["changed"])
        bundle = self.folder / "t.sparfuse"
        self.call(None, "export", "t", "--out", bundle)
        said = self.call(None, "compare", bundle, bundle, "--keep-disturbed")
        self.assertIn(f"t changed during a run: {changed[1]}", said)
        site = json.loads(self.call(None, "site", "--json", "--keep-disturbed"))
        self.assertIn(changed[1], site["systems"][0]["changed"])

    def test_clocks_that_differ_are_compared_and_traces_stand_on_one(self):
        ahead = 86400
        hosts = self.hosts([None], clock=ahead)
        self.run_over(hosts)
        (directory, trial), = self.trials().items()
        clocks = trial["launch"]["clocks"]
        self.assertEqual(clocks["hosts"], hosts.names)
        self.assertEqual((clocks["offset_seconds"][0], clocks["uncertainty_seconds"][0]), (0, 0))
        self.assertAlmostEqual(clocks["offset_seconds"][1], -ahead, delta=clocks["uncertainty_seconds"][1])
        self.assertLess(clocks["uncertainty_seconds"][1], 0.1)
        # Both hosts share one oscillator, and so there is no drift.
        self.assertLessEqual(abs(clocks["drift_ppm"][1]), clocks["drift_uncertainty_ppm"][1])
        if (directory / "trace.json").exists():
            trace = json.loads((directory / "trace.json").read_text())
            self.assertGreater(trace["otherData"]["clock_uncertainty_us"], 0)
            ends = [event["ts"] for event in trace["traceEvents"] if event["ph"] == "X"]
            self.assertLess(max(ends), 60e6)
        else:
            self.assertEqual(len(list(directory.glob("trace-rank*.json"))), 2)

    def test_a_rank_of_another_host_that_is_stopped_or_killed_ends_the_trial_in_time(self):
        deadline = 4
        hosts = self.hosts([None])
        self.results = self.folder / "results"
        for what, status in ((signal.SIGSTOP, "rank 1 does not answer"), (signal.SIGKILL, "rank 1")):
            shutil.rmtree(self.results, ignore_errors=True)
            self.write(steps=100000, deadline=deadline)
            command, environment = self.command(hosts, "run", self.file, "--keep-disturbed", "--hostfile",
                                                hosts.hostfile)
            with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT) as controller:
                self.addCleanup(controller.kill)
                until = time.monotonic() + 60
                while not any("measuring 100002 steps" in log.read_text() for log in self.results.rglob("log.txt")):
                    self.assertLess(time.monotonic(), until, "no step was made")
                    self.assertIsNone(controller.poll(), "the run ended before a step was made")
                    time.sleep(0.05)
                begun = time.monotonic()
                os.kill(trial_test.Trials.ranks(self)[1], what)
                output, _ = controller.communicate(timeout=60)
            self.assertLess(time.monotonic() - begun, deadline + 25, output)
            self.assertEqual(trial_test.Trials.ranks(self), {})
            trial, = self.trials().values()
            self.assertIn(trial["failure"]["kind"], ("timeout", "comm"))
            self.assertIn(status, trial["failure"]["message"])
            self.assertEqual(trial["launch"]["binding"]["hosts"], hosts.names)

    def test_a_host_on_which_two_launches_fail_gets_no_more(self):
        hosts = self.hosts([None])
        near, far = hosts.names
        hosts.reach(but=far)
        self.write(blocks=3)
        self.file.write_text(self.file.read_text().replace("ranks_per_node = 1", "ranks_per_node = 2"))
        both = self.folder / "both"
        both.write_text(f"{far} slots=2\n{near} slots=2\n")
        said = self.call(hosts, "run", self.file, "--keep-disturbed", "--hostfile", both, code=1)
        self.assertRegex(said, rf"warning: 2 launches failed on {far} \(the last: .*it is left out from here on")
        self.assertIn("2 trial(s) that failed there run again", said)
        self.assertIn("3 ran well, 2 failed", said)
        for trial in self.trials().values():
            launch = trial["launch"]
            if trial["status"] == "ok":
                self.assertEqual((launch["binding"]["hosts"], launch["left_out"]), ([near, near], [far]))
            else:
                self.assertEqual((launch["failed_on"], "left_out" in launch), (far, False))
        self.assertEqual(both.read_text(), f"{far} slots=2\n{near} slots=2\n")

    def test_a_host_that_never_answers_is_left_out(self):
        """No message names the host, and so each host is tried alone."""
        hosts = self.hosts([None])
        near, far = hosts.names
        hosts.reach(silent=far)
        self.write(blocks=3, deadline=1)
        self.file.write_text(self.file.read_text().replace("ranks_per_node = 1", "ranks_per_node = 2"))
        said = self.run_over(hosts, code=1, SPARFUSE_START_SECONDS="9")
        self.assertIn("ranks did not meet: trying each host alone", said)
        self.assertRegex(said, rf"warning: 2 launches failed on {far} \(the last: ranks did not end within .*\): it is "
                               "left out from here on")
        self.assertIn("3 ran well, 2 failed", said)
        for trial in self.trials().values():
            if trial["status"] != "ok":
                self.assertIn("ranks did not meet within 10 s of the launch", trial["failure"]["message"])
                self.assertEqual(trial["launch"]["failed_on"], far)

    def test_other_hosts_have_what_the_trial_is_recorded_with(self):
        hosts = self.hosts([None])
        there = self.folder / "environment"
        _, worker = self.worker(hosts, f"env > {there}")
        self.run_over(hosts, "--worker", worker, NCCL_ALGO="Ring", NCCL_NTHREADS="256", CUDA_VISIBLE_DEVICES="")
        trial, = self.trials().values()
        variables = dict(line.split("=", 1) for line in there.read_text().splitlines() if "=" in line)
        for name in ("NCCL_ALGO", "NCCL_NTHREADS", "SPARFUSE_DATA", "OMP_NUM_THREADS"):
            self.assertEqual(variables[name], trial["environment"][name])
        self.assertNotIn("CUDA_VISIBLE_DEVICES", variables)

    def away(self, hosts, more=""):
        """Hides the tree, the program and results from the second host, which gets a /tmp of its own, and
        LibTorch in its Python."""
        libraries = subprocess.run(["ldd", Path(SPARFUSE).parent / "worker" / "sparfuse-worker"], text=True,
                                   capture_output=True, check=True).stdout
        torch = next(Path(line.split()[2]) for line in libraries.splitlines() if "libtorch_cpu" in line)
        own = Path(tempfile.mkdtemp(prefix="sparfuse-node-", dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, own, ignore_errors=True)
        agent = own / hosts.agent.relative_to("/tmp")  # the host's Open MPI looks for it, too
        agent.parent.mkdir()
        agent.write_text("#!/bin/false\n")
        agent.chmod(0o755)
        hosts.reach(mounts=f"""
            mount --bind {torch.resolve().parents[2]} /mnt && export PYTHONPATH=/mnt
            for folder in {Path(SPARFUSE).parent} {ROOT}; do mount -t tmpfs tmpfs "$folder"; done
            mount --bind {own} /tmp
            {more}
            cd /
        """)
        return own

    def test_a_host_without_a_shared_folder_gets_its_part_over_mpirun(self):
        hosts = self.hosts([None])
        own = self.away(hosts)
        said = self.run_over(hosts, "--interface", "net0", code=1)
        (directory, _), = self.trials().items()
        self.assertIn(hosts.names[1], (directory / "log.txt").read_text())
        self.assertIn("0 ran well", said)
        shutil.rmtree(self.folder / "results")
        self.assertIn("1 ran well", self.run_over(hosts, "--interface", "net0", "--ship"))
        trial, = self.trials().values()
        self.assertTrue(trial["checks"]["replicas_equal"])
        self.assertEqual(trial["launch"]["binding"]["hosts"], hosts.names)
        store = own / f"sparfuse-{os.geteuid()}"
        self.assertEqual(store.stat().st_mode & 0o777, 0o700)
        self.assertEqual(list((store / "trials").iterdir()), [])

    def test_a_host_that_cannot_take_its_part_is_named(self):
        for why, more, words in (
                ("full", "f=/tmp/sparfuse-$(id -u); mkdir -p $f; mount -t tmpfs -o size=1m,mode=700 tmpfs $f",
                 "No space left on device"),
                ("no tar", "mount --bind /bin/false $(command -v tar)", ""),
                ("may not be run", "mount -o remount,bind,noexec /tmp", "")):
            with self.subTest(why):
                shutil.rmtree(self.folder / "results", ignore_errors=True)
                hosts = self.hosts([None])
                self.away(hosts, more)
                said = self.run_over(hosts, "--ship", code=1)
                self.assertIn(hosts.names[1], said)
                self.assertIn(words, said)

    def doctor(self, hosts, *options, code=0):
        said = json.loads(self.call(hosts, "doctor", "--json", "--launch", "mpirun", "--hostfile", hosts.hostfile,
                                    *options, code=code))
        self.assertEqual(list(self.folder.glob("results/*")), [])
        problems = [(each["what"], each["message"]) for each in said["findings"] if each["level"] == "error"]
        return said["ranks"], problems

    def worker(self, hosts, action):
        """(the real worker, a worker that runs `action` first on the second host)."""
        worker = self.folder / "worker"
        own = Path(SPARFUSE).parent / "worker" / "sparfuse-worker"
        worker.write_text(f'#!/bin/sh\n[ "$(hostname)" = {hosts.names[1]} ] && {action}\nexec {own} "$@"\n')
        worker.chmod(0o755)
        return own, worker

    def test_doctor_names_the_host_that_lacks_its_part(self):
        hosts = self.hosts([None, None])
        ranks, problems = self.doctor(hosts)
        self.assertEqual(problems, [])
        self.assertEqual([rank["host"] for rank in ranks], hosts.names)
        for rank in ranks:
            self.assertEqual(rank["interfaces"], ["net0", "net1"])
            self.assertLess(abs(rank["clock_ahead_seconds"]), 0.1)  # both hosts share a clock
            self.assertIn("Open MPI", rank["mpi"])
        table = self.call(hosts, "doctor", "--launch", "mpirun", "--hostfile", hosts.hostfile)
        self.assertRegex(table, rf"(?m)^{hosts.names[1]} +[0-9a-f]{{12}} ")
        self.assertRegex(table, r"(?m)^warning +interfaces +all hosts have net0, net1")
        self.doctor(hosts, "--interface", "net1")

        other = self.folder / "other-worker"
        own, worker = self.worker(hosts, f'exec {other} "$@"')
        other.write_bytes(own.read_bytes() + b"of another build")
        other.chmod(0o755)
        _, problems = self.doctor(hosts, "--worker", worker, code=1)
        (what, message), = problems
        self.assertEqual(what, "worker")
        self.assertRegex(message, rf"^{hosts.names[1]} has [0-9a-f]{{12}}, and {hosts.names[0]} [0-9a-f]{{12}}: "
                                  r"expected the same file")

        _, worker = self.worker(hosts, f'exec unshare --mount sh -c \'mount -t tmpfs none {self.folder}/results; '
                                       f'exec {own} "$@"\' sh "$@"')
        _, problems = self.doctor(hosts, "--worker", worker, code=1)
        self.assertEqual(problems, [("results", f"{hosts.names[1]} does not see {self.folder}/results or cannot write "
                                     "there: expected --results FOLDER with one that all hosts share, or --ship")])

        # Another build of a library, with which ranks still find one another.
        library = self.folder / "libraries" / "libmpi.so.40"
        library.parent.mkdir()
        linked = subprocess.run(["ldd", own], text=True, capture_output=True, check=True).stdout
        mpi = next(Path(line.split()[2]) for line in linked.splitlines() if "libmpi.so.40" in line)
        notes = self.folder / "notes"
        subprocess.run(["objcopy", "--dump-section", f".note.gnu.build-id={notes}", mpi.resolve(), library], check=True)
        note = notes.read_bytes()
        notes.write_bytes(note[:16] + b"\1\2\3\4" + note[20:])
        subprocess.run(["objcopy", "--update-section", f".note.gnu.build-id={notes}", library], check=True)
        _, worker = self.worker(hosts, f"export LD_LIBRARY_PATH={library.parent}")
        _, problems = self.doctor(hosts, "--worker", worker, code=1)
        self.assertEqual(problems, [("libraries", f"libmpi.so.40 of {hosts.names[1]} differ from {hosts.names[0]}'s: "
                                     "expected the same files on every host")])

        _, worker = self.worker(hosts, "exec /no/such/worker")
        _, problems = self.doctor(hosts, "--worker", worker, code=1)
        (what, message), = problems
        self.assertEqual((what, message.split(":")[0]), ("reached", hosts.names[1]))
        self.assertIn("/no/such/worker", message)

        hosts.reach(but=hosts.names[1])
        ranks, problems = self.doctor(hosts, code=1)
        self.assertEqual([rank["host"] for rank in ranks], hosts.names[:1])
        (what, message), = problems
        self.assertEqual((what, message.split(":")[0]), ("reached", hosts.names[1]))

    def test_two_clusters_without_a_common_folder_are_merged_and_compared(self):
        self.write(methods=("dense", "wfbp"), blocks=3)
        bundles = []
        for name, rate in (("fast", None), ("slow", SLOW)):
            hosts = self.hosts([rate])
            self.run_over(hosts, "--interface", "net0", results=name)
            bundles.append(self.folder / f"{name}.sparfuse")
            self.call(None, "export", "t", "--out", bundles[-1], results=name)
        seconds = {}
        for name in ("fast", "slow"):
            for trial in self.trials(name).values():
                key = name, trial["config"]["method"]
                seconds.setdefault(key, []).append(trial["metrics"]["step_seconds"]["value"])
        self.assertGreater(min(seconds["slow", "dense"]), 4 * max(seconds["fast", "dense"]))
        said = self.call(None, "merge", *bundles, results="merged")
        self.assertIn("6 trial(s) added, 0 already here", said)
        self.assertEqual(len(self.trials("merged")), 12)
        said = self.call(None, "compare", "--keep-disturbed", *bundles)
        self.assertIn("1 ratio to dense: 1 not comparable (1: other regime: the reference exposes communication of",
                      said)


if __name__ == "__main__":
    SPARFUSE = str(Path(sys.argv.pop(1)).resolve())
    if WHY_NOT:
        print(f"skipped: {WHY_NOT}", file=sys.stderr)
        sys.exit(77)
    unittest.main()
