"""Attacks `sparfuse` for some minutes, and checks after each attack that nothing was lost.

  chaos.py PROGRAM [--minutes N] [--seed S] [--only I] [--attack NAME] [--keep FOLDER]

An attack gets a copy of a small store with finished trials, things of a user's in it, and an
experiment of which more is to be run. Which attacks come, and what they do, follows from the seed;
how far a run is when it is hit also depends on the machine. A violation is told with the command
that repeats its attack, and its folder is kept. Exit status: 0 nothing was violated, 1 something
was, 2 usage.
"""

import argparse
import collections
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import attacks
import invariants
from sandbox import Sandbox

MOST_KEPT = 10  # folders of violations to keep


def make_base(folder, program, fake):
    """Makes a store to copy: finished live and modelled trials, one of them annotated."""
    sandbox = Sandbox(folder, program, fake=fake)
    sandbox.write(blocks=1)
    sandbox.write_profile()
    failed = complete(sandbox, sandbox.modelled_file) + complete(sandbox, sandbox.file)
    sandbox.call("annotate", min(sandbox.trials(), default=""), "--reason", "the fan stood still")
    failed += complete(sandbox, sandbox.modelled_file) + complete(sandbox, sandbox.file)
    if failed:
        sandbox.close()
        raise SystemExit(f"chaos: the store to attack: {failed[0]}")
    return sandbox


def complete(sandbox, file):
    """Runs the missing trials. A failed trial runs again, since busy neighbours may make one fail."""
    for _ in range(3):
        done = sandbox.call("run", file)
        if done.code == 0:
            return []
        if done.code is None:
            break  # its crash is reported
        time.sleep(0.2)
    return [f"no run completes: exit {done.code}: {(done.output + done.errors).strip()[-400:]}"]


def attack_once(name, rng, sandbox):
    """Attacks and checks; returns (words on the attack, violations)."""
    canaries, finished = invariants.Canaries(sandbox), invariants.Finished(sandbox)
    harm = attacks.ATTACKS[name](sandbox, rng)
    found = harm.violations + invariants.orphans(sandbox)
    finished.look(but=harm.tampered)
    if not harm.hangs:  # else each further call would hang as long
        found += complete(sandbox, sandbox.file) + invariants.orphans(sandbox)
        for verb in ("status", "table", "plan"):
            sandbox.call(verb, sandbox.file, "--json")
    found += invariants.leftovers(sandbox)
    found += finished.check() + canaries.check()
    if not harm.tampered and not harm.index_may_differ:
        found += invariants.half_written(sandbox) + invariants.index_differs(sandbox)
    found += [f"a crash: {done.crash()}" for done in sandbox.calls if done.crash()]
    return harm.words, list(dict.fromkeys(found))


def names_of_attacks(seed):
    """Yields names of attacks without end, one shuffled deck after the other."""
    rng = random.Random(seed)
    while True:
        deck = [name for name, copies in attacks.DECK.items() for _ in range(copies)]
        rng.shuffle(deck)
        yield from deck


class Run:
    def __init__(self, options):
        self.options = options
        self.began = time.monotonic()
        self.done = self.violated = 0
        self.skipped, self.kinds = collections.Counter(), collections.Counter()

    def seconds(self):
        return time.monotonic() - self.began

    def attack(self, number, name, folder, base, real):
        rng = random.Random(f"{self.options.seed}/{number}")
        fake = not real or rng.random() < 0.6
        sandbox = Sandbox(folder / str(number), self.options.program, base, fake=fake,
                          seconds=rng.choice((0, 0.1, 0.3)))
        sandbox.write(blocks=3 if fake else 2)
        began, keep = time.monotonic(), None
        try:
            words, found = attack_once(name, rng, sandbox)
            self.done += 1
            if found:
                self.violated += 1
                keep = self.options.keep / f"{self.options.seed}-{number}"
        except attacks.Skipped as reason:
            self.skipped[str(reason)] += 1
            return
        finally:
            invariants.clear_leftovers(sandbox)
            sandbox.close(keep if self.violated <= MOST_KEPT else None)
        print(f"{number:4} {name}: {words} ({'fake' if fake else 'real'} worker, "
              f"{time.monotonic() - began:.1f} s): {'VIOLATED' if found else 'held'}", flush=True)
        for each in found:
            print(f"       {each}")
        self.kinds.update({each.partition(":")[0] for each in found})
        if found:
            print(f"       again: scripts/test --chaos --seed {self.options.seed} --only {number}")
            print(f"       store: {keep if self.violated <= MOST_KEPT else 'not kept'}", flush=True)

    def whole(self):
        with tempfile.TemporaryDirectory(prefix="sf-", ignore_cleanup_errors=True) as folder:
            folder = Path(folder)
            beside = Path(self.options.program).resolve().parent
            real = "SPARFUSE_WORKER" in os.environ or any(beside.rglob("sparfuse-worker"))
            if not real:
                self.skipped["no sparfuse-worker beside the program: attacks with fake ones"] = 1
            base = make_base(folder / "base", self.options.program, fake=not real)
            base.close(keep=folder / "finished")
            for number, name in enumerate(names_of_attacks(self.options.seed), 1):
                if self.options.only not in (None, number):
                    if number > self.options.only:
                        break
                    continue
                if self.options.attack not in (None, name):
                    continue
                if self.seconds() > 60 * self.options.minutes and self.options.only is None:
                    break
                self.attack(number, name, folder, folder / "finished" / "results", real)
        self.summary()
        return 1 if self.violated else 0

    def summary(self):
        """Prints a summary in the form of unittest, which scripts/testing/test_summary.py reads."""
        for kind, times in self.kinds.most_common():
            print(f"violated in {times} of {self.done} attacks: {kind}")
        for reason, times in self.skipped.items():
            print(f"skipped: {reason} ({times})")
        skipped = sum(self.skipped.values())
        print(f"Ran {self.done + skipped} tests in {self.seconds():.0f} s, seed {self.options.seed}")
        counts = [f"failures={self.violated}"] if self.violated else []
        counts += [f"skipped={skipped}"] if skipped else []
        words = f" ({', '.join(counts)})" if counts else ""
        print(("FAILED" if self.violated else "OK") + words, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", type=int, help="the attack of this number alone")
    parser.add_argument("--attack", choices=sorted(attacks.ATTACKS), help="attacks of this kind alone")
    parser.add_argument("--keep", type=Path, default=Path("chaos"), help="for violated stores")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that clean-up runs
    options.keep = options.keep.resolve()
    print(f"chaos: seed {options.seed}, {options.minutes:g} minutes", flush=True)
    return Run(options).whole()


if __name__ == "__main__":
    sys.exit(main())
