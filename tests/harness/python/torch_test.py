"""Tests sparfuse.torch with real processes over gloo: torch_cases.py, run with a Python that has torch.

That is the one that SPARFUSE_TORCH_PYTHON names, else this one. It must be of the version that the module was built
for. Where it has no torch the tests are skipped, saying so."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("SPARFUSE_TORCH_PYTHON", sys.executable)
LIMIT_SECONDS = 280


def why_not():
    done = subprocess.run(
        [
            PYTHON,
            "-c",
            # An optimizer's constructor imports sympy, and so this test imports it early.
            "import sympy, torch.distributed as d; assert d.is_gloo_available()\nimport sparfuse.torch",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return ""
    return (
        f"{PYTHON} cannot import torch and sparfuse.torch ({done.stderr.strip().splitlines()[-1]}): "
        "SPARFUSE_TORCH_PYTHON names a Python that can"
    )


WHY_NOT = why_not()


def cases(*ends):
    names = re.findall(r"^@case\ndef (\w+)", (HERE / "torch_cases.py").read_text(), re.MULTILINE)
    return [name for name in names if name not in ENDS and name not in ends]


ENDS = {
    "killed_rank": [0, 0, -9],
    "killed_before_it_connects": [0, 0, -9],
    "stopped_rank": [0, 0, -9],
    "interrupt": [0, 0, 0],
    "part_that_spins": [0, 0, 0],
    "part_that_holds_the_lock": [0, 0, 1],
    "exit_without_cleaning_up": [0, 0, 0],
}
EQUAL = [
    f"equals_{model}_{method}"
    for model in ("mlp", "conv", "gpt")
    for method in ("dense", "topk", "dgc", "safusion", "ssfusion")
]


@unittest.skipIf(WHY_NOT, WHY_NOT)
class TorchTest(unittest.TestCase):
    def run_cases(self, ranks, names, ends=None):
        try:
            done = subprocess.run(
                [PYTHON, HERE / "torch_cases.py", str(ranks), *names],
                capture_output=True,
                text=True,
                timeout=LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            self.fail(f"a hang: {error.stdout!r} {error.stderr!r}")
        said = done.stdout + done.stderr
        self.assertIn("ends: " + " ".join(map(str, ends or [0] * ranks)), said)
        for name in names:
            self.assertIn(f"{name} ok", done.stdout, said)
        return said

    def test_two_ranks_equal_the_method_bit_for_bit(self):
        self.run_cases(2, EQUAL)

    def test_four_ranks_equal_the_method_bit_for_bit(self):
        self.run_cases(4, EQUAL)

    def test_four_ranks_name_the_one_that_failed(self):
        self.run_cases(4, ["part_that_raises_on_one_rank", "detached_on_one_rank"])

    def test_cases_of_model_and_loop(self):
        self.run_cases(2, cases())

    def test_one_rank_alone(self):
        self.run_cases(
            1, ["equals_mlp_topk", "accumulation", "state_resumes_bit_for_bit", "report_and_trace"]
        )

    def test_processes_that_die_stop_or_are_interrupted(self):
        for name, ends in ENDS.items():
            if not name.startswith("part_"):
                with self.subTest(name):
                    self.run_cases(3, [name], ends)

    def test_a_part_that_never_returns_is_shown_with_its_stack(self):
        for name, line in (("part_that_spins", 6), ("part_that_holds_the_lock", 7)):
            with self.subTest(name):
                said = self.run_cases(3, [name], ENDS[name])
                call = r"sparfuse: python:.*mine.py:Select: select\(g, k\) has not returned for \d+ s"
                stack = rf'Stack \(most recent call first\):\n  File ".*mine.py", line {line} in select\n'
                self.assertRegex(said, rf"{call}; after 9 s it is ended\n{stack}")
                if ENDS[name][-1] == 1:
                    self.assertRegex(said, rf"{stack}(  File .*\n)*{call}, and a TimeoutError did not end it")

    def test_the_page_runs_as_it_is_written(self):
        page = (HERE.parents[2] / "docs" / "pytorch.md").read_text()
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "train.py"
            script.write_text(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])
            command = [
                PYTHON,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node=2",
                script,
            ]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"sent_bytes +[1-9]")
        self.assertRegex(done.stdout, r"method +safusion")


if __name__ == "__main__":
    unittest.main()
