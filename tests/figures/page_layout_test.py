"""Tests the reports' layout in headless Chromium, at the widths of a screen and of a telephone.

PYTHONPATH=harness/figures python tests/figures/page_layout_test.py   runs the tests
PYTHONPATH=harness/figures python tests/figures/page_layout_test.py --pictures DIR   leaves the pages and their pictures in DIR
"""

import json
import sys
import tempfile
import unittest
from pathlib import Path

import browser
import figures_fixture
import figures_published_test
import figures_test
import site_test
from sparfuse_report import cells, paper, report, style, web

WIDTHS = (1200, 400)  # pixels of a screen and of a telephone


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
    said = figures_fixture.judged_sentence("wfbp wins", figures_fixture.judged_setting("holds"))
    index["judged"] = figures_fixture.judged({"quick": [said], "published": [said]})
    made["paper"] = paper.render(index, loaded, folder / "paper.html")
    site = dict(web.pages(site_test.site_data()))
    for name in ("index", "systems/a1", "methods/wfbp"):
        made[f"site-{name.replace('/', '-')}"] = site[f"{name}.html"]
    for folder_name in ("experiments", "pairs"):
        made[f"site-{folder_name}"] = next(text for path, text in site.items() if path.startswith(folder_name))
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
        """Calls check(found) for every page, width and folding."""
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
        self.check_each(lambda found: self.assertGreater(min(found["figures"], default=1), 0.6))


# JavaScript that reads a table's columns, row by row.
COLUMN = """
const table = page.getElementById('measured-throughput');
const head = key => table.querySelector(`th[data-key="${key}"]`);
const press = key => head(key).querySelector('button').click();
const column = (key, all) => [...table.tBodies[0].rows].filter(row => all || !row.hidden)
  .map(row => row.cells[head(key).cellIndex].textContent);
const hash = () => view.location.hash;
"""


@unittest.skipUnless(browser.program(), "needs a Chromium to sort and filter in")
class SortsAndFilters(unittest.TestCase):
    """Tests a site's pages as files, like a reader's, with the script that their policy lets run."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="sparfuse-site-")
        cls.page = Path(cls.folder.name) / "a1.html"
        cls.page.write_text(dict(web.pages(site_test.site_data()))["systems/a1.html"], encoding="utf-8")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def evaluate(self, script, address=""):
        return browser.evaluate(self.page, COLUMN + script, address)

    def test_a_press_sorts_numbers_as_numbers_and_a_second_one_turns_them(self):
        found = self.evaluate("""
            const before = column('vs-dense'); press('vs-dense');
            const down = column('vs-dense'), said = head('vs-dense').ariaSort; press('vs-dense');
            return {before, down, up: column('vs-dense'), said, then: head('vs-dense').ariaSort, hash: hash()};""")
        known = ["10.50x", "9.50x", "1.10x", "0.90x"]
        self.assertEqual([text.split(" ")[0] for text in found["down"][:4]], known)
        self.assertEqual([text.split(" ")[0] for text in found["up"][:4]], known[::-1])
        for order in ("down", "up"):  # rows without a number come last
            self.assertEqual(sorted(found[order][4:]), ["reference", "timeout"])
        self.assertEqual(sorted(found["before"]), sorted(found["down"]))
        self.assertEqual((found["said"], found["then"]), ("descending", "ascending"))
        self.assertEqual(found["hash"], "#measured-throughput?sort=vs-dense")

    def test_words_filter_rows_and_an_address_shows_the_same(self):
        found = self.evaluate("""
            const input = page.querySelector('input[type=search]');
            input.value = 'WFBP digits'; input.dispatchEvent(new view.Event('input')); press('workers');
            return {rows: column('workers'), hash: hash(), said: page.querySelector('[role=status]').textContent};""")
        self.assertEqual(found["rows"], ["16", "4", "2"])
        self.assertRegex(found["said"], r"^4 of \d+ rows$")  # three, and the imported one
        again = self.evaluate("return column('workers');", found["hash"])
        self.assertEqual(again, found["rows"])

    def test_heads_are_buttons_for_the_keyboard_and_no_script_of_a_trial_ran(self):
        found = self.evaluate("""
            const heads = [...table.tHead.rows[0].cells];
            heads[1].querySelector('button').focus();
            return {buttons: heads.every(each => each.querySelector('button[type=button]')),
                    focused: page.activeElement.closest('th') === heads[1],
                    scripts: page.scripts.length, hostile: page.body.textContent.includes("<script>alert")};""")
        self.assertEqual(found, {"buttons": True, "focused": True, "scripts": 1, "hostile": True})

    def test_the_policy_lets_no_other_script_run(self):
        text = self.page.read_text(encoding="utf-8")
        harmed = self.page.with_name("harmed.html")
        harmed.write_text(text.replace("<section", "<script>window.harmed = 1</script><img src=x "
                                       "onerror='window.harmed = 2'><section", 1), encoding="utf-8")
        script = "return {harmed: view.harmed ?? 0, sorted: Boolean(page.querySelector('.finder'))};"
        self.assertEqual(browser.evaluate(harmed, script), {"harmed": 0, "sorted": True})


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
