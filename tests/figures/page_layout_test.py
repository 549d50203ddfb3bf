"""Tests the reports' layout in headless Chromium, at the widths of a screen and of a telephone.

python tests/figures/page_layout_test.py                   runs the tests
python tests/figures/page_layout_test.py --pictures DIR    leaves the pages and their pictures in DIR
"""

import json
import sys
import tempfile
import unittest
from pathlib import Path

import browser
import figures_published_test
import figures_test

import cells
import paper
import report
import style

WIDTHS = (1200, 400)  # pixels


def pages(folder):
    """{name: HTML} of two made-up reports, and of a paper's page over them."""
    made, index, loaded = {}, {"id": "safusion", "experiments": [], "not_run": []}, []
    for name, spec in (
        ("quick", figures_test.example(folder / "quick")),
        ("published", figures_published_test.Store14(folder / "published").spec()),
    ):
        experiment = cells.Experiment(json.loads(json.dumps(spec)), folder / name)
        experiment.id = name
        loaded.append((experiment, style.Styles(experiment.methods)))
        made[name] = report.render(*loaded[-1])
        index["experiments"].append({"id": name, "report": str(folder / f"{name}.html")})
    index["not_run"].append(
        {"experiment": "quick", "what": "64 GPUs", "reason": "there is no such cluster here"}
    )
    made["paper"] = paper.render(index, loaded, folder / "paper.html")
    return made


@unittest.skipUnless(
    browser.program(), f"needs a Chromium to lay pages out: none of {', '.join(browser.NAMES)}"
)
class Layout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="sparfuse-pages-")
        cls.measured = {
            (name, width, folding): found
            for name, page in pages(Path(cls.folder.name)).items()
            for width in WIDTHS
            for folding, found in browser.measure(page, width).items()
        }

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check_each(self, check):
        """check(found) of every page, width and folding."""
        for (name, width, folding), found in self.measured.items():
            with self.subTest(page=name, width=width, details=folding):
                self.assertEqual(found["width"], width)
                check(found)

    def test_no_page_scrolls_sideways(self):
        self.check_each(lambda found: self.assertLessEqual(found["scroll_width"], found["width"]))

    def test_what_is_wider_than_the_page_scrolls_in_a_box_of_its_own(self):
        self.check_each(lambda found: self.assertEqual(found["outside"], []))

    def test_no_word_is_broken(self):
        self.check_each(lambda found: self.assertEqual(found["broken_words"], []))

    def test_figures_stay_large_enough_to_be_read(self):
        self.check_each(lambda found: self.assertGreater(min(found["figures"]), 0.6))


class TheMeasurementItself(unittest.TestCase):
    @unittest.skipUnless(browser.program(), "needs a Chromium")
    def test_it_sees_what_is_wrong(self):
        page = (
            "<!doctype html><body style='margin: 0'><div style='width: 600px'>wide</div>"
            "<div style='overflow-x: auto'><p style='width: 600px'>boxed</p></div>"
            "<p style='width: 4em; overflow-wrap: anywhere'>incomprehensibilities</p></body>"
        )
        found = browser.measure(page, 400)["folded"]
        self.assertEqual((found["width"], found["scroll_width"]), (400, 600))
        self.assertEqual(found["outside"], ["div: wide"])
        self.assertEqual(
            found["broken_words"], ["incomprehensibilities in p: incomprehensibilities"]
        )
        self.assertEqual(browser.measure(page, 1200)["folded"]["outside"], [])


def main_pictures(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in pages(folder).items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
        for width in WIDTHS:
            height = browser.measure(page, width)["folded"]["height"]
            browser.picture(page, width, height, folder / f"{name}-{width}.png")


if __name__ == "__main__":
    if "--pictures" in sys.argv:
        main_pictures(sys.argv[sys.argv.index("--pictures") + 1])
    else:
        unittest.main()
