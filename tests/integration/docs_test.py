"""Keeps docs/ true: links lead somewhere, tables are what the program prints, examples run.

  docs_test.py PATH/TO/sparfuse [unittest arguments]
  docs_test.py PATH/TO/sparfuse --update      writes the program's tables into the pages
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs/examples"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md"),
                ROOT / "harness/python/README.md", ROOT / "tests/bench/README.md"])
SPARFUSE = None

# <!-- NAME: sparfuse ARGUMENTS --> the program's output <!-- /NAME -->
PRINTED = re.compile(r"(<!-- (\w+): sparfuse ([\w -]+) -->\n)(.*?)(<!-- /\2 -->)", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
CODE = re.compile(r"```.*?```|`[^`]+`", re.DOTALL)


def python():
    """The Python of the environment that set-up makes, which has NumPy and pandas; else this one."""
    own = ROOT / ".venv/bin/python"
    return own if own.exists() else sys.executable


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)


def printed(arguments):
    """The program's output in the form of a page: a Markdown table unchanged, other text as code."""
    result = run(SPARFUSE, "--root", ROOT, *arguments.split(), check=True)
    text = result.stdout.strip()
    return text + "\n" if text.startswith("|") else f"```\n{text}\n```\n"


def with_tables(text):
    return PRINTED.sub(lambda block: block[1] + printed(block[3]) + block[5], text)


def commands(text):
    """The arguments of the program in lines of code, up to a shell's sign or an explanation."""
    for code in CODE.findall(text):
        for line in code.replace("\\\n", " ").strip("`").splitlines():
            for command in re.findall(r"(?:^|[\s/])sparfuse ((?:--[\w-]+ \S+ )*[a-z][^&|;#`]*)", line):
                yield re.split(r"\s{3,}", command.strip())[0]


class Pages(unittest.TestCase):
    def test_links_lead_to_files(self):
        for page in PAGES:
            for target in LINK.findall(CODE.sub("", page.read_text())):
                with self.subTest(page=page.name, target=target):
                    self.assertTrue((page.parent / target).exists())

    def test_verbs_are_the_program_s(self):
        help_text = run(SPARFUSE, "--help", check=True).stdout
        verbs = re.findall(r"^  ([a-z]+) ", help_text.split("Ask before a run:")[1], re.MULTILINE)
        for page in PAGES:
            for code in CODE.findall(page.read_text()):
                for verb in re.findall(r"\bsparfuse ([a-z]+)", code):
                    with self.subTest(page=page.name, code=code):
                        self.assertIn(verb, verbs)

    def test_options_are_the_verb_s(self):
        helps = {}

        def knows(words, option):
            words = tuple(words)
            if words not in helps:
                asked = run(SPARFUSE, *words, "--help")
                helps[words] = asked.stdout if asked.returncode == 0 else ""
            return re.search(re.escape(option) + r"(?![\w-])", helps[words]) is not None

        checked = 0
        for page in PAGES:
            for command in commands(page.read_text()):
                words = re.findall(r"^[a-z-]+|(?<=\s)[a-z-]+(?=\s|$)", command)[:2]
                for option in re.findall(r"(?<=\s)--[a-z][\w-]*", command):
                    checked += 1
                    with self.subTest(page=page.name, command=command, option=option):
                        self.assertTrue(any(knows(words[:n], option) for n in (0, 1, 2)))
        self.assertGreater(checked, 50)

    def test_tables_are_what_the_program_prints(self):
        self.maxDiff = None
        found = []
        for page in PAGES:
            text = page.read_text()
            for block in PRINTED.finditer(text):
                found.append(block[2])
                with self.subTest(page=page.name, table=block[2]):
                    self.assertEqual(block[4], printed(block[3]), "docs_test.py --update writes it")
        self.assertEqual(sorted(found), ["collectives", "figures", "inputs", "keys"])


class Examples(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sparfuse-docs-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_the_experiment_and_the_series_of_its_trials(self):
        file = EXAMPLES / "experiment.toml"
        sparfuse = [SPARFUSE, "--root", ROOT, "--results", self.folder / "results"]
        plan = run(*sparfuse, "plan", file)
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertIn("40 trial(s) to run", plan.stdout)

        workers = "workers = [8, 16, 32, 64]"
        self.assertIn(workers, file.read_text())
        short = self.folder / "short.toml"
        short.write_text(file.read_text().replace(workers, "workers = [8]"))
        ran = run(*sparfuse, "run", "--keep-disturbed", short)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

        trial = next((self.folder / "results/trials").glob("**/safusion-resnet152*/trial.json"))
        read = run(python(), EXAMPLES / "read_series.py", trial.parent)
        self.assertEqual(read.returncode, 0, read.stderr)
        median, metric = re.search(r"median (\S+) s, as a metric (\S+) s", read.stdout).groups()
        self.assertAlmostEqual(float(median), float(metric), delta=1e-9)
        ranks = [line.split()[0] for line in read.stdout.splitlines()[3:]]
        self.assertEqual(ranks, list(map(str, range(8))))

    def test_the_baseline_applies(self):
        for changed in ("baselines", "tests/baselines"):
            shutil.copytree(ROOT / changed, self.folder / changed)
        # git must not take the folder for a part of a repository around it.
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(self.folder.parent)}
        for mode in (["--check"], []):
            applied = run("git", "apply", *mode, EXAMPLES / "baseline.diff",
                          cwd=self.folder, env=environment)
            self.assertEqual(applied.returncode, 0, applied.stderr)
        method = self.folder / "baselines/equal-elements/equal-elements.toml"
        self.assertIn('planner     = "equal-elements"', method.read_text())
        self.assertIn("kEqualElements", (self.folder / "baselines/registry.cpp").read_text())


if __name__ == "__main__":
    SPARFUSE = Path(sys.argv.pop(1)).resolve()
    if sys.argv[1:] == ["--update"]:
        for page in PAGES:
            text = page.read_text()
            if PRINTED.search(text):
                page.write_text(with_tables(text))
        sys.exit()
    unittest.main()
