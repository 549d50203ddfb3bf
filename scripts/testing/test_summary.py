#!/usr/bin/env python3
"""Prints the phases that scripts/test ran, and exits with 1 if anything failed.

    scripts/testing/test_summary.py FOLDER

FOLDER/phases.tsv has a line a phase: folder, title, status (passed, failed, skipped: REASON), seconds.
A phase's folder has ctest.xml (JUnit, from ctest) with cases/TEST.xml (from googletest, where the test
TEST is a googletest program: its cases are counted in its place), or cases/*.xml alone, or
unittest.log, or nothing. What was skipped is counted by reason; those files have the single names.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

Counts = collections.namedtuple("Counts", "passed failed skips")  # skips: (test or program, reason)


def googletest_counts(path):
    """The counts of one program's cases, or None if it ended before it wrote them."""
    try:
        root = ElementTree.parse(path).getroot()
    except (FileNotFoundError, ElementTree.ParseError):
        return None
    passed = failed = 0
    skips = []
    for case in root.iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None:
            failed += 1
        elif skip is not None:
            # googletest writes the place of GTEST_SKIP on the first line, and then the reason.
            lines = (skip.get("message") or "").strip().splitlines()
            skips.append((path.stem, " ".join(lines[1:] or lines) or "no reason given"))
        elif case.get("status") == "run":
            passed += 1
    return Counts(passed, failed, skips)


def reason_of(test):
    """The reason why ctest did not run a test. A test that skips itself by its status prints it last."""
    skip = test.find("skipped")
    message = skip.get("message", "") if skip is not None else ""
    lines = (test.findtext("system-out") or "").strip().splitlines()
    return lines[-1] if lines and message.startswith("SKIP_RETURN_CODE") else message


def ctest_counts(folder):
    passed = failed = 0
    skips = []
    for test in ElementTree.parse(folder / "ctest.xml").getroot().iter("testcase"):
        cases = googletest_counts(folder / "cases" / f"{test.get('name')}.xml")
        if test.get("status") == "fail":
            # A crash, or a failure outside of any case, counts as one.
            failed += max(1, cases.failed if cases else 0)
        elif test.get("status") in ("notrun", "disabled"):
            skips.append((test.get("name"), reason_of(test)))
        elif cases is None:
            passed += 1
        if cases is not None:
            passed += cases.passed
            skips += cases.skips
    return Counts(passed, failed, skips)


def program_counts(paths):
    counts = [each for each in map(googletest_counts, paths) if each]
    return Counts(sum(each.passed for each in counts), sum(each.failed for each in counts),
                  [skip for each in counts for skip in each.skips])


def unittest_counts(log):
    ran = failed = skipped = 0
    for line in log.read_text(errors="replace").splitlines():
        if match := re.match(r"Ran (\d+) tests? in", line):
            ran += int(match.group(1))
        elif re.match(r"(OK|FAILED)\b", line):
            for word, number in re.findall(r"(failures|errors|skipped)=(\d+)", line):
                if word == "skipped":
                    skipped += int(number)
                else:
                    failed += int(number)
    reason = f"{skipped} tests, see {log.name}"
    return Counts(ran - failed - skipped, failed, [(log.parent.name, reason)] if skipped else [])


def counts_of(folder):
    if (folder / "ctest.xml").is_file():
        return ctest_counts(folder)
    if (folder / "unittest.log").is_file():
        return unittest_counts(folder / "unittest.log")
    return program_counts(sorted(folder.glob("cases/*.xml")))


def main():
    results = pathlib.Path(sys.argv[1])
    phases = [line.split("\t") for line in (results / "phases.tsv").read_text().splitlines()]
    passed = failed = failed_phases = skipped = 0
    seconds = 0.0
    width = max(len(title) for _, title, _, _ in phases)
    reasons = collections.defaultdict(list)  # {reason: test or program of each skipped case}
    print("Summary")
    for folder, title, status, took in phases:
        seconds += float(took)
        if status.startswith("skipped"):
            print(f"  {title.ljust(width)}  {status}")
            continue
        counts = counts_of(results / folder)
        print(f"  {title.ljust(width)}  {status}  {float(took):6.0f} s  {counts.passed} passed, "
              f"{counts.failed} failed, {len(counts.skips)} skipped")
        passed += counts.passed
        failed += counts.failed
        skipped += len(counts.skips)
        # A phase can fail without a failed test, if its build failed or there was no test.
        failed_phases += status == "failed"
        if status == "failed" and counts.failed == 0:
            failed += 1
            print(f"  {''.ljust(width)}  (counted as one failure: the phase ended before its tests)")
        for test, reason in counts.skips:
            reasons[reason].append(test)
    for reason, tests in sorted(reasons.items()):
        print(f"  {len(tests)} skipped: {reason} ({', '.join(sorted(set(tests)))})")
    for log in sorted(results.glob("*/coverage.log")):
        for line in log.read_text().splitlines()[-1:]:  # no line if coverage failed
            print(f"  {line.strip()}")
    print(f"  {seconds:.0f} s in all")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or failed_phases else 0


if __name__ == "__main__":
    sys.exit(main())
