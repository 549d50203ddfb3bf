"""Does to a running or a stored experiment what users, kernels and disks do.

An attack is given a sandbox whose store has finished trials and whose experiment lacks some. It
does its harm, lets the calls that it started end, and returns what it saw that should not be;
what holds after every attack is checked by the arena.
"""

import json
import os
import random
import shutil
import signal
import threading
import time
from dataclasses import dataclass, field

import forgery
import invariants

SIGNALS = (signal.SIGKILL,) * 3 + (signal.SIGSTOP,) * 2 + (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
READERS = (("status", "--json"), ("status",), ("table", "--json"), ("plan", "--json"), ("table",))


class Skipped(Exception):
    """The attack is not possible here; the message says why."""


@dataclass
class Harm:
    """The effects of an attack."""

    words: str = ""  # its description in the log
    violations: list = field(default_factory=list)
    tampered: set = field(default_factory=set)  # trials whose files the attack changed itself
    index_may_differ: bool = False
    hangs: bool = False  # whether a call did not end by itself

    def saw(self, done):
        self.hangs |= done.code is None
        if done.crash():
            self.violations.append(f"a crash: {done.crash()}")


def _send(pid, what):
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        pass  # the process has ended by itself


def _stop(sandbox, controller, process, role, rng):
    """Stops a process. Then continues it, or kills the controller, or leaves it to a deadline."""
    _send(process.pid, signal.SIGSTOP)
    ends = ["goes on", "controller dies"]
    # A deadline ends ranks that wait for a stopped one; a longer timeout ends the trial if none waits.
    ends += ["stays"] if role in ("rank", "launcher") and sandbox.fake else []
    ends += ["stays"] if role == "rank" and len(sandbox.roles(controller)["rank"]) > 1 else []
    end = rng.choice(ends)
    time.sleep(rng.uniform(0.05, 1.0))
    if end == "controller dies":
        _send(controller.pid, signal.SIGKILL)
    elif end == "goes on":
        _send(process.pid, signal.SIGCONT)
    return f"STOP, {end}"


def signals(sandbox, rng):
    """Sends a signal to the controller, its supervisor, the launcher or a rank, in some runs in a row."""
    harm, did = Harm(), []
    for hit in range(rng.choice((1, 1, 2, 3))):
        sandbox.write(blocks=2 + hit)  # each run has trials to do
        controller = sandbox.start("run", sandbox.file)
        role, what = rng.choice(("controller", "supervisor", "launcher", "rank")), rng.choice(SIGNALS)
        found = sandbox.wait_for(lambda: sandbox.roles(controller).get(role), controller)
        time.sleep(rng.uniform(0, 0.5 if sandbox.fake else 2.5))
        found = found and (sandbox.roles(controller).get(role) or found)
        if found:
            process = rng.choice(found)
            if what == signal.SIGSTOP:
                name = _stop(sandbox, controller, process, role, rng)
            else:
                _send(process.pid, what)
                name = what.name[3:]
            did.append(f"{role} {name}")
        else:
            did.append(f"{role} was gone")
        harm.saw(sandbox.finish(controller))
    harm.words = ", ".join(did)
    return harm


def two_controllers(sandbox, rng):
    """Runs two writers at once; the first may be killed."""
    first = sandbox.start("run", sandbox.file)
    time.sleep(rng.uniform(0, 0.6))
    second = sandbox.start(*rng.choice((("run", sandbox.file), ("index", "--rebuild"))))
    dies = rng.random() < 0.4
    if dies:
        time.sleep(rng.uniform(0, 0.3))
        _send(first.pid, signal.SIGKILL)
    harm = Harm(f"run and {second.verb.split()[0]}" + (", the first is killed" if dies else ""))
    for call in (first, second):
        done = sandbox.finish(call)
        harm.saw(done)
        if done.code == 2 and "in use by process" not in done.errors:
            harm.violations.append(f"two writers: {done.verb}: {done.errors.strip()[-300:]}")
    return harm


def readers(sandbox, rng):
    """Runs readers before, beside and after a writer."""
    harm, over = Harm("status, table and plan beside run"), threading.Event()
    choice = random.Random(rng.random())

    def read():
        while not over.is_set():
            verb, *options = choice.choice(READERS)
            done = sandbox.call(verb, sandbox.file, *options)
            harm.violations += invariants.half_read(sandbox, done)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(3):
        time.sleep(rng.uniform(0, 0.2))
        done = sandbox.finish(sandbox.start("run", sandbox.file))
        harm.saw(done)
        if done.code == 2:
            harm.violations.append(f"a reader kept run from starting: {done.errors.strip()[-300:]}")
    over.set()
    reader.join()
    return harm


def full_disk(sandbox, rng):
    """Fills up the file system under a run, and then enlarges it."""
    if os.geteuid() != 0:
        raise Skipped("a full disk: only root can mount a small one")
    files = [path for path in sandbox.results.rglob("*") if not path.is_dir()]
    used = sum(4 * -(-path.lstat().st_size // 4096) for path in files)
    kilobytes = used + rng.choice((16, 40, 120, 300, 700))
    if not sandbox.mount(kilobytes):
        raise Skipped("a full disk: this container may not mount a small one")
    harm = Harm(f"a disk of {kilobytes} KiB")
    for _ in range(2):
        done = sandbox.finish(sandbox.start("run", sandbox.file))
        harm.saw(done)
        verb, *options = rng.choice(READERS)
        harm.saw(sandbox.finish(sandbox.start(verb, sandbox.file, *options)))
    sandbox.enlarge()
    return harm


def foreign_links(sandbox, rng):
    """Puts a user's links among trials: one leads in a circle, one to nothing, one to itself."""
    place = rng.choice((sandbox.results / "trials", sandbox.results / "trials" / "chaos" / "store"))
    links = {"circle": "..", "nothing": "nowhere", "itself": "itself"}
    for name, target in links.items():
        (place / name).symlink_to(target)
    harm = Harm(f"circles in {place.relative_to(sandbox.results)}")
    for verb, *options in (("run",), ("status", "--json")):
        harm.saw(sandbox.finish(sandbox.start(verb, sandbox.file, *options)))
    harm.violations += [f"a user's files: the link {name} is gone" for name in links
                        if not (place / name).is_symlink()]
    return harm


def _cut(path, rng):
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))] if content else b"")


def _flip(path, rng):
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 8, 200))):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _noise(path, rng):
    path.write_bytes(rng.randbytes(rng.choice((1, 100, 20000))))


def _brackets(path, _):
    path.write_text("[" * 200000)


def _folder(path, _):
    path.unlink()
    path.mkdir()


def _pipe(path, _):
    path.unlink()
    os.mkfifo(path)


def _to_itself(path, _):
    path.unlink()
    path.symlink_to(path.name)


def _gone(path, _):
    path.unlink()


def _empty(path, _):
    path.write_bytes(b"")


TAMPERINGS = {"cut": _cut, "flipped": _flip, "noise": _noise, "brackets": _brackets,
              "a folder": _folder, "a pipe": _pipe, "a link to itself": _to_itself, "gone": _gone,
              "empty": _empty}
NO_FILES = ("a folder", "a pipe", "a link to itself")


def _remedy(sandbox, index, harm):
    """Checks that run refuses anything but a file in the index's place, which is the user's, until it
    is moved away."""
    refusal = sandbox.finish(sandbox.start("run", sandbox.file))
    harm.saw(refusal)
    said = refusal.output + refusal.errors
    if refusal.code != 1 or f"{index} is " not in said or "move it away" not in said:
        harm.violations.append(f"the index's place: run: exit {refusal.code}: {said.strip()[-300:]}")
    if not os.path.lexists(index) or index.is_file():
        harm.violations.append("the index's place: what was there is gone")
        return
    index.rename(sandbox.folder / "moved away")
    rebuilt = sandbox.finish(sandbox.start("index", "--rebuild"))
    harm.saw(rebuilt)
    if rebuilt.code != 0:
        harm.violations.append(f"the index's place: index --rebuild: exit {rebuilt.code}: "
                               f"{rebuilt.errors.strip()[-300:]}")
    harm.index_may_differ = False


def tampering(sandbox, rng):
    """Breaks a file of a finished trial, a profile or an annotation, or the index; then all verbs read."""
    trials = sandbox.trials()
    trial_id = rng.choice(sorted(trials))
    files = [path for path in sorted(trials[trial_id].iterdir()) if path.is_file()]
    index = sandbox.results / "index.sqlite"
    others = [index, *sorted(sandbox.results.glob("profiles/*")),
              *sorted(sandbox.results.glob("annotations/*"))]
    # Everything reads trial.json, and so half of the attacks break it.
    path = rng.choice([rng.choice(files), trials[trial_id] / "trial.json",
                       trials[trial_id] / "trial.json", rng.choice(others)])
    how = rng.choice(sorted(TAMPERINGS))
    TAMPERINGS[how](path, rng)
    harm = Harm(f"{path.relative_to(sandbox.results)} is {how}", index_may_differ=True)
    if path in files:
        harm.tampered.add(trial_id)
    calls = [("status", "--json"), ("table", "--format", "csv"), ("plan", "--json")]
    drawn = [("report",), ("explain", "--of", "method=safusion-inter,transport=threads", "--over",
                           "method=dense,transport=threads")]
    calls = [(verb, file, *options) for file in (sandbox.file, sandbox.modelled_file)
             for verb, *options in calls]
    calls += [(verb, sandbox.file, *options) for verb, *options in drawn if rng.random() < 0.4]
    for call in (*calls, ("index", "--rebuild")):
        harm.saw(sandbox.finish(sandbox.start(*call)))
        if harm.hangs:
            break
    if path == index and how in NO_FILES and not harm.hangs:
        _remedy(sandbox, index, harm)
    return harm


def lost_index(sandbox, rng):
    """Removes the index, or replaces it by an earlier one; the trials stay."""
    index = sandbox.results / "index.sqlite"
    earlier = sandbox.folder / "earlier.sqlite"
    shutil.copy(index, earlier)
    harm = Harm(rng.choice(("gone", "earlier")))
    harm.saw(sandbox.finish(sandbox.start("run", sandbox.file)))
    index.unlink()
    if harm.words == "earlier":
        earlier.rename(index)
    return harm


def forged_bundle(sandbox, rng):
    """Merges a bundle of the store in which a number is forged, with hashes that all agree."""
    whole, file = sandbox.folder / "whole.sparfuse", sandbox.folder / "forged.sparfuse"
    made = sandbox.finish(sandbox.start("export", "chaos/store", "--out", whole))
    harm = Harm()
    harm.saw(made)
    forged = forgery.forged(whole, rng) if made.code == 0 else None
    if forged is None:
        raise Skipped("a forged bundle: the store has no number to forge")
    content, harm.words = forged
    file.write_bytes(content)
    trial = harm.words.split(":")[0].removeprefix("trials/").rpartition("/")[0]
    for call in (("verify", file), ("merge", file)):
        done = sandbox.finish(sandbox.start(*call))
        harm.saw(done)
        said = done.output + done.errors
        # The table may show the forgery first; then nothing of the bundle is merged.
        if done.code != 1 or not (trial in said or "table.json" in said):
            harm.violations.append(f"a forgery: {done.verb}: exit {done.code}: {said.strip()[-300:]}")
    for each in (whole, file):
        each.unlink()
    return harm


HOSTILE = ("\x1b]0;title\x07", "\u202eevil", "<textarea><script>", "two\rlines", None, [], {"x": [1]}, -1, 1e308, 2**63)


def hostile_record(sandbox, rng):
    """Gives a key of a finished trial's records another type, markup or a control character."""
    trial_id, folder = rng.choice(sorted(sandbox.trials().items()))
    file = rng.choice([each for each in (folder / "trial.json", folder / "outcome.json") if each.exists()])
    record, value = json.loads(file.read_text()), rng.choice(HOSTILE)
    path = rng.choice(list(forgery.leaves(record)))
    at = record
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    file.write_text(json.dumps(record))
    harm = Harm(f"{file.name}: {'.'.join(map(str, path))} = {value!r}"[:120], tampered={trial_id}, index_may_differ=True)
    for verb, *options in (*READERS, ("export", "--out", sandbox.folder / "whole.sparfuse")):
        named = ("chaos/store",) if verb == "export" else (sandbox.file,)
        done = sandbox.finish(sandbox.start(verb, *named, *options))
        harm.saw(done)
        shown = [each for each in ("\x1b]", "\u202e", "\r") if each in done.output + done.errors]
        if shown:
            harm.violations.append(f"a hostile record: {done.verb} prints {shown}")
    (sandbox.folder / "whole.sparfuse").unlink(missing_ok=True)
    return harm


ATTACKS = {attack.__name__: attack for attack in
           (signals, two_controllers, readers, full_disk, foreign_links, tampering, lost_index,
            forged_bundle, hostile_record)}
# {attack: how often it comes, in any order, before all come again}.
DECK = {"signals": 5, "two_controllers": 1, "readers": 1, "full_disk": 1, "foreign_links": 1,
        "tampering": 3, "lost_index": 1, "forged_bundle": 2, "hostile_record": 2}
