#!/usr/bin/env python3
"""Reproduces a paper's accuracies: finds its data, estimates the hours, runs, and compares.

  scripts/reproduce PAPER --accuracy --data DIR [--weights DIR] [--gpus N] [--seeds N] [--dry-run]

PAPER is a file of experiments/accuracy. DIR holds data sets as they are downloaded or as they are
prepared already. --dry-run lists the data that is there or missing and how to get it, and starts
nothing. Finished trials are kept: the same command goes on from there.
"""

import argparse
import csv
import json
import math
import os
import pathlib
import subprocess
import sys

try:
    import tomllib
except ImportError:
    sys.exit("scripts/accuracy/accuracy.py: needs Python 3.11 or newer")

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEASURED_STEPS = 5

# {name: (files or folders of --data that may hold it, the way to get it)}
DATA = {
    "cifar10": (("cifar-10-python.tar.gz", "cifar-10-batches-py", "cifar-10-binary.tar.gz", "cifar10",
                 "cifar10-imagefolder.zip"),
                "cifar-10-python.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html, 170 MB"),
    "cifar100": (("cifar-100-python.tar.gz", "cifar-100-python", "cifar-100-binary.tar.gz", "cifar100"),
                 "cifar-100-python.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html, 169 MB"),
    "imagenet": (("imagenet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC"),
                 "ILSVRC2012 with an account of https://image-net.org, 145 GB; folders train/ and val/ "
                 "of one folder a class"),
    "squad": (("squad", "SQuAD", "squad-v1.1"),
              "train-v1.1.json and dev-v1.1.json of https://rajpurkar.github.io/SQuAD-explorer, 35 MB, "
              "in a folder squad with vocab.txt of bert-base-uncased, 0.2 MB"),
    "wikitext2": (("wikitext-2", "wikitext-2-v1", "wikitext2"),
                  "wikitext-2-v1 with wiki.train.tokens, .valid and .test, 4.5 MB as a zip, from a mirror "
                  "of the Salesforce data set"),
    "wikitext103-gpt2": (("wikitext-103-raw", "wikitext103"),
                         "wikitext-103-raw-v1, 192 MB as a zip, and GPT-2's vocab.json and merges.txt"),
}
WEIGHTS = {
    "bert-large": (("bert-large-uncased", "bert-large"),
                   "model.safetensors of google-bert/bert-large-uncased on Hugging Face, 1.3 GB, in a "
                   "folder bert-large-uncased"),
    "bert-base": (("bert-base-uncased", "bert-base"),
                  "model.safetensors of google-bert/bert-base-uncased on Hugging Face, 440 MB"),
}
TOKENIZED = {"squad": ("vocab.txt", "tokenizer.json"), "wikitext103-gpt2": ("tokenizer.json", "vocab.json")}


def data_folder():
    return pathlib.Path(os.environ.get("SPARFUSE_DATA") or ROOT / "results" / "data")


class Program:
    def __init__(self, path, results):
        self.command = [str(path), "--root", str(ROOT)] + (["--results", str(results)] if results else [])
        self.results = pathlib.Path(results) if results else ROOT / "results"

    def run(self, *words, **more):
        return subprocess.run([*self.command, *map(str, words)], check=False, **more)

    def json(self, *words):
        done = self.run(*words, "--json", capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr.strip() or f"sparfuse {words[0]} failed")
        return json.loads(done.stdout)


class Need:
    """A data set or weights that the experiment names."""

    def __init__(self, kind, name, place):
        known = (DATA if kind == "data" else WEIGHTS).get(name)
        self.kind, self.name = kind, name
        self.names, self.how = known or ((name,), f"`sparfuse {kind} prepare {name} --from PLACE`")
        self.made = (data_folder() / name / "meta.json" if kind == "data" else
                     data_folder() / "weights" / f"{name}.safetensors")
        self.source = None
        if place and not self.made.exists():
            self.source = next((place / n for n in self.names if (place / n).exists()), None)
            if self.source and kind == "weights" and self.source.is_dir():
                files = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
                self.source = next((self.source / f for f in files if (self.source / f).exists()), None)
        if place and kind == "data" and (place / name / "meta.json").exists():
            self.source, self.made = None, place / name / "meta.json"

    @property
    def there(self):
        return self.made.exists()

    @property
    def tokenizers(self):
        """Names of files of which one is needed beside the text."""
        return TOKENIZED.get(self.name, ()) if self.kind == "data" else ()

    @property
    def tokenizer(self):
        return next((file for file in self.tokenizers if (self.source / file).exists()), None)

    @property
    def lacks(self):
        """What --data does not have of it; "" if all is there."""
        if self.there:
            return ""
        if self.source is None:
            return f"missing. Expected {' or '.join(self.names)}: {self.how}"
        if self.tokenizers and self.tokenizer is None:
            return f"{self.source} lacks {' or '.join(self.tokenizers)}. Expected {self.how}"
        return ""

    def words(self):
        if self.there:
            return f"{self.kind} {self.name}: prepared, {self.made.parent}"
        return f"{self.kind} {self.name}: {self.lacks or f'{self.source}, to be prepared'}"

    def prepare(self, program):
        words = [self.kind, "prepare", self.name, "--from", self.source]
        if self.tokenizers:
            words += ["--tokenizer", self.source if self.tokenizer == "vocab.json" else self.source / self.tokenizer]
        if program.run(*words).returncode != 0:
            sys.exit(1)


def adapted(text, name, gpus, seeds):
    """The experiment's text for `gpus` GPUs (0: processors, with ranks as threads) and `seeds` seeds."""
    made, tables = [], None
    for line in text.splitlines():
        key = line.partition("=")[0].strip()
        if line.startswith("["):
            tables = line
        if tables is None and key == "id":
            line = f'id = "accuracy/{name}"'
        if gpus is not None and tables == "[defaults]":
            if key == "workers" and gpus > 0:
                line = f"workers = {gpus}"
            if gpus == 0 and key in ("device", "transport"):
                line = "" if key == "device" else 'transport = "threads"'
        if seeds is not None and tables == "[repeat]" and key == "blocks":
            line = f"blocks = {seeds}"
        made.append(line)
    return "\n".join(made) + "\n"


def minute_of(experiment, name):
    """The text of an experiment that measures a few steps of each cell."""
    defaults = dict(experiment["defaults"])
    lines = [f'id = "accuracy/{name}-minute"', 'title = "a measured minute"', 'paper = ""']
    parts = experiment.get("part") or [{"id": "main", "title": "main", "axis": experiment["axis"]}]
    for part in parts:
        here = {**defaults, **part.get("defaults", {}), "kind": "throughput", "steps": MEASURED_STEPS,
                "warmup_steps": 2}
        for key in ("evaluate_every", "target"):
            here.pop(key, None)
        lines += ["[[part]]", f'id = "{part["id"]}"', f'title = "{part["title"]}"', "[part.defaults]"]
        lines += [f"{key} = {toml(value)}" for key, value in here.items()]
        for axis in part["axis"]:
            lines += ["[[part.axis]]", *(f"{key} = {toml(value)}" for key, value in axis.items())]
    return "\n".join(lines) + "\n"


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def key_of(config):
    return config["workload"], config["method"], config["sparsifier"]


def step_seconds(program, name):
    """{(workload, method, sparsifier): seconds of a step} in the measured minute."""
    found = {}
    for path in (program.results / "trials" / "accuracy" / f"{name}-minute").rglob("trial.json"):
        trial = json.loads(path.read_text())
        if trial["status"] == "ok":
            found[key_of(trial["config"])] = trial["metrics"]["step_seconds"]["value"]
    return found


def say_hours(program, experiment, name, file):
    missing = program.json("plan", file)["missing"]
    if not missing:
        print("all trials are done")
        return
    minute = file.with_name(f"{name}-minute.toml")
    minute.write_text(minute_of(experiment, name), encoding="utf-8")
    print(f"measuring {MEASURED_STEPS} steps of each method ...", flush=True)
    if program.run("run", minute, stdout=subprocess.DEVNULL).returncode not in (0, 1):
        sys.exit(1)
    seconds = step_seconds(program, name)
    known = [trial["config"] for trial in missing if key_of(trial["config"]) in seconds]
    total = sum(config["steps"] * seconds[key_of(config)] for config in known)
    length = f"{total / 3600:.1f} hours" if total >= 3600 else f"{total / 60:.1f} minutes"
    print(f"{len(missing)} trials are missing: about {length} of training steps, by the "
          f"measured minute of {len(known)} of them; evaluations come on top", flush=True)


def published_beside(program, name, paper):
    """Prints the ends of a paper's curves and of ours. Only SAFusion's Fig. 13 prints such ends."""
    ours = {}
    for path in (program.results / "trials" / "accuracy" / name).rglob("trial.json"):
        trial = json.loads(path.read_text())
        if trial["status"] == "ok" and "final_metric" in trial["metrics"]:
            ours.setdefault((trial["config"]["workload"], trial["config"]["method"]), []).append(
                trial["metrics"]["final_metric"]["value"])
    names = {"dense": "Baseline", "oktopk": "OkTopk", "omgs-fixed": "OMGS", "cupcake": "Cupcake",
             "safusion": "SAFusion"}
    artifacts = {"Fig13a": "resnet152-cifar100", "Fig13b": "vgg19-cifar100",
                 "Fig13c": "lstm-wikitext2", "Fig13d": "bert-large-squad"}
    if paper != "safusion":
        return
    print("published (8 V100S)                     ours, mean over seeds")
    with open(ROOT / "results" / "published" / "published-numbers.csv", encoding="utf-8",
              newline="") as file:
        for row in csv.DictReader(file):
            workload = artifacts.get(row["artifact"])
            method = next((m for m, theirs in names.items() if row["method"].startswith(theirs)), None)
            final = row["metric"].startswith("final") or row["metric"] == "F1"
            if workload is None or method is None or not final or "SAFusion" not in row["paper"]:
                continue
            values = ours.get((workload, method), [])
            scale = 100 if row["unit"] == "%" else 1
            mean = f"{scale * sum(values) / len(values):.2f} (n = {len(values)})" if values else "not run"
            print(f"{row['artifact']} {row['method'][:24]:24} {row['value']:>7} {row['unit']:3}  {mean}")


def whole(least):
    """A type of argparse: a whole number of at least `least`."""
    def parsed(text):
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least {least}")
        return int(text)
    return parsed


def main(arguments):
    parser = argparse.ArgumentParser(prog="scripts/reproduce PAPER --accuracy", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper")
    parser.add_argument("--program", default="sparfuse", help=argparse.SUPPRESS)
    parser.add_argument("--results", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--weights", type=pathlib.Path)
    parser.add_argument("--gpus", type=whole(0), help="number of ranks, one for each GPU; 0: on processors")
    parser.add_argument("--seeds", type=whole(1))
    parser.add_argument("--dry-run", action="store_true")
    asked = parser.parse_args(arguments)
    file = ROOT / "experiments" / "accuracy" / f"{asked.paper}.toml"
    if not file.exists():
        known = ", ".join(sorted(p.stem for p in file.parent.glob("*.toml")))
        sys.exit(f"{asked.paper} --accuracy: no such experiment; expected one of {known}")
    for place in filter(None, (asked.data, asked.weights)):
        if not place.is_dir():
            sys.exit(f"{place}: is no folder; expected the folder that holds data sets or weights")
    text = file.read_text(encoding="utf-8")
    name = asked.paper
    if asked.gpus is not None:
        name += f"-{asked.gpus}gpus" if asked.gpus else "-cpu"
    text = adapted(text, name, asked.gpus, asked.seeds)
    experiment = tomllib.loads(text)
    tables = [experiment["defaults"], *(part.get("defaults", {}) for part in experiment.get("part", []))]
    needs = [Need(kind, value, asked.data if kind == "data" else asked.weights or asked.data)
             for kind in ("data", "weights")
             for value in dict.fromkeys(t[kind] for t in tables if kind in t)]
    for need in needs:
        print(need.words(), flush=True)
    lacking = [need for need in needs if need.lacks]
    if asked.dry_run:
        blocks = experiment["repeat"]["blocks"]
        for part in experiment.get("part") or [experiment]:
            cells = math.prod(len(next(iter(axis.values()))) for axis in part["axis"])
            print(f"{part['title']}: {cells} methods, {blocks} seeds, {cells * blocks} trials")
        return 1 if lacking else 0
    if lacking:
        print(f"{len(lacking)} of {len(needs)} are missing; nothing was started", file=sys.stderr)
        return 1
    program = Program(asked.program, asked.results)
    for need in needs:
        if not need.there:
            need.prepare(program)
    if any(need.made.is_relative_to(asked.data) for need in needs if need.kind == "data"):
        os.environ["SPARFUSE_DATA"] = str(asked.data.resolve())
    out = program.results / "accuracy"
    out.mkdir(parents=True, exist_ok=True)
    planned = out / f"{name}.toml"
    planned.write_text(text, encoding="utf-8")
    say_hours(program, experiment, name, planned)
    status = program.run("reproduce", planned, "--keep-disturbed").returncode
    published_beside(program, name, asked.paper)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
