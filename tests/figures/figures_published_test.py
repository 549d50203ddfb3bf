"""Tests the figures that stand beside published values, on a made-up spec.json and its series.

PYTHONPATH=harness/figures python tests/figures/figures_published_test.py   runs the tests
PYTHONPATH=harness/figures python tests/figures/figures_published_test.py --example DIR   leaves the folder and figures in DIR
"""

import contextlib
import copy
import csv
import io
import json
import math
import random
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

from figures_fixture import (
    Page,
    Synthetic,
    config,
    judged_sentence,
    judged_setting,
    shown,
    write_series,
)
from sparfuse_report import __main__ as render
from sparfuse_report import cells, kinds, published, report, style

NUMBERS = Path(__file__).resolve().parents[2] / "results" / "published" / "published-numbers.csv"
PAPER = "SAFusion (HPDC 25)"
OURS = {
    "wfbp": ["WFBP"],
    "safusion-naive": ["SAF(Naive)", "SAF(Naive) fixed buffer"],
    "safusion-inter": ["SAF-Inter", "fusion w/ sparsification-ahead"],
    "safusion": ["SAF-(Inter+Intra)", "SAFusion"],
    "syncea": ["fusion w/ sparsification-behind"],
}
CALIBRATION = [f"{PAPER}/Fig15a/WFBP"]


def brought(artifacts, metric=None, models=None, stated=()):
    """The published numbers that the harness puts into a figure's entry: {"paper", "methods", "rows"}."""
    with NUMBERS.open(newline="", encoding="utf-8") as file:
        numbers = [row for row in csv.DictReader(file) if row["paper"] == PAPER]
    rows = []
    for workload, artifact in artifacts.items():
        mine = [row for row in numbers if row["artifact"] == artifact]
        if models and workload in models:
            mine = [row for row in mine if row["model"] == models[workload]]
        names = {row["model"] for row in mine}
        rows += [{**row, "of": workload} for row in mine if metric in (None, row["metric"])]
        rows += [
            {**row, "of": workload, "stated": True}
            for row in numbers
            if row["artifact"] in stated and row["model"] in names
        ]
    return {"paper": PAPER, "methods": OURS, "rows": rows}


def modelled(method, workload, workers=8, gbps=None, **more):
    more = {"sparsifier": "dgc", "cluster": "safusion-cloud", "ranks_per_node": 4, **more}
    if method == "dense":
        more["sparsifier"] = "none"
    return config(method, workload, workers, gbps, "modelled", **more)


class Store14:
    """Trials like those of a paper's reproduction, with numbers near the published ones."""

    def __init__(self, folder):
        self.made, self.rng, self.parts = Synthetic(folder), random.Random(11), []

    def part(self, name, found, figures, reference=None, kind="throughput"):
        self.parts.append(
            {
                "id": name,
                "title": name,
                "kind": kind,
                "reference": reference,
                "cells": found,
                "figures": figures,
            }
        )

    def run(self, part, cell, metrics, blocks=1):
        folders = []
        for block in range(blocks):
            values = metrics(block) if callable(metrics) else metrics
            folders.append(self.made.trial(part, cell, block, values)[1])
        return folders

    def fig14(self):
        found = []
        for workload, artifact, unit in (
            ("resnet152-imagenet", "Fig14a", "images/s"),
            ("gpt2-large-wikitext103", "Fig14c", "tokens/s"),
        ):
            rows = brought({workload: artifact}, "throughput")["rows"]
            for method in ("wfbp", "safusion-naive", "safusion-inter", "safusion"):
                for workers in (8, 16, 32, 64):
                    theirs = next(
                        float(row["value"])
                        for row in rows
                        if row["method"] in OURS[method] and row["workers"] == str(workers)
                    )
                    cell = modelled(method, workload, workers)
                    found.append(cell)
                    value = theirs * math.exp(self.rng.gauss(0.1, 0.07))
                    self.run("fig14", cell, {"throughput": (value, unit)})
        artifacts = {"resnet152-imagenet": "Fig14a", "gpt2-large-wikitext103": "Fig14c"}
        bars = {"kind": "grouped_bars", "x": "workers", "y": "throughput"}
        stated = ("s5.2 Exp2 Fig14",)
        self.part(
            "fig14",
            found,
            [
                {
                    **bars,
                    "normalise": "wfbp",
                    "name": "fig14-ratio",
                    "published": brought(artifacts, "throughput", stated=stated),
                },
                {**bars, "name": "fig14", "published": brought(artifacts, "throughput")},
                {
                    "kind": "ablation",
                    "methods": ["wfbp", "safusion-naive", "safusion-inter", "safusion"],
                    "published": brought(artifacts, "throughput", stated=("s5.2 Exp2 ablation",)),
                },
            ],
            "wfbp",
        )

    def sweeps(self):
        workload = "resnet152-imagenet"
        for name, x, artifact, axis in (
            ("fig16", "sparsifier", "Fig16a", ("gaussiank", "dgc", "redsync", "sidco")),
            ("fig17", "density", "Fig17", (0.1, 0.05, 0.01)),
            ("fig18", "link", "Fig18", (10.0, 50.0, 100.0)),
        ):
            found = []
            for place, value in enumerate(axis):
                for method, speed in (("wfbp", 400), ("safusion", 830)):
                    more = {x: value} if x != "link" else {}
                    gbps = value if x == "link" else None
                    cell = modelled(method, workload, 8, gbps, cluster="safusion-local", **more)
                    found.append(cell)
                    self.run(name, cell, {"throughput": (speed + 20 * place, "images/s")})
            self.part(
                name,
                found,
                [
                    {
                        "kind": "grouped_bars",
                        "name": name,
                        "x": x,
                        "normalise": "wfbp",
                        "published": brought({workload: artifact}, "throughput"),
                    }
                ],
                "wfbp",
            )

    def fig15(self):
        workload, found = "resnet152-imagenet", []
        for method, noct in (("wfbp", 0.190), ("safusion-naive", 0.130), ("safusion", 0.081)):
            cell = modelled(method, workload, 8, cluster="safusion-local", steps=20)
            found.append(cell)
            parts = (0.0205, 0.0312, 0.0081, noct, 0.004, 0.006)
            names = ("forward", "backward", "sparsify", "exposed_communication")
            metrics = {
                f"{name}_seconds": (value, "s")
                for name, value in zip((*names, "decompress", "update"), parts)
            }
            metrics["step_seconds"] = (sum(parts) + 0.003, "s")
            self.run("fig15", cell, metrics)
        entry = {"kind": "breakdown", "published": brought({workload: "Fig15a"})}
        self.part("fig15", found, [entry], "wfbp")

    def fig7(self):
        found = []
        for sparsifier in ("gaussiank", "dgc", "redsync", "sidco"):
            cell = config(
                "safusion-naive", "digits-resnet", 4, 1.0, "emulated", sparsifier=sparsifier
            )
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
        entry = {"kind": "waiting", "published": brought({"digits-resnet": "Fig7"})}
        self.part("fig7", found, [entry])

    def fig3(self):
        found = []
        for degree in [i / 10 for i in range(11)]:
            cell = config(
                "syncea",
                "digits-resnet",
                2,
                1.0,
                "emulated",
                "convergence",
                density=0.001,
                method_options={"planner_options": {"degree": degree}},
            )
            found.append(cell)
            self.run(
                "fig3",
                cell,
                lambda block: {
                    "final_metric": (
                        0.95 - 0.3 * degree**2 + self.rng.gauss(0, 0.01),
                        "accuracy",
                    ),
                    "missing_rate": (0.7 * degree**1.5, "1"),
                },
                3,
            )
        entry = {
            "kind": "dual_line",
            "x": "method_options.planner_options.degree",
            "published": brought({"digits-resnet": "Fig3a"}),
        }
        self.part("fig3", found, [entry], kind="convergence")

    def fig4(self):
        found, unit = [], {"digits-resnet": "accuracy", "text-lstm": "perplexity"}
        for workload in unit:
            for method, level in (("dense", 0.97), ("syncea", 0.80), ("safusion-inter", 0.94)):
                cell = config(method, workload, 2, 1.0, "emulated", "convergence")
                found.append(cell)
                high = 5.2 / level if workload == "text-lstm" else level
                self.run(
                    "fig4",
                    cell,
                    lambda block: {
                        "final_metric": (high * math.exp(self.rng.gauss(0, 0.01)), unit[workload])
                    },
                    3,
                )
        entry = {
            "kind": "normalised_bars",
            "published": brought({"digits-resnet": "Fig4"}, models={"digits-resnet": "VGG-19"}),
        }
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
        for fill in (
            self.fig14,
            self.sweeps,
            self.fig15,
            self.fig7,
            self.fig3,
            self.fig4,
            self.sensitivity,
        ):
            fill()
        fields = {"id": "quick", "title": "SAFusion's figures", "parts": self.parts}
        return self.made.spec({**fields, "calibration": CALIBRATION})


class Numbers(unittest.TestCase):
    def test_a_row_says_where_it_stands(self):
        rows = [published.Row(row) for row in brought({"w": "Fig18"}, "throughput")["rows"]]
        first = rows[0]
        self.assertEqual((first.method, first.gbps, first.workers), ("WFBP", 10.0, 8))
        self.assertEqual((first.density, first.sparsifier, first.value), (0.01, "dgc", 223.2))
        self.assertEqual([first.place(x) for x in ("link", "workers")], [10.0, 8])
        self.assertFalse(first.from_text)

    def test_a_stated_gain_is_a_ratio_and_a_range_is_none(self):
        found = brought({"w": "Fig14a"}, "throughput", stated=("s5.2 Exp2 Fig14",))
        stated = [published.Row(row) for row in found["rows"] if row.get("stated")]
        self.assertEqual(len(stated), 5)  # four gains at 64 GPUs, and the range over all
        self.assertEqual(stated[0].gain()[:2], ("SAFusion", "WFBP"))
        self.assertAlmostEqual(stated[0].gain()[2], 1.8741)
        self.assertIsNone(stated[-1].gain())
        self.assertTrue(all(row.from_text for row in stated))

    def test_sparsifiers_have_one_name(self):
        for name in ("DGC(assumed per Exp4 text)", "dgc", "dgc@safusion", "DGC"):
            self.assertEqual(published.plain(name), "dgc")

    def test_calibration_is_of_one_number(self):
        row = published.Row(brought({"w": "Fig15a"})["rows"][0])
        self.assertEqual((row.method, row.metric), ("WFBP", "time/iter:Forward"))
        self.assertTrue(published.is_calibration(row, PAPER, CALIBRATION))
        for other in ("SAFusion (HPDC 25)/Fig15b/WFBP", "SAFusion (HPDC 25)/Fig15a/SAFusion"):
            self.assertFalse(published.is_calibration(row, PAPER, [other]))


class Drawing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.spec = Store14(cls.folder / "results").spec()
        cls.experiment = cells.Experiment(cls.spec, cls.folder / "results")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def drawn(self, part, position=0, **change):
        part = self.experiment.part(part)
        entry = {**part.figures[position], **change}
        entry["cells"] = shown([cell.config for cell in part.cells], entry)
        made = kinds.KINDS[entry["kind"]](
            self.experiment, part, entry, style.Styles(self.experiment.methods)
        )
        self.addCleanup(style.close, made.figure)
        return made

    def labels(self, made):
        return [handle.get_label() for handle in made.handles]

    def rows(self, made):
        """{first two cells of a row: row} of the first table's first group."""
        return {" ".join(row[:2]): row for row in made.tables[0].groups[0][1]}

    def test_ratios_stand_beside_the_papers_ratios(self):
        made = self.drawn("fig14")
        row = self.rows(made)["safusion 64"]
        # The figure has 5763 / 3075 images/s; the paper's text says 87.41 %.
        self.assertEqual(row[5], "1.87x (text 1.87x)")
        ours, theirs = float(row[4].rstrip("x")), 5763 / 3075
        self.assertAlmostEqual(
            float(row[6].split("\u202f")[0]), 100 * (ours / theirs - 1), delta=0.4
        )
        self.assertEqual(row[-1], "Fig14a")
        self.assertEqual(self.rows(made)["Cupcake 64"][2], "–")
        self.assertNotIn("wfbp 64", self.rows(made))  # every ratio would be 1
        labels = self.labels(made)
        for label in (
            "Cupcake (published only)",
            "published, from its figure",
            "published, stated in the text",
            "modelled: broken edge",
        ):
            self.assertIn(label, labels)

    def test_numbers_that_are_not_ratios(self):
        row = self.rows(self.drawn("fig14", 1))["wfbp 8"]
        ours = float(row[2].split()[0])
        self.assertAlmostEqual(
            float(row[4].split("\u202f")[0]), 100 * (ours / 611.1 - 1), delta=0.2
        )

    def test_options_are_named_where_a_group_has_two_of_a_method(self):
        found = self.experiment.part("fig14").cells
        kept = [(cell, cell.method, cell.label) for cell in found], self.experiment.methods
        self.experiment.methods = [*kept[1]]
        try:
            for cell in found:
                cell.label = f"{cell.method} (of {cell.workload})"
                self.experiment.methods.append(cell.label)
            self.assertEqual(self.rows(self.drawn("fig14", 1))["wfbp 8"][-1], "Fig14a")
            for cell in found:
                cell.method = "safusion" if cell.method == "safusion-inter" else cell.method
            rows = self.rows(self.drawn("fig14", 1))
            for method in ("safusion", "safusion-inter"):
                self.assertIn(f"{method} (of resnet152-imagenet) 64", rows)
            self.assertIn("wfbp 64", rows)
        finally:
            self.experiment.methods = kept[1]
            for cell, method, label in kept[0]:
                cell.method, cell.label = method, label

    def test_published_groups_are_found_by_sparsifier_density_and_link(self):
        for part, place, value in (
            ("fig16", "redsync", "862"),
            ("fig17", "0.05", "650"),
            ("fig18", "10 Gbit/s", "513"),
        ):
            rows = self.rows(self.drawn(part))
            self.assertEqual(rows[f"safusion {place}"][3].split()[0], value)
            self.assertEqual(len(self.drawn(part).figure.axes[0].get_xticks()), len(rows) // 4)

    def test_numbers_of_another_setting_are_said_to_be(self):
        made = self.drawn("fig14")
        self.assertNotIn("The paper's setting differs", made.caption)
        entry = {"published": brought({"resnet152-imagenet": "Fig16a"}, "throughput")}
        made = self.drawn("fig17", x="workers", **entry)
        self.assertNotIn(
            "The paper's setting differs", made.caption
        )  # density 0.01 is among ours
        entry["where"] = {"density": 0.1}
        made = self.drawn("fig17", x="workers", **entry)
        self.assertIn("The paper's setting differs: 8 workers, V100S, 100Gbps IB.", made.caption)

    def test_a_calibration_input_is_marked_and_not_judged(self):
        made = self.drawn("fig15")
        rows = self.rows(made)
        self.assertEqual(rows["wfbp NOCT"][4], "calibration input")
        self.assertEqual(rows["safusion NOCT"][3], "69.1\u202fms")
        self.assertEqual(rows["safusion NOCT"][4], f"{100 * (81 / 69.08 - 1):+.1f}\u202f%")
        self.assertEqual(rows["OkTopk Forward"][2], "–")
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
        made = kinds.KINDS["dual_line"](
            experiment, part, part.figures[0], style.Styles(experiment.methods)
        )
        self.addCleanup(style.close, made.figure)
        self.assertNotIn("published: top-1 accuracy", self.labels(made))
        self.assertIn("published: tensor missing rate", self.labels(made))

    def test_accuracy_over_the_references(self):
        made = self.drawn("fig4")
        row = self.rows(made)["safusion-inter digits-resnet"]
        self.assertTrue(row[2].startswith("0.9"), row)
        self.assertEqual(row[3], "0.977x (VGG-19, Fig4)")
        ticks = [label.get_text() for label in made.figure.axes[0].get_xticklabels()]
        self.assertEqual(ticks[1], "text-lstm\n(perplexity: lower is better)")

    def test_sensitivity_names_what_turns_the_order_round(self):
        made = self.drawn("sensitivity")
        table = made.tables[0]
        turned = {(row[0], row[1]): row[-2] for row in table.groups[0][1] if row[-2]}
        self.assertEqual(turned, {("bandwidth", "2"): "safusion-inter before safusion-naive"})
        self.assertIn("1 of 10 changes", table.notes[0])
        names = [label.get_text() for label in made.figure.axes[0].get_yticklabels()]
        self.assertEqual(
            set(names), {"compute", "sparsify", "host overhead", "latency", "bandwidth"}
        )

    def test_ablation_gains_are_over_the_variant_before(self):
        made = self.drawn("fig14", 2)
        rows = self.rows(made)
        ours = {
            cell.method: cell.mean("throughput")
            for cell in self.experiment.part("fig14").cells
            if cell.workers == 64 and cell.workload == "resnet152-imagenet"
        }
        expected = 100 * (ours["safusion-inter"] / ours["safusion-naive"] - 1)
        row = rows["safusion-inter over safusion-naive 64"]
        self.assertEqual(row[2], f"{expected:+.0f}\u202f%")
        self.assertEqual(row[3], f"{100 * (4356 / 4112 - 1):+.0f}\u202f%")
        self.assertEqual(row[4], "up to 12.39\u202f%")

    def test_what_has_not_run_is_no_data(self):
        found = [
            modelled(method, "vgg19-imagenet", inputs=change)
            for method in ("wfbp", "safusion")
            for change in ({}, {"latency": 2})
        ]
        fields = {"id": "quick", "parts": [{"id": "p", "reference": "wfbp", "cells": found}]}
        spec = Synthetic(self.folder / "nothing").spec(fields)
        experiment = cells.Experiment(spec, self.folder)
        styles = style.Styles(experiment.methods)
        for kind in ("waiting", "dual_line", "normalised_bars", "sensitivity", "ablation"):
            entry = {"kind": kind, "x": "workers", "where": {"inputs": {}}}
            if kind == "sensitivity":
                entry.pop("where")
            entry["cells"] = shown(found, entry)
            with self.assertRaises(cells.NoData, msg=kind):
                kinds.KINDS[kind](experiment, experiment.parts[0], entry, styles)

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
        common = ["--results", str(self.folder / "results"), "--experiment", "quick"]
        common += ["--spec", str(path)]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            figure = ["figure", *common, "--out", str(self.folder / "f"), "--figure", "fig14-ratio"]
            self.assertEqual(render.main(figure), 0)
            report = ["report", *common, "--out", str(self.folder / "report.html")]
            self.assertEqual(render.main(report), 0)
        with (self.folder / "f" / "fig14-ratio.csv").open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual(len(lines), 48)  # 2 workloads, 4 worker counts, 3 own methods, 3 others
        self.assertEqual(lines[0]["method"], "safusion-naive")
        page = Page((self.folder / "report.html").read_text(encoding="utf-8"))
        self.assertEqual(page.open, [])
        self.assertIn("calibration input", "".join(page.text))


def main_example(folder):
    folder = Path(folder)
    spec = Store14(folder / "results").spec()
    (folder / "spec.json").write_text(json.dumps(spec))
    common = ["--results", str(folder / "results"), "--experiment", "quick"]
    common += ["--spec", str(folder / "spec.json")]
    render.main(["figure", *common, "--out", str(folder / "figures")])
    render.main(["report", *common, "--out", str(folder / "report.html")])


if __name__ == "__main__":
    if "--example" in sys.argv:
        main_example(sys.argv[sys.argv.index("--example") + 1])
    else:
        unittest.main()
