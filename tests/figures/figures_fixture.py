"""Makes a spec.json and the series that it names, as the harness would, for the tests of figures.

The intervals are made up: twice the standard deviation to either side. What they are in truth is
tested where they are computed (tests/harness).
"""

import contextlib
import hashlib
import io
import json
import math
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from sparfuse_report import __main__ as render
from sparfuse_report import cells, kinds, style, wording

METHODS = ["dense", "wfbp", "horovod-fusion", "syncea", "safusion-naive", "safusion-inter"]
HARDWARE = "Intel Xeon Processor @ 2.80GHz, 2 cores, 8 GiB"
METHOD_KEYS = ["method", "method_options", "sparsifier", "sparsifier_options"]
METHOD_KEYS += ["density", "feedback"]
PANEL_KEYS = ["workload", "link", "workers", "density", "sparsifier", "mode", "ranks_per_node"]
PANEL_KEYS += ["method_options", "cluster", "inputs"]
FACTS = {"cores": "2", "machine.memory_gib": "8", "profile": "07265b19" * 8}
PROVENANCE = {
    "trials": 7,
    "first_utc": "2026-11-20T10:00:00Z",
    "last_utc": "2026-11-20T11:00:00Z",
    "sources": [{"source": "9104e56", "trials": 7}],
    "systems": [{"hash": "ab" * 32, "hardware": HARDWARE, "trials": 7, "facts": FACTS}],
    "facts": {"software.compiler": ["gcc 12.2.0"], "software.libtorch": ["2.11.0"]},
}


def folder_of(test):
    """A folder that goes with the test."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    return Path(folder.name)


def drawn(test, experiment, part, entry=None):
    """The figure of an entry, by default of the part's first, before it is framed; it goes with the test."""
    entry = entry or part.figures[0]
    made = kinds.KINDS[entry["kind"]](experiment, part, entry, style.Styles(experiment.methods))
    test.addCleanup(style.close, made.figure)
    return made


def rendered(verb, folder, spec, *more):
    """Calls the program on the experiment quick; returns (exit code, stdout, stderr)."""
    command = [verb, "--results", str(folder / "results"), "--experiment", "quick", "--spec", str(spec)]
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        return render.main([*command, *more]), out.getvalue(), error.getvalue()


def main(fill):
    """Runs the tests, or with --example DIR leaves what fill(DIR/results) makes there, drawn. Returned by
    `fill`: the spec."""
    if "--example" not in sys.argv:
        unittest.main()
    folder = Path(sys.argv[sys.argv.index("--example") + 1])
    text = json.dumps(fill(folder / "results"))
    (folder / "spec.json").write_text(text)
    for verb, out in (("figure", "figures"), ("report", "report.html")):
        print(*rendered(verb, folder, folder / "spec.json", "--out", str(folder / out))[1:])


def write_series(path, columns, sampling="every step"):
    """Writes {name: values} like a trial: the NumPy file, and its entry in trial.json."""
    arrays = [np.asarray(values) for values in columns.values()]
    table = np.rec.fromarrays(arrays, dtype=[(name, array.dtype) for name, array in zip(columns, arrays)])
    np.save(path, table.view(np.ndarray))
    described = Path(path).with_name("trial.json")
    trial = json.loads(described.read_text()) if described.exists() else {"series": {}}
    said = {"rows": len(table), "sampling": sampling, "units": dict.fromkeys(columns, "")}
    trial["series"][Path(path).name] = said
    described.write_text(json.dumps(trial))


def config(method, workload, workers, gbps, mode, kind="throughput", **more):
    dense = method in ("dense", "horovod-fusion")
    fields = {
        "kind": kind,
        "mode": mode,
        "workload": workload,
        "workload_options": {},
        "method": method,
        "method_options": {"buffer_bytes": 65536} if method == "safusion-naive" else {},
        "sparsifier": "none" if dense else "topk",
        "sparsifier_options": {},
        "density": 1 if dense else 0.01,
        "feedback": "none" if dense else "residual",
        "dense_tensors": {"max_ndim": 1, "names": []},
        "workers": workers,
        "ranks_per_node": workers,
        "threads_per_worker": 1,
        "batch_per_worker": 16,
        "accumulation": 1,
        "transport": "mpi",
        "link": {"gbps": gbps, "alpha_us": 200.0} if gbps else None,
        "warmup_steps": 3,
        "steps": 15,
        "recipe": {"learning_rate": 0.1},
        "deadline_seconds": 60,
        "cluster": "this-machine" if mode == "modelled" else None,
    }
    fields.update(more)
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return {**fields, "config_hash": hashlib.sha256(canonical.encode()).hexdigest()}


def interval(values):
    """The mean of `values` with its interval in the harness's form; None without values."""
    if not values:
        return None
    n, mean = len(values), sum(values) / len(values)
    spread = 2 * math.sqrt(sum((value - mean) ** 2 for value in values) / n)
    bounds = (mean - spread, mean + spread) if n > 1 else (None, None)
    return worded(mean, *bounds, n)


def worded(value, low, high, n, unit="x"):
    """An interval in the form that the harness writes."""
    ends = "" if low is None else f" [{low:.2f}, {high:.2f}]"
    return {"value": value, "low": low, "high": high, "n": n, "text": f"{value:.2f}{unit}{ends}"}


def geometric(values, unit="x"):
    if not values or min(values) <= 0:
        return None
    found = interval([math.log(value) for value in values])
    ends = (None if found[name] is None else math.exp(found[name]) for name in ("low", "high"))
    return worded(math.exp(found["value"]), *ends, found["n"], unit)


def link_words(cell):
    """The words for a cell's link, and those in full."""
    link = cell["link"]
    words = f"{link['gbps']:g} Gbit/s" if link else "unshaped"
    return [words, f"{words} link, {link['alpha_us']:g} µs per message" if link else "unshaped link"]


def ratio(ours, other):
    """The ratio of {block: value} to {block: value}, in the form of spec.json."""
    values = {block: ours[block] / other[block] for block in ours if other.get(block)}
    found = geometric(list(values.values()))
    return found and {**found, "values": values}


def _setting(cell):
    return {key: value for key, value in cell.items() if key not in (*METHOD_KEYS, "config_hash")}


MARKS = {"holds": ("✓", "good"), "inconclusive": ("?", "part"), "direction only": ("≈", "part"),
         "not decided": ("~", "part"), "does not hold": ("✗", "alarm")}


def table(columns, rows, looks=(), caption="", notes=()):
    """A finished table in the form of spec.json: words in the first column, numbers in the others."""
    return {"title": "", "caption": caption, "columns": columns, "rows": rows, "looks": list(looks),
            "alignment": "l" + "r" * (len(columns) - 1), "notes": list(notes)}


def judged_setting(verdict, words="", value=1.0):
    mark, look = next(MARKS[word] for word in MARKS if verdict.startswith(word))
    ours = f"{value:.2f}x [{value - 0.04:.2f}, {value + 0.04:.2f}]"
    return {"mark": mark, "look": look, "words": words, "value": f"{value:.2f}x", "ours": ours,
            "verdict": verdict}


def judged_sentence(sentence, *settings, expected="> 1x"):
    """The harness's verdict on a sentence. settings: those of judged_setting, the worst first."""
    rows = [[each["words"], expected, each["ours"], "3", "emulated", each["verdict"]] for each in settings]
    return {
        **{key: settings[0][key] for key in ("mark", "look")},
        "sentence": sentence,
        "facts": ["throughput", f"expected {expected}", "emulated", "n = 3"],
        "settings": list(settings),
        "many": len(settings) > 12,
        "summary": "what its settings say",
        "table": table(["setting", "expected", "ours (95 %)", "n", "mode", "verdict"], rows),
    }


def judged(groups):
    """All verdicts in the form of spec.json. groups: {id of a part or an experiment: sentences}."""
    count = sum(len(each["settings"]) for sentences in groups.values() for each in sentences)
    listed = [{"id": name, "title": f"Claims of {name}", "sentences": sentences}
              for name, sentences in groups.items() if sentences]
    return {"claims": count, "summary": "what all say", "meanings": "what the marks mean", "groups": listed}


def results(part):
    """The finished table of a part's results, with a row for each cell."""
    looks = {"": "", "not run": "absent", "disturbed": "absent"}
    rows, found = [], []
    for cell in part["cells"]:
        throughput = cell["metrics"].get("throughput", {}).get("average")
        number = f"{throughput['value']:.4g} images/s" if throughput else cell["failure"]
        rows.append([cell["label"], number, str(len(cell["trials"]))])
        found.append(looks.get(cell["failure"], "failed"))
    notes = [entry["reason"] for entry in part.get("excluded", [])]
    return table(["method", "throughput", "n"], rows, found, "how the numbers came about", notes)


class Synthetic:
    """A results folder of series, and the spec.json that names them."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.count = 0
        self.trials = {}  # {config_hash: {block: trial that counts}}
        self.set_aside = {}  # {config_hash: trials that do not count}

    def trial(self, part, cell, block, metrics=(), failure=None, annotations=()):
        """Adds a trial; returns (trial_id, directory). metrics: {name: (value, unit)}. A trial with a
        failure or annotations does not count."""
        self.count += 1
        trial_id = f"quick/{part}/{cell['method']}-{cell['config_hash'][:8]}-b{block}-{self.count}"
        directory = Path("trials") / trial_id
        (self.folder / directory).mkdir(parents=True)
        if failure or annotations:
            self.set_aside.setdefault(cell["config_hash"], []).append({
                "trial_id": trial_id, "block": block, "started_utc": "2026-11-20T10:00:00Z",
                "failure": failure or "called bad", "annotations": list(annotations)})
        else:
            self.trials.setdefault(cell["config_hash"], {})[str(block)] = {
                "id": trial_id, "block": block, "directory": str(directory), "metrics": dict(metrics)}
        return trial_id, self.folder / directory

    def values(self, cell, metric):
        trials = self.trials.get(cell["config_hash"], {}).items()
        return {block: trial["metrics"][metric][0] for block, trial in trials if metric in trial["metrics"]}

    def _counterpart(self, found, cell, method):
        same = [i for i, other in enumerate(found)
                if other["method"] == method and _setting(other) == _setting(cell)]
        alike = [i for i in same if all(found[i][key] == cell[key] for key in ("density", "sparsifier"))]
        dense = [i for i in same if found[i]["sparsifier"] == "none"]
        return next(iter(alike or dense or (same if cell["sparsifier"] == "none" else [])), None)

    def _cell(self, found, cell, reference):
        hash = cell["config_hash"]
        trials = self.trials.get(hash, {})
        units = {name: unit for trial in trials.values() for name, (_, unit) in trial["metrics"].items()}
        metrics = {}
        for name, unit in units.items():
            values = self.values(cell, name)
            numbers = list(values.values())
            metrics[name] = {"unit": unit, "values": values, "average": interval(numbers),
                             "geometric": geometric(numbers, f" {unit}")}
        ratios = {}
        for method in {other["method"] for other in found}:
            over = self._counterpart(found, cell, method)
            if over is not None:
                of = {name: ratio(metrics[name]["values"], self.values(found[over], name)) for name in units}
                ratios[method] = {"cell": over, "metrics": of}
        set_aside = self.set_aside.get(hash, [])
        failure = "" if trials else set_aside[-1]["failure"] if set_aside else "not run"
        declared = cell["mode"] == "modelled" and cell["cluster"] != "this-machine"
        hardware = f"profile {cell['cluster']} (declared)" if declared else HARDWARE
        return {
            "config": {key: value for key, value in cell.items() if key != "config_hash"},
            "config_hash": hash,
            "label": cell["method"],
            "link": link_words(cell),
            "declared": declared,
            "dense": cell["sparsifier"] == "none",
            "trials": [{key: trial[key] for key in ("id", "block", "directory")} for trial in trials.values()],
            "metrics": metrics,
            "reference": self._counterpart(found, cell, reference) if reference else None,
            "ratios": ratios,
            "points": [],
            "failure": failure,
            "oversubscribed": cell["mode"] != "modelled" and cell["workers"] > 2,
            "hardware": [hardware] if trials else [],
            "sources": ["9104e56"] if trials else [],
            "set_aside": set_aside,
            "imported": [],
        }

    def _points(self, parts):
        """Gives modelled cells the live cells of equal method, workload, workers, link and density."""

        def key(cell):
            config = cell["config"]
            return [config[name] for name in ("method", "workload", "workers", "link", "density")]

        live = [
            (i, j, cell)
            for i, part in enumerate(parts)
            for j, cell in enumerate(part["cells"])
            if cell["config"]["mode"] != "modelled" and cell["trials"]
        ]
        for part in parts:
            for cell in part["cells"]:
                if cell["config"]["mode"] == "modelled":
                    cell["points"] = [[i, j] for i, j, other in live if key(other) == key(cell)][:1]

    def _prediction(self, part, twins):
        def key(cell):
            return [cell["config"][name] for name in ("method", "workload", "workers", "link")]

        found = []
        for i, cell in enumerate(part["cells"]):
            same = [j for j, twin in enumerate(twins["cells"]) if key(twin) == key(cell)]
            twin = same[0] if same else None
            observed = cell["metrics"].get("step_seconds", {}).get("geometric")
            if twin is None or observed is None:
                continue
            guess = twins["cells"][twin]["metrics"]["step_seconds"]["average"]["value"]
            found.append({"cell": i, "twin": twin, "observed": observed, "predicted": guess,
                          "error": guess / observed["value"] - 1, "oversubscribed": cell["oversubscribed"]})

        def middle(crowded):
            chosen = [pair for pair in found if pair["oversubscribed"] == crowded]
            errors = sorted(abs(pair["error"]) for pair in chosen)
            return errors[len(errors) // 2] if errors else None

        rows = [[part["cells"][pair["cell"]]["label"], f"{100 * pair['error']:+.1f} %"] for pair in found]
        return {
            "cells": found,
            "may_be_off": 0.15,
            "table": table(["method", "error"], rows, caption="median |error|"),
            "median_error": middle(False),
            "oversubscribed_median_error": middle(True),
            "ordered_pairs": 5,
            "agreeing_pairs": 4,
        }

    def spec(self, fields):
        """Completes `fields`, {id, parts: [{id, cells: [config], figures, judged: [sentence], ...}]}, to a spec."""
        parts = []
        for part in fields["parts"]:
            found, reference = part.get("cells", []), part.get("reference")
            figures = [{"cells": shown(found, entry), **entry} for entry in part.get("figures", [])]
            made = [self._cell(found, cell, reference) for cell in found]
            figures = [completed(made, entry, reference) for entry in figures]
            parts.append({"kind": "throughput", **part, "cells": made, "figures": figures})
        self._points(parts)
        for part in parts:
            twins = [other for other in parts if other["id"] == part["id"] + ".predicted"]
            part["prediction"] = self._prediction(part, twins[0]) if twins else None
            part["table"] = results(part)
        return {
            "form": cells.FORM,
            "preliminary_below": 5,
            "confidence": 0.95,
            "headlines": [],
            "provenance": PROVENANCE,
            "judged": judged({part["id"]: part.pop("judged", []) for part in parts}),
            "csv": 'what,part,value\nresult,p,"1,5 %"\n',
            **fields,
            "parts": parts,
        }


def shown(cells, entry):
    """The positions of the cells that an entry's filters keep."""
    given = {**entry, **entry.get("where", {})}
    filters = {key: value for key, value in given.items() if cells and key in cells[0] and key != "kind"}
    if "methods" in entry:
        filters["method"] = entry["methods"]
    lists = {key: value if isinstance(value, list) else [value] for key, value in filters.items()}
    return [i for i, cell in enumerate(cells) if all(cell.get(key) in known for key, known in lists.items())]


INSIDE = {  # of kinds whose panels differ in more than methods: keys in which a panel's cells differ
    "dual_line": lambda entry: [entry["x"]],
    "grouped_bars": lambda entry: [entry.get("x", "workers"), entry.get("series", "method")],
    "normalised_bars": lambda entry: ["workload", "method"],
    "scaling": lambda entry: ["workers", "method"],
    "sensitivity": lambda entry: ["method", "inputs"],
    "slopes": lambda entry: [entry.get("x", "cluster"), "method"],
    "ablation": lambda entry: [entry.get("x", "workers"), "method"],
    "waiting": lambda entry: ["sparsifier"],
}


def panels(found, entry):
    """The panels of a figure in the form of spec.json: cells of one panel agree in all telling keys
    but those inside it; a dense cell fits each density and sparsifier."""
    inside = INSIDE.get(entry["kind"], lambda entry: ["method"])(entry)
    chosen = [
        i for i in entry["cells"]
        if entry["kind"] != "scaling" or found[i]["config"]["mode"] == "modelled"
    ]
    loose = ("density", "sparsifier", "method_options")  # which a method may have or not
    keys = [key for key in PANEL_KEYS if key not in inside and key not in loose]
    groups = {}
    for i in chosen:
        fields = {key: found[i]["config"].get(key) for key in keys}
        groups.setdefault(json.dumps(fields, sort_keys=True), []).append(i)
    made = []
    for numbers in groups.values():
        of = found[numbers[0]]["config"]
        rest = f"{of['workers']} workers, {link_words(of)[0]}, {of['mode']}"
        workload = wording.workload(of["workload"])
        made.append({"cells": numbers, "head": workload, "rest": rest, "heading": f"{workload}, {rest}"})
    return made


def bars(found, panel, entry, reference):
    """The bars of a panel in the form of spec.json, without published numbers; ticks as they are."""
    x, y = entry["x"], entry.get("y", "throughput")
    over, series = entry.get("normalise"), entry.get("series", "method")
    places, made = [], []
    for i in sorted(panel["cells"], key=lambda i: str(found[i]["config"][x])):
        cell = found[i]
        place = cell["config"][x]
        places += [] if place in places else [place]
        of = cell["ratios"].get(over or reference) or {"metrics": {}}
        ratio, metric = of["metrics"].get(y), cell["metrics"].get(y)
        bar = {"value": None, "low": None, "high": None, "dots": []}
        if over and ratio:
            bar = {key: ratio[key] for key in ("value", "low", "high")} | {"dots": list(ratio["values"].values())}
        elif not over and metric and metric["geometric"]:
            value = metric["geometric"]["value"]
            ends = {"low": None, "high": None}
            if ratio and ratio["low"] and cell["config"]["method"] != reference:
                ends = {key: value * ratio[key] / ratio["value"] for key in ends}
            bar = {"value": value, **ends, "dots": list(metric["values"].values())}
        why = cell["failure"] or ("exactly 0" if metric else "no value")
        name = cell["label"] if series == "method" else str(cell["config"][series])
        if name != over:
            made.append({**bar, "place": places.index(place), "name": name, "cell": i, "why": why, "printed": []})
    return {"places": [str(place) for place in places], "bars": made}


def completed(found, entry, reference=None):
    """A figure's entry with what the harness adds (harness/report/figures/figure_numbers.hpp)."""
    made = {"tables": [], **entry, "panels": panels(found, entry)}
    if entry["kind"] in ("grouped_bars", "ablation", "slopes"):
        made["x"] = entry.get("x", "cluster" if entry["kind"] == "slopes" else "workers")
    made.setdefault("reference", reference)
    if entry["kind"] == "normalised_bars":
        made.update(x="workload", y="final_metric", normalise=made["reference"])
    methods = list(dict.fromkeys(found[i]["config"]["method"] for i in entry["cells"]))
    made["variants"] = [name for name in entry.get("methods", methods) if name in methods]
    for panel in made["panels"]:
        panel["rows"] = panel.get("rows", [])
        panel["steps"] = [{"largest": None, "stated": None} for _ in made["variants"][1:]]
        if entry["kind"] in ("grouped_bars", "normalised_bars"):
            panel.update(bars(found, panel, made, reference))
    names = [bar["name"] for panel in made["panels"] for bar in panel.get("bars", [])]
    made["names"] = [[name, name] for name in dict.fromkeys(names)]
    return made


class Schedule:
    """A plausible step: backward by layers, then the sparsification and exchanges of the method."""

    SPARSE = {"wfbp": 12, "syncea": 1, "safusion-naive": 4, "safusion-inter": 3}  # exchanges in a step

    def __init__(self, method, workload, workers, gbps, noise=1.0):
        big = workload == "text-gpt"
        elements = 820_000 if big else 180_000
        load = max(1.0, workers / 2) * noise
        forward, backward = (0.034 if big else 0.017) * load, (0.071 if big else 0.036) * load
        update, layers = 0.004 * load, 24 if big else 18
        bandwidth = (gbps or 38) * 1e9 / 8
        alpha = 200e-6 if gbps else 15e-6
        dense = method in ("dense", "horovod-fusion")
        units = {"dense": 2, "horovod-fusion": 4}.get(method) or self.SPARSE[method]
        self.payload = elements * 4 if dense else elements * 0.01 * 8
        self.sent = self.payload * (2 * (workers - 1) / workers if dense else workers - 1)
        self.spans, now = [], 0.0

        def span(kind, lane, label, begin, end, size=0):
            self.spans.append((kind, lane, label, begin, end, size))
            return end

        now = span("forward", "compute", "", 0.0, forward)
        network, ready = 0.0, []
        sparsify = 0.0 if dense else 0.00035 * load + 0.012 * load / layers
        unit_of = [layer * units // layers for layer in range(layers)]
        decompress = 0.0
        for layer in range(layers):
            now = span("backward", "compute", f"layer{layers - layer}", now, now + backward / layers)
            ahead = method in ("wfbp", "safusion-naive", "safusion-inter")
            if ahead:
                now = span("sparsify", "compute", f"layer{layers - layer}", now, now + sparsify)
            if layer + 1 == layers or unit_of[layer + 1] != unit_of[layer]:
                unit = unit_of[layer]
                begin = now
                if method == "safusion-naive":
                    begin = span("negotiate", "control", f"unit{unit}", now, now + 2 * alpha)
                if method == "syncea":
                    now = begin = span("sparsify", "compute", f"unit{unit}", now, now + sparsify * layers * 0.7)
                begin = max(begin, network)
                end = begin + (workers - 1) * alpha * 2 + self.sent / units / bandwidth
                network = span("exchange", "data", f"unit{unit}", begin, end, int(self.payload / units))
                ready.append(network)
        self.backward_end = now
        for unit, arrived in enumerate(ready):
            if arrived > now:
                now = span("wait", "compute", f"unit{unit}", now, arrived)
            if not dense:
                decompress += 0.0006 * load
                now = span("decompress", "compute", f"unit{unit}", now, now + 0.0006 * load)
        now = span("update", "compute", "", now, now + update)
        total = {
            kind: sum(s[4] - s[3] for s in self.spans if s[0] == kind and s[1] == "compute")
            for kind in ("forward", "backward", "sparsify", "wait", "decompress", "update")
        }
        self.step, self.total = now + 0.0015, total
        self.missing = 3 if method == "syncea" else 0
        self.unit, self.samples = ("tokens/s", 16 * 64) if big else ("images/s", 16)
        self.workers = workers

    def metrics(self):
        step = self.step
        return {
            "step_seconds": (step, "s"),
            "throughput": (self.workers * self.samples / step, self.unit),
            "forward_seconds": (self.total["forward"], "s"),
            "backward_seconds": (self.total["backward"], "s"),
            "sparsify_seconds": (self.total["sparsify"], "s"),
            "exposed_communication_seconds": (self.total["wait"], "s"),
            "decompress_seconds": (self.total["decompress"], "s"),
            "update_seconds": (self.total["update"], "s"),
            "other_seconds": (0.0015, "s"),
            "payload_bytes": (self.payload, "B"),
            "sent_bytes": (self.sent, "B"),
            "received_bytes": (self.sent, "B"),
            "tensors_missing": (self.missing, "tensors"),
            "achieved_density": (min(1.0, self.payload / 8e6 + 0.0098), ""),
            "loss": (1.2, ""),
        }

    def write_spans(self, directory):
        rows = [
            (step, rank, *words, begin * stretch, end * stretch, size)
            for step, stretch in ((13, 1.0), (14, 1.03), (15, 0.98))
            for rank in (0, 1)
            for *words, begin, end, size in self.spans
        ]
        names = ("step", "rank", "kind", "lane", "label", "begin_seconds", "end_seconds", "bytes")
        write_series(directory / "spans.npy", dict(zip(names, zip(*rows))), "the last three measured steps")


class Page(HTMLParser):
    """Parses a page: asserts that tags close in order, and keeps ids, links, text and images."""

    VOID = {"meta", "img", "br"}

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.text, self.images = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in self.VOID:
            self.open.append(tag)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        self.links += [attributes[name] for name in ("href", "src") if name in attributes]
        if tag == "img":
            self.images.append(attributes["src"])

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        self.text.append(data)
