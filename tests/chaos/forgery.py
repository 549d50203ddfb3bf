"""Writes bundles whose hashes all agree, whatever stands in them."""

import ast
import contextlib
import copy
import hashlib
import json
import math
import re
import struct
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench" / "store"))
import make_store  # noqa: E402  (found by the path above)


def unpacked(file):
    with tarfile.open(file) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def bundled(members):
    """A bundle of these members, with correct hashes."""
    manifest = json.loads(members["manifest.json"])
    for name, content in members.items():
        digest = hashlib.sha256(content).hexdigest()
        if name == "table.json":
            manifest["table"] = digest
        elif name.startswith("trials/"):
            trial, _, file = name.removeprefix("trials/").rpartition("/")
            manifest["trials"][trial][file] = digest
    del manifest["manifest_sha256"]
    manifest["manifest_sha256"] = make_store.content_hash(manifest)
    members["manifest.json"] = written(manifest)
    made = b""
    for name in ("manifest.json", *sorted(set(members) - {"manifest.json"})):
        if len(name) > 100:
            length = next(n for n in range(200) if len(f"{n} path={name}\n") == n)
            record = f"{length} path={name}\n".encode()
            made += _header("path", len(record), b"x") + _padded(record)
        made += _header(name[:100], len(members[name]), b"0") + _padded(members[name])
    return made + bytes(1024)


def written(value):
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _padded(content):
    return content + bytes(-len(content) % 512)


def _header(name, size, kind):
    fields = [(0, name.encode()), (100, b"0000644"), (108, b"0000000"), (116, b"0000000"), (124, b"%011o" % size),
              (136, b"00000000000"), (148, b"        "), (156, kind), (257, b"ustar\x0000")]
    block = bytearray(512)
    for at, field in fields:
        block[at : at + len(field)] = field
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def forge_series(content, rng):
    """Puts impossible values into a column of times of a series; returns (content, words), or None."""
    length = struct.unpack_from("<H", content, 8)[0]
    columns = ast.literal_eval(content[10 : 10 + length].decode())["descr"]
    offset, offsets = 0, {}
    for name, kind in columns:
        if kind == "<f8" and name.endswith("_seconds"):
            offsets[name] = offset
        offset += 1 if kind == "|b1" else 8 if kind in ("<f8", "<i8") else 4 * int(kind[2:])
    rows = (len(content) - 10 - length) // offset
    if not offsets or not rows:
        return None
    column, row = rng.choice(sorted(offsets)), rng.randrange(rows)
    value = rng.choice((math.nan, math.inf, -1.0, -1e-9))
    forged = bytearray(content)
    struct.pack_into("<d", forged, 10 + length + row * offset + offsets[column], value)
    return bytes(forged), f"{column} of row {row} is {value}"


def forge_metric(content, rng):
    """Changes a metric of a trial.json or an outcome.json; returns (content, words), or None."""
    record = json.loads(content)
    metrics = sorted(name for name, metric in record.get("metrics", {}).items()
                     if metric["value"] not in (None, 0) and name != "imbalance")
    if not metrics:
        return None
    name, factor = rng.choice(metrics), rng.choice((0.5, 0.999, 1.001, 3.3))
    record["metrics"][name]["value"] *= factor
    return written(record), f"{name} times {factor}"


def leaves(value, at=()):
    """Paths of all values that are no table and no list, and of empty tables and lists."""
    if isinstance(value, (dict, list)) and value:
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*at, key))
    else:
        yield at


def _changed(record, path):
    """The record with another value of the same type at `path`; raises KeyError without such a path."""
    record = copy.deepcopy(record)
    inner = record
    for key in path[:-1]:
        inner = inner[key]
    value = inner[path[-1]]
    if isinstance(value, bool):
        value = not value
    elif isinstance(value, int):
        value += 1
    elif isinstance(value, float):
        value = 1.25 * value + 0.125
    elif isinstance(value, str):
        value = "2030-01-01T00:00:00.000Z" if re.fullmatch(r"[-\d]+T[\d:.]+Z", value) else value + "x"
    else:
        value = 1
    inner[path[-1]] = value
    return record


def _renamed(members, trial, config):
    """The members of the only trial, renamed to agree with its configuration."""
    before, stem = trial["trial_id"], trial["trial_id"].rsplit("-", 4)
    trial["trial_id"] = config["trial_id"] = "-".join((stem[0], trial["config_hash"][:8], *stem[2:]))
    manifest = json.loads(members["manifest.json"])
    manifest["trials"] = {trial["trial_id"]: dict(manifest["trials"][before])}
    return {name.replace(before, trial["trial_id"]): content for name, content in members.items()} | {
        "manifest.json": written(manifest)}


def every_key(members):
    """Yields (path, members) for each key of the only trial's records. In these members the key has another
    value wherever the trial holds it. Hashes of configuration and system, and the trial's name, agree."""
    folder = next(name for name in members if name.endswith("trial.json")).removesuffix("trial.json")
    records = {name: json.loads(members[folder + name]) for name in ("trial.json", "outcome.json", "config.json")}
    trial, outcome = records["trial.json"], records["outcome.json"]
    paths = [path for path in leaves(trial) if path[0] not in ("config_hash", "system_hash")]
    for path in paths + [("outcome.json", *path) for path in leaves(outcome) if path[0] not in trial]:
        forged, others = dict(records), members
        if path[0] == "outcome.json":
            forged["outcome.json"] = _changed(outcome, path[1:])
        else:
            said = forged["trial.json"] = _changed(trial, path)
            with contextlib.suppress(KeyError, IndexError, TypeError):
                forged["outcome.json"] = _changed(outcome, path)
            said["config_hash"] = make_store.config_hash(said["config"])
            said["system_hash"] = make_store.content_hash(said["system"])
            config = forged["config.json"] = {**records["config.json"], **said["config"], "block": said["block"],
                                              "seed": said["seed"]}
            if path[0] == "config":
                others = _renamed(members, said, config)
        folder = next(name for name in others if name.endswith("trial.json")).removesuffix("trial.json")
        yield path, {**others, **{folder + name: written(record) for name, record in forged.items()}}


def forged(file, rng):
    """(a forged copy of the bundle `file`, words on the forgery); None if it has nothing to forge."""
    members = unpacked(file)
    names = sorted(name for name in members if name.startswith("trials/")
                   and name.endswith(("trial.json", "outcome.json", "steps.npy", "evaluations.npy")))
    rng.shuffle(names)
    for name in names:
        if name.endswith(".json"):
            done = forge_metric(members[name], rng)
        else:
            done = forge_series(members[name], rng)
        if done:
            members[name], words = done
            return bundled(members), f"{name}: {words}"
    return None
