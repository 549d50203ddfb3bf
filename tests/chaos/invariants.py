"""Checks what must stay true whatever is done to a run: what was the user's, what was finished.

Each check returns what is violated, a sentence each.
"""

import hashlib
import json
import os
import shutil
import stat
import time
from pathlib import Path

GRACE_SECONDS = 10  # by then, the processes of a killed run must be gone


def tree_of(folder):
    """{path: kind or content} of everything beneath a folder, and of the folder itself; links are not
    followed."""
    found = {}
    for place in (folder, *sorted(folder.rglob("*"))):
        status = place.lstat()
        if stat.S_ISLNK(status.st_mode):
            what = os.readlink(place)
        elif stat.S_ISREG(status.st_mode):
            what = hashlib.sha256(place.read_bytes()).hexdigest()
        else:
            what = stat.S_IFMT(status.st_mode)
        found[place.relative_to(folder).as_posix()] = (status.st_mode, what)
    return found


def _difference(before, folder):
    """Words on the difference of a tree from its earlier state, or ""."""
    if not folder.exists():
        return "is gone"
    after = tree_of(folder)
    gone = [f"{name} is gone" for name in before if name not in after]
    new = [f"{name} is new" for name in after if name not in before]
    changed = [f"{name} is changed" for name in before if after.get(name, before[name]) != before[name]]
    return ", ".join((gone + new + changed)[:3])


class Canaries:
    """A user's files in places that a careless harness would change."""

    def __init__(self, sandbox):
        outside, trials = sandbox.folder / "outside", sandbox.results / "trials"
        experiment = trials / "chaos" / "store"
        experiment.mkdir(parents=True, exist_ok=True)
        for file in (outside / "thesis" / "chapter1" / "text.tex", outside / "thesis" / "notes.txt",
                     trials / "notes" / "today.md", experiment / "drafts" / "deep" / "draft.md",
                     sandbox.results / "mine.txt"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{file.name}: important\n")
        # Unfinished trials that somebody put aside: they lie in other places than when they began.
        for place in (outside / "archive" / "begun", experiment / "main" / "begun-copy"):
            place.mkdir(parents=True)
            (place / "config.json").write_text('{"trial_id": "chaos/store/main/elsewhere-1"}\n')
            (place / "log.txt").write_text("one step\n")
        links = {trials / "thesis": outside / "thesis", experiment / "archive": outside / "archive",
                 trials / "chaos" / "thesis": outside / "thesis"}
        for link, target in links.items():
            link.symlink_to(os.path.relpath(target, link.parent))
        self._sandbox = sandbox
        self._trees = {folder: tree_of(folder) for folder in
                       (outside, trials / "notes", experiment / "drafts",
                        experiment / "main" / "begun-copy", sandbox.results / "mine.txt", *links)}

    def check(self):
        found = []
        for folder, before in self._trees.items():
            gone = not os.path.lexists(folder)
            difference = "is gone" if gone else _difference(before, folder)
            if difference:
                found.append(f"{folder.relative_to(self._sandbox.folder)}: {difference}")
        return ["a user's files: " + "; ".join(found)] if found else []


class Finished:
    """The finished trials seen so far, which must stay equal byte by byte."""

    def __init__(self, sandbox):
        self._sandbox, self._trees = sandbox, {}
        self.look()

    def look(self, but=()):
        """Adds the trials finished since; drops those of `but`."""
        for trial_id, directory in self._sandbox.trials().items():
            self._trees.setdefault(trial_id, tree_of(directory))
        for trial_id in but:
            self._trees.pop(trial_id, None)

    def check(self):
        found = []
        for trial_id, before in self._trees.items():
            difference = _difference(before, self._sandbox.results / "trials" / trial_id)
            if difference:
                found.append(f"a finished trial: {trial_id}: {difference}")
        return found


def half_written(sandbox):
    """Checks that every trial.json is whole; returns violations."""
    found = []
    for trial_id, directory in sandbox.trials().items():
        try:
            trial = json.loads((directory / "trial.json").read_text())
        except ValueError as error:
            found.append(f"a half-written trial: {trial_id}/trial.json: {error}")
            continue
        if trial.get("trial_id") != trial_id or "status" not in trial:
            found.append(f"a half-written trial: {trial_id}/trial.json has no trial_id and status")
    return found


def half_read(sandbox, done):
    """Checks that a reader's JSON is whole and has finished trials alone; returns violations."""
    if done.code != 0:
        return [f"a reader: {done.verb}: exit {done.code}: {done.errors.strip()[-300:]}"]
    for line in done.errors.splitlines():
        if "trial.json" in line:  # the writer has not finished it
            return [f"a half-read trial: {done.verb}: {line}"]
    if "--json" not in done.verb:
        return []
    try:
        said = json.loads(done.output)
    except ValueError as error:
        return [f"a reader: {done.verb}: printed no JSON: {error}"]
    listed = {trial["trial_id"] for trial in said.get("trials", [])} if isinstance(said, dict) else ()
    unknown = sorted(set(listed) - set(sandbox.trials()))
    return [f"a half-read trial: {done.verb} lists {', '.join(unknown)}"] if unknown else []


def orphans(sandbox):
    until = time.monotonic() + GRACE_SECONDS
    time.sleep(0.05)  # a new process has no environment to read yet
    while (left := sandbox.processes.now()) and time.monotonic() < until:
        time.sleep(0.05)
    sandbox.kill_all()
    return [f"an orphan: process {each.pid}: {each.words[:120]}" for each in left.values()]


def leftovers(sandbox):
    """Finds files of the sandbox's MPI jobs in shared memory, and files in its temporary folder."""
    jobs = sandbox.processes.jobs
    found = [str(path) for path in sorted(Path("/dev/shm").iterdir())
             if any(job in path.name for job in jobs)]
    for folder, _, files in os.walk(sandbox.temporary):
        if files:
            place = Path(folder).relative_to(sandbox.temporary)
            found.append(f"TMPDIR/{place}/{{{','.join(sorted(files))}}}")
    return ["a leftover: " + "; ".join(found)] if found else []


def clear_leftovers(sandbox):
    """Removes leftovers, so that those of one attack are found once."""
    for path in Path("/dev/shm").iterdir():
        if any(job in path.name for job in sandbox.processes.jobs):
            path.unlink(missing_ok=True)
    shutil.rmtree(sandbox.temporary, ignore_errors=True)


def index_differs(sandbox):
    """Checks that the index has the rows that `index --rebuild` makes; returns violations."""
    if not (sandbox.results / "index.sqlite").exists():
        return []
    before = sandbox.index_rows()
    if sandbox.call("index", "--rebuild").code != 0:
        return ["the index: --rebuild: " + sandbox.calls[-1].errors.strip()[-300:]]
    after = sandbox.index_rows()
    return [f"the index: {name}: {len(before.get(name, []))} rows, and {len(after.get(name, []))} "
            "others when it is made again"
            for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
