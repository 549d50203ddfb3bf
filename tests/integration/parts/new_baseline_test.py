"""Tests what `sparfuse new baseline` writes: it builds, passes its tests, and joins an experiment.

  new_baseline_test.py BUILD_FOLDER [unittest arguments]

The program and the tests are those of the build; what the new baseline changes is compiled and linked
with the build's own commands, in a copy of the folders that it writes to.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness_test import made_up_profile

BUILD = None
ROOT = Path(__file__).resolve().parents[3]
NAME = "fixed-fours"

EXPERIMENT = """
id = "small"
[defaults]
mode = "modelled"
cluster = "made-up"
workload = "digits-resnet"
link = { gbps = 1, alpha_us = 100 }
workers = 2
[[axis]]
method = ["dense", "wfbp"]
"""


def commands_of(target):
    """The build's commands for `target`; the last one links it."""
    tool = ROOT / ".venv" / "bin" / "ninja"
    ninja = str(tool) if tool.exists() else "ninja"
    return subprocess.run([ninja, "-C", BUILD, "-t", "commands", target], text=True, check=True,
                          capture_output=True).stdout.strip().splitlines()


class NewBaselineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="sparfuse-new-baseline-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.tree = cls.folder / "tree"
        cls.tree.mkdir()
        for entry in ROOT.iterdir():
            if entry.name in ("baselines", "tests"):
                shutil.copytree(entry, cls.tree / entry.name, symlinks=True,
                                ignore=shutil.ignore_patterns("__pycache__"))
            elif entry.name not in ("build", ".git"):
                (cls.tree / entry.name).symlink_to(entry)
        cls.said = cls.run_program([BUILD / "harness" / "sparfuse", "--root", cls.tree, "new", "baseline", NAME])
        cls.libraries = cls.build_library()
        cls.program = cls.link("harness/sparfuse")

    @staticmethod
    def run_program(command, code=0):
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @classmethod
    def compile(cls, like, source, output):
        """Compiles `source` of the copied tree with the build's command for `like`."""
        database = json.loads((BUILD / "compile_commands.json").read_text())
        entry = next(entry for entry in database if Path(entry["file"]) == like)
        command = entry["command"].replace(f"-I{ROOT} ", f"-I{cls.tree} ")
        command = command.replace(str(like), str(source))
        command = command[:command.index(" -o ")] + f" -o {output} -c {source}"
        subprocess.run(command, shell=True, check=True, cwd=entry["directory"])
        return output

    @classmethod
    def build_library(cls):
        """Builds a copy of the library of baselines whose registry has the new baseline."""
        library = cls.folder / "libsparfuse_baselines.a"
        shutil.copy(BUILD / "baselines" / "libsparfuse_baselines.a", library)
        registry = ROOT / "baselines" / "registry.cpp"
        embedded = BUILD / "baselines" / "method_files.cpp"
        stem = NAME.replace("-", "_")
        method = cls.tree / "baselines" / NAME / f"{NAME}.toml"
        text = embedded.read_text()
        end = text.index("};\n}  // namespace")
        files = cls.folder / "method_files.cpp"
        files.write_text(text[:end] + f'    {{"baselines/{NAME}/{NAME}.toml", R"method({method.read_text()})method"}},\n'
                         + text[end:])
        objects = [
            cls.compile(registry, cls.tree / "baselines" / "registry.cpp", cls.folder / "registry.cpp.o"),
            cls.compile(registry, cls.tree / "baselines" / NAME / f"{stem}.cpp", cls.folder / f"{stem}.cpp.o"),
            cls.compile(embedded, files, cls.folder / "method_files.cpp.o")]
        subprocess.run(["ar", "r", library, *objects], check=True, capture_output=True)
        return library

    @classmethod
    def link(cls, target, replaced=None):
        """Links `target` with the new library. replaced: an object in place of the target's own."""
        command = commands_of(target)[-1]
        output = cls.folder / Path(target).name
        command = command.replace("baselines/libsparfuse_baselines.a", str(cls.libraries))
        command = command.replace(f" -o {target} ", f" -o {output} ")
        if replaced is not None:
            own = [word for word in command.split() if word.endswith(".cpp.o") and f"{Path(target).name}.dir" in word]
            command = command.replace(own[0], str(replaced))
        subprocess.run(command, shell=True, check=True, cwd=BUILD)
        assert output.exists(), command
        return output

    def test_its_own_test_passes(self):
        stem = NAME.replace("-", "_")
        like = ROOT / "tests" / "baselines" / "strategy_conformance_test.cpp"
        compiled = self.compile(like, self.tree / "tests" / "baselines" / NAME / f"{stem}_test.cpp",
                                self.folder / f"{stem}_test.cpp.o")
        program = self.link("tests/strategy_conformance_test", compiled)
        self.assertIn("[  PASSED  ] 1 test.", self.run_program([program]))

    def test_it_passes_the_conformance_suite(self):
        name = "harness_method_conformance_test"
        folder = "harness" if (BUILD / "harness" / name).exists() else "tests"  # beside Python's plugin, if there is one
        program = self.link(f"{folder}/{name}")
        said = self.run_program([program, f"--gtest_filter=*/{NAME.replace('-', '_')}_?"])
        self.assertRegex(said, r"\[  PASSED  \] \d\d tests")

    def test_names_that_are_taken_or_wrong_are_refused(self):
        new = [self.program, "--root", self.tree, "new", "baseline"]
        (Path(self.tree) / "baselines" / "half-done").mkdir(exist_ok=True)
        for name, said in ((NAME, "a method has this name"), ("by-bytes", "a planner has this name"),
                           ("half-done", "there is baselines/half-done"), ("topk", "there is a test topk_test.cpp"),
                           ("Fixed", "small letters"), ("a--b", "single '-'"), ("../x", "small letters")):
            self.assertIn(said, self.run_program([*new, name], code=2))

    def test_it_joins_an_experiment_and_nothing_else_runs_again(self):
        results = self.folder / "results"
        (results / "profiles").mkdir(parents=True)
        profiles = [made_up_profile(1), made_up_profile(2)]
        for profile in profiles:  # selecting takes no time
            profile["profile"]["selection"] = {"topk": [{"density": 0.01, "seconds": [[1, 0.0]]}]}
        (results / "profiles" / "made-up.json").write_text(json.dumps(profiles))
        experiment = self.folder / "small.toml"
        experiment.write_text(EXPERIMENT)
        sparfuse = [self.program, "--root", self.tree, "--results", results]
        self.assertIn("2 ran well", self.run_program([*sparfuse, "run", experiment]))
        joined = self.run_program([*sparfuse, "run", experiment, "--with-method", NAME])
        self.assertIn("1 ran well, 0 failed, 2 were in the store", joined)
        self.assertIn("nothing is missing", self.run_program([*sparfuse, "plan", experiment, "--with-method", NAME]))
        self.assertIn(f"sparfuse check method {NAME}", self.said)
        test = NAME.replace("-", "_") + "_test"
        self.assertRegex(self.said, rf"cmake --build \S+ --target sparfuse (sparfuse-worker )?{test}\n")


if __name__ == "__main__":
    BUILD = Path(sys.argv[1]).resolve()
    os.chdir(BUILD)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
