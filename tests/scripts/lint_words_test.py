"""Tests what the check of pages says: each broken rule with its page and line."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/pages"))
import lint_words as lint

GOOD = """\
# A page

`sparfuse list methods` prints the [methods](other.md#its-heading). Fig. 14 is a picture, e.g. of ResNet-152.

* `run` runs experiments. It says what is missing.

| key | meaning |
|---|---|
| `a` | short |

```
""" + "word " * 60 + """
```
"""
OTHER = "# Other\n\n## Its `heading`\n\n## Twice\n\n## Twice\n"
LONG = "Word" + " word" * 30


class Words(unittest.TestCase):
    def complaints(self, text, not_yet=None):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "page.md").write_text(text)
            (root / "other.md").write_text(OTHER)
            return list(lint.complaints(root, ["page.md"], not_yet or {}))

    def test_nothing_is_wrong_with_a_good_page(self):
        self.assertEqual(self.complaints(GOOD), [])

    def test_sentences_are_counted_as_they_are_read(self):
        self.assertEqual(list(lint.sentences(GOOD)), [(3, 4), (3, 8), (5, 3), (5, 5)])
        # A sentence of several lines is named by its first line. Links count by their words, code as one.
        self.assertEqual(list(lint.sentences("One two.\nThree [four\nfive](a/b.md) `six\nseven`. \"Eight\" nine.\n")),
                         [(1, 2), (2, 4), (4, 2)])
        self.assertEqual(list(lint.sentences("<!-- one\ntwo -->\n- A 95 % interval of 1.5 s, et al. One.\n")), [(3, 9)])
        self.assertEqual(list(lint.sentences("1. One of 1000. Two - three.\n")), [(1, 3), (1, 2)])

    def test_each_broken_rule_is_named_with_its_line(self):
        for text, said in (
            (GOOD + f"\nShort.\nShort. {LONG}.\n",
             "page.md:16: a sentence of 31 words: expected 30 at most"),
            ("# Page\n\n" + ("Word " * 19).strip() + ".\n", "page.md:1: 19.0 words a sentence: expected 18 at most"),
            (GOOD.replace("short", "x" * 121), "page.md:9: a cell of 121 characters: expected 120 at most"),
            (GOOD + "\n" * 190, "page.md:201: 203 lines: expected 200 at most"),
            (GOOD.replace("other.md#its-heading", "another.md"), "page.md:3: another.md: there is no such file"),
            (GOOD.replace("#its-heading", "#no-heading"),
             "page.md:3: other.md#no-heading: other.md has no such heading"),
            (GOOD.replace("other.md#its-heading", "#a-pages"), "page.md:3: #a-pages: page.md has no such heading"),
        ):
            with self.subTest(said=said):
                self.assertEqual(self.complaints(text), [said])

    def test_what_is_no_sentence_and_no_width_does_not_count(self):
        self.assertEqual(self.complaints(GOOD.replace("short", f"[{'x' * 120}](other.md#{'twice-1'})")), [])
        self.assertEqual(self.complaints(f"| {' '.join(['w'] * 60)} | `a|b` |\n"), [])
        self.assertEqual(self.complaints(f"<!--\n{LONG}\n-->\n```\n{LONG}\n[a](b.md)\n```\n`[a](b.md)`\n"), [])
        self.assertEqual(self.complaints("[a](other.md#twice-1) [b](https://a.org) [c](other.md#twice)\n"), [])

    def test_the_index_links_every_page_of_its_folder(self):
        pages = ["README.md", "docs/README.md", "docs/a.md", "docs/b/c.md", "docs/d.md"]
        self.assertEqual(list(lint.pages_without_a_link("[a](a.md) [c](b/c.md#x)", pages)),
                         ["docs/README.md: no link to docs/d.md"])
        self.assertEqual(list(lint.pages_without_a_link("[a](a.md) [c](./b/c.md) [d](../docs/d.md)", pages)), [])

    def test_a_page_that_a_source_names_exists(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "docs").mkdir()
            (root / "docs/a.md").touch()
            (root / "x.cpp").write_text("// docs/a.md, \"Rules\"\n// (docs/b/c.md)\n// their/docs/d.md\n")
            self.assertEqual(list(lint.broken_mentions(root, ["x.cpp"])),
                             ["x.cpp:2: docs/b/c.md: there is no such page"])

    def test_the_list_of_pages_that_break_rules_only_shrinks(self):
        bad = f"# Page\n\n{LONG}.\n"
        self.assertEqual(self.complaints(bad, {"page.md": {"mean", "sentence"}}), [])
        self.assertEqual(self.complaints(bad, {"page.md": {"mean"}}),
                         ["page.md:3: a sentence of 31 words: expected 30 at most"])
        self.assertEqual(self.complaints(GOOD, {"page.md": {"cell"}}),
                         [f"{lint.NOT_YET}: page.md keeps the rule 'cell' now: take it off the list"])
        self.assertEqual(lint.read_not_yet("# why\na.md mean cell\n\n"), {"a.md": {"mean", "cell"}})
        for text, said in (("\na.md\n", ":2: no rule: expected"), ("a.md wide\n", ":1: wide: expected")):
            with self.assertRaisesRegex(ValueError, lint.NOT_YET + said):
                lint.read_not_yet(text)


if __name__ == "__main__":
    unittest.main()
