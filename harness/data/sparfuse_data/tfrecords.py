"""Finds images in TFRecord files, as TensorFlow's programs keep ImageNet.

A file is records: a length (u64), its checksum, the bytes, their checksum. The bytes are a protocol
buffer `Example`, a map from names to lists of bytes or of numbers. Checksums are not looked at (they
are CRC-32C, which Python lacks); an image that is damaged is found when it is decoded.
"""

import mmap
import re
import struct

from .errors import DataError
from .images import Entry, Images

_IMAGE, _LABEL, _CLASS, _NAME = ("image/encoded", "image/class/label", "image/class/synset",
                                 "image/filename")
_FILE = re.compile(r"^(?P<split>train|validation|val|test)[-.].*(-of-\d+|\.tfrecords?)$")


def find(place):
    """Images of a folder of TFRecord files, or None."""
    paths = sorted(path for path in place.iterdir() if path.is_file() and _FILE.match(path.name))
    if not paths:
        return None
    maps, splits = {}, {"train": [], "test": []}
    for path in paths:
        split = "train" if _FILE.match(path.name)["split"] == "train" else "test"
        splits[split] += _records(path, maps)
    for split, records in splits.items():
        if not records:
            raise DataError(f"{place}: has no record of {split}; expected train-... and validation-...")
    named = all(name for records in splits.values() for _, name, _, _ in records)
    classes = sorted({name if named else label for label, name, _, _ in splits["train"]})
    numbers = {name: i for i, name in enumerate(classes)}
    found = {}
    for split, records in splits.items():
        entries = found[split] = []
        for label, name, file, at in records:
            key = name if named else label
            if key not in numbers:
                raise DataError(f"{at[0]}: has the class {key}, but train has no image of it")
            entries.append(Entry(numbers[key], f"{key}/{file}", at[2], at))
        entries.sort(key=lambda entry: (entry.label, entry.name))
    width = len(str(classes[-1]))
    names = classes if named else [f"{label:0{width}d}" for label in classes]

    def read(at):
        path, begin, size = at
        return bytes(maps[path][begin:begin + size])

    return Images("TFRecord files", names, found, read)


def _records(path, maps):
    """[(label, class's name, file's name, where the image is)]"""
    if path.stat().st_size == 0:
        raise DataError(f"{path}: has no bytes; expected records")
    with open(path, "rb") as file:
        data = maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    found, at = [], 0
    while at < len(data):
        size = struct.unpack_from("<Q", data, at)[0] if at + 12 <= len(data) else len(data)
        begin = at + 12
        if begin + size + 4 > len(data):
            raise DataError(f"{path}: the record at byte {at:,} goes past the file's end; was it copied to "
                            "its end?")
        try:
            fields = dict(_features(data, begin, begin + size))
            image = _only(data, fields[_IMAGE], 1)
            label = _number(data, fields[_LABEL])
            name = _text(data, fields.get(_CLASS))
            file = _text(data, fields.get(_NAME)) or f"{path.name}-{len(found)}"
        except (KeyError, IndexError, ValueError) as error:
            raise DataError(f"{path}: the record at byte {at:,} is no image ({error}); expected an Example "
                            f"with {_IMAGE} and {_LABEL}") from error
        found.append((label, name, file, (path, image[0], image[1] - image[0])))
        at = begin + size + 4
    return found


# ---- Protocol buffers: each function takes where a message begins and ends --------------------------


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _fields(data, begin, end):
    """(number, begin, end) of each field; of a plain number where it stands."""
    at = begin
    while at < end:
        key, at = _varint(data, at)
        kind, first = key & 7, at
        if kind == 2:
            size, at = _varint(data, at)
            first, at = at, at + size
        elif kind == 0:
            _, at = _varint(data, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if at > end:
            raise ValueError("a field goes past its message's end")
        yield key >> 3, first, at


def _only(data, span, number):
    """The last field `number` of a message."""
    found = [(begin, end) for field, begin, end in _fields(data, *span) if field == number]
    if not found:
        raise KeyError(f"field {number}")
    return found[-1]


def _features(data, begin, end):
    """(name, the Feature) of an Example: Example.features = 1, Features.feature = 1, a map."""
    features = _only(data, (begin, end), 1)
    for field, first, last in _fields(data, *features):
        if field == 1:
            name, value = _only(data, (first, last), 1), _only(data, (first, last), 2)
            yield data[name[0]:name[1]].decode(), _only_value(data, value)


def _only_value(data, span):
    """The list within a Feature: of bytes (1), floats (2) or numbers (3)."""
    fields = list(_fields(data, *span))
    if len(fields) != 1:
        raise ValueError("a feature of several lists")
    return fields[0][1:]


def _number(data, span):
    return _varint(data, _only(data, span, 1)[0])[0]  # packed or not, the first one


def _text(data, span):
    if span is None:
        return ""
    begin, end = _only(data, span, 1)
    return data[begin:end].decode()
