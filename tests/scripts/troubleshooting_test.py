"""Tests that the messages that pages explain are those of the program and its scripts."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "docs/troubleshooting.md", ROOT / "docs/launching/failures.md")
FOLDERS = ("core", "harness", "scripts", "workloads")
# The seam of two pieces of one literal: the first one's end, a line's end, the second one's begin.
SEAM = re.compile(r'"\s*\n\s*"')
MESSAGE = re.compile(r"`([^`]+)`")
# Messages of other programs, here of SQLite.
OF_OTHERS = {"database or disk is full"}


def texts_of_the_program():
    """The text of all sources, with broken literals joined and quotes without backslashes."""
    texts = []
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in (".cpp", ".hpp", ".py", ".sh") or (file.is_file() and not file.suffix):
                texts.append(SEAM.sub("", file.read_text(errors="replace")).replace('\\"', '"'))
    return "\n".join(texts)


def pieces(message):
    """The pieces of a message between its values."""
    return [piece for piece in (part.strip(' "`:;?') for part in message.split("...")) if len(piece) > 3]


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.texts = texts_of_the_program()
        cls.headings = [line for page in PAGES for line in page.read_text().splitlines()
                        if line.startswith("### ")]

    def test_twenty_messages_or_more_are_explained(self):
        self.assertGreaterEqual(len(self.headings), 20)
        for heading in self.headings:
            self.assertRegex(heading, MESSAGE)

    def test_each_message_is_in_a_source(self):
        for heading in self.headings:
            for message in MESSAGE.findall(heading):
                if message in OF_OTHERS:
                    continue
                self.assertTrue(pieces(message), heading)
                for piece in pieces(message):
                    with self.subTest(heading=heading, piece=piece):
                        self.assertTrue(piece in self.texts, f"no source says {piece!r}")

    def test_a_message_that_nobody_says_is_found(self):
        self.assertFalse("this text stands in no " + "source" in self.texts)


if __name__ == "__main__":
    unittest.main()
