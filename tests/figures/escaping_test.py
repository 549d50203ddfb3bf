"""Tests that no field of a page is markup: every text of the data of a site, a report and a paper's
page is made hostile at once.

PYTHONPATH=harness/figures python tests/figures/escaping_test.py
"""

import html
import json
import tempfile
import unittest
import warnings
from pathlib import Path

import site_test
from figures_fixture import Page, Synthetic, config, judged_sentence, judged_setting
from sparfuse_report import cells, paper, report, style, web

HOSTILE = """<script>harm('1')</script>'"><b onclick='2' x="{{ 7 * 7 }}{% raw %}{# &lt;"""


def hostile(value, kept=(), keyed=(), inside=""):
    """The value with HOSTILE after each of its texts, except under the keys in `kept`. Also after the keys
    of the dicts in `keyed`, whose keys are names."""
    if isinstance(value, str):
        return value + HOSTILE
    if isinstance(value, list):
        return [hostile(each, kept, keyed) for each in value]
    if isinstance(value, dict):
        return {
            key + HOSTILE if inside in keyed else key: each if key in kept else hostile(each, kept, keyed, key)
            for key, each in value.items()
        }
    return value


def spec(folder):
    """The spec of a report with every section: figures, tables, claims, a model check, failures and
    exclusions."""
    made = Synthetic(folder)
    live = [config(name, "digits", 2, 1.0, "emulated") for name in ("dense", "wfbp", "zen")]
    live += [config(name, "digits", 2, 1.0, "emulated") for name in ("syncea", "safusion-inter")]
    twins = [config(name, "digits", 2, 1.0, "modelled") for name in ("dense", "wfbp")]
    for block in range(3):
        for cell in live[:2]:
            metrics = {"throughput": (100 + block, "images/s"), "step_seconds": (0.3, "s")}
            made.trial("p", cell, block, {**metrics, "sent_bytes": (10, "B")})
    for cell in twins:
        made.trial("p.predicted", cell, 0, {"step_seconds": (0.29, "s"), "throughput": (101, "images/s")})
    made.trial("p", live[2], 0, failure="timeout")
    made.trial("p", live[2], 1, annotations=["the room was hot"])
    said = [judged_sentence("wfbp wins", judged_setting("holds")),
            judged_sentence("wfbp leads", judged_setting("does not hold", "10 Gbit/s"), judged_setting("holds", "1 Gbit/s"))]
    figures = [{"kind": kind, "x": "workers"} for kind in ("grouped_bars", "unknown", "gantt")]
    figures[0]["tables"] = [{"columns": ["method"], "groups": [["2 workers", [["wfbp"]]]], "notes": ["as published"]}]
    excluded = [{"cell": {**live[1], "density": 0.5}, "reason": "as dense"}, {"cell": "zen on 4", "reason": ""}]
    table = {"caption": "results of others", "columns": ["system"], "rows": [["Xeon"]], "notes": ["odd"]}
    part = {"id": "p", "title": "Part", "cells": live, "figures": figures, "reference": "dense",
            "judged": said, "excluded": excluded, "imported": {"table": table}}
    found = made.spec({
        "id": "quick", "title": "Quick", "paper": "a paper", "disturbed": "3 trials are disturbed",
        "headlines": ["wfbp is faster"],
        "parts": [part, {"id": "p.predicted", "cells": twins}]})
    found["parts"][0]["cells"][3].update(failure="disturbed", disturbed=[
        {"trial_id": "t", "block": 0, "step_seconds": 0.5, "step": "500 ms", "why": "other work"}])
    return found


class Escaping(unittest.TestCase):
    def check(self, text, scripts=0):
        page, elements = Page(text), site_test.Elements(text)
        self.assertEqual(page.open, [])
        self.assertEqual(elements.tags.count("script"), scripts)
        self.assertEqual(elements.handlers, [])
        said = html.unescape(text)
        self.assertGreater(said.count(HOSTILE), 10)
        self.assertEqual(said.count("<script>harm"), said.count(HOSTILE))
        self.assertIn(HOSTILE, "".join(page.text))

    def test_no_text_of_a_site_is_markup(self):
        pages = dict(web.pages(hostile(site_test.site_data(), kept=("hash",))))
        self.assertEqual(len(pages), 14)
        for path, text in pages.items():
            with self.subTest(path=path):
                self.check(text, scripts=1)

    def test_no_text_of_a_report_or_of_a_paper_is_markup(self):
        with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such long titles leave no room for a figure
            folder = Path(name)
            whole = json.loads(json.dumps(spec(folder)))
            given = hostile(whole, kept=("directory", "mode", "kind", "x"), keyed=("ratios", "facts"))
            given["parts"][0]["cells"][-1]["failure"] = "not run"
            given["parts"][1]["id"] = given["parts"][0]["id"] + ".predicted"
            experiment = cells.Experiment(given, folder)
            styles = style.Styles(experiment.methods)
            text = report.render(experiment, styles)
            self.check(text)
            for heading in ("Verdicts", "The model, checked", "Left out by an annotation", "Disturbed (1 trials)",
                            "Unknown figure kind", "in doubt", "Not run (1 cells)"):
                self.assertIn(heading, text)
            entry = {"id": given["id"], "report": str(folder / f"{HOSTILE}.html")}
            not_run = hostile([{"experiment": "quick", "what": "64 GPUs", "reason": "none"}])
            groups = [{**group, "id": given["id"]} for group in given["judged"]["groups"]]
            index = {"id": given["id"], "experiments": [entry], "not_run": not_run,
                     "judged": {**given["judged"], "groups": groups}}
            self.check(paper.render(index, [(experiment, styles)], folder / "paper.html"))


if __name__ == "__main__":
    unittest.main()
