"""A synthetic results folder with the documented schema, for the tests of harness/figures."""

import hashlib
import json
import sqlite3
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "harness" / "figures"))

SCHEMA = """
CREATE TABLE trial(trial_id TEXT PRIMARY KEY, experiment, part, kind, mode, method, workload,
  sparsifier, density REAL, workers INTEGER, link_gbps REAL, batch_per_worker INTEGER,
  block INTEGER, seed INTEGER, config_hash, system_hash, source_commit, status, failure_kind,
  failure_message, log_tail, directory, started_utc, seconds REAL, config_json, system_json,
  provenance_json);
CREATE TABLE metric(trial_id, name, value REAL, unit, PRIMARY KEY(trial_id, name));
CREATE TABLE check_result(trial_id, name, passed INTEGER);
CREATE TABLE revision(trial_id, part, revision INTEGER);
CREATE TABLE annotation(annotation_id, trial_id, reason, created_utc);
"""
METHODS = ["dense", "wfbp", "horovod-fusion", "syncea", "safusion-naive", "safusion-inter"]
SYSTEM = {
    "cpu": {"model": "Intel(R) Xeon(R) Processor @ 2.80GHz", "cores": 2},
    "memory_bytes": 8 << 30,
    "kernel": "6.1.0-26-amd64",
    "links": [{"name": "loopback", "alpha_us": 11.2, "gbps": 38.0}],
}
PROVENANCE = {
    "source": {"commit": "9104e56", "dirty": False},
    "software": {"compiler": "gcc 12.2.0", "libtorch": "2.11.0", "openmpi": "4.1.4"},
    "argv": ["sparfuse", "run", "quick"],
    "environment": {"OMP_NUM_THREADS": "1"},
}


def write_series(path, columns, sampling="every step"):
    """Writes {name: values} as a trial does: the NumPy file, and what trial.json says of it."""
    arrays = [np.asarray(values) for values in columns.values()]
    table = np.empty(
        len(arrays[0]), dtype=[(name, array.dtype) for name, array in zip(columns, arrays)]
    )
    for name, array in zip(columns, arrays):
        table[name] = array
    np.save(path, table)
    described = Path(path).with_name("trial.json")
    trial = json.loads(described.read_text()) if described.exists() else {"series": {}}
    trial["series"][Path(path).name] = {
        "rows": len(table),
        "sampling": sampling,
        "units": dict.fromkeys(columns, ""),
    }
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


class Synthetic:
    """A results folder and the spec that describes it."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.database = sqlite3.connect(self.folder / "index.sqlite")
        self.database.executescript(SCHEMA)
        self.count = 0

    def close(self):
        self.database.commit()
        self.database.close()

    def trial(
        self,
        part,
        cell,
        block,
        metrics=(),
        status="ok",
        failure_kind=None,
        message=None,
        log_tail=None,
        checks=None,
        system=None,
        experiment="quick",
    ):
        """metrics: {name: (value, unit)}. Returns (trial_id, directory)."""
        self.count += 1
        trial_id = (
            f"{experiment}-{part}-{cell['method']}-{cell['workload']}-w{cell['workers']}-"
            f"{cell['config_hash'][:8]}-b{block}-{self.count}"
        )
        directory = Path("trials") / experiment / part / trial_id
        (self.folder / directory).mkdir(parents=True)
        system = SYSTEM if system is None else system
        self.database.execute(
            "INSERT INTO trial VALUES (" + ",".join("?" * 27) + ")",
            (
                trial_id,
                experiment,
                part,
                cell["kind"],
                cell["mode"],
                cell["method"],
                cell["workload"],
                cell["sparsifier"],
                cell["density"],
                cell["workers"],
                (cell["link"] or {}).get("gbps"),
                cell["batch_per_worker"],
                block,
                1 + block,
                cell["config_hash"],
                hashlib.sha256(json.dumps(system).encode()).hexdigest(),
                "9104e56",
                status,
                failure_kind,
                message,
                log_tail,
                str(directory),
                f"2026-11-20T10:{self.count // 60 % 60:02d}:{self.count % 60:02d}Z",
                12.5,
                json.dumps(cell),
                json.dumps(system),
                json.dumps(PROVENANCE),
            ),
        )
        for name, (value, unit) in dict(metrics).items():
            self.database.execute(
                "INSERT INTO metric VALUES (?,?,?,?)", (trial_id, name, value, unit)
            )
        for name, passed in (checks or {"replicas_equal": True, "loss_finite": True}).items():
            self.database.execute(
                "INSERT INTO check_result VALUES (?,?,?)", (trial_id, name, passed)
            )
        return trial_id, self.folder / directory

    def annotate(self, trial_id, reason):
        self.database.execute(
            "INSERT INTO annotation VALUES (?,?,?,?)",
            (f"a-{trial_id}", trial_id, reason, "2026-11-20T12:00:00Z"),
        )


class Schedule:
    """A plausible step: backward of `layers`, sparsification and exchange as the method would."""

    SPARSE = {"wfbp": 12, "syncea": 1, "safusion-naive": 4, "safusion-inter": 3}  # exchanges a step

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
            now = span(
                "backward", "compute", f"layer{layers - layer}", now, now + backward / layers
            )
            ahead = method in ("wfbp", "safusion-naive", "safusion-inter")
            if ahead:
                now = span("sparsify", "compute", f"layer{layers - layer}", now, now + sparsify)
            if layer + 1 == layers or unit_of[layer + 1] != unit_of[layer]:
                unit = unit_of[layer]
                begin = now
                if method == "safusion-naive":
                    begin = span("negotiate", "control", f"unit{unit}", now, now + 2 * alpha)
                if method == "syncea":
                    now = begin = span(
                        "sparsify", "compute", f"unit{unit}", now, now + sparsify * layers * 0.7
                    )
                begin = max(begin, network)
                network = span(
                    "exchange",
                    "data",
                    f"unit{unit}",
                    begin,
                    begin + (workers - 1) * alpha * 2 + self.sent / units / bandwidth,
                    int(self.payload / units),
                )
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
            (step, rank, *span) for step in (13, 14, 15) for rank in (0, 1) for span in self.spans
        ]
        stretch = {13: 1.0, 14: 1.03, 15: 0.98}
        write_series(
            directory / "spans.npy",
            {
                "step": [row[0] for row in rows],
                "rank": [row[1] for row in rows],
                "kind": [row[2] for row in rows],
                "lane": [row[3] for row in rows],
                "label": [row[4] for row in rows],
                "begin_seconds": [row[5] * stretch[row[0]] for row in rows],
                "end_seconds": [row[6] * stretch[row[0]] for row in rows],
                "bytes": [row[7] for row in rows],
            },
            "the last three measured steps",
        )


def throughput(value):
    return {"throughput": (value, "images/s"), "step_seconds": (32 / value, "s")}


class Page(HTMLParser):
    """Checks that tags close in order and keeps what a test asks for."""

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
