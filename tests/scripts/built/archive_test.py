"""Tests archives of the program (scripts/bundle) where the tree and the build folder, and the libraries
that travel, are hidden: in a mount namespace of its own.

  archive_test.py PATH/TO/BUILD [unittest arguments]

Where such a namespace or patchelf is missing it says so, and ends with status 77.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = None
NAMESPACE = ["unshare", "--mount", "--map-root-user"]
# Libraries of this machine that no other program of a test needs.
HIDDEN = "libmpi.so.40 libopen-rte.so.40 libopen-pal.so.40 libpmix.so.2 libfmt.so.9 libsqlite3.so.0"

EXPERIMENT = """
id = "t"
[defaults]
mode = "measured"
workload = "digits-resnet"
method = "safusion-inter"
workers = 2
batch_per_worker = 4
warmup_steps = 1
steps = 3
[repeat]
timeout_seconds = 100
"""


def why_not():
    if not shutil.which("patchelf"):
        return "patchelf is not installed"
    done = subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True,
                          check=False)
    return f"no mount namespace: {done.stderr.strip()}" if done.returncode else ""


def make(out, *arguments):
    done = subprocess.run([sys.executable, str(ROOT / "scripts/bundling/make.py"), str(BUILD), "--out", str(out),
                           "--ctest", str(Path(sys.executable).parent / "ctest"), *arguments],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)


def torch_folder():
    """The folder of LibTorch's package, from the build's cache."""
    for line in (BUILD / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("SPARFUSE_TORCH_DIR:"):
            return Path(line.partition("=")[2])
    raise AssertionError("no SPARFUSE_TORCH_DIR in CMakeCache.txt")


class ArchiveTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="sparfuse-archive-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.file = cls.folder / "a.tar.xz"
        make(cls.file, "--with", "tests,bench", "--tests", "^(options_test|mpi_world|harness_npy_test|real_trials)$")
        (cls.folder / "elsewhere").mkdir()
        with tarfile.open(cls.file) as tar:
            tar.extractall(cls.folder / "elsewhere")
        cls.here = cls.folder / "elsewhere" / "sparfuse-bundle"
        (cls.folder / "site").mkdir()

    def run_there(self, *arguments, code=0, torch=True):
        """Calls the archive's `run` with the system's Python, where all files of the tree are hidden."""
        site = self.folder / "site"
        hide = f"""
            set -e
            mount --bind "{torch_folder().resolve().parent}" "{site}"
            mount -t tmpfs none "{ROOT}"
            for name in {HIDDEN}; do
              for file in $(/sbin/ldconfig -p | sed -n "s/.* $name .*=> //p"); do mount --bind /dev/null "$file"; done
            done
            cd /
            exec /usr/bin/python3 "$@" """
        where = ["--torch", str(site / "torch")] if torch else []
        command = [*NAMESPACE, "sh", "-c", hide, "sh", str(self.here / "run"), *where, *map(str, arguments)]
        environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.folder)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_a_trial_runs_and_its_results_come_back_in_one_file(self):
        said = self.run_there("doctor")
        self.assertRegex(said, r"ok +MPI +mpirun \(Open MPI\)")
        self.assertRegex(said, r"ok +data of digits-resnet +there")
        experiment = self.folder / "t.toml"
        experiment.write_text(EXPERIMENT)
        self.run_there("sparfuse", "run", experiment, "--keep-disturbed")
        (trial,) = [json.loads(path.read_text()) for path in (self.here / "results/trials").rglob("trial.json")]
        self.assertEqual((trial["status"], trial["checks"]["replicas_equal"]), ("ok", True))
        commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        self.assertEqual(trial["source"]["commit"], commit.stdout.strip())
        packed = self.folder / "results.tar.gz"
        self.run_there("pack", packed)
        with tarfile.open(packed) as tar:
            names = tar.getnames()
        self.assertEqual([name.rsplit("/", 1)[1] for name in names if name.endswith("/trial.json")], ["trial.json"])
        self.assertFalse([name for name in names if name.startswith(("bin/", "lib/", "scripts/"))], names)

    def test_tests_run_and_a_failed_one_is_told(self):
        said = self.run_there("tests", "-R", "options|world|npy")
        self.assertIn("3 tests: 3 passed, 0 failed, 0 skipped", said)
        frozen = self.here / "tests/harness/files/every_type.npy"
        self.addCleanup(frozen.write_bytes, frozen.read_bytes())
        frozen.write_bytes(b"")
        said = self.run_there("tests", "-R", "npy", code=1)
        self.assertIn("1 tests: 0 passed, 1 failed, 0 skipped", said)
        self.assertIn("every_type.npy", said)
        self.assertIn("--gpu needs an archive for cards", self.run_there("tests", "--gpu", "-R", "options", code=2))

    def test_benchmarks_run(self):
        if not (self.here / "bench/randomk_bench").exists():
            self.skipTest("this build has no randomk_bench")
        said = self.run_there("bench", "--quick", "randomk")
        self.assertIn("## randomk", said)
        self.assertTrue(list((self.here / "out/bench").iterdir()))

    def test_the_program_alone_is_small_and_without_what_git_does_not_know(self):
        left = ROOT / "scripts/launchers/left-by-archive-test.toml"
        self.addCleanup(left.unlink)
        left.write_text("")
        alone = self.folder / "alone.tar.xz"
        make(alone)  # fails if it is too big
        with tarfile.open(alone) as tar:
            names = tar.getnames()
        self.assertIn("sparfuse-bundle/scripts/launchers/pbs.toml", names)
        self.assertNotIn(f"sparfuse-bundle/scripts/launchers/{left.name}", names)
        sys.path.insert(0, str(ROOT / "scripts/bundling"))
        from make import too_big  # noqa: PLC0415  (of the tree that is tested)
        self.assertEqual(too_big(50.5, set(), None),
                         "50.5 MiB, expected 50 at most for one architecture without --with")
        self.assertIsNone(too_big(49.5, set(), {"code": ["sm_90"]}))
        self.assertIsNotNone(too_big(51, set(), {"code": ["compute_90", "sm_90"]}))
        self.assertIsNone(too_big(51, {"bench"}, None))
        self.assertIsNone(too_big(51, set(), {"code": ["sm_80", "sm_90"]}))

    def test_libtorch_of_another_version_is_refused(self):
        other = self.folder / "torch"
        other.mkdir()
        (other / "version.py").write_text("__version__ = '2.5.1+cu124'\ncuda: Optional[str] = '12.4'\n")
        wanted = json.loads((self.here / "archive.json").read_text())["torch"]
        said = self.run_there("--torch", other, "doctor", code=2, torch=False)
        self.assertIn(f"PyTorch 2.5.1+cu124; expected {wanted}", said)

    def test_without_libtorch_only_live_trials_are_missing(self):
        said = self.run_there("doctor", torch=False)
        self.assertIn("no LibTorch: python3 has no torch; expected PyTorch", said)
        self.assertRegex(said, r"warning +worker +.*needs libtorch_cpu.so, which is not found here")
        said = self.run_there("sparfuse", "list", "methods", torch=False)
        self.assertIn("run: live trials will fail: bin/worker/sparfuse-worker needs libc10.so, libtorch_cpu.so", said)
        self.assertIn("safusion", said)

    def test_equal_trees_give_equal_bytes(self):
        again = self.folder / "b.tar.xz"
        make(again, "--with", "tests,bench", "--tests", "^(options_test|mpi_world|harness_npy_test|real_trials)$")
        self.assertEqual(self.file.read_bytes(), again.read_bytes())


if __name__ == "__main__":
    BUILD = Path(os.path.abspath(sys.argv.pop(1)))
    if reason := why_not():
        print(f"archives are not tested: {reason}")
        sys.exit(77)
    unittest.main()
