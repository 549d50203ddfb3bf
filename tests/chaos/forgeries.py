"""Forges trials the way somebody would who knows how they are made: after each forgery all hashes, the
trial's name, the list of files, `config.json` and `outcome.json` agree, and where the forgery wants it,
metrics, rounds and spans are made again from the forged series.

A forgery is a function that changes a Forged trial, in the list FORGERIES.
"""

import copy
import io
import json
import math
import re
import struct

import forgery
import numpy as np

make_store = forgery.make_store

DURATIONS = ("step", "forward", "backward", "sparsify", "exposed_communication", "decompress", "update", "outer",
             "align_wait")
PARTS = DURATIONS[1:-1]
COUNTERS = ("payload_bytes", "sent_bytes", "received_bytes", "messages_sent", "selected", "summed", "returned",
            "tensors_missing", "exchanges")
OF_EVALUATIONS = (("final_metric", "metric"), ("final_loss", "loss"), ("steps_to_target", "step"),
                  ("seconds_to_target", "seconds"), ("seconds_to_target_with_evaluation", "seconds_with_evaluation"),
                  ("epochs_to_target", "epoch"), ("samples_to_target", "samples"))
SERIES = ("steps.npy", "evaluations.npy", "spans.npy")


class Unfit(Exception):
    """The forgery does not fit this trial."""


def need(condition):
    if not condition:
        raise Unfit


def read_series(content):
    return np.array(np.load(io.BytesIO(content)))


def write_series(rows):
    """The bytes that sparfuse writes for a structured array."""
    columns = "".join(f"('{name}', '{rows.dtype[name].str}'), " for name in rows.dtype.names)
    header = f"{{'descr': [{columns}], 'fortran_order': False, 'shape': ({len(rows)},), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + rows.tobytes()


def as_written(value):
    """Whole numbers of metrics, rounds and readings have no fraction in a trial.json."""
    if isinstance(value, dict):
        return {key: as_written(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_written(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def config_hash(config):
    """As make_store's, of cells whose collective has options, too."""
    options = config.get("method_options", {})
    if not options.get("collective_options"):
        return make_store.config_hash(config)
    identity = {**config, "schema": make_store.CONFIG_SCHEMA, "method_options": dict(options)}
    for table, key in make_store.LATER_KEYS:
        if key == "collective_options":
            continue
        if table:
            identity[table] = {name: of for name, of in identity.get(table, {}).items() if name != key}
        else:
            identity.pop(key, None)
    return make_store.content_hash(identity)


# The program writes one number of a thousand in a longer form than Python does. Then numbers that are made again are
# made so much larger, in parts of 10^10, which is too little to be seen.
NUDGE = 0


def short(value, before=None):
    """A number with few digits, or `before` if it is the same number."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    same = isinstance(before, (int, float)) and math.isclose(value, before, rel_tol=1e-12)
    return before if same else float(f"{value * (1 + NUDGE * 1e-10):.12g}")


NUMBER = re.compile(rb"(?<=[ \[])-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)(?=[],\n])")


def texts_of_numbers(*records):
    """{as Python writes a number: as the program wrote it}, where they differ."""
    return {repr(float(text)).encode(): text for record in records for text in NUMBER.findall(record)
            if repr(float(text)).encode() != text}


class Forged:
    """The only trial of a bundle, taken apart."""

    def __init__(self, members):
        self.members = dict(members)
        self.folder = next(name for name in members if name.endswith("/trial.json")).removesuffix("trial.json")
        records = [members[f"{self.folder}{name}.json"] for name in ("trial", "outcome", "config")]
        self.trial, self.outcome, self.config = map(json.loads, records)
        self.texts = texts_of_numbers(*records)
        self.series = {name: read_series(members[self.folder + name]) for name in SERIES
                       if self.folder + name in members}
        self.left_out = set()  # files that are not in the bundle
        self.unlisted = set()  # files that are not in the trial's list
        self.named = True  # whether the trial gets the name of its configuration

    def __getattr__(self, name):
        table = {"steps": "steps.npy", "evaluations": "evaluations.npy", "spans": "spans.npy"}.get(name)
        if table is None:
            raise AttributeError(name)
        need(table in self.series and len(self.series[table]))
        return self.series[table]

    @property
    def cell(self):
        return self.trial["config"]

    @property
    def is_live(self):
        return self.cell["mode"] != "modelled" and self.cell["kind"] != "profile"

    def metric(self, name):
        need(name in self.trial["metrics"] and self.trial["metrics"][name]["value"] is not None)
        return self.trial["metrics"][name]["value"]

    def state(self, name, value, unit=None):
        for record in (self.trial, self.outcome):
            entry = record["metrics"].setdefault(name, {"value": 0, "unit": unit or ""})
            entry["value"] = short(value, entry["value"])
            if unit is not None:
                entry["unit"] = unit

    def forget(self, name):
        for record in (self.trial, self.outcome):
            record["metrics"].pop(name, None)

    def both(self, key, value):
        """Sets a key in trial.json, and in outcome.json if that has it."""
        self.trial[key] = copy.deepcopy(value)
        if key in self.outcome:
            self.outcome[key] = copy.deepcopy(value)

    def elements(self):
        return sum(tensor["numel"] for tensor in self.trial["layout"])

    def units(self):
        """Units a sample, by the trial's own numbers."""
        samples = self.cell["workers"] * self.cell["batch_per_worker"] * self.cell["accumulation"]
        return round(self.metric("throughput") * self.metric("step_seconds") / samples)

    def make_again(self, units=None):
        """Makes metrics, rounds and times to target from the series, as a run does. Trials without windows."""
        units = units or self.units_before
        made, rounds = self.metrics_of_steps(units)
        for name, value in made.items():
            if name in self.trial["metrics"]:
                self.state(name, value)
        if self.trial.get("rounds"):
            self.both("rounds", [short(each, before) for each, before in zip(rounds, self.trial["rounds"], strict=False)])
        if "evaluations.npy" in self.series and len(self.series["evaluations.npy"]):
            last = self.series["evaluations.npy"][-1]
            for metric, column in OF_EVALUATIONS:
                if metric in self.trial["metrics"]:
                    self.state(metric, last[column].item())

    def metrics_of_steps(self, units):
        steps = self.steps
        ranks = [steps[steps["rank"] == rank] for rank in sorted(set(steps["rank"].tolist()))]
        measured = [rank[rank["measured"]] for rank in ranks]
        rows = len(measured[0])
        need(rows and all(len(rank) == rows for rank in measured))
        slowest = [max((rank[s] for rank in measured), key=lambda row: row["step_seconds"]) for s in range(rows)]
        names = [f"{name}_seconds" for name in DURATIONS if f"{name}_seconds" in steps.dtype.names]
        made = {name: float(np.median([row[name] for row in slowest])) for name in names}
        parts = [f"{part}_seconds" for part in PARTS if f"{part}_seconds" in steps.dtype.names]
        made["other_seconds"] = float(np.median([row["step_seconds"] - sum(row[p] for p in parts) for row in slowest]))
        made["compute_utilisation"] = float(np.median(
            [(row["forward_seconds"] + row["backward_seconds"] + row["update_seconds"]) / row["step_seconds"]
             for row in slowest]))
        cell = self.cell
        of_step = cell["workers"] * cell["batch_per_worker"] * cell["accumulation"] * units
        made["throughput"] = of_step / made["step_seconds"]
        every = np.concatenate(measured)
        for name in COUNTERS:
            made[name] = float(every[name].sum()) / len(every)
        made["achieved_density"] = made["selected"] / self.elements()
        if made["payload_bytes"]:
            made["sent_over_payload"] = made["sent_bytes"] / made["payload_bytes"]
        if made["summed"] and made["selected"]:
            made["densification"] = made["summed"] / made["selected"]
        made["residual_norm"] = float(every["residual_norm"].sum()) / len(every)
        made["loss"] = float(every["loss"].sum()) / len(every)
        if "loader_wait_seconds" in steps.dtype.names:
            made["loader_wait_seconds"] = float(np.max([rank["loader_wait_seconds"] for rank in measured], axis=0).mean())
        rounds = {}
        for row in slowest:
            if row["round"] > 0:
                rounds.setdefault(int(row["round"]), []).append(row["step_seconds"])
        return made, [float(np.median(rounds[number])) for number in sorted(rounds)]

    def remember(self):
        """Keeps the units a sample of the true trial; to be called before anything is forged."""
        try:
            self.units_before = self.units()
        except Unfit:
            self.units_before = 1
        return self

    def written(self, record):
        return NUMBER.sub(lambda found: self.texts.get(found[0], found[0]), forgery.written(record))

    def bundle(self):
        """The members of the bundle, whose hashes and names agree."""
        trial, config = self.trial, self.config
        for record in (trial, self.outcome):
            for key in ("metrics", "rounds", "draws", "seconds", "turn_seconds", "quiet"):
                if key in record:
                    record[key] = as_written(record[key])
        trial["config_hash"] = config_hash(trial["config"])
        trial["system_hash"] = make_store.content_hash(trial["system"])
        config.update(trial["config"])
        for key in set(config) - set(trial["config"]) - {"block", "seed", "trial_id"}:
            del config[key]
        for key in ("block", "seed"):
            if key in config:
                config[key] = trial[key]
        if self.named:
            cell = trial["config"]
            method = "profile" if cell["kind"] == "profile" else cell.get("method")
            workload = cell["workload"]
            trial["trial_id"] = (f"{trial['experiment']}/{trial['part']}/{method}-{workload}-w{cell['workers']}-"
                                 f"{trial['config_hash'][:8]}-{trial['origin']}-b{trial['block']}-1")
        config["trial_id"] = trial["trial_id"]
        files = {"config.json": self.written(config), "outcome.json": self.written(self.outcome)}
        for name, rows in self.series.items():
            files[name] = write_series(rows)
            for record in (trial, self.outcome):
                if name in (record.get("series") or {}):
                    record["series"][name]["rows"] = record["series"][name].pop("rows_said", len(rows))
        for name in self.left_out:
            files.pop(name, None)
        trial["files"] = sorted((set(files) | self.left_out) - self.unlisted)
        files["trial.json"] = self.written(trial)
        manifest = json.loads(self.members["manifest.json"])
        manifest["trials"] = {trial["trial_id"]: {}}
        members = {name: content for name, content in self.members.items() if not name.startswith("trials/")}
        members["manifest.json"] = forgery.written(manifest)
        for name, content in files.items():
            members[f"trials/{trial['trial_id']}/{name}"] = content
        return members


# --- forgeries -------------------------------------------------------------------------------------------------------
#
# Each has the name of the function, the trial, and the facts that it changes. A fact is counted aloud if `verify` names
# it among those that it did not check.

FORGERIES = []


def forge(*facts, name=None, unnoticed=False):
    """Registers a forgery. unnoticed: the page says that no check can find this."""
    def register(function):
        FORGERIES.append((name or function.__name__, facts, function, unnoticed))
        return function
    return register


def forge_all(*rows):
    """Registers forgeries of one change: (name, fact, whether the trial fits, the change). With True behind them
    metrics are made again.
    """
    for name, fact, fits, change, *again in rows:
        @forge(fact, name=name)
        def changed(trial, fits=fits, change=change, again=again):
            need(fits(trial))
            change(trial)
            if again:
                trial.make_again()


# Trials that a forgery may fit.
any_trial, is_live, is_emulated = (lambda t: True), (lambda t: t.is_live), (lambda t: t.cell["mode"] == "emulated")
is_profile, is_cell = (lambda t: t.cell["kind"] == "profile"), (lambda t: t.cell["kind"] != "profile")


def halve(rows, *columns):
    for column in columns:
        rows[column] = (rows[column] * 0.5).astype(rows.dtype[column])


METRICS = ("achieved_density", "align_wait_seconds", "backward_seconds", "compute_utilisation", "decompress_seconds",
           "exchanges", "exposed_communication_seconds", "final_loss", "final_metric", "forward_seconds",
           "local_seconds", "loss", "messages_sent", "other_seconds", "payload_bytes", "received_bytes",
           "residual_norm", "returned", "seconds_to_target", "selected", "sent_bytes", "sent_over_payload",
           "sparsify_seconds", "step_seconds", "steps_to_target", "epochs_to_target", "samples_to_target", "summed",
           "tensors_missing", "throughput", "update_seconds", "wire_seconds", "step_uncertainty",
           "seconds_to_target_with_evaluation", "sent_bytes_to_target", "densification")


def _metric(name):
    @forge(f"metrics.{name}", name=f"metric {name} is better")
    def better(trial):
        value = trial.metric(name)
        trial.state(name, value * (1.5 if name in ("throughput", "final_metric") else 0.7) if value else 1)

    @forge(f"metrics.{name}", name=f"metric {name} has another unit")
    def unit(trial):
        trial.metric(name)
        trial.state(name, trial.metric(name), "parsecs")


for _name in METRICS:
    _metric(_name)


def _column(name):
    @forge(f"steps.npy: {name}", name=f"steps.npy: {name} is lower in every row")
    def lower(trial):
        need(name in trial.steps.dtype.names and np.any(trial.steps[name] != 0))
        halve(trial.steps, name)

    @forge(f"steps.npy: {name}", name=f"steps.npy: {name} is lower, and metrics are made again",
           unnoticed=name in ("loss", "residual_norm"))
    def lower_and_again(trial):
        need(name in trial.steps.dtype.names and np.any(trial.steps[name] != 0))
        halve(trial.steps, name)
        trial.make_again()


for _name in ("step_seconds", "exposed_communication_seconds", "sent_bytes", "received_bytes", "payload_bytes",
              "messages_sent", "selected", "exchanges", "loss", "achieved_density", "residual_norm",
              "forward_seconds", "backward_seconds", "summed"):
    _column(_name)


@forge("throughput")
def throughput_and_step_are_better_and_steps_stay(trial):
    trial.state("throughput", trial.metric("throughput") * 2)
    trial.state("step_seconds", trial.metric("step_seconds") / 2)


@forge("step_seconds")
def the_slowest_steps_are_faster(trial):
    steps = trial.steps
    median = np.median(steps["step_seconds"])
    steps["step_seconds"] = np.minimum(steps["step_seconds"], 0.9 * median)
    trial.make_again()


@forge("measured")
def slow_steps_are_called_warm_up(trial):
    steps = trial.steps
    need(trial.is_live)
    slow = set(steps["step"][steps["measured"]][np.argsort(steps["step_seconds"][steps["measured"]])[-2:]].tolist())
    steps["measured"] &= ~np.isin(steps["step"], list(slow))
    trial.make_again()


@forge("step_seconds", unnoticed=True)
def all_times_are_halved(trial):
    for name, rows in trial.series.items():
        for column in rows.dtype.names:
            if column.endswith("_seconds") or column in ("seconds",):
                rows[column] = rows[column] * 0.5
        trial.series[name] = rows
    trial.make_again()
    need(trial.cell["mode"] == "measured")


forge_all(
    ("rounds_are_faster", "rounds", lambda t: t.trial.get("rounds"),
     lambda t: t.both("rounds", [0.5 * each for each in t.trial["rounds"]])),
    ("a_round_is_missing", "rounds", lambda t: len(t.trial.get("rounds") or []) > 1,
     lambda t: t.both("rounds", t.trial["rounds"][:-1])),
    ("draws_are_better", "draws", lambda t: t.trial.get("draws"),
     lambda t: t.both("draws", {name: [0.5 * each for each in of] for name, of in t.trial["draws"].items()})),
)


@forge("draws")
def a_trial_that_ran_has_draws(trial):
    need(trial.is_live)
    for record in (trial.trial, trial.outcome):
        record["draws"] = {"step_seconds": [0.001] * 32}


# Kind and mode.

forge_all(
    ("an_emulated_trial_is_called_measured", "config.mode", is_emulated,
     lambda t: t.cell.update(mode="measured", link=None)),
    ("an_emulated_trial_loses_its_link", "config.link", is_emulated, lambda t: t.cell.update(link=None)),
    ("a_measured_trial_is_called_emulated", "config.mode",
     lambda t: t.cell["mode"] == "measured" and t.cell["kind"] != "profile",
     lambda t: t.cell.update(mode="emulated", link={"gbps": 1e-4, "alpha_us": 100.0})),
    ("a_convergence_trial_is_called_throughput", "config.kind", lambda t: t.cell["kind"] == "convergence",
     lambda t: t.cell.update(kind="throughput", evaluate_every=None, target=None)),
    ("a_throughput_trial_is_called_convergence", "config.kind",
     lambda t: t.cell["kind"] == "throughput" and t.is_live,
     lambda t: t.cell.update(kind="convergence", evaluate_every=2, target=0.5)),
    ("a_throughput_trial_states_a_final_metric", "config.kind",
     lambda t: t.cell["kind"] == "throughput" and t.is_live,
     lambda t: t.state("final_metric", 0.99, "accuracy")),
    ("a_profile_is_called_throughput", "config.kind", is_profile, lambda t: t.cell.update(kind="throughput")),
    ("a_trial_is_called_invalid", "status", any_trial, lambda t: t.both("status", "invalid")),
    ("a_check_failed_and_nobody_says", "checks", lambda t: t.trial["checks"],
     lambda t: t.outcome.update(checks={name: False for name in t.outcome["checks"]})),
    ("checks_are_taken_out", "checks", lambda t: t.trial["checks"], lambda t: t.both("checks", {})),
    ("a_trial_is_called_older", "schema", any_trial, lambda t: t.trial.update(schema=2)),
)


def name_engine(trial, one, other):
    """Says of the trial's code that it was the other engine's."""
    for key in ("revisions", "sources"):
        of = trial.trial[key]
        if f"engine:{one}" in of:
            of[f"engine:{other}"] = of.pop(f"engine:{one}")


@forge("mode")
def a_measured_trial_is_called_modelled(trial):
    need(trial.is_live)
    trial.cell.update(mode="modelled", cluster="hkbu-10gbe", link=None)
    name_engine(trial, "live", "model")


@forge("mode")
def a_measured_trial_is_made_to_look_modelled(trial):
    a_measured_trial_is_called_modelled(trial)
    for record in (trial.trial, trial.outcome):
        record["quiet"] = None
        record["checks"] = {}
    trial.trial["launch"] = None
    for name in ("loss", "residual_norm", "tensors_missing"):
        trial.forget(name)


@forge("mode")
def a_modelled_trial_is_called_measured(trial):
    need(trial.cell["mode"] == "modelled")
    trial.cell.update(mode="measured", cluster=None)
    name_engine(trial, "model", "live")


@forge("mode")
def a_modelled_trial_is_made_to_look_measured(trial):
    a_modelled_trial_is_called_measured(trial)
    trial.both("draws", {})
    for name in ("local_seconds", "wire_seconds", "step_uncertainty"):
        trial.forget(name)
    for record in (trial.trial, trial.outcome):
        record["checks"] = {"loss_finite": True, "replicas_equal": True}
        record["machine"] = {"placement": ["host0"] * trial.cell["workers"], "cores": 2, "kernels": "avx2",
                             "communication_threads": "real time", "cuda_devices": 0}
    for name in ("loss", "residual_norm", "tensors_missing"):
        trial.state(name, 0, {"loss": "nats", "tensors_missing": "tensors"}.get(name, ""))


@forge("schema")
def a_trial_is_called_older_and_its_throughput_is_better(trial):
    trial.trial["schema"] = 2
    trial.state("throughput", trial.metric("throughput") * 3)


# Batch, ranks, units.

forge_all(
    ("the_batch_is_doubled", "config.batch_per_worker", is_cell,
     lambda t: t.cell.update(batch_per_worker=t.cell["batch_per_worker"] * 2)),
    ("the_batch_is_doubled_and_so_is_the_throughput", "config.batch_per_worker", any_trial,
     lambda t: t.cell.update(batch_per_worker=t.cell["batch_per_worker"] * 2), True),
    ("accumulation_is_doubled_and_so_is_the_throughput", "config.accumulation", is_live,
     lambda t: t.cell.update(accumulation=t.cell["accumulation"] * 2), True),
    ("the_cell_has_more_steps", "config.steps", any_trial, lambda t: t.cell.update(steps=t.cell["steps"] + 5)),
    ("the_cell_has_more_warm_up", "config.warmup_steps", is_cell,
     lambda t: t.cell.update(warmup_steps=t.cell["warmup_steps"] + 3)),
    ("the_density_is_a_tenth", "config.density", lambda t: t.cell.get("sparsifier") in ("topk", "randomk"),
     lambda t: t.cell.update(density=t.cell["density"] / 10)),
    ("the_sparsifier_is_another", "config.sparsifier", lambda t: t.cell.get("sparsifier", "none") != "none",
     lambda t: t.cell.update(sparsifier="gaussiank")),
    ("the_method_is_another", "config.method", is_cell, lambda t: t.cell.update(method="zen")),
)


@forge("config.workers")
def there_are_twice_as_many_workers(trial):
    need(trial.cell["kind"] != "profile")
    trial.cell["workers"] *= 2
    trial.cell["ranks_per_node"] = min(trial.cell["ranks_per_node"], trial.cell["workers"])
    trial.make_again()


@forge("config.workers")
def ranks_are_copied(trial):
    """Twice as many ranks, with records and steps as if they had run."""
    need(trial.is_live)
    more = np.array(trial.steps)
    more["rank"] += trial.cell["workers"]
    trial.series["steps.npy"] = np.concatenate([trial.steps, more])
    trial.cell["workers"] *= 2
    if trial.cell["mode"] == "measured":
        trial.cell["ranks_per_node"] *= 2
    for record in (trial.trial, trial.outcome):
        record["machine"]["placement"] *= 2
    for of in (trial.trial["launch"] or {}).get("binding", {}).values():
        of *= 2
    if "spans.npy" in trial.series:
        more = np.array(trial.spans)
        more["rank"] += trial.cell["workers"] // 2
        trial.series["spans.npy"] = np.concatenate([trial.spans, more])
        for record in (trial.trial, trial.outcome):
            of = record["series"]["spans.npy"]
            count = len(set(trial.series["spans.npy"]["rank"].tolist()))
            of["sampling"] = of["sampling"].split("first")[0] + f"first {count} rank(s)"
    trial.make_again()


@forge("layout")
def the_workload_is_one_of_more_units(trial):
    """Tokens instead of images: 64 units a sample."""
    need(trial.cell["kind"] != "profile")
    trial.cell["workload"] = "lstm-small"
    for key in ("revisions", "sources"):
        for part in [part for part in trial.trial[key] if part.startswith("workload:")]:
            trial.trial[key]["workload:lstm-small"] = trial.trial[key].pop(part)
    trial.make_again(units=64)
    trial.state("throughput", trial.metric("throughput"), "tokens/s")


@forge("throughput")
def the_workload_is_unknown_and_has_more_units(trial):
    need(trial.cell["kind"] != "profile")
    for key in ("revisions", "sources"):
        for part in [part for part in trial.trial[key] if part.startswith("workload:")]:
            trial.trial[key]["workload:mine"] = trial.trial[key].pop(part)
    trial.cell["workload"] = "mine"
    trial.make_again(units=3 * trial.units_before)


@forge("layout")
def a_tensor_is_smaller(trial):
    need(trial.is_live)
    layout = copy.deepcopy(trial.trial["layout"])
    layout[0]["shape"], layout[0]["numel"] = [3], 3
    trial.both("layout", layout)
    trial.steps["achieved_density"] = trial.steps["selected"] / trial.elements()
    trial.make_again()


@forge("layout")
def a_tensor_is_smaller_in_another_revision(trial):
    need(trial.is_live)
    for part in trial.trial["revisions"]:
        if part.startswith("workload:"):
            trial.trial["revisions"][part] += 7
    a_tensor_is_smaller(trial)


@forge("layout")
def a_tensor_is_called_dense(trial):
    need(trial.trial["layout"])
    layout = copy.deepcopy(trial.trial["layout"])
    layout[0]["dense"] = not layout[0]["dense"]
    trial.both("layout", layout)


@forge("layout", "achieved_density")
def the_layout_is_taken_out_and_the_density_is_lower(trial):
    need(trial.is_live)
    trial.both("layout", [])
    trial.state("achieved_density", trial.metric("achieved_density") * 0.1)


@forge("config.method")
def a_dense_trial_is_called_sparse(trial):
    need(trial.cell.get("method") == "dense" and trial.is_live)
    trial.cell.update(method="wfbp", sparsifier="topk", density=0.01)
    trial.trial["revisions"] = {("method:wfbp" if part == "method:dense" else part): of
                                for part, of in trial.trial["revisions"].items()} | {"sparsifier:topk": 1}
    trial.trial["sources"] = {part: of for part, of in trial.trial["sources"].items() if part != "method:dense"}
    trial.trial["sources"]["method:wfbp"] = "0123456789ab"


# Bytes.

forge_all(
    ("the_link_is_slower", "config.link", is_emulated, lambda t: t.cell["link"].update(gbps=1e-6)),
    ("the_link_is_faster", "config.link", is_emulated,
     lambda t: t.cell["link"].update(gbps=t.cell["link"]["gbps"] * 10)),
)


def _bytes(name, columns, with_spans=False):
    @forge(*columns, name=name)
    def lower(trial):
        for column in columns:
            need(np.any(trial.steps[column] != 0))
            trial.steps[column] = trial.steps[column] // 4 * 2
        if with_spans:
            trial.spans["bytes"] = trial.spans["bytes"] // 4 * 2
        if "selected" in columns:
            trial.steps["achieved_density"] = trial.steps["selected"] / trial.elements()
        trial.make_again()


_bytes("fewer bytes are sent", ("sent_bytes",))
_bytes("fewer bytes are received", ("received_bytes",))
_bytes("fewer bytes are sent and received", ("sent_bytes", "received_bytes"))
_bytes("the payload is smaller", ("payload_bytes",))
_bytes("the payload is smaller in spans as well", ("payload_bytes",), True)
_bytes("fewer bytes are sent, received and in the payload", ("sent_bytes", "received_bytes", "payload_bytes"), True)
_bytes("fewer elements are selected", ("selected",))
_bytes("all traffic is less", ("sent_bytes", "received_bytes", "payload_bytes", "selected"), True)
_bytes("fewer messages are sent", ("messages_sent",))
_bytes("fewer exchanges are made", ("exchanges",))


@forge("sent_bytes")
def one_rank_sends_less(trial):
    need(np.any(trial.steps["sent_bytes"] != 0))
    first = trial.steps["rank"] == 0
    trial.steps["sent_bytes"][first] //= 2
    trial.make_again()


# Evaluations.

forge_all(
    ("losses_of_evaluations_are_better", "evaluations.npy: loss", any_trial, lambda t: halve(t.evaluations, "loss")),
    ("the_last_evaluation_is_left_out", "evaluations.npy", lambda t: len(t.evaluations) > 1,
     lambda t: t.series.update({"evaluations.npy": t.evaluations[:-1]}), True),
    ("an_evaluation_in_the_middle_is_left_out", "evaluations.npy", lambda t: len(t.evaluations) > 2,
     lambda t: t.series.update({"evaluations.npy": np.delete(t.evaluations, 1)})),
    ("the_first_evaluation_is_left_out", "evaluations.npy", lambda t: len(t.evaluations) > 1,
     lambda t: t.series.update({"evaluations.npy": t.evaluations[1:]})),
    ("fewer_epochs_to_the_target", "evaluations.npy: epoch", lambda t: np.any(t.evaluations["epoch"] != 0),
     lambda t: halve(t.evaluations, "epoch"), True),
    ("fewer_epochs_and_samples_to_the_target", "evaluations.npy: epoch",
     lambda t: np.any(t.evaluations["epoch"] != 0),
     lambda t: halve(t.evaluations, "epoch", "samples"), True),
    ("fewer_samples_to_the_target", "evaluations.npy: samples", lambda t: np.any(t.evaluations["samples"] != 0),
     lambda t: halve(t.evaluations, "samples"), True),
    ("fewer_seconds_to_the_target", "evaluations.npy: seconds", any_trial,
     lambda t: halve(t.evaluations, "seconds", "seconds_with_evaluation"), True),
    ("there_is_no_target", "config.target",
     lambda t: t.cell.get("target") and "steps_to_target" in t.trial["metrics"],
     lambda t: t.cell.update(target=None)),
    ("evaluations_are_said_to_be_rarer", "config.evaluate_every", lambda t: t.cell.get("evaluate_every"),
     lambda t: t.cell.update(evaluate_every=t.cell["evaluate_every"] + 1)),
)


def _better(trial, values):
    """Higher accuracies, lower perplexities."""
    unit = trial.trial["metrics"]["final_metric"]["unit"]
    return values * 0.8 if unit == "perplexity" else np.minimum(1, values * 1.2 + 0.05)


@forge("evaluations.npy: metric")
def the_last_evaluation_is_better(trial):
    trial.evaluations["metric"][-1] = _better(trial, trial.evaluations["metric"][-1])


@forge("evaluations.npy: metric", unnoticed=True)
def the_last_evaluation_is_better_and_so_is_the_metric(trial):
    need("steps_to_target" not in trial.trial["metrics"])
    trial.evaluations["metric"][-1] = _better(trial, trial.evaluations["metric"][-1])
    trial.make_again()


@forge("evaluations.npy: metric")
def an_earlier_evaluation_reaches_the_target(trial):
    need("steps_to_target" in trial.trial["metrics"] and len(trial.evaluations) > 1)
    trial.evaluations["metric"][0] = trial.evaluations["metric"][-1]


@forge("evaluations.npy")
def the_target_is_reached_earlier(trial):
    """Rows behind the first are left out, and the first reaches the target."""
    need("steps_to_target" in trial.trial["metrics"] and len(trial.evaluations) > 1)
    trial.evaluations["metric"][0] = trial.evaluations["metric"][-1]
    trial.series["evaluations.npy"] = trial.evaluations[:1]
    trial.make_again()


@forge("evaluations.npy")
def all_evaluations_are_left_out(trial):
    trial.series["evaluations.npy"] = trial.evaluations[:0]
    for metric, _ in OF_EVALUATIONS:
        trial.forget(metric)


@forge("evaluations.npy")
def evaluations_and_what_they_give_are_taken_out(trial):
    need("evaluations.npy" in trial.series)
    del trial.series["evaluations.npy"]
    for record in (trial.trial, trial.outcome):
        record["series"].pop("evaluations.npy", None)
    for metric, _ in OF_EVALUATIONS:
        trial.forget(metric)


@forge("final_metric", "final_loss")
def evaluations_are_taken_out_and_the_metric_is_better(trial):
    need("evaluations.npy" in trial.series)
    trial.state("final_metric", _better(trial, trial.metric("final_metric")))
    del trial.series["evaluations.npy"]
    for record in (trial.trial, trial.outcome):
        record["series"].pop("evaluations.npy", None)


@forge("evaluations.npy: step")
def an_evaluation_is_a_step_earlier(trial):
    row = trial.evaluations[-1]
    need(row["step"] > 1)
    row["step"] -= 1
    rank = trial.steps[trial.steps["rank"] == 0]["step_seconds"]
    took = row["seconds_with_evaluation"] - row["seconds"]
    row["seconds"] = rank[: row["step"]].sum()
    row["seconds_with_evaluation"] = row["seconds"] + took
    trial.make_again()


@forge("evaluations.npy: seconds_with_evaluation")
def evaluations_take_no_time(trial):
    trial.evaluations["seconds_with_evaluation"] = trial.evaluations["seconds"]
    need("seconds_to_target_with_evaluation" in trial.trial["metrics"] and len(trial.evaluations) > 1)
    trial.evaluations["seconds_with_evaluation"][0] += 1e-3


@forge("steps_to_target")
def the_target_is_not_reached(trial):
    need("steps_to_target" in trial.trial["metrics"])
    for name in ("steps_to_target", "seconds_to_target", "epochs_to_target", "samples_to_target",
                 "seconds_to_target_with_evaluation", "sent_bytes_to_target"):
        trial.forget(name)


@forge("steps_to_target")
def a_target_is_reached_that_was_not(trial):
    need("steps_to_target" not in trial.trial["metrics"])
    last = trial.evaluations[-1]
    for metric, column in OF_EVALUATIONS[2:]:
        trial.state(metric, last[column].item(), {"step": "steps", "epoch": "epochs", "samples": "samples"}.get(
            column, "seconds"))


@forge("config.target")
def the_target_is_a_harder_one(trial):
    need(trial.cell.get("target") and "steps_to_target" in trial.trial["metrics"])
    harder = 0.5 if trial.trial["metrics"]["final_metric"]["unit"] == "perplexity" else 2.0
    trial.cell["target"] *= harder


# Values that cannot be.

forge_all(
    ("bytes_are_negative", "sent_bytes", any_trial, lambda t: t.steps["sent_bytes"].fill(-1), True),
    ("the_throughput_is_huge", "throughput", any_trial, lambda t: t.state("throughput", 1e14)),
    ("the_throughput_is_negative", "throughput", lambda t: t.metric("throughput"),
     lambda t: t.state("throughput", -5.0)),
    ("the_trial_took_no_time", "seconds", any_trial, lambda t: t.trial.update(seconds=1e-6)),
    ("a_turn_took_no_time", "seconds", lambda t: "turn_seconds" in t.outcome and t.is_live,
     lambda t: t.outcome.update(turn_seconds=1e-6)),
)


def _impossible(column, value, words):
    @forge(column, name=f"steps.npy: {column} is {words} in a measured row")
    def impossible(trial):
        need(column in trial.steps.dtype.names and trial.steps.dtype[column].kind == "f")
        trial.steps[column][np.nonzero(trial.steps["measured"])[0][0]] = value


for _column_name in ("step_seconds", "loss", "exposed_communication_seconds", "residual_norm"):
    for _value, _words in ((math.nan, "NaN"), (math.inf, "infinite"), (-1.0, "negative"), (1e300, "huge")):
        if (_column_name, _words) != ("loss", "negative"):
            _impossible(_column_name, _value, _words)


@forge("sent_bytes")
def bytes_are_the_most_that_an_integer_holds(trial):
    trial.steps["sent_bytes"][0] = 2**63 - 1


# Files.

forge_all(
    ("outcome_json_is_listed_and_missing", "outcome.json", any_trial, lambda t: t.left_out.add("outcome.json")),
    ("rows_of_a_rank_are_missing", "steps.npy", lambda t: t.cell["workers"] > 1,
     lambda t: t.series.update({"steps.npy": t.steps[t.steps["rank"] != t.cell["workers"] - 1]}), True),
)


def _file(name):
    @forge(name, name=f"{name} is listed and missing")
    def missing(trial):
        need(name in trial.series)
        trial.left_out.add(name)
        trial.series.pop(name, None)

    @forge(name, name=f"{name} is taken out of all lists, and metrics are better")
    def taken(trial):
        need(name in trial.series)
        del trial.series[name]
        for record in (trial.trial, trial.outcome):
            record["series"].pop(name, None)
        trial.state("throughput", trial.metric("throughput") * 1.3)
        trial.state("step_seconds", trial.metric("step_seconds") / 1.3)

    @forge(name, name=f"{name} is there and not described")
    def undescribed(trial):
        need(name in trial.series)
        for record in (trial.trial, trial.outcome):
            record["series"].pop(name, None)

    @forge(name, name=f"{name} is said to have fewer rows")
    def rows(trial):
        need(name in trial.series)
        for record in (trial.trial, trial.outcome):
            record["series"][name]["rows_said"] = len(trial.series[name]) - 1


for _name in SERIES:
    _file(_name)


@forge("outcome.json")
def outcome_json_is_taken_out(trial):
    trial.left_out.add("outcome.json")
    trial.unlisted.add("outcome.json")


def _renamed(series, column):
    @forge(f"{series}: {column}", name=f"{series}: {column} has another name")
    def renamed(trial):
        need(series in trial.series and column in trial.series[series].dtype.names)
        rows = trial.series[series]
        trial.series[series] = rows.view([("x" + name[1:] if name == column else name, rows.dtype[name])
                                          for name in rows.dtype.names])
        trial.state("throughput", trial.metric("throughput") * 1.3)
        trial.state("step_seconds", trial.metric("step_seconds") / 1.3)


for _series, _names in (("steps.npy", ("step_seconds", "measured", "rank", "sent_bytes", "round")),
                        ("evaluations.npy", ("metric", "step", "seconds"))):
    for _name in _names:
        _renamed(_series, _name)


@forge("steps.npy")
def slow_steps_are_left_out(trial):
    steps = trial.steps
    need(trial.is_live)
    slow = steps["step"][steps["measured"]][np.argsort(steps["step_seconds"][steps["measured"]])[-1]]
    trial.series["steps.npy"] = steps[steps["step"] != slow]
    trial.make_again()


@forge("steps.npy")
def slow_steps_are_left_out_and_the_others_are_counted_again(trial):
    steps = trial.steps
    need(trial.is_live and "spans.npy" in trial.series)
    slow = steps["step"][steps["measured"]][np.argsort(steps["step_seconds"][steps["measured"]])[-1]]
    kept = steps[steps["step"] != slow]
    kept["step"][kept["step"] > slow] -= 1
    trial.series["steps.npy"] = kept
    trial.make_again()


# Spans.

forge_all(
    ("spans_carry_fewer_bytes", "spans.npy: bytes", lambda t: np.any(t.spans["bytes"] != 0),
     lambda t: halve(t.spans, "bytes")),
)


@forge("spans.npy")
def spans_are_shorter(trial):
    trial.spans["end_seconds"] = trial.spans["begin_seconds"] + 0.5 * (
        trial.spans["end_seconds"] - trial.spans["begin_seconds"])


@forge("spans.npy")
def spans_of_waiting_are_left_out(trial):
    spans = trial.spans
    kept = spans[~((spans["lane"] == "compute") & np.isin(spans["kind"], ("wait", "exposed", "backward")))]
    need(len(kept) < len(spans))
    trial.series["spans.npy"] = kept


@forge("spans.npy")
def spans_are_of_another_step(trial):
    trial.spans["step"] += 1000


@forge("spans.npy")
def a_span_ends_before_it_begins(trial):
    trial.spans["end_seconds"][0] = trial.spans["begin_seconds"][0] - 1


@forge("spans.npy")
def kinds_of_spans_are_exchanged(trial):
    kinds = trial.spans["kind"]
    backward, forward = kinds == "backward", kinds == "forward"
    need(np.any(backward) and np.any(forward))
    trial.spans["kind"][backward] = "forward"
    trial.spans["kind"][forward] = "backward"[: kinds.dtype.itemsize // 4]


@forge("spans.npy: begin_seconds", "spans.npy: end_seconds")
def exchanges_are_shorter(trial):
    exchange = trial.spans["kind"] == "exchange"
    need(np.any(exchange))
    spans = trial.spans
    spans["end_seconds"][exchange] = (spans["begin_seconds"] + 0.1 * (spans["end_seconds"] - spans["begin_seconds"]))[exchange]


# The records beside the numbers.

forge_all(
    ("readings_are_taken_out", "disturbed", lambda t: t.trial.get("quiet"), lambda t: t.both("quiet", None)),
    ("it_began_at_another_time", "started_utc", any_trial,
     lambda t: t.trial.update(started_utc="2020-01-01T00:00:00.000Z")),
    ("it_began_at_no_time", "started_utc", any_trial, lambda t: t.trial.update(started_utc="2026-13-01T00:00:00.000Z")),
    ("the_launch_is_taken_out", "launch", lambda t: t.trial.get("launch"), lambda t: t.trial.update(launch=None)),
    ("it_ran_on_a_better_machine", "system", lambda t: t.trial.get("launch") and "cpu_model" in t.trial["system"],
     lambda t: t.trial["system"].update(cpu_model="Better 9000")),
    ("the_plan_has_fewer_units", "plan", lambda t: t.outcome.get("plan"), lambda t: t.outcome.update(plan="1")),
    ("a_profile_is_better", "profile",
     is_profile,
     lambda t: t.outcome["profile"]["backward"].update(forward_seconds=t.outcome["profile"]["backward"]["forward_seconds"] * 0.5)),
    ("kernels_of_a_profile_are_faster", "outcome.json.profile", is_profile,
     lambda t: t.outcome["profile"].update(seconds=1e-3)),
    ("a_profile_measured_another_sparsifier", "profile", is_profile,
     lambda t: t.cell.update(sparsifiers=["gaussiank"])),
    ("a_profile_is_of_more_steps", "n", is_profile, lambda t: t.outcome.update(n=1000)),
)


@forge("quiet")
def a_disturbed_trial_is_called_quiet(trial):
    need(trial.trial.get("quiet"))
    for record in (trial.trial, trial.outcome):
        record["quiet"].update(disturbed=not trial.trial["quiet"]["disturbed"])


@forge("quiet")
def readings_are_better(trial):
    need(trial.trial.get("quiet"))
    for record in (trial.trial, trial.outcome):
        if record["quiet"]:
            record["quiet"]["other_cpu"] = 0.0
    trial.trial["quiet"].update(disturbed=False, causes={}, why="")


@forge("machine.placement")
def a_rank_was_on_another_host(trial):
    need(trial.trial.get("machine") and trial.cell["workers"] > 1)
    for record in (trial.trial, trial.outcome):
        record["machine"]["placement"][-1] = "host7"


@forge("revisions")
def a_revision_is_later(trial):
    part = sorted(trial.trial["revisions"])[0]
    trial.trial["revisions"][part] += 1


@forge("block")
def it_is_of_another_block(trial):
    trial.trial["block"] += 1
    trial.named = False


# --- copies: forgeries that take a second trial into the bundle -------------------------------------------------------

COPIES = []


def copies(function):
    COPIES.append(function)
    return function


@copies
def a_copy_of_the_next_block(trial):
    trial.trial["block"] += 1


@copies
def a_copy_of_the_next_block_and_seed(trial):
    trial.trial["block"] += 1
    trial.trial["seed"] += 1


@copies
def a_copy_whose_times_differ_in_their_last_digits(trial):
    need(trial.cell["kind"] == "throughput")
    trial.trial["block"] += 1
    trial.trial["seed"] += 1
    trial.steps["step_seconds"] *= 1 + 1e-9 * np.arange(len(trial.steps))
    trial.make_again()


@copies
def a_copy_that_is_a_tenth_slower(trial):
    """All but its losses differ; they give it away, since its seed is another."""
    need(trial.cell["kind"] == "throughput" and trial.is_live)
    trial.trial["block"] += 1
    trial.trial["seed"] += 1
    for rows in trial.series.values():
        for column in rows.dtype.names:
            if column.endswith("_seconds"):
                rows[column] *= 1.1
    trial.trial["seconds"] = short(1.1 * trial.trial["seconds"])
    start = trial.trial["launch"]["start_seconds"] / trial.trial["launch"]["trials"]
    trial.outcome["turn_seconds"] = short(trial.trial["seconds"] - start)
    trial.make_again()


@copies
def a_copy_of_another_experiment(trial):
    trial.trial["experiment"] = "other"


@copies
def a_copy_of_another_origin(trial):
    trial.trial["origin"] = "0badc0de"
