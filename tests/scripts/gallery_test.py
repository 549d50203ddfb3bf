"""Tests that docs/gallery.md shows the pictures that scripts/pages/gallery.py draws, with their commands."""

import re
import sys
import unittest
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/pages"))

import gallery

PAGE = (ROOT / gallery.PAGE).read_text()
MOST_BYTES = 100_000  # size limit of a picture


class Gallery(unittest.TestCase):
    def test_the_page_shows_what_is_drawn(self):
        shown = re.findall(r"\]\(pictures/gallery/([\w-]+)\.png\)", PAGE)
        self.assertEqual(sorted(shown), sorted(gallery.PICTURES))
        self.assertEqual(sorted(path.stem for path in (ROOT / "docs/pictures/gallery").iterdir()), sorted(shown))

    def test_the_page_has_their_commands(self):
        for command in {*gallery.CLUSTERS, gallery.RUN, *(command for command, _ in gallery.PICTURES.values())}:
            self.assertIn(f"./sparfuse {command}", PAGE)

    def test_the_experiment_has_their_figures(self):
        figures = []
        for part in tomllib.loads((ROOT / gallery.EXPERIMENT).read_text())["part"]:
            seen = {}
            for figure in part.get("figure", []):
                kind = figure["kind"]
                seen[kind] = seen.get(kind, 0) + 1
                figures.append(f"{part['id']}-{kind}" + (f"-{seen[kind]}" if seen[kind] > 1 else ""))
        drawn = [name for command, name in gallery.PICTURES.values() if command == gallery.FIGURE]
        self.assertEqual(sorted(drawn), sorted(figures))

    def test_pictures_are_small(self):
        for path in (ROOT / "docs/pictures/gallery").iterdir():
            self.assertLess(path.stat().st_size, MOST_BYTES, path.name)


if __name__ == "__main__":
    unittest.main()
