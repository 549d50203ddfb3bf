"""Tests the figures that stand beside published values, on a made-up spec.json and its series.

PYTHONPATH=harness/figures python tests/figures/figures_published_test.py   runs the tests
PYTHONPATH=harness/figures python tests/figures/figures_published_test.py --example DIR   leaves the folder and figures in DIR
"""

import copy
import csv
import json
import math
import random
import re
import shutil
import tempfile
import unittest
from pathlib import Path

from figures_fixture import (
    Page,
    Synthetic,
    completed,
    config,
    drawn,
    judged_sentence,
    judged_setting,
    main,
    rendered,
    shown,
    write_series,
)
from sparfuse_report import cells, report, style

NUMBERS = Path(__file__).resolve().parents[2] / "results" / "published" / "published-numbers.csv"
PAPER = "SAFusion (HPDC 25)"
OURS = {
    "wfbp": ["WFBP"],
    "safusion-naive": ["SAF(Naive)", "SAF(Naive) fixed buffer"],
    "safusion-inter": ["SAF-Inter", "fusion w/ sparsification-ahead"],
    "safusion": ["SAF-(Inter+Intra)", "SAFusion"],
    "syncea": ["fusion w/ sparsification-behind"],
}


def _number(text):
    try:
        return float(text.split(" +- ")[0])
    except ValueError:
        return None


def brought(workload, artifact, model=None, calibrated=()):
    """The published numbers in a figure's entry as the harness hands them over
    (harness/report/figures/panels.hpp). calibrated: methods, as the paper names them."""
    with NUMBERS.open(newline="", encoding="utf-8") as file:
        numbers = [row for row in csv.DictReader(file) if row["paper"] == PAPER]
    ours = {theirs: name for name, names in OURS.items() for theirs in names}
    rows = [
        {**row, "of": workload, "name": ours.get(row["method"], row["method"]), "setting": row["model"],
         "number": _number(row["value"]), "from_text": row["confidence"].startswith("verbatim"),
         "calibrated": row["method"] in calibrated}
        for row in numbers
        if row["artifact"] == artifact and model in (None, row["model"])
    ]
    return {"paper": PAPER, "methods": OURS, "rows": rows, "source": f"Published: {PAPER}, {artifact}.",
            "artifacts": artifact, "elsewhere": ""}


def modelled(method, workload, workers=8, gbps=None, **more):
    more = {"sparsifier": "dgc", "cluster": "safusion-cloud", "ranks_per_node": 4, **more}
    if method == "dense":
        more["sparsifier"] = "none"
    return config(method, workload, workers, gbps, "modelled", **more)


TABLE = {"columns": ["method", "ours"], "groups": [["64 workers", [["safusion", "1.90x"], ["OMGS", "–"]]]],
         "notes": ["Published: a paper."]}


class Store14:
    """Trials like those of a paper's reproduction, with numbers near the published ones."""

    def __init__(self, folder):
        self.made, self.rng, self.parts = Synthetic(folder), random.Random(11), []

    def part(self, name, found, figures, reference=None, kind="throughput"):
        self.parts.append({"id": name, "title": name, "kind": kind, "reference": reference, "cells": found,
                           "figures": figures})

    def run(self, part, cell, metrics, blocks=1):
        folders = []
        for block in range(blocks):
            values = metrics(block) if callable(metrics) else metrics
            folders.append(self.made.trial(part, cell, block, values)[1])
        return folders

    def fig14(self):
        workload, found = "resnet152-imagenet", []
        for method, speed in (("wfbp", 3000), ("safusion-naive", 4000), ("safusion", 5700)):
            cell = modelled(method, workload, 64)
            found.append(cell)
            self.run("fig14", cell, {"throughput": (speed, "images/s")})
        published = brought(workload, "Fig14a")
        rows = {row["name"]: i for i, row in enumerate(published["rows"]) if row["workers"] == "64"}
        self.rows14 = rows
        self.part("fig14", found, [
            {"kind": "grouped_bars", "name": "fig14-ratio", "normalise": "wfbp", "published": published,
             "tables": [TABLE]},
            {"kind": "ablation", "published": published},
        ], "wfbp")

    def fig15(self):
        workload, found = "resnet152-imagenet", []
        for method, noct in (("wfbp", 0.190), ("safusion-naive", 0.130), ("safusion", 0.081)):
            cell = modelled(method, workload, 8, cluster="safusion-local", steps=20)
            found.append(cell)
            parts = (0.0205, 0.0312, 0.0081, noct, 0.004, 0.006)
            names = ("forward", "backward", "sparsify", "exposed_communication")
            named = zip((*names, "decompress", "update"), parts)
            metrics = {f"{name}_seconds": (value, "s") for name, value in named}
            metrics["step_seconds"] = (sum(parts) + 0.003, "s")
            self.run("fig15", cell, metrics)
        entry = {"kind": "breakdown", "published": brought(workload, "Fig15a", calibrated=["WFBP"])}
        self.part("fig15", found, [entry], "wfbp")

    def fig7(self):
        found = []
        for sparsifier in ("gaussiank", "dgc", "redsync", "sidco"):
            cell = config("safusion-naive", "digits-resnet", 4, 1.0, "emulated", sparsifier=sparsifier)
            found.append(cell)
            for folder in self.run("fig7", cell, {"step_seconds": (0.08, "s")}, 3):
                wait = 0.012 * math.exp(self.rng.gauss(0, 0.2))
                spans = []
                for step in (13, 14, 15):
                    for rank in range(2):
                        spans.append((step, rank, "pack", "compute", 0.010, 0.011))
                        spans.append((step, rank, "wait", "align", 0.011, 0.011 + wait))
                        spans.append((step, rank, "wait", "compute", 0.05, 0.06))  # exposed communication
                        spans.append((step, rank, "exchange", "data", 0.03, 0.0325))
                columns = "step", "rank", "kind", "lane", "begin_seconds", "end_seconds"
                write_series(folder / "spans.npy", dict(zip(columns, zip(*spans))))
        entry = {"kind": "waiting", "published": brought("digits-resnet", "Fig7")}
        self.part("fig7", found, [entry])

    def fig3(self):
        found = []
        for degree in [i / 10 for i in range(11)]:
            cell = config("syncea", "digits-resnet", 2, 1.0, "emulated", "convergence", density=0.001,
                          method_options={"planner_options": {"degree": degree}})
            found.append(cell)
            self.run("fig3", cell, lambda block: {
                "final_metric": (0.95 - 0.3 * degree**2 + self.rng.gauss(0, 0.01), "accuracy"),
                "missing_rate": (0.7 * degree**1.5, "1")}, 3)
        entry = {"kind": "dual_line", "x": "method_options.planner_options.degree",
                 "published": brought("digits-resnet", "Fig3a")}
        self.part("fig3", found, [entry], kind="convergence")

    def fig4(self):
        found, unit = [], {"digits-resnet": "accuracy", "text-lstm": "perplexity"}
        for workload in unit:
            for method, level in (("dense", 0.97), ("syncea", 0.80), ("safusion-inter", 0.94)):
                cell = config(method, workload, 2, 1.0, "emulated", "convergence")
                found.append(cell)
                high = 5.2 / level if workload == "text-lstm" else level
                self.run("fig4", cell, lambda block: {
                    "final_metric": (high * math.exp(self.rng.gauss(0, 0.01)), unit[workload])}, 3)
        entry = {"kind": "normalised_bars", "published": brought("digits-resnet", "Fig4", "VGG-19")}
        self.part("fig4", found, [entry], "dense", "convergence")

    def sensitivity(self):
        found, changes = [], [{}]
        for name in ("compute", "sparsify", "host_overhead", "latency", "bandwidth"):
            changes += [{name: 0.5}, {name: 2}]
        ratios = {"safusion-naive": 1.35, "safusion-inter": 1.2, "safusion": 1.9}
        for change in changes:
            for method in ("wfbp", *ratios):
                cell = modelled(method, "resnet152-imagenet", 64, inputs=change)
                found.append(cell)
                value = 3000 * ratios.get(method, 1.0)
                for name, factor in change.items():
                    slope = {"host_overhead": 0.28, "latency": 0.1, "bandwidth": -0.15}
                    value *= factor ** (slope.get(name, 0.04) * (ratios.get(method, 1.0) - 1.1))
                    if (name, factor, method) == ("bandwidth", 2, "safusion-inter"):
                        value *= 1.2
                self.run("sensitivity", cell, {"throughput": (value, "images/s")})
        self.part("sensitivity", found, [{"kind": "sensitivity", "reference": "wfbp"}])

    def spec(self):
        for fill in (self.fig14, self.fig15, self.fig7, self.fig3, self.fig4, self.sensitivity):
            fill()
        return self.made.spec({"id": "quick", "title": "SAFusion's figures", "parts": self.parts})


class Drawing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        store = Store14(cls.folder / "results")
        cls.spec, cls.rows14 = store.spec(), store.rows14
        cls.experiment = cells.Experiment(cls.spec, cls.folder / "results")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def entry(self, part, position=0):
        return copy.deepcopy(self.experiment.part(part).figures[position])

    def drawn(self, part, position=0, entry=None):
        part = self.experiment.part(part)
        return drawn(self, self.experiment, part, entry or part.figures[position])

    def labels(self, made):
        return [handle.get_label() for handle in made.handles]

    def test_published_numbers_stand_over_our_bars_and_strangers_have_their_own(self):
        entry = self.entry("fig14")
        (panel,) = entry["panels"]
        ours, theirs, stranger = (self.rows14[name] for name in ("wfbp", "safusion", "OkTopk"))
        bar = next(bar for bar in panel["bars"] if bar["name"] == "safusion")
        bar["printed"] = [[theirs, 1.87]]
        panel["bars"].append({**bar, "name": "OkTopk", "cell": None, "value": None, "printed": [[stranger, 1.2]]})
        made = self.drawn("fig14", entry=entry)
        heights = [patch.get_height() for patch in made.figure.axes[0].patches]
        self.assertEqual([round(height, 3) for height in heights], [1.333, 1.9, 1.2])
        ticks = [list(line.get_ydata()) for line in made.figure.axes[0].lines]
        self.assertIn([1.87, 1.87], ticks)
        self.assertIn("OkTopk (published only)", self.labels(made))
        self.assertIn(f"Published: {PAPER}, Fig14a.", made.caption)
        entry["published"]["elsewhere"] = "The paper's setting differs: 8 workers."
        self.assertIn("The paper's setting differs: 8 workers.", self.drawn("fig14", entry=entry).caption)
        entry["published"]["rows"][theirs]["calibrated"] = True
        self.assertIn("calibration input: not judged", self.labels(self.drawn("fig14", entry=entry)))
        self.assertNotEqual(ours, theirs)

    def test_a_step_of_an_ablation_has_its_gain_and_the_papers(self):
        entry = self.entry("fig14", 1)
        entry["panels"][0]["steps"][1] = {"largest": [self.rows14["safusion"], 40.2], "stated": None}
        made = self.drawn("fig14", 1, entry)
        left, right = made.figure.axes
        self.assertIn("+43%", [text.get_text() for text in left.texts])  # 5700 / 4000
        self.assertIn([40.2, 40.2], [list(line.get_ydata()) for line in right.lines])

    def test_a_calibration_input_is_marked(self):
        entry = self.entry("fig15")
        entry["panels"][0]["rows"] = list(range(len(entry["published"]["rows"])))
        made = self.drawn("fig15", entry=entry)
        words = [text.get_text() for text in made.figure.axes[0].texts]
        self.assertIn("241, calibration input", words)

    def test_waiting_takes_the_wait_for_other_ranks_alone(self):
        made = self.drawn("fig7")
        ours, theirs = made.figure.axes
        heights = [patch.get_height() for patch in ours.patches[:3]]
        self.assertAlmostEqual(heights[0], 1.0)  # ms of copying
        self.assertAlmostEqual(heights[2], 2.5)
        self.assertLess(heights[1], 25)  # of which exposed communication is no part
        self.assertAlmostEqual(theirs.patches[1].get_height(), 8281.0)  # DGC
        self.assertIn("sums over a trace of unknown length", made.caption)

    def test_missing_rate_is_of_the_sparsified_tensors(self):
        made = self.drawn("fig3")
        left, right = made.figure.axes
        self.assertAlmostEqual(right.lines[0].get_ydata()[-1], 0.7)  # 14 of 20 tensors
        self.assertEqual(list(left.lines[0].get_xdata()), [i / 10 for i in range(11)])
        self.assertIn("published: tensor missing rate", self.labels(made))

    def test_a_perplexity_has_no_axis_with_a_published_accuracy(self):
        experiment = cells.Experiment(self.spec, self.experiment.results)
        part = experiment.part("fig3")
        for cell in part.cells:
            cell.metrics = copy.deepcopy(cell.metrics)
            cell.metrics["final_metric"]["unit"] = "perplexity"
        made = drawn(self, experiment, part)
        self.assertNotIn("published: top-1 accuracy", self.labels(made))
        self.assertIn("published: tensor missing rate", self.labels(made))

    def test_accuracy_over_the_references(self):
        entry = self.entry("fig4")
        rows = [row["name"] for row in entry["published"]["rows"]]
        bar = next(bar for bar in entry["panels"][0]["bars"] if bar["name"] == "safusion-inter")
        bar["printed"] = [[rows.index("safusion-inter"), 0.977]]
        made = self.drawn("fig4", entry=entry)
        self.assertIn([0.977, 0.977], [list(line.get_ydata()) for line in made.figure.axes[0].lines])
        ticks = [label.get_text() for label in made.figure.axes[0].get_xticklabels()]
        self.assertEqual(ticks[1], "text-lstm\n(perplexity: lower is better)")

    def test_sensitivity_names_inputs(self):
        made = self.drawn("sensitivity")
        names = [label.get_text() for label in made.figure.axes[0].get_yticklabels()]
        self.assertEqual(
            set(names), {"compute", "sparsify", "host overhead", "latency", "bandwidth"}
        )

    def test_what_has_not_run_is_no_data(self):
        found = [
            modelled(method, "vgg19-imagenet", inputs=change)
            for method in ("wfbp", "safusion")
            for change in ({}, {"latency": 2})
        ]
        fields = {"id": "quick", "parts": [{"id": "p", "reference": "wfbp", "cells": found}]}
        spec = Synthetic(self.folder / "nothing").spec(fields)
        experiment = cells.Experiment(spec, self.folder)
        for kind in ("waiting", "dual_line", "normalised_bars", "sensitivity", "ablation"):
            entry = {"kind": kind, "x": "workers", "where": {"inputs": {}}}
            if kind == "sensitivity":
                entry.pop("where")
            entry["cells"] = shown(found, entry)
            entry = completed(spec["parts"][0]["cells"], entry, "wfbp")
            with self.assertRaises(cells.NoData, msg=kind):
                drawn(self, experiment, experiment.parts[0], entry)

    def verdicts_of(self, *sentences):
        """The section of verdicts in a report with these sentences."""
        spec = Synthetic(self.folder / "verdicts").spec({"id": "quick", "parts": [{"id": "p", "judged": sentences}]})
        text = report.render(cells.Experiment(spec, self.folder), style.Styles([]))
        self.assertEqual(Page(text).open, [])
        return text[text.index("<section id='verdicts'") : text.index("<section id='failures'")]

    def test_a_sentence_of_many_settings_is_one_row(self):
        said = {"workers 4": "does not hold", "workers 8": "inconclusive", "workers 2": "holds"}
        settings = [judged_setting(verdict, setting) for setting, verdict in said.items()]
        text = self.verdicts_of(judged_sentence("faster", *settings))
        self.assertEqual(text.count("<td class='mark alarm'>✗"), 1)
        self.assertEqual(text.count("<td class='mark"), 1)
        self.assertEqual(
            re.findall(r"<li class='(\w+)'>(.) (workers \d) <b>1.00x", text),
            [("alarm", "✗", "workers 4"), ("part", "?", "workers 8"), ("good", "✓", "workers 2")],
        )
        folded = text[text.index("<details>") :]
        self.assertIn("3 settings: what its settings say", folded)
        self.assertEqual(folded.count("1.00x [0.96, 1.04]"), 3)

    def test_a_sentence_of_one_setting_has_its_verdict(self):
        text = self.verdicts_of(judged_sentence("faster", judged_setting("holds, preliminary")))
        self.assertIn("<p>1.00x [0.96, 1.04]</p><p class='good'>holds, preliminary</p>", text)
        self.assertIn("<a href='#table-p'>Claims of p</a>", text)

    def test_of_very_many_settings_the_marks_stand_alone(self):
        settings = [judged_setting("holds", f"workers {n}") for n in range(2, 22)]
        text = self.verdicts_of(judged_sentence("faster", *settings))
        self.assertEqual(text.count("<li class='good' title='workers "), 20)

    def test_figures_come_with_their_numbers_as_csv_and_in_the_report(self):
        path = self.folder / "spec.json"
        path.write_text(json.dumps(self.spec))
        figure = ["--out", str(self.folder / "f"), "--figure", "fig14-ratio"]
        self.assertEqual(rendered("figure", self.folder, path, *figure)[0], 0)
        out = str(self.folder / "report.html")
        self.assertEqual(rendered("report", self.folder, path, "--out", out)[0], 0)
        with (self.folder / "f" / "fig14-ratio.csv").open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual([line["ours"] for line in lines], ["1.90x", "–"])
        self.assertEqual(lines[0]["setting"], "64 workers")
        page = Page((self.folder / "report.html").read_text(encoding="utf-8"))
        self.assertEqual(page.open, [])
        self.assertIn("The numbers (2 rows)", "".join(page.text))
        self.assertIn("1.90x", "".join(page.text))


if __name__ == "__main__":
    main(lambda folder: Store14(folder).spec())
