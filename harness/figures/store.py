"""Trials as the store holds them. Opens index.sqlite read-only; writes nothing anywhere."""

import contextlib
import json
import re
import sqlite3
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

import series


class StoreError(Exception):
    """A results folder that cannot be read; the message names it and what was expected."""


@dataclass
class Trial:
    trial_id: str
    experiment: str
    part: str
    block: int
    seed: int
    config_hash: str
    system_hash: str
    source_commit: str
    status: str
    failure_kind: str
    failure_message: str
    log_tail: str
    directory: Path
    started_utc: str
    seconds: float
    system: dict
    provenance: dict
    metrics: dict = field(default_factory=dict)  # name -> value
    units: dict = field(default_factory=dict)  # name -> unit
    checks: dict = field(default_factory=dict)  # name -> passed
    annotations: list = field(default_factory=list)  # reasons why readers leave it out
    _outcome: dict | None = None

    def counts(self):
        """Whether figures may show it: ok, not called bad, every correctness check passed."""
        return self.status == "ok" and not self.annotations and all(self.checks.values())

    def failure(self):
        """What a failed cell prints instead of a number."""
        broken = sorted(name for name, passed in self.checks.items() if not passed)
        if broken:
            return f"invalid ({', '.join(broken)})"
        return self.failure_kind or self.status

    def series(self, name):
        """Reads `name` (such as "spans.npy"); None where the trial did not write it."""
        return series.read(self.directory / name)

    def outcome(self):
        """outcome.json; {} where there is none. Read once: a paper's model has hundreds of tensors."""
        if self._outcome is None:
            try:
                text = (self.directory / "outcome.json").read_text(encoding="utf-8")
            except FileNotFoundError:
                text = ""
            self._outcome = _json(text)
        return self._outcome


def _json(text):
    return json.loads(text) if text else {}


def _age(trial):
    """Start, and among equal starts the running number that ends a trial's name."""
    number = re.search(r"(\d+)$", trial.trial_id)
    return trial.started_utc or "", int(number[1]) if number else 0, trial.trial_id


class Store:
    def __init__(self, results):
        self.results = Path(results)
        path = self.results / "index.sqlite"
        if not path.is_file():
            raise StoreError(
                f"{path}: no such store; expected a results folder with index.sqlite "
                "(sparfuse index --rebuild makes it from the trial directories)"
            )
        uri = f"file:{urllib.parse.quote(str(path.resolve()))}?mode=ro"
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
                database.row_factory = sqlite3.Row
                self.by_config = self._load(database)
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from error

    def _load(self, database):
        trials = {}
        for row in database.execute(
            "SELECT trial_id, experiment, part, block, seed, config_hash, system_hash, "
            "source_commit, status, failure_kind, failure_message, log_tail, directory, "
            "started_utc, seconds, system_json, provenance_json FROM trial"
        ):
            values = dict(row)
            values["system"] = _json(values.pop("system_json"))
            values["provenance"] = _json(values.pop("provenance_json"))
            values["provenance"].pop("layout", None)  # every tensor of the workload
            values["directory"] = self.results / (values["directory"] or "")
            trials[row["trial_id"]] = Trial(**values)
        for row in database.execute("SELECT trial_id, name, value, unit FROM metric"):
            trial = trials.get(row["trial_id"])
            if trial and row["value"] is not None:
                trial.metrics[row["name"]] = row["value"]
                trial.units[row["name"]] = row["unit"] or ""
        for row in database.execute("SELECT trial_id, name, passed FROM check_result"):
            if row["trial_id"] in trials:
                trials[row["trial_id"]].checks[row["name"]] = bool(row["passed"])
        for row in database.execute("SELECT trial_id, reason FROM annotation"):
            if row["trial_id"] in trials:
                trials[row["trial_id"]].annotations.append(row["reason"] or "no reason given")
        by_config = {}
        for trial in sorted(trials.values(), key=_age):
            by_config.setdefault(trial.config_hash, []).append(trial)
        return by_config

    def trials(self, config_hash):
        """All trials of a configuration, oldest first."""
        return self.by_config.get(config_hash, [])
