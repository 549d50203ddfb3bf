"""Tests the real `sparfuse` on results folders in all states: what is the user's stays, verbs end
when told to, what a kill left is cleared away, and large stores are read in moments.

  store_test.py PATH/TO/sparfuse [unittest arguments]
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

import harness_test
import program

SHARED_MEMORY = Path("/dev/shm")


class StoreTest(harness_test.FakeTrials):
    def write_one_cell(self, transport="threads"):
        self.write(blocks=1, **{'"threads"': f'"{transport}"', "[1, 2, 3]": "[2]",
                                '"dense", "wfbp", "syncea"': '"wfbp"'})

    def kill_processes(self):
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.fsencode(self.results) in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass

    def test_run_removes_nothing_of_the_users(self):
        self.write_one_cell()
        self.call("run", self.file)
        thesis = self.folder / "home" / "thesis" / "text.tex"
        notes = self.results / "trials" / "notes" / "2026" / "notes.txt"
        for file in (thesis, notes):
            file.parent.mkdir(parents=True)
            file.write_text("important")
        (self.results / "trials" / "mylink").symlink_to(self.folder / "home")
        (self.results / "trials" / "t" / "up").symlink_to("..")
        output = self.call("run", self.file)
        self.assertIn("0 ran well, 0 failed, 1 were in the store", output)
        self.assertEqual(output.count("trials/mylink: not a trial of sparfuse; left in place"), 1)
        self.assertEqual(output.count("trials/notes: not a trial of sparfuse"), 1)
        self.assertTrue(thesis.exists() and notes.exists())

    def test_a_linked_experiment_counts_in_every_verb(self):
        self.write_one_cell()
        self.call("run", self.file)
        away = self.folder / "disk" / "t"
        away.parent.mkdir()
        (self.results / "trials" / "t").rename(away)
        (self.results / "trials" / "t").symlink_to(away)
        self.assertIn("1 trial(s)", self.call("index", "--rebuild"))
        self.assertIn("1 of 1 cells complete", self.call("status", self.file))
        self.assertIn("0 ran well, 0 failed, 1 were in the store", self.call("run", self.file))

    def test_unfinished_trials_go_to_the_trash(self):
        self.write_one_cell()
        run = self.start("run", self.file, seconds="100")
        self.wait_for("no trial began", lambda: [*self.results.rglob("config.json")])
        run.kill()
        run.communicate()
        unfinished = next(self.results.rglob("config.json")).parent
        place = unfinished.relative_to(self.results / "trials")
        self.assertIn(str(place), self.call("run", self.file))
        kept = self.results / "trash"
        self.assertEqual(len([*kept.rglob("config.json")]), 1)
        self.assertIn("deleted", self.call("index", "--empty-trash"))
        self.assertEqual([*kept.iterdir()], [])
        self.call("index", code=2)

    def test_ids_name_folders(self):
        for id, said in (("a//b", "no two in a row"), ("x" * 300, "expected at most 100"),
                         ("/".join("a" * 20), "at most 10 parts")):
            self.write(**{'id = "t"': f'id = "{id}"'})
            output = self.call("plan", self.file, code=2)
            self.assertIn(f"{self.file}:2: id = ", output)
            self.assertIn(said, output)

    def test_empty_arguments_are_mistakes(self):
        for arguments in (["plan", ""], ["run", ""], ["status", ""], ["--results", "", "plan", self.file]):
            self.assertIn('"": expected', self.call(*arguments, code=2))
        self.assertFalse(self.results.exists())

    def test_verbs_end_at_the_first_signal(self):
        self.write(blocks=5000)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            plan = self.start("plan", self.file)
            time.sleep(0.1)
            plan.send_signal(number)
            plan.communicate(timeout=5)
            self.assertEqual(plan.returncode, -number)

    def test_a_closed_terminal_ends_a_run_in_order(self):
        self.write_one_cell()
        run = self.start("run", self.file, seconds="100")
        self.wait_for("no trial began", self.processes_of)
        run.send_signal(signal.SIGHUP)
        self.assertIn("goes on from here", run.communicate(timeout=30)[0])
        self.assertEqual(run.returncode, 130)
        self.assert_no_processes()

    def test_a_pipe_in_a_trials_place_is_named(self):
        self.write_one_cell()
        self.call("run", self.file)
        pipe = self.results / "trials" / "t" / "main" / "x" / "trial.json"
        pipe.parent.mkdir()
        os.mkfifo(pipe)
        self.assertIn("expected a regular file", self.call("status", self.file))

    def test_broken_trials_stop_counting_at_once(self):
        self.write_one_cell()
        self.call("run", self.file)
        victim = next(self.results.rglob("trial.json"))
        victim.write_text(victim.read_text()[:100])
        output = self.call("status", self.file)
        self.assertIn("0 of 1 cells complete", output)
        self.assertIn(f"warning: {victim}: not valid JSON", output)

    def test_readers_keep_no_run_from_starting(self):
        self.write_one_cell()
        self.call("run", self.file)
        readers = [self.start("status", self.file) for _ in range(8)]
        self.call("run", self.file, "--fresh")
        for reader in readers:
            self.assertIn("1 of 1 cells complete", reader.communicate(timeout=60)[0])

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun on this machine")
    def test_nothing_is_left_of_a_killed_launch(self):
        self.write_one_cell("mpi")
        sessions = lambda: set(SHARED_MEMORY.glob("sparfuse-session-*"))
        before = sessions()
        for killed in ("controller", "supervisor and controller"):
            run = self.start("run", self.file, seconds="100")
            self.wait_for("no ranks", lambda: sum("fake_worker" in line for line in self.processes_of()) > 2)
            self.assertGreaterEqual(len(sessions() - before), 1)  # other tests may have sessions for a while
            if killed != "controller":
                children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
                for child in children:
                    os.kill(int(child), signal.SIGKILL)
            run.kill()
            run.communicate()
            if killed == "controller":  # its supervisor cleans up
                self.wait_for("a session is left", lambda: sessions() <= before)
            else:  # fake ranks do not end with their launcher
                self.kill_processes()
            self.assert_no_processes()
        self.call("run", self.file)
        self.wait_for("a session is left", lambda: sessions() <= before)

    def test_a_copied_tree_works_on_itself(self):
        tree = self.folder / "tree"
        (tree / "experiments").mkdir(parents=True)
        shutil.copy(self.file, tree / "experiments" / "t.toml")
        copied = tree / "build" / "cpu" / "harness" / "sparfuse"
        copied.parent.mkdir(parents=True)
        shutil.copy(self.program, copied)
        environment = {key: value for key, value in self.environment().items() if key != "SPARFUSE_ROOT"}
        done = subprocess.run([copied, "--worker", harness_test.WORKER, "run", "t"], env=environment,
                              capture_output=True, text=True, cwd="/", check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len([*(tree / "results" / "trials").rglob("trial.json")]), 18)

    @unittest.skipUnless(harness_test.HAS_MATPLOTLIB, "no matplotlib in this Python")
    def test_a_report_has_neither_folders_nor_hosts(self):
        self.write_one_cell()
        self.call("run", self.file)
        self.call("run", self.file, "--fresh", mode="data", code=1)
        self.call("report", self.file)
        for name in ("report.html", "spec.json"):
            text = (self.results / "reports" / "t" / name).read_text()
            self.assertNotIn(str(self.folder), text)
            self.assertNotIn(f'"{socket.gethostname()}"', text)
            self.assertNotIn("fake_worker.sh", text)  # the failure's message, in private.json, has it
        self.assertIn('"failure": "data"', text)

    def test_large_stores_are_read_in_moments(self):
        maker = Path(__file__).resolve().parents[1] / "bench" / "store" / "make_store.py"
        large = self.folder / "large"
        subprocess.run([sys.executable, maker, self.program, large, "2000"], check=True, timeout=120)
        self.results, self.file = large / "results", large / "large.toml"
        self.assertIn("2000 trial(s)", self.call("index", "--rebuild"))
        for verb in ("status", "table", "plan"):
            child = subprocess.Popen(self.command(verb, self.file), stdout=subprocess.PIPE)
            output = child.stdout.read().decode()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = status
            child.stdout.close()
            self.assertEqual(status, 0, output)
            self.assertLess(usage.ru_maxrss, 60_000, verb)  # KiB
        self.assertIn("nothing is missing", output)
        read = self.folder / "trace"
        if shutil.which("strace"):
            subprocess.run(["strace", "-f", "-o", read, "-e", "openat", *self.command("status", self.file)],
                           check=True, capture_output=True)
            self.assertNotIn("/trial.json", read.read_text())


if __name__ == "__main__":
    program.main()
