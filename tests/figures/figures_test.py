"""Tests harness/figures on a made-up spec.json and its series.

PYTHONPATH=harness/figures python tests/figures/figures_test.py   runs the tests
PYTHONPATH=harness/figures python tests/figures/figures_test.py --example DIR   leaves the folder, figures and report in DIR
"""

import base64
import html
import json
import math
import random
import re
import shutil
import tempfile
import unittest
import urllib.parse
from pathlib import Path

from figures_fixture import (
    METHODS,
    Page,
    Schedule,
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
from sparfuse_report import cells, kinds, style, wording


def example(folder):
    """Fills `folder` with the trials of `sparfuse reproduce quick`; returns the spec."""
    rng = random.Random(7)
    made = Synthetic(folder)
    live, predicted, scaling, convergence = [], [], [], []
    for workload in ("digits-resnet", "text-gpt"):
        for workers, gbps in ((2, 1.0), (4, 1.0), (2, None)):
            shift = [rng.gauss(0, 0.02) for _ in range(3)]  # of each block; pairing removes it
            for method in METHODS:
                cell = config(method, workload, workers, gbps, "emulated" if gbps else "measured")
                live.append(cell)
                if (method, workload, workers) == ("syncea", "text-gpt", 4):
                    for block in range(3):
                        made.trial("throughput", cell, block, failure="timeout")
                    continue
                for block in range(3):
                    noise = math.exp(shift[block] + rng.gauss(0, 0.008))
                    schedule = Schedule(method, workload, workers, gbps, noise)
                    if (method, workload, workers, block) == ("wfbp", "digits-resnet", 2, 1) and gbps:
                        made.trial("throughput", cell, block, failure="signal")
                    if (method, workload, workers, block) == ("dense", "digits-resnet", 4, 2):
                        fast = {"throughput": (1e6, "images/s"), "step_seconds": (1e-4, "s")}
                        bad = ["another build ran on this machine"]
                        made.trial("throughput", cell, block, fast, annotations=bad)
                    _, directory = made.trial("throughput", cell, block, schedule.metrics())
                    schedule.write_spans(directory)
                twin = config(method, workload, workers, gbps, "modelled")
                predicted.append(twin)
                error = rng.gauss(0.0, 0.07) - (0.3 if workers == 4 else 0.0)
                schedule = Schedule(method, workload, workers, gbps, math.exp(error))
                made.trial("throughput.predicted", twin, 0, schedule.metrics())
        for method in METHODS:
            for workers in (2, 4, 8, 16, 32, 64):
                cell = config(method, workload, workers, 1.0, "modelled", ranks_per_node=1)
                scaling.append(cell)
                schedule = Schedule(method, workload, workers, 1.0, 2 / max(2, workers))
                made.trial("scaling", cell, 0, schedule.metrics())
    paces = (("dense", 1.0, 0.083), ("wfbp", 0.8, 0.071), ("safusion-inter", 0.83, 0.058))
    for method, speed, pace in paces:
        cell = config(method, "digits-resnet", 2, 1.0, "emulated", "convergence", target=0.97,
                      evaluate_every=20, steps=600)
        convergence.append(cell)
        for block in range(3):
            quick, steps, values = speed * math.exp(rng.gauss(0, 0.06)), [], []
            for step in range(20, 601, 20):
                steps.append(step)
                values.append(min(0.985, 0.985 - 0.88 * math.exp(-step * quick / 72) + rng.gauss(0, 0.004)))
                if values[-1] >= 0.97:
                    break
            seconds = [step * pace for step in steps]
            metrics = {"final_metric": (values[-1], "accuracy"), "steps_to_target": (steps[-1], "steps"),
                       "seconds_to_target": (seconds[-1], "s"), "step_seconds": (pace, "s")}
            _, directory = made.trial("convergence", cell, block, metrics)
            losses = [2 - value for value in values]
            evaluated = {"step": steps, "seconds": seconds, "metric": values, "loss": losses}
            write_series(directory / "evaluations.npy", evaluated)
    figures = [
        {"kind": "grouped_bars", "x": "workers", "series": "method", "y": "throughput",
         "title": "Throughput of six methods by workers and link"},
        {"kind": "breakdown"},
        {"kind": "gantt", "workload": "text-gpt", "workers": 2},
        {"kind": "bytes"},
        {"kind": "prediction"},
    ]
    stated = judged_sentence(
        "SAFusion (inter) is faster than layer-wise sparsification",
        judged_setting("direction only, preliminary", value=1.12),
        expected="1.24x (figure 1.31x; the text is judged)",
    )
    by_setting = judged_sentence(
        "Aligned buffers beat negotiated ones",
        *(
            judged_setting(f"{verdict}, preliminary", setting, value)
            for setting, value, verdict in (
                ("text-gpt, workers 2", 0.93, "does not hold"),
                ("digits-resnet, workers 4", 1.01, "inconclusive"),
                ("digits-resnet, workers 2", 1.08, "holds"),
                ("text-gpt, workers 4", 1.21, "holds"),
            )
        ),
    )
    many = [judged_setting("holds", f"workers {workers}", 1 + workers / 100) for workers in range(2, 42, 2)]
    by_many = judged_sentence("More workers wait longer", *many)
    excluded = {"method": "oktopk", "workload": "digits-resnet", "workers": 2,
                "link": {"gbps": 1.0, "alpha_us": 200.0}}
    why = "Ok-Topk needs a power of two of at least 4 ranks"

    def part(name, title, found, *drawn, mode="emulated", kind="throughput", **more):
        return {"id": name, "title": title, "mode": mode, "kind": kind, "reference": "dense", "cells": found,
                "figures": list(drawn), **more}

    over = {"series": "method"}
    return made.spec({
        "id": "quick",
        "title": "Sparsification and fusion on two cores",
        "paper": "safusion",
        "headlines": ["safusion-inter: 1.12x the throughput of wfbp."],
        "parts": [
            part("throughput", "Throughput", live, *figures, judged=[by_setting, stated, by_many],
                 excluded=[{"cell": excluded, "reason": why}]),
            part("throughput.predicted", "Throughput, predicted", predicted, mode="modelled"),
            part("convergence", "Convergence", convergence,
                 {"kind": "convergence", "x": "seconds", "y": "metric", **over}, kind="convergence"),
            part("scaling", "Modelled scaling", scaling,
                 {"kind": "scaling", "x": "workers", "y": "throughput", **over}, mode="modelled"),
        ],
    })


class Wording(unittest.TestCase):
    def test_numbers(self):
        thin = wording.THIN
        self.assertEqual(wording.number(3412.2), f"3{thin}412")
        self.assertEqual(wording.number(999.7), f"1{thin}000".replace(",", thin))
        self.assertEqual(wording.number(12.345), "12.3")
        self.assertEqual(wording.number(0.01234), "0.0123")
        self.assertEqual(wording.quantity(0.0183, "s"), f"18.3{thin}ms")
        self.assertEqual(wording.quantity(2.0e6, "B"), f"2.00{thin}MB")
        self.assertEqual(wording.quantity(float("nan"), "s"), wording.NONE)

    def test_a_model_table_goes_by_its_name(self):
        for name in ("table:mine@0123456789ab", "table:there/mine.json", "mine"):
            self.assertEqual(wording.workload(name), "mine")


class Rendering(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.spec = example(cls.folder / "results")
        (cls.folder / "spec.json").write_text(json.dumps(cls.spec))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def render(self, verb, *more, spec=None, out="out"):
        """Calls the program; returns (exit code, stdout, stderr)."""
        path = self.folder / "spec.json"
        if spec is not None:
            path = self.folder / "other.json"
            path.write_text(json.dumps(spec))
        return rendered(verb, self.folder, path, "--out", str(self.folder / out), *more)

    def drawn(self, part, entry):
        """(the figure before it is framed, all text of its panels)."""
        experiment = cells.Experiment(self.spec, self.folder / "results")
        given = next(each for each in self.spec["parts"] if each["id"] == part)
        found = [cell["config"] for cell in given["cells"]]
        entry = completed(given["cells"], {"cells": shown(found, entry), **entry}, given["reference"])
        made = drawn(self, experiment, experiment.part(part), entry)
        texts = (text for axes in made.figure.axes for text in axes.findobj(style.matplotlib.text.Text))
        words = [text.get_text() for text in texts]
        words += [label.get_text() for axes in made.figure.axes for label in axes.get_yticklabels()]
        return made, " | ".join(words)

    def test_every_kind_is_drawn_in_three_formats(self):
        code, out, error = self.render("figure")
        self.assertEqual((code, error), (0, ""))
        drawn = {entry["kind"] for part in self.spec["parts"] for entry in part.get("figures", [])}
        self.assertLess(drawn, set(kinds.KINDS))  # figures_published_test.py has the others
        paths = [Path(line) for line in out.split()]
        *paths, numbers = paths
        self.assertEqual((numbers.name, numbers.read_text()), ("numbers.csv", self.spec["csv"]))
        self.assertEqual(len(paths), 3 * len(drawn))
        for path in paths:
            data = path.read_bytes()
            first = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}[path.suffix]
            self.assertTrue(data.startswith(first))
            self.assertGreater(len(data), 5000)

    def test_one_figure_by_name_twice_gives_equal_vectors(self):
        more = ("--part", "convergence", "--figure", "convergence")
        self.assertEqual(self.render("figure", *more, out="a")[0], 0)
        self.assertEqual(self.render("figure", *more, out="b")[0], 0)
        names = sorted(path.name for path in (self.folder / "a").iterdir())
        self.assertEqual(names, [f"convergence-convergence.{kind}" for kind in ("pdf", "png", "svg")])
        for name in (names[0], names[2]):
            self.assertEqual(*((self.folder / out / name).read_bytes() for out in ("a", "b")))

    def test_captions_say_mode_hardware_n_and_that_it_is_preliminary(self):
        for part in self.spec["parts"]:
            for entry in part.get("figures", []):
                made, _ = self.drawn(part["id"], entry)
                for word in ("ulated", "Intel Xeon", "n = 3 blocks", "Preliminary"):
                    self.assertIn(word, made.caption, entry["kind"])
        made, _ = self.drawn("throughput", {"kind": "grouped_bars"})
        self.assertIn("95 % t interval of the paired log-ratio to dense", made.caption)

    def test_failed_cells_are_named_and_bars_start_at_zero(self):
        made, words = self.drawn("throughput", {"kind": "grouped_bars"})
        self.assertIn("timeout", words)
        self.assertTrue(all(axes.get_ylim()[0] == 0 for axes in made.figure.axes))
        bars = [patch.get_height() for axes in made.figure.axes for patch in axes.patches]
        self.assertEqual(len(bars), 35)  # one of 36 cells failed
        self.assertLess(max(bars), 1e5)  # the annotated trial of 1e6 images/s is left out

    def test_a_zero_is_no_missing_value(self):
        _, words = self.drawn("throughput", {"kind": "grouped_bars", "y": "tensors_missing"})
        self.assertIn("exactly 0", words)
        self.assertNotIn("no value", words)

    def test_filters_leave_only_their_cells(self):
        entry = {"kind": "breakdown", "workload": "text-gpt", "methods": ["dense", "syncea"], "workers": [2]}
        made, words = self.drawn("throughput", entry)
        self.assertNotIn("digits-resnet", words)
        self.assertIn("syncea", words)
        self.assertNotIn("wfbp", words)
        self.assertEqual(len(made.figure.axes), 2)

    def test_prediction_title_has_both_errors(self):
        made, _ = self.drawn("throughput", {"kind": "prediction"})
        crowded = r"oversubscribed \d+\.\d % \(n = 11 cells\)"
        self.assertRegex(made.title, rf"median error \d+\.\d % \(n = 24 cells\), {crowded}")

    def test_methods_look_the_same_whatever_else_is_there(self):
        one, other = style.Styles(METHODS), style.Styles(["omgs", "safusion-inter", "dense"])
        self.assertEqual(one["dense"].colour, other["dense"].colour)
        self.assertEqual(other.sort(["omgs", "safusion-inter", "dense"]), ["dense", "safusion-inter", "omgs"])

    def test_no_two_methods_look_alike_in_grey(self):
        looks = list(style.Styles([]).looks.values())
        self.assertEqual(len({(look.marker, look.dashes) for look in looks}), len(looks))
        self.assertNotIn("s", [look.marker for look in looks])  # squares say "measured"

        def grey(look):  # relative luminance of the sRGB colour, as CIE lightness
            parts = [int(look.colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
            linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
            return 116 * (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]) ** (1 / 3)

        for one in looks:
            for other in looks:
                if one is not other and one.hatch[:1] == other.hatch[:1]:
                    self.assertGreater(abs(grey(one) - grey(other)), 8, (one.colour, other.colour))

    def test_no_two_series_look_alike(self):
        # A name of many cells counts once.
        looks = style.Styles([f"workload-{i % 20}" for i in range(60)]).looks
        others = [look for name, look in looks.items() if name.startswith("workload-")]
        self.assertEqual(len(others), 20)
        self.assertEqual(len({look.colour for look in others}), 20)
        self.assertEqual(len({(look.marker, look.dashes) for look in others}), 20)
        self.assertEqual(len({(look.colour, look.hatch) for look in others}), 20)

    def test_a_method_with_several_options_has_a_bar_for_each(self):
        part = next(part for part in self.spec["parts"] if part["id"] == "throughput")
        entry = {"kind": "grouped_bars", "x": "workers", "y": "throughput", "methods": ["wfbp"]}
        one, _ = self.drawn("throughput", entry)
        kept = part["cells"]
        try:
            part["cells"] = list(kept)
            for i, cell in enumerate(kept):
                if cell["config"]["method"] != "syncea":
                    continue
                config = {**cell["config"], "method": "wfbp", "method_options": {"collective": "c"}}
                part["cells"][i] = {**cell, "config": config, "label": "wfbp (c)"}
            other, _ = self.drawn("throughput", entry)
        finally:
            part["cells"] = kept
        self.assertEqual([handle.get_label() for handle in other.handles[:2]], ["wfbp", "wfbp (c)"])
        self.assertEqual(len(other.figure.axes), len(one.figure.axes))  # options make no panels

    def test_report_is_one_self_contained_page(self):
        code, out, _ = self.render("report", out="report.html")
        self.assertEqual(code, 0)
        text = Path(out.strip()).read_text(encoding="utf-8")
        page = Page(text)
        self.assertEqual(page.open, [])
        for link in page.links:
            self.assertTrue(link.startswith(("#", "data:image/", "data:text/csv")), link[:80])
            if link.startswith("#"):
                self.assertIn(link[1:], page.ids)
        self.assertNotIn("<script", text)
        self.assertEqual(len(page.images), 7)
        for image in page.images:
            self.assertIn(b"<svg", base64.b64decode(image.split(",", 1)[1])[:1000])
        words = "".join(page.text)
        for word in (
            "safusion-inter: 1.12x the throughput of wfbp.",
            "direction only, preliminary",
            "1.12x [1.08, 1.16]",
            "1.24x (figure 1.31x; the text is judged)",
            "Ok-Topk needs a power of two",
            "another build ran on this machine",
            "gcc 12.2.0",
            "9104e56",
            "libtorch",
            "how the numbers came about",
            "median |error|",
            "timeout",
            "1 Gbit/s link, 200 µs per message",
        ):
            self.assertIn(word, words)
        places = [text.index(f"<section id='{name}'") for name in ("found", "figures", "tables")]
        places += [text.index("<section id='verdicts'"), text.index("<section id='provenance'")]
        self.assertEqual(places, sorted(places))
        self.assertLess(places[0], text.index("<nav>"))
        self.assertIn("Its output stays on the machine that ran it", text)

    def test_tables_of_a_report_are_the_harness_s(self):
        self.assertEqual(self.render("report", out="t.html")[0], 0)
        text = (self.folder / "t.html").read_text(encoding="utf-8")
        section = text[text.index("<section id='tables'") : text.index("<section id='verdicts'")]
        shown_rows = [
            [html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
            for row in re.findall(r"<tr[^>]*>(<td.*?)</tr>", section)
        ]
        parts = [part for part in self.spec["parts"] if not part["id"].endswith(".predicted")]
        self.assertEqual(shown_rows, [row for part in parts for row in part["table"]["rows"]])
        self.assertEqual(section.count("<tr class='failed'>"), 1)  # syncea's timeout
        self.assertIn("<th scope='col' class='words'>method</th><th scope='col'>throughput</th>", section)
        self.assertIn("[1] Ok-Topk needs a power of two", re.sub(r"<[^>]*>", "", section))

    def test_a_report_has_every_number_as_csv(self):
        self.assertEqual(self.render("report", out="c.html")[0], 0)
        text = (self.folder / "c.html").read_text(encoding="utf-8")
        name, csv = re.search(r"download='(.*?)' href='data:text/csv;charset=utf-8,(.*?)'", text).groups()
        self.assertEqual(name, "quick.csv")
        self.assertEqual(urllib.parse.unquote(csv), self.spec["csv"])

    def test_a_bare_spec_of_which_nothing_has_run(self):
        cell = config("dense", "digits-resnet", 3, 1.0, "emulated")
        kinds = ("grouped_bars", "breakdown", "gantt", "bytes", "convergence", "scaling", "slopes", "prediction")
        part = {"id": "p", "cells": [cell], "figures": [{"kind": kind} for kind in kinds]}
        spec = Synthetic(self.folder / "bare").spec({"id": "quick", "parts": [part]})
        code, out, error = self.render("figure", spec=spec)
        self.assertEqual((code, out), (0, ""))
        self.assertEqual(error.count("not drawn"), 8)
        self.assertEqual(self.render("figure", "--figure", "gantt", spec=spec)[0], 1)
        code, _, _ = self.render("report", spec=spec, out="bare.html")
        self.assertEqual(code, 0)
        text = (self.folder / "bare.html").read_text(encoding="utf-8")
        self.assertEqual(Page(text).open, [])
        self.assertEqual(text.count("is not shown"), 8)
        self.assertIn("Not run (1 cells)", text)

    def with_part(self, part):
        return Synthetic(self.folder / "other").spec({"id": "quick", "parts": [part]})

    def test_slopes_are_the_ratios_in_the_experiments_order(self):
        made, cells = Synthetic(self.folder / "slopes"), []
        gains = {"z-near": {"wfbp": 2.0, "safusion-inter": 3.0}, "a-far": {"wfbp": 4.0, "safusion-inter": 1.5}}
        for cluster, of in gains.items():
            for method, gain in {"dense": 1.0, **of}.items():
                cell = config(method, "digits-resnet", 4, 1.0, "modelled", cluster=cluster)
                cells.append(cell)
                made.trial("slopes", cell, 0, {"throughput": (100 * gain, "images/s")})
        part = {"id": "slopes", "reference": "dense", "cells": cells, "figures": [{"kind": "slopes"}]}
        spec = made.spec({"id": "quick", "parts": [part]})
        path = self.folder / "slopes.json"
        self.assertEqual(self.render("figure", "--data", str(path), spec=spec, out="s")[0], 0)
        (panel,) = json.loads(path.read_text())["slopes-slopes"]["panels"]
        lines = sorted([round(y, 6) for y in ys] for _, ys in panel["lines"] if len(ys) == 2 and set(ys) != {1.0})
        self.assertEqual(lines, [[2.0, 4.0], [3.0, 1.5]])
        self.assertEqual(panel["y"], "Ratio to dense (log scale)")

    def test_data_has_the_numbers_that_were_drawn(self):
        path = self.folder / "data.json"
        more = ("--figure", "throughput-grouped_bars", "--data", str(path))
        self.assertEqual(self.render("figure", *more, out="d")[0], 0)
        panels = json.loads(path.read_text())["throughput-grouped_bars"]["panels"]
        drawn = [bar[3] for panel in panels for bar in panel["bars"]]
        ran = [cell for cell in self.spec["parts"][0]["cells"] if cell["trials"]]
        expected = [cell["metrics"]["throughput"]["geometric"]["value"] for cell in ran]
        self.assertEqual(len(drawn), len(expected))
        for ours, theirs in zip(sorted(drawn), sorted(expected)):
            self.assertAlmostEqual(ours, theirs)

    def test_input_errors_name_the_thing(self):
        for more, spec, word in (
            (("--part", "nothing"), None, "no part 'nothing'; it has throughput"),
            (("--figure", "nothing"), None, "it has throughput-grouped_bars"),
            ((), {**self.spec, "id": "slow"}, "describes 'slow'; expected 'quick'"),
            ((), self.with_part({"id": "p", "figures": [{"kind": "pie"}]}), "unknown kind 'pie'"),
            ((), {**self.spec, "parts": [{"id": "p", "kind": "", "cells": [{"config": {}}]}]},
             "without config_hash"),
            ((), {"form": cells.FORM, "id": "quick", "parts": []},
             "expected csv, headlines, judged, provenance"),
            ((), {**self.spec, "form": 1},
             "form 1; expected 3: another version of sparfuse wrote it; `sparfuse figure` and"),
        ):
            code, _, error = self.render("figure", *more, spec=spec)
            self.assertEqual(code, 2)
            self.assertRegex(error, re.escape(word))


if __name__ == "__main__":
    main(example)
