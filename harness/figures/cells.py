"""An experiment's parts and cells joined with their trials: which trials count, which cells are
compared with which, and how cells spread over the panels of a figure.

The experiment comes as the JSON that the harness writes (`spec.json`); optional keys may be absent.
"""

import json
import math
from dataclasses import replace

import intervals
import wording

# How a cell is launched or how long it runs; not what it computes. Twins may differ in these.
TWIN_IGNORES = {
    "mode",
    "cluster",
    "config_hash",
    "warmup_steps",
    "steps",
    "evaluate_every",
    "target",
    "deadline_seconds",
    "transport",
    "recipe",
    "oversubscribed",
    "label",
    "seed",
    "block",
}
# A modelled curve and the points drawn on it may differ in the placement of ranks too.
POINT_IGNORES = TWIN_IGNORES | {"kind", "ranks_per_node", "threads_per_worker", "dense_tensors"}
# What belongs to the method. Cells that agree in all else are compared with one another.
METHOD_KEYS = {
    "method",
    "method_options",
    "sparsifier",
    "sparsifier_options",
    "density",
    "feedback",
    "feedback_options",
    "config_hash",
    "label",
}
SPARSITY_KEYS = ("density", "sparsifier", "sparsifier_options", "feedback", "feedback_options")
# Where cells would fall on one place of a figure they are told apart by these, the first that can.
PANEL_KEYS = (
    "workload",
    "workload_options",
    "link",
    "workers",
    "density",
    "sparsifier",
    "sparsifier_options",
    "mode",
    "batch_per_worker",
    "accumulation",
    "threads_per_worker",
    "ranks_per_node",
    "feedback",
    "feedback_options",
    "dense_tensors",
    "no_feedback_tensors",
    "method_options",
    "cluster",
    "inputs",
    "transport",
    "device",
    "precision",
    "recipe",
    "steps",
    "warmup_steps",
    "target",
    "evaluate_every",
    "deadline_seconds",
    "kind",
)


# What a configuration without the key has, as harness/catalog/config_keys.cpp says.
ABSENT = {"device": "cpu", "precision": "fp32"}


class SpecError(Exception):
    """An experiment description that cannot be used; the message says what was expected."""


class NoData(Exception):
    """A figure of which no trial counts yet."""


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class Cell:
    def __init__(self, part, fields, store):
        self.part = part
        self.config = {
            **fields.get("config", {}),
            **{key: value for key, value in fields.items() if key != "config"},
        }
        if "config_hash" not in self.config:
            raise SpecError(
                f"part '{part.id}': a cell without config_hash: {canonical(fields)[:200]}"
            )
        self.hash = self.config["config_hash"]
        self.all_trials = store.trials(self.hash)
        self.trials = {}  # block -> the latest trial that counts
        for trial in self.all_trials:  # oldest first
            if trial.counts():
                self.trials[trial.block] = trial

    def __getattr__(self, name):
        if name in ("method", "workload", "workers", "mode", "density"):
            return self.config.get(name)
        raise AttributeError(name)

    def get(self, key):
        """A field of the configuration; "link_gbps" and dotted names reach inside."""
        if key == "link_gbps":
            return (self.config.get("link") or {}).get("gbps")
        if key in ABSENT:
            return self.config.get(key, ABSENT[key])
        value = self.config
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    @property
    def n(self):
        return len(self.trials)

    def values(self, metric):
        """{block: value} over the trials that count and have the metric."""
        return {
            block: trial.metrics[metric]
            for block, trial in sorted(self.trials.items())
            if metric in trial.metrics
        }

    def mean(self, metric):
        """Arithmetic mean over blocks; None without a value."""
        values = list(self.values(metric).values())
        return sum(values) / len(values) if values else None

    def interval(self, metric):
        """Geometric mean over blocks with its t interval; of a modelled step or throughput what
        the profile's errors of measurement leave. None without a positive value."""
        values = [value for value in self.values(metric).values() if value > 0]
        if not values:
            return None
        found, uncertainty = intervals.log_interval(values), self.mean("step_uncertainty")
        if uncertainty is None or metric not in ("step_seconds", "throughput"):
            return found
        factor = math.exp(uncertainty)
        return replace(found, low=found.value / factor, high=found.value * factor)

    def unit(self, metric):
        for trial in self.trials.values():
            if trial.units.get(metric):
                return trial.units[metric]
        return wording.METRICS.get(metric, ("", ""))[1]

    def failure(self):
        """None where a trial counts; else the latest failure's kind, or "not run"."""
        if self.trials:
            return None
        failed = [trial for trial in self.all_trials if not trial.counts()]
        if not failed:
            return "not run"
        latest = failed[-1]
        return "left out" if latest.status == "ok" and latest.annotations else latest.failure()

    def oversubscribed(self):
        """More threads than the machine has cores. None where the store does not know its cores."""
        if "oversubscribed" in self.config:
            return bool(self.config["oversubscribed"])
        for trial in self.all_trials:
            cores = wording.cores(trial.system)
            if cores and self.workers:
                return self.workers * (self.config.get("threads_per_worker") or 1) > cores
        return None

    def key(self, ignores):
        return canonical({key: value for key, value in self.config.items() if key not in ignores})

    def describe(self):
        words = [
            str(self.method),
            str(self.workload),
            f"{self.workers} workers",
            wording.link_in_full(self.config),
        ]
        if self.config.get("sparsifier") not in (None, "none"):
            words.insert(1, f"density {self.density:g}")
        return ", ".join(words)


class Part:
    def __init__(self, fields, store):
        self.id = fields.get("id") or "main"
        self.title = fields.get("title") or self.id
        self.mode = fields.get("mode")
        self.kind = fields.get("kind") or "throughput"
        reference = fields.get("reference")
        self.reference = reference.get("method") if isinstance(reference, dict) else reference
        self.defaults = fields.get("defaults") or {}
        self.axes = fields.get("axes") or []
        self.excluded = fields.get("excluded") or []
        self.figures = fields.get("figures") or []
        self.claims = fields.get("claims") or []
        self.tables = fields.get("tables") or []
        self.cells = [Cell(self, cell, store) for cell in fields.get("cells") or []]
        self.mode = self.mode or next((cell.mode for cell in self.cells), None)

    def modes(self):
        return sorted({cell.mode for cell in self.cells if cell.mode})

    def reference_cell(self, cell):
        """The cell of the reference method that `cell` is paired with; None where there is none."""
        if not self.reference:
            return None
        found = [
            other
            for other in self.cells
            if other.method == self.reference and other.key(METHOD_KEYS) == cell.key(METHOD_KEYS)
        ]
        if len(found) > 1:  # a sparse reference at several densities: the one like this cell
            found = [
                other
                for other in found
                if all(other.get(key) == cell.get(key) for key in SPARSITY_KEYS)
            ]
        return found[0] if len(found) == 1 else None

    def ratio(self, cell, metric):
        """metric of `cell` over the reference's, paired over blocks; None for the reference."""
        reference = self.reference_cell(cell)
        if reference is None or reference is cell:
            return None
        return intervals.paired_ratio(cell.values(metric), reference.values(metric))


class Experiment:
    def __init__(self, spec, store):
        self.id = spec.get("id") or ""
        self.title = spec.get("title") or self.id
        self.paper = spec.get("paper")
        self.store = store
        self.parts = [Part(part, store) for part in spec.get("parts") or [spec]]
        self.methods = []
        for part in self.parts:
            for cell in part.cells:
                if cell.method not in self.methods:
                    self.methods.append(cell.method)

    def part(self, name):
        for part in self.parts:
            if part.id == name:
                return part
        raise SpecError(
            f"experiment '{self.id}' has no part '{name}'; "
            f"it has {', '.join(part.id for part in self.parts)}"
        )

    def predicted(self, part):
        """The part that holds the modelled twins of `part`'s cells; None where there is none."""
        return next((other for other in self.parts if other.id == part.id + ".predicted"), None)

    def all_cells(self):
        return [cell for part in self.parts for cell in part.cells]


def select(cells, figure):
    """The cells that a figure's filters leave: any key that is a field of the configuration, and
    `methods`, each a value or a list of values. An empty filter says nothing; only `where` can ask
    for null (the unshaped link)."""
    chosen = []
    fields = {key for cell in cells for key in cell.config} | {"link_gbps"}
    filters = {
        key: value
        for key, value in figure.items()
        if key in fields
        and key not in ("kind", "label", "config_hash")
        and value not in (None, "", [])
    }
    filters.update(figure.get("where") or {})
    if figure.get("methods"):
        filters["method"] = figure["methods"]
    for cell in cells:
        if all(
            cell.get(key) in (value if isinstance(value, list) else [value])
            for key, value in filters.items()
        ):
            chosen.append(cell)
    return chosen


def is_dense(cell):
    return cell.config.get("sparsifier") in (None, "none") and cell.config.get("density") in (
        None,
        1,
    )


def panel_keys(cells, placed):
    """Fields that must tell panels apart so that no two cells share a place, given the fields
    `placed` inside a panel (such as x and series)."""
    placed = ["link" if key == "link_gbps" else key for key in placed]
    keys = []
    if "workload" not in placed and len({cell.workload for cell in cells}) > 1:
        keys.append("workload")  # workloads have different units
    while True:
        places = {}
        for cell in cells:
            places.setdefault(canonical([cell.get(key) for key in keys + placed]), []).append(cell)
        crowded = next((group for group in places.values() if len(group) > 1), None)
        if crowded is None:
            return keys
        new = next(
            (
                key
                for key in PANEL_KEYS
                if key not in keys
                and key not in placed
                and len({canonical(cell.get(key)) for cell in crowded}) > 1
            ),
            None,
        )
        if new is None:
            return keys
        keys.append(new)


def panels(cells, placed):
    """[(fields, cells)] in the order of the experiment. A dense cell has no density: where panels
    differ in sparsity it stands in each."""
    keys = panel_keys(cells, placed)
    sparse = [cell for cell in cells if not is_dense(cell)] or cells
    found = []
    for cell in (sparse if any(key in SPARSITY_KEYS for key in keys) else cells):
        fields = {key: cell.get(key) for key in keys}
        if fields not in found:
            found.append(fields)
    result = []
    for fields in found:
        inside = [
            cell
            for cell in cells
            if all(
                cell.get(key) == value or (key in SPARSITY_KEYS and is_dense(cell))
                for key, value in fields.items()
            )
        ]
        result.append((fields, inside))
    rank = {}
    for fields, _ in result:  # workloads in order of appearance; links and workers ascending
        rank.setdefault(canonical(fields.get("workload")), len(rank))
    return sorted(
        result,
        key=lambda panel: (
            rank[canonical(panel[0].get("workload"))],
            *(sort_key(panel[0].get(key)) for key in keys if key != "workload"),
        ),
    )


def sort_key(value):
    """Numbers ascending, links by speed with the unshaped one last, then text."""
    if isinstance(value, dict) and "gbps" in value:
        return (0, value["gbps"], canonical(value))
    if value is None:
        return (2, 0.0, "")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (0, float(value), "")
    return (1, 0.0, value if isinstance(value, str) else canonical(value))


def field_words(key, value, full_link=False):
    """How a panel's title or a table's heading says `key = value`."""
    if key == "link":
        return (wording.link_in_full if full_link else wording.link)({"link": value})
    if key == "link_gbps":
        return "unshaped" if value is None else f"{value:g} Gbit/s"
    if key == "workers":
        return f"{value} worker{'s' if value != 1 else ''}"
    if key in ("workload", "mode", "method", "sparsifier"):
        return str(value)
    if isinstance(value, dict):
        return (
            ", ".join(f"{name} {item}" for name, item in wording.flatten(value).items())
            or f"no {key}"
        )
    return (
        f"{key.replace('_', ' ')} {value:g}"
        if isinstance(value, float)
        else f"{key.replace('_', ' ')} {value}"
    )


def common(cells, key):
    """The value that all cells have; None where they differ."""
    values = {canonical(cell.get(key)) for cell in cells}
    return cells[0].get(key) if len(values) == 1 else None


def panel_words(fields, cells, leave_out=(), full_link=False):
    """(workload, the rest of what sets the panel apart, with workers, link and mode said always
    unless they are in `leave_out`: they stand on an axis)."""
    said = dict(fields)
    for key in ("workers", "link"):
        if (
            key not in said
            and key not in leave_out
            and (key == "workers" or len({canonical(cell.get("link")) for cell in cells}) == 1)
        ):
            value = common(cells, key)
            if value is not None or key == "link":
                said[key] = value
    order = ["workers", "link"]
    keys = [key for key in order if key in said] + [key for key in said if key not in order]
    words = [
        field_words(key, said[key], full_link)
        for key in keys
        if key not in ("workload", *leave_out)
    ]
    cluster = wording.declared_cluster({"cluster": common(cells, "cluster")})
    if cluster and "cluster" not in said:
        if "link" in said and said["link"] is None and "link" not in leave_out:
            words.remove(field_words("link", None, full_link))
        words.append(f"cluster {cluster}")
    modes = sorted({cell.mode for cell in cells if cell.mode})
    if modes and "mode" not in said:
        words.append(" and ".join(modes))
    workloads = sorted({str(cell.workload) for cell in cells})
    return (", ".join(workloads) if "workload" not in leave_out else ""), ", ".join(words)
