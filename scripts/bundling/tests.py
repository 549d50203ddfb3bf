"""Chooses the tests that run without the tree and the build folder, and says how.

CTest knows the commands. Of these a test travels if each of its words that is a path is a program of
the build, a file of the tree, mpirun or Python.
"""

import json
import pathlib
import re
import subprocess

# Tests of Python files need this build's module. Mutations of fuzz corpora need no other machine. Of
# the tests that run whole programs, only real trials say something about a machine.
LEFT_OUT = {"python", "property"}
WHOLE_PROGRAMS = ("real_trials", "real_trials_on_a_card")
KEPT = {"ENVIRONMENT": "environment", "TIMEOUT": "timeout", "PASS_REGULAR_EXPRESSION": "passes_if",
        "SKIP_RETURN_CODE": "skipped_if", "RUN_SERIAL": "alone", "LABELS": "labels"}


def listed(build, ctest):
    done = subprocess.run([ctest, "--test-dir", str(build), "--show-only=json-v1"], capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)["tests"]


def place_of(path, build):
    """The place of the build's program in an archive: as in the build, beneath bin or tests/bin."""
    inner = path.relative_to(build)
    return str(pathlib.PurePath("bin", *inner.parts[1:]) if inner.parts[0] == "harness" else
               pathlib.PurePath("tests", "bin", *inner.parts[1:]))


def translated(word, root, build, programs):
    """The word in an archive, with "{here}" for its folder; None if it cannot travel. Adds a program of
    the build to `programs`, {file: place}."""
    path = pathlib.Path(word)
    if not path.is_absolute():
        return word
    if path.name.startswith("python3"):
        return "python3"
    if path.name in ("mpiexec", "mpirun"):
        return "mpirun"
    if path.is_relative_to(build):
        programs[path] = place_of(path, build)
        return "{here}/" + programs[path]
    return "{here}/" + str(path.relative_to(root)) if path.is_relative_to(root) and path.is_file() else None


def laws_on_a_card(build):
    """The test of all sparsifiers' laws on a card, as in scripts/test --gpu; CTest does not run it there."""
    for program in build.glob("*/sparsifier-conformance"):
        return [{"name": "sparsifier_laws_on_a_card", "command": [str(program), "--device", "cuda"],
                 "properties": [{"name": "LABELS", "value": ["gpu"]}, {"name": "TIMEOUT", "value": 900}]}]
    return []


def tests_that_travel(root, build, ctest, regex=""):
    """(tests whose programs are built and whose names match, as dictionaries; {program's file: place in
    the archive})."""
    found, programs = [], {}
    for test in listed(build, ctest) + laws_on_a_card(build):
        properties = {each["name"]: each["value"] for each in test.get("properties", [])}
        command = test.get("command")  # CTest has none if the program is not built
        if not command or LEFT_OUT & set(properties.get("LABELS", [])) or not re.search(regex, test["name"]):
            continue
        if any(word.endswith(".py") for word in command) and test["name"] not in WHOLE_PROGRAMS:
            continue
        used = {}
        words = [translated(word, root, build, used) for word in command]
        if None in words or not all(path.is_file() for path in used):
            continue
        programs.update(used)
        found.append({"name": test["name"], "command": words,
                      **{ours: properties[theirs] for theirs, ours in KEPT.items() if theirs in properties}})
    return found, programs
