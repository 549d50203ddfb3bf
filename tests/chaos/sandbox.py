"""Makes results folders to attack, runs `sparfuse` on them, and sees what it leaves behind.

Every process that a sandbox starts, and all that these start, carry its mark in their environment:
so an orphan is found wherever it went, and nobody else's process is ever taken for one.
"""

import functools
import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

INTEGRATION = Path(__file__).resolve().parents[1] / "integration"
sys.path.insert(0, str(INTEGRATION))
from harness_test import MODELLED, made_up_profile

FAKE_WORKER = INTEGRATION / "fake_worker.sh"
MARK = "SPARFUSE_CHAOS"
# Limits of calls, beside neighbours that leave them a tenth of the machine; a longer call hangs.
READ_SECONDS, RUN_SECONDS = 60, 240

EXPERIMENT = """
id = "chaos/store"
[defaults]
mode = "measured"
workload = "digits-resnet"
workers = 2
batch_per_worker = 4
warmup_steps = 1
steps = 3
deadline_seconds = 10
[[axis]]
method = ["dense", "safusion-inter"]
[[axis]]
transport = [{transports}]
[repeat]
blocks = {blocks}
timeout_seconds = {timeout}
[[claim]]
quote = "fusing helps"
metric = "throughput"
of = {{ method = "safusion-inter", transport = "threads" }}
over = {{ method = "dense", transport = "threads" }}
expect = "more"
"""

# Words that no verb may ever print: messages of libraries, or of the runtime as it aborts.
CRASH_WORDS = ("Traceback (most recent call last)", "terminate called", "AddressSanitizer",
               "runtime error:", "json.exception", "filesystem error", "basic_string", "bad_alloc",
               "Segmentation fault")
EXIT_CODES = {0, 1, 2, 3, 130}  # docs/design.md, "The program"
CRASH_SIGNALS = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL}


@dataclass
class Done:
    """A call of the program that ended; its code is negative if a signal ended it, None if it hung."""

    verb: str
    code: int | None
    output: str
    errors: str

    def crash(self):
        """Words on the crash of the call, or ""."""
        if self.code is None:
            return f"{self.verb}: does not end"
        if self.code in CRASH_SIGNALS:
            return f"{self.verb}: ended by {signal.Signals(-self.code).name}"
        if self.code >= 0 and self.code not in EXIT_CODES:
            return f"{self.verb}: exit {self.code}: {self.errors.strip()[-200:]}"
        for word in CRASH_WORDS:
            if word in self.output + self.errors:
                place = (self.output + self.errors).index(word)
                said = (self.output + self.errors)[place : place + 200]
                return f"{self.verb}: {' '.join(said.split())}"
        return ""


@dataclass
class Process:
    pid: int
    parent: int
    argv: list

    @property
    def words(self):
        return " ".join(self.argv)


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


class Processes:
    """The processes whose environment has a mark. A process' environment is read once."""

    def __init__(self, mark):
        self._variable = f"{MARK}={mark}".encode()
        self._known = {}  # {(pid, start time): whether it has the mark}
        self.jobs = set()  # Open MPI's jobs seen so far, as in the names of their files
        self._looking = threading.Lock()  # else an older look could replace the facts of a newer one

    def now(self):
        """{pid: Process} of the marked processes that have not ended."""
        with self._looking:
            return self._look()

    def _look(self):
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            fields = _read(entry / "stat").rpartition(b")")[2].split()
            if not fields or fields[0] in (b"Z", b"X"):
                continue
            # A process shows its parent's command until it calls exec; its start time stays.
            key = (entry.name, fields[19])
            argv = _read(entry / "cmdline")
            if self._known.get(key, (None, None))[0] != argv:
                variables = _read(entry / "environ").split(b"\0")
                if variables == [b""]:  # between two programs, or unreadable
                    continue
                self._known[key] = (argv, self._variable in variables)
                if self._known[key][1]:
                    self._note_job(variables)
            if self._known[key][1]:
                words = argv.decode(errors="replace").split("\0")[:-1]
                found[int(entry.name)] = Process(int(entry.name), int(fields[1]), words)
        return found

    def _note_job(self, variables):
        for variable in variables:
            name, _, value = variable.partition(b"=")
            if name == b"OMPI_MCA_ess_base_jobid" and value.isdigit():
                self.jobs.add(f"{int(value):08x}")


@functools.cache
def options_of_runs(program):
    """The options that keep a run from repeating disturbed trials; here all trials are disturbed."""
    said = subprocess.run([program, "run", "--help"], capture_output=True, text=True, check=False)
    return [option for option in ("--keep-disturbed",) if option in said.stdout]


class Sandbox:
    """A results folder, a user's files in and beside it, and the processes that work on it."""

    def __init__(self, folder, program, base=None, fake=True, seconds=0.0):
        self.folder, self.program, self.fake, self.seconds = Path(folder), program, fake, seconds
        self.results = self.folder / "results"
        self.temporary = self.folder / "tmp"
        self.file, self.modelled_file = self.folder / "chaos.toml", self.folder / "modelled.toml"
        self.temporary.mkdir(parents=True)
        self.modelled_file.write_text(MODELLED)
        if base:
            shutil.copytree(base, self.results, symlinks=True)
        self.processes = Processes(self.folder.as_posix())
        self.calls = []  # the Done of each call that was not attacked
        self._started, self._numbers = [], itertools.count()
        self._mounted = False
        self._watching = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):  # notes MPI jobs, which come and go
        while not self._watching.wait(0.1):
            self.processes.now()

    def write_profile(self):
        """Writes the profile from which modelled trials are computed."""
        file = self.results / "profiles" / "made-up.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps([made_up_profile(1), made_up_profile(2)]))

    def write(self, blocks, transports=("threads", "mpi")):
        names = ", ".join(f'"{name}"' for name in transports)
        timeout = 5 if self.fake else 60
        text = EXPERIMENT.format(blocks=blocks, transports=names, timeout=timeout)
        self.file.write_text(text)

    def _command(self, verb, arguments):
        worker = ["--worker", str(FAKE_WORKER)] if self.fake else []
        more = options_of_runs(self.program) if verb == "run" else []
        return [self.program, "--results", str(self.results), *worker, verb, *map(str, arguments),
                *more]

    def start(self, verb, *arguments):
        """Starts a call that will be attacked; end it with `finish`."""
        environment = {**os.environ, MARK: self.folder.as_posix(), "TMPDIR": str(self.temporary),
                       "FAKE_SECONDS": str(self.seconds), "MPLCONFIGDIR": str(self.folder.parent / "matplotlib")}
        (self.folder / "output").mkdir(exist_ok=True)
        number = next(self._numbers)
        files = [self.folder / "output" / f"{number}.{kind}" for kind in ("out", "err")]
        with files[0].open("wb") as out, files[1].open("wb") as errors:
            call = subprocess.Popen(self._command(verb, arguments), env=environment, stdout=out,
                                    stderr=errors, stdin=subprocess.DEVNULL)
        call.verb, call.files = " ".join([verb, *map(str, arguments)]), files
        self._started.append(call)
        return call

    def finish(self, call):
        """Waits for a call, and kills it if it does not end in time; returns its Done."""
        limit = RUN_SECONDS if call.verb.startswith("run ") else READ_SECONDS
        try:
            code = call.wait(limit)
        except subprocess.TimeoutExpired:
            call.kill()
            call.wait()
            code = None
        output, errors = (path.read_text(errors="replace") for path in call.files)
        return Done(call.verb, code, output, errors)

    def call(self, verb, *arguments):
        done = self.finish(self.start(verb, *arguments))
        self.calls.append(done)
        return done

    def roles(self, controller):
        """{role: [Process]} of a running `run`: its controller, supervisor, launcher and ranks."""
        found = self.processes.now()
        children = {pid: [p for p in found.values() if p.parent == pid] for pid in found}
        own = found.get(controller.pid)
        roles = {"controller": [own] if own else []}
        supervisors = [p for p in children.get(controller.pid, []) if own and p.argv == own.argv]
        launchers = [p for each in supervisors for p in children[each.pid]]
        beneath, ranks = [*launchers], []
        while beneath:
            process = beneath.pop()
            beneath += children[process.pid]
            if "mpirun" not in process.argv[:1] and process.argv != own.argv:
                ranks.append(process)
        return {**roles, "supervisor": supervisors, "launcher": launchers, "rank": ranks}

    def wait_for(self, what, controller, limit=30):
        """what() as soon as it is true; None if the controller ends before, or after `limit` seconds."""
        until = time.monotonic() + limit
        while time.monotonic() < until:
            found = what()
            if found:
                return found
            if controller.poll() is not None:
                return None
            time.sleep(0.01)
        return None

    def trials(self):
        """{trial_id: directory} of each folder with a trial.json; a user's links are not followed."""
        found = {}
        for folder, _, files in os.walk(self.results / "trials"):
            if "trial.json" in files:
                found[Path(folder).relative_to(self.results / "trials").as_posix()] = Path(folder)
        return found

    def index_rows(self):
        """The index as {table: rows}."""
        with sqlite3.connect(f"file:{self.results / 'index.sqlite'}?mode=ro", uri=True) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {name: sorted(map(repr, database.execute(f'SELECT * FROM "{name}"')))
                    for (name,) in tables.fetchall()}

    def mount(self, kilobytes):
        """Moves the results to a file system of `kilobytes`; returns False if it may not be mounted."""
        moved = self.results.rename(self.folder / "moved")
        self.results.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs",
                               str(self.results)], capture_output=True, check=False)
        self._mounted = done.returncode == 0
        shutil.copytree(moved, self.results, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(moved)
        return self._mounted

    def enlarge(self):
        subprocess.run(["mount", "-o", "remount,size=256m", str(self.results)], check=True)

    def kill_all(self):
        for process in self.processes.now().values():
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def close(self, keep=None):
        """Ends the processes that still run; moves all files to `keep`, or deletes them."""
        self.kill_all()
        for call in self._started:
            call.wait()
        self._watching.set()
        if self._mounted:
            shutil.copytree(self.results, self.folder / "moved", symlinks=True)
            subprocess.run(["umount", "--lazy", str(self.results)], check=True)
            self.results.rmdir()
            (self.folder / "moved").rename(self.results)
        if keep:
            keep.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(keep, ignore_errors=True)
            shutil.move(self.folder, keep)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
