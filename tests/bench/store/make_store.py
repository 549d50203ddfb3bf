#!/usr/bin/env python3
"""Makes a results folder with many trials of one experiment, as a run would have left them.

  make_store.py PATH/TO/sparfuse FOLDER COUNT

FOLDER gets large.toml and results/, whose trials are hard copies with hashes of their own: 100 cells
(of densities) and as many blocks as COUNT needs, each trial of the size that real ones have. The
first is run, with a worker that only pretends, so that the rest have this machine and program.
"""

import copy
import decimal
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

CELLS = 100
ROOT = Path(__file__).resolve().parents[3]
WORKER = ROOT / "tests" / "integration" / "fake_worker.sh"
CONFIG_SCHEMA = 2
LATER_KEYS = (("method_options", "collective_options"), ("method_options", "dense_warmup_steps"),
              ("method_options", "scope"),
              ("method_options", "bloom_policy"), ("method_options", "bloom_fpr"),
              ("feedback_options", "decay"), *((None, key) for key in (
                  "broadcast_bytes", "data", "data_id", "weights", "weights_id", "evaluate")),
              *(("recipe", key) for key in (
                  "learning_rate_per_worker", "warmup_from", "warmup_epochs", "warmup_fraction", "epochs",
                  "boundaries", "decay_factor", "patience", "schedule_span", "no_decay", "clip_norm", "clip",
                  "remainder", "initial_values", "attention_dropout", "augmentation", "metric_form", "state")))

EXPERIMENT = """id = "large"
[defaults]
mode = "measured"
workload = "digits-resnet"
transport = "threads"
method = "wfbp"
workers = 2
[[axis]]
density = [{densities}]
[repeat]
blocks = {blocks}
"""

METRICS = {
    "seconds": ["align_wait", "backward", "decompress", "exposed_communication", "forward", "other",
                "sparsify", "update"],
    "": ["achieved_density", "residual_norm"],
    "bytes": ["payload_bytes", "received_bytes", "sent_bytes"],
    "messages": ["messages_sent"], "elements": ["selected"], "tensors": ["tensors_missing"],
    "exchanges": ["exchanges"], "nats": ["loss"],
}


def number(value):
    """The shorter form of a number, as 0.0005 or 5e-04, like std::to_chars."""
    exact = decimal.Decimal(repr(value)).normalize()
    digits, exponent = "".join(map(str, exact.as_tuple().digits)), exact.adjusted()
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    scientific = f"{'-' * exact.is_signed()}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"
    fixed = format(exact, "f")
    return fixed if len(fixed) <= len(scientific) else scientific


def canonical(value):
    """The canonical form of a JSON value, like harness/files/canonical.cpp."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return number(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def content_hash(value):
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def config_hash(config):
    """The hash of a cell that leaves later keys at their defaults: such keys are not part of its identity."""
    identity = {**copy.deepcopy(config), "schema": CONFIG_SCHEMA}
    for table, key in LATER_KEYS:
        (identity.get(table, {}) if table else identity).pop(key, None)  # dense cells and profiles lack some keys
    return content_hash(identity)


def densities():
    return [round(0.001 * (i + 1), 3) for i in range(CELLS)]


def digits_layout():
    """The tensors of digits-resnet, in the form of a trial's layout."""
    profile = json.loads((ROOT / "results" / "profiles" / "epyc-2core.json").read_text())[0]["profile"]
    return [{"dense": False, **{key: tensor[key] for key in ("name", "numel", "shape")}}
            for tensor in profile["backward"]["tensors"]]


def write_experiment(folder, blocks, cells=CELLS):
    file = folder / "large.toml"
    file.write_text(EXPERIMENT.format(
        blocks=blocks, densities=", ".join(map(str, densities()[:cells]))))
    return file


def template(sparfuse, folder):
    """A trial that the program itself has run, enlarged to the size of a real one."""
    file = write_experiment(folder, 1, cells=1)
    subprocess.run([sparfuse, "--results", folder / "results", "--worker", WORKER, "run", file],
                   check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "FAKE_MODE": "ok", "FAKE_SECONDS": "0"})
    found, = (folder / "results" / "trials").rglob("trial.json")
    trial = json.loads(found.read_text())
    config = json.loads((found.parent / "config.json").read_text())
    if config_hash(trial["config"]) != trial["config_hash"]:
        sys.exit(f"{found}: another hash of its config: expected that of schema {CONFIG_SCHEMA}")
    for unit, names in METRICS.items():
        for name in names:
            name += "_seconds" if unit == "seconds" else ""
            trial["metrics"][name] = {"unit": unit, "value": 0.0123456789}
    trial["layout"] = digits_layout()
    outcome = json.loads((found.parent / "outcome.json").read_text())
    return trial, config, outcome


def write_trial(directory, trial, config, outcome):
    """Writes a trial with its cell's density, and with the outcome that a run would turn into it."""
    trial["metrics"] = {**trial["metrics"], "achieved_density": {"unit": "", "value": trial["config"]["density"]}}
    outcome = {**outcome, "metrics": trial["metrics"], "layout": trial["layout"]}
    for name, record in (("config", config), ("outcome", outcome), ("trial", trial)):
        (directory / f"{name}.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


def main():
    sparfuse, folder, count = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]), int(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    first, first_config, outcome = template(sparfuse, folder)
    trials = folder / "results" / "trials"
    stem = first["trial_id"].rsplit("-", 4)[0]
    for i in range(1, count):
        block, cell = divmod(i, CELLS)
        trial, config = copy.copy(first), copy.copy(first_config)
        trial["config"] = {**first["config"], "density": densities()[cell]}
        trial["config_hash"] = config_hash(trial["config"])
        trial["trial_id"] = f"{stem}-{trial['config_hash'][:8]}-{trial['origin']}-b{block}-1"
        config.update(trial["config"], trial_id=trial["trial_id"], block=block,
                      seed=first["seed"] + block)
        trial["launch"] = {**first["launch"], "id": trial["trial_id"] + ".1"}
        trial.update(block=block, seed=first["seed"] + block,
                     started_utc=f"2026-01-01T{i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}.000Z")
        directory = trials / trial["trial_id"]
        directory.mkdir()
        write_trial(directory, trial, config, outcome)
    write_experiment(folder, -(-count // CELLS))


if __name__ == "__main__":
    main()
