"""Tests what `scripts/reproduce PAPER --accuracy` says before anything starts."""

import contextlib
import io
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import tomllib

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/accuracy"))

import accuracy


class Accuracy(unittest.TestCase):
    def setUp(self):
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        self.home = Path(home.name)
        environment = mock.patch.dict(os.environ, {"SPARFUSE_DATA": str(self.home / "prepared")})
        environment.start()
        self.addCleanup(environment.stop)

    def said(self, *words):
        """(exit status, output) of a run without a program, which therefore can start nothing."""
        out, status = io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                status = accuracy.main([*words, "--data", str(self.home), "--program", str(self.home / "none")])
            except SystemExit as ended:
                status = ended.code
        return status, out.getvalue()

    def test_missing_data_is_listed_and_nothing_starts(self):
        for more in ((), ("--dry-run",)):
            status, said = self.said("safusion", *more)
            self.assertEqual(status, 1)
            for name in ("data cifar100", "data wikitext2", "data squad", "weights bert-large"):
                self.assertRegex(said, f"{name}: missing. Expected .*: .*")
        self.assertEqual(list(self.home.iterdir()), [])

    def test_data_is_found_as_it_is_downloaded(self):
        (self.home / "cifar-10-batches-py").mkdir()
        status, said = self.said("cifar10", "--dry-run", "--seeds", "5")
        self.assertEqual(status, 0)
        self.assertIn(f"data cifar10: {self.home}/cifar-10-batches-py, to be prepared", said)
        self.assertIn("7 methods, 5 seeds, 35 trials", said)

    def test_questions_without_a_vocabulary_are_not_all_of_the_data(self):
        for name in ("cifar100", "wikitext-2", "squad", "bert-large"):
            (self.home / name).mkdir()
        (self.home / "bert-large" / "model.safetensors").touch()
        status, said = self.said("safusion")
        self.assertEqual(status, 1)
        self.assertIn(f"data squad: {self.home}/squad lacks vocab.txt or tokenizer.json. Expected", said)
        self.assertIn("1 of 4 are missing; nothing was started", said)
        (self.home / "squad" / "vocab.txt").touch()
        status, said = self.said("safusion", "--dry-run")
        self.assertEqual(status, 0, said)

    def test_numbers_of_seeds_and_cards_are_checked(self):
        for words in (("--seeds", "0"), ("--seeds", "-2"), ("--gpus", "-1"), ("--gpus", "two")):
            status, said = self.said("cifar10", "--dry-run", *words)
            self.assertEqual(status, 2)
            self.assertIn(f"{words[1]!r}: expected a whole number of at least", said)

    def test_all_data_of_recipes_has_a_way_to_get_it(self):
        recipes = [tomllib.loads(path.read_text()) for path in (ROOT / "workloads/recipes").rglob("*.toml")]
        names = {recipe["data"] for recipe in recipes if "data" in recipe}
        self.assertEqual(names - set(accuracy.DATA), set())
        self.assertEqual(set(accuracy.TOKENIZED) - set(accuracy.DATA), set())

    def test_cards_and_seeds_change_the_experiment(self):
        text = (ROOT / "experiments/accuracy/safusion.toml").read_text()
        made = tomllib.loads(accuracy.adapted(text, "name", 4, 2))
        self.assertEqual((made["defaults"]["workers"], made["repeat"]["blocks"]), (4, 2))
        self.assertEqual(made["id"], "accuracy/name")
        made = tomllib.loads(accuracy.adapted(text, "name", 0, None))
        self.assertEqual(made["defaults"]["transport"], "threads")


if __name__ == "__main__":
    unittest.main()
