"""Writes bundles whose hashes all agree, whatever stands in them."""

import ast
import hashlib
import json
import math
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
    """A bundle of these members, with the hashes that it has to have."""
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
    """Puts what no trial has into a column of times of a series; returns what it did, or None."""
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
    """Changes a metric of a trial.json or an outcome.json; returns what it did, or None."""
    record = json.loads(content)
    metrics = sorted(name for name, metric in record.get("metrics", {}).items()
                     if metric["value"] not in (None, 0) and name != "imbalance")
    if not metrics:
        return None
    name, factor = rng.choice(metrics), rng.choice((0.5, 0.999, 1.001, 3.3))
    record["metrics"][name]["value"] *= factor
    return written(record), f"{name} times {factor}"


def forged(file, rng):
    """A forged bundle of one of `file`, and what was forged; None where it has nothing to forge."""
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
