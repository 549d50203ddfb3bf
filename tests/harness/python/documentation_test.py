"""Tests the examples of every docstring, of the README and of the pages that continue it."""

import contextlib
import doctest
import inspect
import io
import pathlib
import re
import unittest

from usable_torch import torch

import sparfuse

ROOT = pathlib.Path(__file__).resolve().parents[3]


def documented():
    """(name, object) of everything that users see."""
    yield "sparfuse", sparfuse
    for name in sparfuse.__all__:
        thing = getattr(sparfuse, name)
        if name == "__version__":
            continue
        yield name, thing
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            for attribute, member in vars(thing).items():
                if not attribute.startswith("_"):
                    yield f"{name}.{attribute}", member


class Documentation(unittest.TestCase):
    def run_examples(self, text, name):
        test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
        output = []
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(test, out=output.append)
        self.assertEqual(runner.failures, 0, "".join(output))
        return len(test.examples)

    def test_every_docstring_has_an_example_that_runs(self):
        self.addCleanup(sparfuse.set_threads, sparfuse.threads())
        for name, thing in documented():
            with self.subTest(name):
                self.assertGreater(self.run_examples(inspect.getdoc(thing), name), 0)

    def test_the_examples_of_the_pages_run(self):
        pages = [(ROOT / page).read_text() for page in ("harness/python/README.md", "docs/how-to/python-methods.md",
                                                        "docs/how-to/python-sparsifier.md")]
        blocks = [block for page in pages for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
        self.assertGreaterEqual(len(blocks), 12)
        for number, block in enumerate(blocks):
            with self.subTest(number):
                if "import torch" in block and torch is None:
                    self.skipTest("torch cannot be used")
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(block, f"example {number}", "exec"), {})

    def test_version_is_cmake_s(self):
        text = (ROOT / "CMakeLists.txt").read_text()
        version = re.search(r"project\(sparfuse VERSION ([0-9.]+)", text).group(1)
        self.assertEqual(sparfuse.__version__, version)


if __name__ == "__main__":
    unittest.main()
