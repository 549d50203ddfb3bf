"""Lists and checks prepared data."""

import io
import json
import pathlib
import random

from . import writing
from .errors import DataError

SAMPLE = 32  # images of a split that a check decodes


def read_meta(folder):
    path = pathlib.Path(folder) / "meta.json"
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{folder}: no prepared data; expected meta.json in it") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is no JSON ({error})") from error
    if not isinstance(meta, dict) or not {"content", "id"} <= set(meta):
        raise DataError(f"{path}: is no description of prepared data; expected format, id and content")
    if meta.get("format") != writing.FORMAT:
        raise DataError(f"{path}: format = {meta.get('format')}; expected {writing.FORMAT}: prepare it "
                        "again")
    if writing.sha256_of(writing.canonical(meta["content"])) != meta["id"]:
        raise DataError(f"{path}: id does not belong to its content; it was edited: prepare it again")
    return meta


def summary(folder):
    """A list's entry for a folder."""
    meta = read_meta(folder)
    content = meta["content"]
    counts = {name: split["count"] for name, split in content["splits"].items()}
    size = sum(file["bytes"] for split in content["splits"].values() for file in split["files"].values())
    return {"name": pathlib.Path(folder).name, "id": meta["id"], "kind": content["kind"],
            "classes": len(content.get("classes", [])),
            "vocabulary": content.get("vocabulary_size", 0), "counts": counts, "bytes": size,
            "source": meta["source"]["form"]}


def every(data):
    """(folder, summary or the error) of each prepared folder beneath `data`."""
    for path in sorted(pathlib.Path(data).glob("*/meta.json")):
        try:
            yield path.parent, summary(path.parent)
        except DataError as error:
            yield path.parent, error
    for path in sorted(pathlib.Path(data).glob("*.partial")):
        yield path, DataError(f"{path}: not finished; the same `sparfuse data prepare` goes on with it")


def check(folder):
    """Throws DataError at the first file that is not as it was written."""
    folder = pathlib.Path(folder)
    meta = read_meta(folder)
    content = meta["content"]
    expected = {f"{name}.{extension}": sums for name, split in content["splits"].items()
                for extension, sums in split["files"].items()}
    if content["kind"] == "text" and "vocabulary" in content:
        expected["vocabulary.txt"] = content["vocabulary"]
    for name, sums in expected.items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path}: is not there")
        found = writing.sums_of(path)
        if found["bytes"] != sums["bytes"]:
            raise DataError(f"{path}: has {found['bytes']:,} bytes, expected {sums['bytes']:,}")
        if found["sha256"] != sums["sha256"]:
            raise DataError(f"{path}: its SHA-256 is {found['sha256']}, expected {sums['sha256']}: it was "
                            "changed; prepare it again")
    if content["kind"] == "images" and content["coding"] == "files":
        for split, said in content["splits"].items():
            for number in sorted(random.Random(0).sample(range(said["count"]),
                                                         min(SAMPLE, said["count"]))):
                decode(record(folder, split, number), f"{folder}: image {number} of {split}")
    return meta["id"]


def record(folder, split, number):
    folder = pathlib.Path(folder)
    with open(folder / f"{split}.index", "rb") as file:
        file.seek(8 * number)
        begin, end = (int.from_bytes(file.read(8), "little") for _ in range(2))
    with open(folder / f"{split}.records", "rb") as file:
        file.seek(begin)
        return file.read(end - begin)


def decode(data, place):
    from PIL import Image

    try:
        return Image.open(io.BytesIO(data)).convert("RGB")
    except Exception as error:
        raise DataError(f"{place}: cannot be decoded ({error})") from error
