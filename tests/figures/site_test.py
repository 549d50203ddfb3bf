"""Tests the pages of `sparfuse site` on data made by hand: what is escaped, apart, sorted and linked.

PYTHONPATH=harness/figures python tests/figures/site_test.py
"""

import base64
import hashlib
import html
import re
import unittest
from pathlib import PurePosixPath
from urllib.parse import unquote

from markupsafe import escape

from figures_fixture import Page, table, worded
from sparfuse_report import web
from sparfuse_report.cells import Interval
from sparfuse_report.web.forest import WIDTH, Scale
from sparfuse_report.web.store import Cell, common_setting, file_name

HOSTILE = "<script>alert('1')</script>"
MACHINES = {"a1": "Xeon, 2 cores", "b2": "EPYC, 96 cores", "c3": f"card {HOSTILE}"}


def ratio(value, n=5):
    return worded(value, value * 0.9, value * 1.1, n)


def cell(system, method, value, mode="measured", workload="digits", workers=2, **more):
    fields = {
        "system": system, "experiment": "e/x", "part": "main",
        "config_hash": hashlib.sha256(f"{method} {mode} {workload} {workers}".encode()).hexdigest(),
        "method": method, "workload": workload, "workers": workers, "mode": mode, "kind": "throughput",
        "setting": [["link", "1 Gbit/s"], ["batch", "8"]], "metric": "throughput", "unit": "images/s",
        "is_reference": method == "dense", "reference": None if method == "dense" else "d" * 64,
        "ratio": None if method == "dense" else ratio(value), "absolute": ratio(1000 * value),
        "lacks": "", "trials": [f"e/x/main/{method}-{system}-b{block}" for block in range(5)],
        "disturbed": 0, "apart": 0, "failed": [],
    }
    return {**fields, **more}


def compared(names, first, second, method, values, verdict="second", mode="measured"):
    config_hash = cell(first, method, 1, mode)["config_hash"]
    return {
        "experiment": "e/x", "part": "main", "config_hash": config_hash, "setting": "digits",
        "config": {"method": method, "mode": mode, "sparsifier": "topk", "density": 0.01},
        "first": names[first], "second": names[second], "unit": "images/s",
        "first_ratio": ratio(values[0]), "second_ratio": ratio(values[1]),
        "first_absolute": ratio(100), "second_absolute": ratio(900),
        "first_over_second": ratio(values[0] / values[1]), "verdict": verdict,
        "blocks_needed": None, "why_not": "", "plans": "",
        "first_moved": {"1": 1.3} if method == "wfbp" else {}, "second_moved": {},
    }


def comparison(names, keys, cells):
    return {
        "reference": "dense", "within": 0.05, "systems": keys, "summary": ["a sentence"],
        "sides": [{"name": names[key], "hardware": MACHINES[key]} for key in keys], "cells": cells,
        "hardware": [f"{names[keys[1]]}'s bandwidth between nodes is half of {names[keys[0]]}'s {HOSTILE}"],
        "regimes": [{"experiment": "e/x", "part": "main", "table": table(
            ["setting", *(names[key] for key in keys), "links"],
            [[f"digits, workers 2 {HOSTILE}", *("1.25" for _ in keys), "within a node, cards by NVLink"]],
            notes=[f"dense moved {HOSTILE}"])}],
        "different": {**table(["recorded"], [["system.cores", "2", HOSTILE, "[1]"]], notes=[
            f"{names[keys[1]]}: wfbp: {HOSTILE} in e/x/main/wfbp-b1"]), "title": "Differences between the systems"},
    }


def site_data():
    """The data of three machines, a declared cluster and four methods, one of them from a hostile bundle."""
    names = {"a1": "a1", "b2": "the lab", "c3": HOSTILE}
    systems = [
        {
            "key": key, "name": names.get(key, key), "declared": key not in names,
            "hardware": MACHINES.get(key, "profile cloud (declared)"), "described": [], "trials": 30,
            "hosts": 2 if key == "b2" else 1,
            "fingerprint": [{"what": "memory read", "value": HOSTILE}] if key == "c3" else [],
            "changed": [HOSTILE] if key == "c3" else [],
            "provenance": {"trials": 29, "sources": [{"source": "", "trials": 29}], "facts": {
                "software.mpi": ["4.1", HOSTILE]}, "systems": [
                    {"hash": "h" * 64, "hardware": "", "trials": 29, "facts": {"cores": "2"}}]},
        }
        for key in (*names, "cluster cloud")
    ]
    cells = []
    for i, key in enumerate(names):
        cells += [cell(key, "dense", 1 + i), cell(key, "wfbp", 1.1 + i), cell(key, HOSTILE, 0.9 + i)]
        cells.append(cell(key, "wfbp", 2.0, mode="imported"))
    cells.append(cell("a1", "wfbp", 9.5, workers=16))
    cells.append(cell("a1", "wfbp", 10.5, workers=4))
    cells.append(cell("a1", "zen", 1, ratio=None, absolute=None, trials=[], lacks="timeout", failed=[
        {"trial": "e/x/main/zen-b0", "why": "timeout", "message": HOSTILE}]))
    cells += [cell("cluster cloud", method, 3, mode="modelled") for method in ("dense", "wfbp")]
    runs = [{"experiment": "e/x", "system": system["key"], "trials": 30,
             "first_utc": f"2026-01-0{i + 1}T00:00:00Z", "last_utc": f"2026-02-0{i + 1}T00:00:00Z"}
            for i, system in enumerate(systems)]
    pairs = [comparison(names, [first, second], [
        compared(names, first, second, "wfbp", (1.1, 2.1)), compared(names, first, second, HOSTILE, (1.0, 1.0), "agree")])
        for first, second in (("a1", "b2"), ("a1", "c3"), ("b2", "c3"))]
    several = [comparison(names, list(names), [
        compared(names, "a1", second, "wfbp", (1.1, 2.1)) for second in ("b2", "c3")])]
    methods = [
        {"name": "dense", "listed": {"title": "Dense", "summary": "all", "source": "Li et al., 2020",
                                     "revision": 1, "deviations": "", "options": {"x": 1}}},
        {"name": "wfbp", "listed": {"title": "WFBP", "summary": "by tensor", "source": "Zhang et al., 2017"}},
        {"name": "zen", "listed": None}, {"name": HOSTILE, "listed": None}]
    workload = {"summary": "digits of a hand", "parameters": 1000, "tensors": 3, "batch_per_worker": 8, "unit": "images",
                "recipe": [{"name": "momentum", "default": 0.9, "meaning": "of sgd"}]}
    return {
        "schema": 1, "reference": "dense", "within": 0.05, "preliminary_below": 5, "systems": systems,
        "methods": methods, "workloads": [{"name": "digits", "listed": workload}], "runs": runs,
        "cells": cells, "pairs": pairs, "several": several}


class Elements(Page):
    """Also the tables with their rows, anchors' addresses, and scripts of a page."""

    def __init__(self, text):
        self.tables, self.addresses, self.tags, self.handlers = {}, [], [], []
        self._table = None
        super().__init__(text)

    def handle_starttag(self, tag, attributes):
        super().handle_starttag(tag, attributes)
        found = dict(attributes)
        self.tags.append(tag)
        self.handlers += [name for name in found if name.startswith("on")]
        if tag == "a":
            self.addresses.append(found["href"])
        if tag == "table":
            self._table = found.get("id", f"table {len(self.tables)}")
            self.tables[self._table] = []
        if tag == "tr" and self._table:
            self.tables[self._table].append([found.get("class", "")])
        if tag in ("td", "th") and self._table:
            self.tables[self._table][-1].append({**found, "text": ""})

    def handle_endtag(self, tag):
        if tag == "table":
            self._table = None

    def handle_data(self, data):
        if self._table and self.tables[self._table] and len(self.tables[self._table][-1]) > 1:
            self.tables[self._table][-1][-1]["text"] += data


class Formulas(unittest.TestCase):
    def test_no_name_is_one(self):
        data = site_data()
        for entry in data["several"][0]["cells"]:
            entry["setting"] = r"a $\foo$ b"
        data["several"][0]["sides"][0]["name"] = r"$\bar{"
        self.assertTrue(any("data:image/svg+xml" in text for _, text in web.pages(data)))


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pages = dict(web.pages(site_data()))
        cls.elements = {path: Elements(text) for path, text in cls.pages.items()}

    def page(self, folder, name):
        return self.elements[f"{folder}/{file_name(name)}.html"]

    def test_there_is_a_page_of_each(self):
        folders = [PurePosixPath(path).parent.name for path in self.pages]
        counted = {folder: folders.count(folder) for folder in folders}
        self.assertEqual(counted, {
            "": 1, "systems": 4, "methods": 4, "workloads": 1, "experiments": 1, "pairs": 3})

    def test_equal_data_give_equal_bytes(self):
        self.assertEqual(dict(web.pages(site_data())), self.pages)
        dated = dict(web.pages({**site_data(), "written_utc": "2026-03-04T05:06:07Z"}))
        self.assertTrue("05:06 UTC" in dated["index.html"])
        self.assertFalse("UTC</p>" in self.pages["index.html"])

    def test_what_trials_say_is_text(self):
        for path, text in self.pages.items():
            with self.subTest(path=path):
                self.assertEqual(self.elements[path].tags.count("script"), 1)
                self.assertEqual(self.elements[path].handlers, [])
                self.assertNotIn(HOSTILE, text)
        self.assertIn(escape(HOSTILE), self.pages["index.html"])
        failed = self.page("systems", "a1").tables["failed"]
        self.assertIn(HOSTILE, [cell["text"] for cell in failed[1][1:]])

    def test_no_attribute_is_left_by_what_trials_say(self):
        hostile = "x' onclick='alert(1)"
        data = site_data()
        for name in ("mode", "metric", "part", "config_hash", "unit", "lacks"):
            data["cells"].append({**cell("a1", "wfbp", 1), name: hostile})
        data["cells"].append(cell("a1", "wfbp", 1, setting=[[hostile, hostile]], trials=[hostile]))
        for path, text in web.pages(data):
            self.assertEqual(Elements(text).handlers, [], path)

    def test_nothing_but_their_own_script_may_run_and_nothing_loads(self):
        for path, text in self.pages.items():
            [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            with self.subTest(path=path):
                self.assertIn(f"default-src 'none'; script-src 'sha256-{digest}'", text)
                self.assertEqual(re.findall(r"(?:src|href)=.(?!data:)(?:\w+:)?//", text), [])

    def test_links_lead_to_pages_and_places(self):
        for path, elements in self.elements.items():
            self.assertEqual(len(elements.ids), len(set(elements.ids)), path)
            for link in elements.addresses:
                target, _, anchor = unquote(link).partition("#")
                place = PurePosixPath(path).parent
                for step in PurePosixPath(target).parts if target else ():
                    place = place.parent if step == ".." else place / step
                there = str(place) if target else path
                with self.subTest(path=path, link=link):
                    self.assertIn(there, self.pages)
                    if anchor and not anchor.startswith("c-main-dddd"):  # the made-up reference
                        self.assertIn(anchor, self.elements[there].ids)

    def test_modes_are_apart_and_say_so(self):
        tables = self.page("methods", "wfbp").tables
        for mode, count in (("measured", 5), ("modelled", 1), ("imported", 3)):
            rows = tables[f"{mode}-throughput"][1:]
            self.assertEqual(len(rows), count)
            self.assertEqual({row[0] for row in rows}, {mode})
            self.assertIn(f"<span class='badge mode {mode}'>{mode}</span>",
                          self.pages[f"methods/{file_name('wfbp')}.html"])
        self.assertNotIn("emulated-throughput", tables)
        heads = [head["text"] for head in self.elements["index.html"].tables["all-methods"][0][1:]]
        for mode in ("measured", "modelled", "imported"):
            self.assertEqual(sum(head.startswith(f"{mode}, vs dense") for head in heads), 1)

    def test_numbers_sort_as_numbers_in_base_units(self):
        head, *rows = self.page("systems", "a1").tables["measured-throughput"]
        columns = {column["data-key"]: place for place, column in enumerate(head[1:], 1)}
        self.assertEqual(head[columns["vs-dense"]]["data-sort"], "number")
        self.assertEqual(head[columns["method"]]["data-sort"], "text")
        values = [row[columns["vs-dense"]].get("data-value") for row in rows]
        known = sorted(float(value) for value in values if value is not None)
        self.assertEqual(known, [0.9, 1.1, 9.5, 10.5])
        self.assertEqual(values.count(None), 2)  # the reference, and the cell that failed
        absolute = [row[columns["absolute"]].get("data-value") for row in rows]
        self.assertIn("9500.0", absolute)
        texts = [row[columns["vs-dense"]]["text"] for row in rows]
        self.assertIn("9.50x [8.55, 10.45]", texts)
        self.assertIn("timeout", texts)

    def test_each_number_leads_to_its_trials(self):
        head, *rows = self.page("methods", "wfbp").tables["measured-throughput"]
        place = next(i for i, column in enumerate(head) if i and column["data-key"] == "n")
        self.assertIn("e/x/main/wfbp-a1-b4", rows[0][place]["text"])
        few = dict(web.pages({**site_data(), "preliminary_below": 6}))
        self.assertIn("<summary>5*</summary>", few[f"methods/{file_name('wfbp')}.html"])
        self.assertNotIn("<summary>5*</summary>", self.pages[f"methods/{file_name('wfbp')}.html"])

    def test_pairs_have_verdicts_and_what_differs(self):
        page = self.page("pairs", "a1 b2")
        rows = next(rows for name, rows in page.tables.items() if name.startswith("e-x"))
        texts = [[cell["text"] for cell in row[1:]] for row in rows[1:]]
        verdicts = {text[0]: next(word for word in text if word in ("agree", "larger on the lab"))
                    for text in texts}
        self.assertEqual(verdicts, {"wfbp": "larger on the lab", HOSTILE: "agree"})
        text = self.pages[f"pairs/{file_name('a1 b2')}.html"]
        self.assertIn("Differences between the systems", text)
        self.assertIn("wfbp: &lt;script&gt;", text)
        # The differences of the systems themselves stand before any ratio, and so do the regimes.
        said = html.escape("the lab's bandwidth between nodes is half of a1's", quote=False)
        self.assertLess(html.unescape(text).index(html.unescape(said)), text.index("<h3"))
        self.assertLess(text.index("cards by NVLink"), text.index("<h3"))
        cells = [cell["text"] for rows in page.tables.values() for row in rows for cell in row[1:]]
        for words in ("1.25", "the lab"):
            self.assertIn(words, cells)

    def test_three_systems_are_drawn_as_slopes(self):
        [page] = [text for path, text in self.pages.items() if path.startswith("experiments/")]
        self.assertEqual(page.count("data:image/svg+xml"), 1)


class Parts(unittest.TestCase):
    def test_names_of_files_are_safe_and_their_own(self):
        names = ["a/b", "a-b", "A-b", "../../etc", "", "é", "x" * 300, "x" * 301, HOSTILE]
        files = [file_name(name) for name in names]
        self.assertEqual(len(set(files)), len(names))
        self.assertEqual(file_name("ok-topk2"), "ok-topk2")
        for file in files:
            self.assertRegex(file, r"^[a-z0-9][a-z0-9-]{0,80}$")

    def test_a_scale_is_logarithmic_and_cuts_what_is_far_longer(self):
        half, double = Interval(0.5, 0.4, 0.6, 5), Interval(2.0, 1.8, 2.2, 5)
        scale = Scale([half, double, None])
        self.assertAlmostEqual(scale.at(1) - scale.at(0.5), scale.at(2) - scale.at(1), delta=0.11)
        self.assertIn(1, scale.ticks())
        self.assertTrue(all(0 <= scale.at(tick) <= WIDTH for tick in scale.ticks()))
        wild = Scale([half, Interval(1.0, 1e-6, 1e6, 2)])
        self.assertGreater(wild.at(1) - wild.at(0.5), 20)
        self.assertEqual(wild.drawn(Interval(1.0, 1e-6, 1e6, 2)).count("z'"), 2)  # an arrow at each end
        self.assertEqual(scale.drawn(None), "")

    def test_equal_ratios_of_two_systems_are_both_drawn(self):
        same = Interval(1.0, 0.9, 1.1, 5)
        drawn = Scale([same]).drawn(same, Interval(1.0, 0.9, 1.1, 5))
        self.assertEqual((drawn.count("class='first'"), drawn.count("class='second'")), (1, 1))

    def test_what_all_cells_share_is_said_once(self):
        cells = [Cell(cell("a", "wfbp", 1)), Cell(cell("a", "zen", 1, setting=[["link", "1 Gbit/s"]]))]
        self.assertEqual(common_setting(cells), [("link", "1 Gbit/s")])
        self.assertEqual(cells[0].words(common_setting(cells)), "batch 8")
        self.assertEqual(common_setting(cells[:1]), [("link", "1 Gbit/s"), ("batch", "8")])


if __name__ == "__main__":
    unittest.main()
