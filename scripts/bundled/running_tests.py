"""Runs the tests of an archive: `run tests`."""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time

from machine import MachineError

RUNNING = set()  # processes of running tests, each in a session of its own


class Result:
    """The end of a test: status is passed, failed or skipped; note has the reason, or counts."""

    def __init__(self, name, status, seconds=0.0, note=""):
        self.name, self.status, self.seconds, self.note = name, status, seconds, note

    def line(self):
        return f"{self.status:8}{self.seconds:7.1f} s  {self.name}{': ' if self.note else ''}{self.note}"


def why_not(machine, test):
    """The reason why the test cannot run on this machine, or an empty text."""
    program = test["command"][0]
    if program.startswith("{here}/"):
        if missing := machine.missing(program[len("{here}/"):]):
            return f"{', '.join(missing)} not found"
    if program == "python3" and importlib.util.find_spec("numpy") is None:
        return "python3 has no numpy"
    return ""


def ran_cases(report):
    """The cases that googletest ran."""
    try:
        suites = json.loads(report.read_text())["testsuites"]
    except (OSError, ValueError):  # the program ran no case, or did not end in order
        return []
    return [case for suite in suites for case in suite["testsuite"] if case["status"] == "RUN"]


def what_failed(folder, name):
    """googletest's messages of failed cases, else the end of the output."""
    said = [f"{case['classname']}.{case['name']}\n{failure['failure']}"
            for case in ran_cases(folder / f"{name}.json") for failure in case.get("failures", [])]
    return "\n".join(said[:5]) or "\n".join((folder / f"{name}.log").read_text(errors="replace").splitlines()[-15:])


def cases_of(report):
    """(words on the cases that googletest counted, whether all were skipped)."""
    cases = ran_cases(report)
    if not cases:
        return "", False
    skipped = sum(case["result"] == "SKIPPED" for case in cases)
    return f"{len(cases)} cases" + (f", {skipped} skipped" if skipped else ""), skipped == len(cases)


def end(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def run_one(machine, test, folder):
    name = test["name"]
    if reason := why_not(machine, test):
        return Result(name, "skipped", note=reason)
    words = [word.replace("{here}", str(machine.here)) for word in test["command"]]
    if words[0] == "python3":
        words[0] = sys.executable
    report, log = folder / f"{name}.json", folder / f"{name}.log"
    report.unlink(missing_ok=True)
    environment = {**machine.environment, **dict(each.split("=", 1) for each in test.get("environment", []))}
    if words[0].endswith("_test") or "conformance" in words[0]:
        environment["GTEST_OUTPUT"] = f"json:{report}"
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env=environment, cwd=machine.here, start_new_session=True)
        RUNNING.add(process)
        try:
            status = process.wait(test.get("timeout", 300))
        except subprocess.TimeoutExpired:
            status = None
        finally:  # no process of a test outlives it
            end(process)
            RUNNING.discard(process)
    seconds = time.monotonic() - started
    if status is None:
        return Result(name, "failed", seconds, f"no end after {test.get('timeout', 300):.0f} s")
    if status == test.get("skipped_if"):
        return Result(name, "skipped", seconds, log.read_text(errors="replace").strip().splitlines()[-1])
    if "passes_if" in test:
        text = log.read_text(errors="replace")
        passed = any(re.search(pattern, text) for pattern in test["passes_if"])
        return Result(name, "passed" if passed else "failed", seconds)
    note, all_skipped = cases_of(report)
    if status:
        return Result(name, "failed", seconds, f"status {status}" + (f", {note}" if note else ""))
    return Result(name, "skipped" if all_skipped else "passed", seconds, note)


def chosen(machine, options):
    tests = [test for test in machine.manifest["tests"] if re.search(options.regex, test["name"])]
    if options.gpu:
        return [test for test in tests if "gpu" in test["labels"]]
    return [test for test in tests if test["labels"] != ["gpu"]]  # without tests that only a card runs


def run(machine, arguments):
    parser = argparse.ArgumentParser(prog="run tests", description="Runs the tests of this archive.")
    parser.add_argument("--gpu", action="store_true", help="only tests that need a CUDA card, one at a time")
    parser.add_argument("-R", dest="regex", default="", help="only tests whose names match")
    parser.add_argument("-j", dest="jobs", type=int, default=len(os.sched_getaffinity(0)), help="at once (cores)")
    parser.add_argument("--list", action="store_true", help="print their names")
    options = parser.parse_args(arguments)
    if not machine.manifest["tests"]:
        raise MachineError("there are no tests in this archive: expected one made with --with tests")
    if options.gpu and not options.list:
        machine.need_card()
    tests = chosen(machine, options)
    if not tests:
        raise MachineError(f"no test matches \"{options.regex}\"{' and needs a card' if options.gpu else ''}; "
                           "--list prints them")
    if options.list:
        print("\n".join(test["name"] for test in tests))
        return 0
    machine.warn_without_worker("tests with LibTorch are skipped")
    folder = machine.here / "out/tests"
    folder.mkdir(parents=True, exist_ok=True)
    alone = [test for test in tests if options.gpu or test.get("alone")]
    results = []

    def done(result):
        results.append(result)
        print(result.line(), flush=True)

    with concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as pool:
        running = [pool.submit(run_one, machine, test, folder) for test in tests if test not in alone]
        try:
            for future in concurrent.futures.as_completed(running):
                done(future.result())
        except KeyboardInterrupt:  # else the pool would run all other tests first
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(RUNNING):
                end(process)
            raise
    for test in alone:
        done(run_one(machine, test, folder))
    counts = {status: sum(result.status == status for result in results) for status in ("passed", "failed", "skipped")}
    summary = ", ".join(f"{count} {status}" for status, count in counts.items())
    print(f"\n{len(results)} tests: {summary}; logs in {folder}")
    failed = [result for result in results if result.status == "failed"]
    for result in failed:
        print(f"\n-- {result.line()}\n{what_failed(folder, result.name)}")
    (folder / "summary.txt").write_text("\n".join(result.line() for result in results) + f"\n{summary}\n")
    return 1 if failed else 0
