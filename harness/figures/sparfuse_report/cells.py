"""Reads the experiment that spec.json describes.

The trials that count, the compared cells and every interval and ratio are in spec.json, which
the harness writes (harness/report). Nothing is decided or computed again here.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from sparfuse_report import series, wording

FORM = 3  # of spec.json (kSpecForm of harness/report/spec.hpp)


class SpecError(Exception):
    """An experiment description that cannot be used; the message says the expected form."""


class NoData(Exception):
    """A figure for which no trial counts yet."""


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _by_block(values):
    return {int(block): value for block, value in values.items()}


@dataclass(frozen=True)
class Interval:
    """A quantity over blocks; `low` and `high` are None if one block gives no interval."""

    value: float
    low: float | None
    high: float | None
    n: int
    values: dict = field(default_factory=dict)  # {block: ratio}, for a ratio alone
    text: str = ""  # the words of tables, with unit and ends

    @staticmethod
    def of(fields):
        if fields is None:
            return None
        values = _by_block(fields.get("values", {}))
        ends = fields["low"], fields["high"]
        return Interval(fields["value"], *ends, fields["n"], values, fields.get("text", ""))


def text_of(interval):
    """The interval's text in tables; a dash if there is none."""
    return interval.text if interval else wording.NONE


def value_of(interval):
    return interval.value if interval else None


class Trial:
    """A trial that counts for its cell."""

    def __init__(self, fields, results):
        self.trial_id, self.block = fields["id"], fields["block"]
        self.directory = Path(results) / fields["directory"]

    def series(self, name):
        """Reads the file `name` (such as "spans.npy"); None if the trial did not write it."""
        return series.read(self.directory / name)


class Cell:
    def __init__(self, part, fields):
        for name in ("config", "config_hash", "label", "metrics", "trials"):
            if name not in fields:
                raise SpecError(f"part '{part.id}': a cell without {name}: {canonical(fields)[:200]}")
        self.part, self.fields, self.config = part, fields, fields["config"]
        self.hash, self.metrics = fields["config_hash"], fields["metrics"]
        self.dense, self.oversubscribed = fields["dense"], fields["oversubscribed"]
        self.hardware, self.sources = fields["hardware"], fields["sources"]
        self.link, self.link_in_full = fields["link"]  # words
        self.declared = fields["declared"]  # whether it models a declared cluster
        self.set_aside = fields["set_aside"]
        self.imported = fields["imported"]  # positions of the part's imported results of its setting
        self.disturbed = fields.get("disturbed") or []  # disturbed trials
        self.trials = {
            trial["block"]: Trial(trial, part.experiment.results) for trial in fields["trials"]
        }
        self.method = self.config["method"]
        self.workload = wording.workload(self.config["workload"])
        self.label = fields["label"]  # the method's name, with options if these tell two cells apart
        self.workers, self.mode = self.config["workers"], self.config["mode"]
        self.density, self.target = self.config.get("density"), self.config.get("target")

    def get(self, key):
        """A field of the configuration, or "label". A model table gives its name alone; "link_gbps"
        and dotted names reach inside."""
        if key in ("label", "workload"):
            return getattr(self, key)
        if key == "link_gbps":
            return (self.config.get("link") or {}).get("gbps")
        value = self.config
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    @property
    def n(self):
        return len(self.trials)

    def values(self, metric):
        """{block: value} of the trials that have the metric."""
        return _by_block(self.metrics[metric]["values"]) if metric in self.metrics else {}

    def average(self, metric):
        """Arithmetic mean over blocks with its interval; None without a value."""
        return Interval.of(self.metrics.get(metric, {}).get("average"))

    def mean(self, metric):
        return value_of(self.average(metric))

    def interval(self, metric):
        """Geometric mean over blocks with its interval; None without positive values."""
        return Interval.of(self.metrics.get(metric, {}).get("geometric"))

    def ratio(self, metric, method):
        """This cell's `metric` over the one of its compared cell, of method `method`; None if there
        is no such cell, or no block that both have."""
        over = self.fields["ratios"].get(method)
        return Interval.of(over["metrics"].get(metric)) if over else None

    def points(self):
        """Live cells that equal this modelled cell in all but the launch."""
        parts = self.part.experiment.parts
        return [parts[part].cells[cell] for part, cell in self.fields["points"]]

    def unit(self, metric):
        return self.metrics.get(metric, {}).get("unit") or wording.metric_unit(metric)

    def failure(self):
        """The failure's name, or "not run"; None if a trial counts."""
        return self.fields["failure"] or None

    def describe(self):
        density = [] if self.dense else [f"density {self.density:g}"]
        return ", ".join([self.label, *density, self.workload, f"{self.workers} workers", self.link_in_full])


class Part:
    def __init__(self, experiment, fields):
        self.experiment = experiment
        self.id, self.kind = fields["id"], fields["kind"]
        self.title, self.reference = fields.get("title") or self.id, fields.get("reference")
        self.excluded = fields.get("excluded") or []
        self.left_out = fields.get("left_out") or {}
        self.figures = fields.get("figures") or []
        self.table = fields.get("table")  # of its results, as harness/wording/table.hpp has made it
        self.prediction = fields.get("prediction")
        self.imported = fields.get("imported") or {}
        self.cells = [Cell(self, cell) for cell in fields["cells"]]

    def modes(self):
        return sorted({cell.mode for cell in self.cells})

    def shown(self, figure):
        """The cells that a figure's entry shows; all cells if the entry names none."""
        return [self.cells[i] for i in figure["cells"]] if "cells" in figure else self.cells

    def is_reference(self, cell):
        return cell.method == self.reference

    def ratio(self, cell, metric):
        """`metric` of `cell` over the reference's; None for the reference itself."""
        if self.reference is None or self.is_reference(cell):
            return None
        return cell.ratio(metric, self.reference)


class Experiment:
    """The content of spec.json; trials' directories are relative to the folder `results`."""

    def __init__(self, spec, results):
        if spec.get("form") != FORM:
            raise SpecError(
                f"spec.json: form {spec.get('form', 1)}; expected {FORM}: another version of sparfuse wrote it; "
                "`sparfuse figure` and `sparfuse report` write it anew"
            )
        missing = {"id", "parts", "headlines", "judged", "csv", "provenance"} - set(spec)
        if missing:
            raise SpecError(f"spec.json: expected {', '.join(sorted(missing))}")
        self.id, self.title = spec["id"], spec.get("title") or spec["id"]
        self.paper, self.results = spec.get("paper"), results
        self.preliminary_below = spec["preliminary_below"]
        self.calibration, self.headlines = spec.get("calibration") or [], spec["headlines"]
        self.provenance = spec["provenance"]
        self.judged, self.csv = spec["judged"], spec["csv"]  # verdicts of claims; CSV of every number
        self.disturbed = spec.get("disturbed") or ""  # a sentence on disturbed trials
        self.parts = [Part(self, part) for part in spec["parts"]]
        self._by_id = {part.id: part for part in self.parts}
        self.methods = list(  # methods and their labels
            dict.fromkeys(name for cell in self.all_cells() for name in (cell.method, cell.label))
        )

    def part(self, name):
        if name not in self._by_id:
            raise SpecError(f"experiment '{self.id}' has no part '{name}'; it has {', '.join(self._by_id)}")
        return self._by_id[name]

    def predicted(self, part):
        """The part that holds the modelled twins of `part`'s cells; None if there is none."""
        return self._by_id.get(part.id + ".predicted")

    def all_cells(self):
        return [cell for part in self.parts for cell in part.cells]


def metric_of(figure, default="throughput"):
    return figure.get("y") or figure.get("metric") or default


def shown_with(part, figure, metric, but=None):
    """The cells that a figure shows; NoData if none has the metric, cells of method `but` aside."""
    chosen = part.shown(figure)
    if not any(cell.values(metric) for cell in chosen if cell.method != but):
        raise NoData(f"no trial of part '{part.id}' counts that has '{metric}'")
    return chosen


class Panel:
    """The cells of one panel of a figure, and the words that distinguish it, as the harness found them
    (harness/report/figures/panels.hpp)."""

    def __init__(self, part, given):
        self.given, self.cells = given, [part.cells[i] for i in given["cells"]]
        self.head, self.rest = given["head"], given["rest"]


def panels(part, figure):
    return [Panel(part, given) for given in figure.get("panels", [])]


def sort_key(value):
    """A key that sorts numbers ascending, links by speed with the unshaped one last, then text."""
    if isinstance(value, dict) and "gbps" in value:
        return (0, value["gbps"], canonical(value))
    if value is None:
        return (2, 0.0, "")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (0, float(value), "")
    return (1, 0.0, value if isinstance(value, str) else canonical(value))
