"""Tests parts in C++ from outside the tree: `sparfuse new baseline --out-of-tree`, plugins of every kind, live and
modelled, those that are refused, and the program of docs/how-to/embedding-core.md.

  plugin_test.py PATH/TO/sparfuse [unittest arguments]

Core is installed into a folder of the test's own, and everything is built against that.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from program import ROOT, ProgramTest, read_trial
from python_parts_test import LIVE, METHOD, MODELLED, made_up_profile

# A plugin with copies of built-in parts, each under a name of its own.
KINDS = """
#include <sparfuse/plugin.hpp>

#include <fstream>
#include <vector>

#include <sparfuse/baselines/registry.hpp>

namespace {

using namespace sparfuse;

template <class Descriptor>
std::vector<Descriptor> Copy(const Descriptor& of, std::string_view name) {
  std::vector<Descriptor> copy = {of};
  copy.front().name = name;
  return copy;
}

const auto kStrategies = Copy(FindStrategy("ahead"), "own-ahead");
const auto kPlanners = Copy(FindPlanner("by-count"), "own-count");
const auto kSparsifiers = Copy(FindSparsifier("topk"), "own-topk");
const auto kCollectives = Copy(FindCollective("sparse-allgather"), "own-allgather");
const auto kQuantizers = Copy(FindQuantizer("fp16"), "own-fp16");

class Residual final : public FeedbackRule {
 public:
  bool conserves() const noexcept override { return true; }
  void Compensate(std::string_view, std::span<const float> gradient, std::span<const float> residual,
                  std::span<float> x) const override {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = gradient[i] + residual[i];
  }
  void Keep(std::string_view, std::span<const float> x, std::span<const std::uint32_t> indices,
            std::span<float> residual) const override {
    std::copy(x.begin(), x.end(), residual.begin());
    for (const std::uint32_t i : indices) residual[i] = 0;
  }
};
const FeedbackDescriptor kFeedback[] = {
    {"own-residual", "a copy", {}, [](const Options&) { return std::make_shared<Residual>(); }}};

// Of a plugin that is refused this must not run.
const struct Initialised {
  Initialised() {
    if (const char* file = std::getenv("PLUGIN_RAN")) std::ofstream(file) << "ran";
  }
} kInitialised;

}  // namespace

SPARFUSE_PLUGIN(.strategies = kStrategies, .planners = kPlanners, .sparsifiers = kSparsifiers,
                .collectives = kCollectives, .feedback = kFeedback, .quantizers = kQuantizers)
"""

# A plugin whose only part has a name that is taken.
TAKEN = """
#include <sparfuse/plugin.hpp>
namespace {
const sparfuse::FeedbackDescriptor kFeedback[] = {{TAKEN, "a copy", {}, {}}};
}
SPARFUSE_PLUGIN(.feedback = kFeedback)
"""

CMAKE = """
cmake_minimum_required(VERSION 3.27)
project(kinds LANGUAGES C CXX)
set(CMAKE_BUILD_TYPE Release)
find_package(sparfuse 0.2 REQUIRED)
sparfuse_add_plugin(kinds kinds.cpp)
target_link_libraries(kinds PRIVATE sparfuse::baselines)
foreach(name residual own-residual)
  sparfuse_add_plugin(taken-${name} taken.cpp)
  target_compile_definitions(taken-${name} PRIVATE TAKEN="${name}")
endforeach()
sparfuse_add_plugin(other-compiler taken.cpp)
target_compile_definitions(other-compiler PRIVATE TAKEN="other")
target_compile_options(other-compiler PRIVATE -fabi-version=15)
add_executable(embedded embedded.cpp)
target_link_libraries(embedded PRIVATE sparfuse::baselines)
"""

NAMED = {"own-ahead": "strategy", "own-count": "planner", "own-topk": "sparsifier", "own-allgather": "collective",
         "own-residual": "feedback", "own-fp16": "quantizer"}


def run(command, folder):
    tools = {"CMAKE_GENERATOR": "Ninja", "PATH": f"{ROOT / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-ec", command], cwd=folder, env=os.environ | tools, text=True, capture_output=True,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(command + "\n" + done.stdout + done.stderr)
    return done.stdout


class PluginTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.made = Path(tempfile.mkdtemp(prefix="sparfuse-plugins-"))
        cls.addClassCleanup(shutil.rmtree, cls.made, ignore_errors=True)
        cls.mine = cls.made / "mine"
        cls.said = subprocess.run(
            [cls.program, "--root", ROOT, "new", "baseline", "fixed-fours", "--cpp", "--out-of-tree", cls.mine],
            text=True, capture_output=True, check=True).stdout
        cls.tested = run("\n".join(re.findall(r"^ +(?:\d\. )?(cmake .*)", cls.said, re.MULTILINE)), cls.made)
        cls.kinds = cls.made / "kinds"
        cls.kinds.mkdir()
        page = (ROOT / "docs/how-to/embedding-core.md").read_text()
        (cls.kinds / "embedded.cpp").write_text(re.search(r"```cpp\n(.*?)```", page, re.DOTALL)[1])
        (cls.kinds / "kinds.cpp").write_text(KINDS)
        (cls.kinds / "taken.cpp").write_text(TAKEN)
        (cls.kinds / "CMakeLists.txt").write_text(CMAKE)
        run(f"cmake -S . -B . -D CMAKE_PREFIX_PATH={cls.mine}/sparfuse && cmake --build .", cls.kinds)
        for name in NAMED:
            (cls.kinds / f"{name}.toml").write_text('library = "kinds.so"\n')

    def setUp(self):
        super().setUp()
        (self.results / "profiles").mkdir(parents=True)
        profiles = [made_up_profile(ranks) for ranks in (1, 2)]
        for profile in profiles:
            selection = profile["profile"]["selection"]
            selection["library:own-topk@" + self.hash_of(self.kinds / "kinds.so")] = selection["topk"]
        (self.results / "profiles/made-up.json").write_text(json.dumps(profiles))

    def hash_of(self, path):
        return run(f"sha256sum {path}", self.folder)[:12]

    def trials(self, experiment, methods, *arguments, more=""):
        listed = ", ".join(f'"{name}"' for name in methods)
        (self.folder / "t.toml").write_text(experiment.format(methods=listed, more=more))
        self.call(*arguments, "run", "--keep-disturbed", "t.toml")
        trials = [read_trial(path) for path in self.results.rglob("trial.json")]
        return {trial["config"]["method"]: trial for trial in trials}

    def write_methods(self):
        """Writes a method of built-in parts, and a method of their copies."""
        built_in = {"strategy": "ahead", "planner": "by-count", "options": "{ tensors_per_unit = 3 }",
                    "feedback": "residual", "collective": "sparse-allgather"}
        own = built_in | {"strategy": "own-ahead", "planner": "own-count", "feedback": "own-residual",
                          "collective": "own-allgather"}
        (self.folder / "original.toml").write_text(METHOD.format(name="original", **built_in))
        (self.folder / "copy.toml").write_text(
            METHOD.format(name="copy", **own).replace('"topk"', '"own-topk"'))

    def assert_copied(self, experiment, metrics, more=""):
        self.write_methods()
        trials = self.trials(experiment, ("original.toml", "copy.toml"), "--plugins", self.kinds, more=more)
        for trial in trials.values():
            self.assertIsNone(trial["failure"])
            self.assertTrue(all(trial["checks"].values()), trial["checks"])
        for metric in metrics:
            self.assertEqual(*(trials[name]["metrics"][metric]["value"] for name in ("original", "copy")), metric)
        return trials["copy"]

    def test_what_new_writes_passes_and_runs(self):
        self.assertIn("100% tests passed", self.tested)
        self.assertIn(f"library:{self.mine}/build/fixed-fours.so:fixed-fours", self.said)
        trials = self.trials(MODELLED, ("wfbp", str(self.mine / "fixed-fours.toml")))
        self.assertRegex(trials["fixed-fours"]["config"]["method_options"]["planner"],
                         "^library:fixed-fours@[0-9a-f]{12}$")

    def test_new_in_python_passes_and_runs(self):
        folder = self.folder / "own"
        self.call("new", "baseline", "fixed-fours", "--python", "--out-of-tree", folder)
        run("python3 own/fixed_fours_test.py", self.folder)
        trials = self.trials(MODELLED, ("own/fixed-fours.toml",))
        self.assertEqual(trials["fixed-fours"]["config"]["method_options"]["planner"][:18], "python:FixedFours@")
        again = self.call("new", "baseline", "fixed-fours", "--python", "--out-of-tree", folder, code=2)
        self.assertIn("fixed-fours.toml is there already", again)
        taken = self.call("new", "baseline", "safusion", "--out-of-tree", folder, code=2)
        self.assertIn("sparfuse has a method or a planner of this name", taken)

    def test_modelled_they_are_the_originals(self):
        copy = self.assert_copied(MODELLED, ("step_seconds", "payload_bytes", "sent_bytes"))
        named = "library:own-count@" + self.hash_of(self.kinds / "kinds.so")
        self.assertEqual(copy["config"]["method_options"]["planner"], named)
        self.assertIn(f"planner:{named}", copy["revisions"])

    def test_live_as_threads_they_are_the_originals(self):
        self.assert_copied(LIVE, ("payload_bytes", "sent_bytes", "loss", "residual_norm"), 'transport = "threads"')

    def test_live_over_mpi_they_are_the_originals(self):
        self.assert_copied(LIVE, ("payload_bytes", "sent_bytes", "loss", "residual_norm"))

    def test_they_are_listed_where_they_are_found(self):
        for name, kind in NAMED.items():
            plural = {"strategy": "strategies", "feedback": "feedback"}.get(kind, kind + "s")
            listed = self.call("--plugins", self.kinds, "list", plural)
            self.assertRegex(listed, rf"(?m)^{name} ", kind)
            self.assertIn(f"of the plugin {self.kinds}/{name}.toml", listed)
            self.assertNotIn(name, self.call("list", plural))

    def test_they_go_through_the_laws(self):
        for name, kind in NAMED.items():
            laws = self.program.with_name("sparsifier-conformance" if kind == "sparsifier" else "part-conformance")
            if not laws.exists():
                self.skipTest(f"{laws} is not built")
            command = [laws] + [kind] * (kind != "sparsifier") + [f"library:{self.kinds}/kinds.so:{name}"]
            if kind == "sparsifier":  # a copy describes itself by the original's name
                command.append("--gtest_filter=-*DescribesItself*")
            done = subprocess.run(command, cwd=self.folder, text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr)
            self.assertRegex(done.stdout, r"PASSED  ?\] [1-9]")

    def refusal(self, part, name="bad.toml"):
        parts = {"strategy": "ahead", "planner": "layer-wise", "options": "{}", "feedback": "residual",
                 "collective": "sparse-allgather", **part}
        (self.folder / name).write_text(METHOD.format(name="bad", **parts))
        (self.folder / "t.toml").write_text(MODELLED.format(methods=f'"{name}"', more=""))
        done = self.start("plan", "t.toml")
        self.assertNotEqual(done.returncode, 0)
        return done.stdout + done.stderr

    def test_another_hash_is_refused_before_anything_of_it_runs(self):
        library = (self.kinds / "kinds.so").read_bytes()
        own = re.search(rb"headers ([0-9a-f]{16}), GCC", library)[1]
        (self.folder / "old.so").write_bytes(library.replace(own, b"0123456789abcdef"))
        ran = self.folder / "ran"
        os.environ["PLUGIN_RAN"] = str(ran)
        self.addCleanup(os.environ.pop, "PLUGIN_RAN")
        said = self.refusal({"planner": "library:old.so:own-count"})
        for expected in (f"{self.folder}/old.so was built against ", "headers 0123456789abcdef", own.decode()):
            self.assertIn(expected, said)
        self.assertEqual(len(set(re.findall(r"(?:against|is) ([0-9a-f]{16}) \(headers", said))), 2, said)
        self.assertFalse(ran.exists())
        (self.folder / "new.so").write_bytes(library)
        self.assertIn('has no planner "own-cont"; did you mean "own-count"?',
                      self.refusal({"planner": "library:new.so:own-cont"}))
        self.assertTrue(ran.exists(), "what does run was not seen")

    def test_another_compiler_s_is_refused(self):
        said = self.refusal({"feedback": f"library:{self.kinds}/other-compiler.so:other"})
        self.assertRegex(said, r"ABI 1015\b.*ABI 1017|ABI 1015\b.*ABI 10\d\d")

    def test_names_that_are_taken_are_refused(self):
        said = self.refusal({"feedback": f"library:{self.kinds}/taken-residual.so:residual"})
        self.assertIn('feedback "residual" is in sparfuse itself and in ', said)
        said = self.refusal({"planner": f"library:{self.kinds}/kinds.so:own-count",
                             "feedback": f"library:{self.kinds}/taken-own-residual.so:own-residual"})
        self.assertRegex(said, r'feedback "own-residual" is in \S+so and in \S+so; expected one of each name')

    def test_what_is_no_plugin_is_refused(self):
        (self.folder / "text.so").write_text("text")
        cut = (self.kinds / "kinds.so").read_bytes()[:-200]
        (self.folder / "cut.so").write_bytes(cut)
        for file, expected in (("absent.so", "absent.so is not there; expected a plugin"),
                               ("text.so", "text.so is not a plugin"), ("cut.so", "cut.so is not a plugin"),
                               (str(self.program), "is not a plugin: it has no section .sparfuse_abi")):
            self.assertIn(expected, self.refusal({"planner": f"library:{file}:own-count"}))
        self.assertIn("expected \"library:FILE.so:NAME\"", self.refusal({"planner": "library:kinds.so"}))

    def test_core_in_a_program_of_one_s_own(self):
        self.assertEqual(run("./embedded", self.kinds), "1 of the first element\n")


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    unittest.main()
