"""Reads CIFAR-10 and CIFAR-100 as their authors give them: pickles of Python 2, or binary files."""

import hashlib
import io
import pathlib
import pickle
import tarfile
import zlib

import numpy

from .errors import DataError, refuse_stand_in
from .images import Entry, Images

PIXELS = 3 * 32 * 32
_COARSE = 20  # labels of CIFAR-100's second kind
_ALLOWED = {("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"),
            ("_codecs", "encode"), ("numpy._core.multiarray", "_reconstruct")}

# {form: ({split: files}, meta file, key of the labels, key of the class names)}
_PICKLES: dict[str, tuple[dict[str, list[str]], str, str, str]] = {
    "CIFAR-10, Python pickles": ({"train": [f"data_batch_{i}" for i in range(1, 6)],
                                  "test": ["test_batch"]}, "batches.meta", "labels", "label_names"),
    "CIFAR-100, Python pickles": ({"train": ["train"], "test": ["test"]}, "meta", "fine_labels",
                                  "fine_label_names"),
}
# {form: ({split: files}, file of class names, bytes of labels)}; of two the second is the fine one
_BINARY: dict[str, tuple[dict[str, list[str]], str, int]] = {
    "CIFAR-10, binary": ({"train": [f"data_batch_{i}.bin" for i in range(1, 6)],
                          "test": ["test_batch.bin"]}, "batches.meta.txt", 1),
    "CIFAR-100, binary": ({"train": ["train.bin"], "test": ["test.bin"]}, "fine_label_names.txt", 2),
}
# All of these files.
_FILES = [(form[0], form[1]) for form in _PICKLES.values()] + [(form[0], form[1]) for form in _BINARY.values()]
_NAMES = {name for splits, meta in _FILES for name in (meta, *(name for batch in splits.values() for name in batch))}


class _OfArrays(pickle.Unpickler):
    """Makes arrays and plain values, and nothing else."""

    def find_class(self, module, name):
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def _unpickle(data, place):
    refuse_stand_in(place, data[:64])
    try:
        table = _OfArrays(io.BytesIO(data), encoding="bytes").load()
        return {key.decode() if isinstance(key, bytes) else key: value for key, value in table.items()}
    except Exception as error:
        raise DataError(f"{place}: is no pickle of CIFAR ({error})") from error


class _Files:
    """Files of a folder, or of a tar (compressed or not), by name. What a tar has of CIFAR is unpacked
    once, as compressed ones can only be read from their beginning."""

    def __init__(self, place):
        self.place, self.folder, self.members, self.contents = place, None, {}, {}
        self.sums = {}  # MD5 of what was read
        if place.is_dir():
            names = [place, *(child for child in place.iterdir() if child.is_dir())]
            self.folder = next((f for f in names if (f / "test_batch").exists() or (f / "test").is_file()
                                or (f / "test.bin").exists() or (f / "test_batch.bin").exists()), None)
        elif tarfile.is_tarfile(place):
            try:
                with tarfile.open(place) as tar:
                    for member in tar:
                        if member.isfile() and member.size < 300 << 20:
                            self.members[pathlib.PurePosixPath(member.name).name] = member.name
                        if len(self.members) > 100:  # no CIFAR has as many
                            break
            except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
                if _NAMES & set(self.members):
                    self._cut(error)

    def has(self, name):
        return (self.folder / name).is_file() if self.folder else name in self.members

    def read(self, name):
        data = (self.folder / name).read_bytes() if self.folder else self._of_tar(name)
        self.sums[name] = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return data

    def _of_tar(self, name):
        if not self.contents:
            try:
                with tarfile.open(self.place) as tar:
                    for member in tar:
                        base = pathlib.PurePosixPath(member.name).name
                        if base in _NAMES and self.members.get(base) == member.name:
                            self.contents[base] = tar.extractfile(member).read()
            except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
                self._cut(error)
        return self.contents[name]

    def _cut(self, error):
        raise DataError(f"{self.place}: is no whole archive ({error}); was it downloaded to its end?"
                        ) from error


def _names(files, meta, key):
    table = _unpickle(files.read(meta), meta)
    try:
        return [name.decode() if isinstance(name, bytes) else str(name) for name in table[key]]
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise DataError(f"{files.place}/{meta}: has the keys {', '.join(map(str, sorted(table)))}; expected "
                        f"{key}, a list of names") from error


def find(place):
    """The data set at a folder or a tar, or None if it is not CIFAR."""
    files = _Files(place)
    for form, (splits, meta, labels, names) in _PICKLES.items():
        if all(files.has(name) for batch in splits.values() for name in batch):
            if not files.has(meta):
                raise DataError(f"{place}: lacks {meta}; expected it beside the images")
            return _of_pickles(place, files, form, splits, _names(files, meta, names), labels)
    for form, (splits, names, width) in _BINARY.items():
        if all(files.has(name) for batch in splits.values() for name in batch):
            if not files.has(names):
                raise DataError(f"{place}: lacks {names}; expected it beside the images")
            try:
                classes = files.read(names).decode().split()
            except UnicodeDecodeError as error:
                raise DataError(f"{place}/{names}: is not UTF-8 ({error.reason}); expected names") from error
            return _of_binary(place, files, form, splits, classes, width)
    return None


def _check_labels(labels, classes, place):
    wrong = next((i for i, label in enumerate(labels)
                  if not isinstance(label, int) or not 0 <= label < len(classes)), None)
    if wrong is not None:
        raise DataError(f"{place}: the label of image {wrong} is {labels[wrong]!r:.40}; expected 0 to "
                        f"{len(classes) - 1}")
    if len(classes) == 100 and len(labels) >= 100 and max(labels) < _COARSE:
        raise DataError(f"{place}: no label is above {max(labels)}; expected the fine ones, 0 to "
                        f"{len(classes) - 1}: are these the coarse ones?")


def _of_pickles(place, files, form, splits, classes, key):
    found = {}
    for split, names in splits.items():
        entries = found[split] = []
        for name in names:
            table = _unpickle(files.read(name), f"{place}/{name}")
            if key not in table or "data" not in table:
                raise DataError(f"{place}/{name}: has the keys {', '.join(sorted(table))}; expected data "
                                f"and {key}: is this the other CIFAR?")
            images, labels = table["data"], table[key]
            if not isinstance(images, numpy.ndarray) or not isinstance(labels, list):
                raise DataError(f"{place}/{name}: data is a {type(images).__name__} and {key} a "
                                f"{type(labels).__name__}; expected an array and a list")
            if images.shape != (len(labels), PIXELS) or images.dtype != "uint8":
                raise DataError(f"{place}/{name}: data is {images.dtype} {list(images.shape)}; expected "
                                f"uint8 [{len(labels)}, {PIXELS}]")
            _check_labels(labels, classes, f"{place}/{name}")
            entries += [Entry(label, f"{name}/{i}", PIXELS, images[i])
                        for i, label in enumerate(labels)]
    return _in_order(form, classes, found, lambda image: image.tobytes(), files)


def _of_binary(place, files, form, splits, classes, width):
    found, size = {}, width + PIXELS
    for split, names in splits.items():
        entries = found[split] = []
        for name in names:
            data = files.read(name)
            if len(data) % size:
                raise DataError(f"{place}/{name}: has {len(data):,} bytes; expected a multiple of {size}")
            labels = list(data[width - 1::size])
            if width == 2 and (coarse := max(data[::size], default=0)) >= _COARSE:
                raise DataError(f"{place}/{name}: a first byte is {coarse}, the coarse label; expected 0 to "
                                f"{_COARSE - 1}: are the two labels swapped?")
            _check_labels(labels, classes, f"{place}/{name}")
            view = memoryview(data)
            entries += [Entry(label, f"{name}/{i}", PIXELS, view[i * size + width:(i + 1) * size])
                        for i, label in enumerate(labels)]
    return _in_order(form, classes, found, bytes, files)


def _in_order(form, classes, splits, read, files):
    """Images stay in the order of their files: that of both forms is the same."""
    return Images(form, classes, splits, read, coding="planes", shape=(3, 32, 32), sums=files.sums)
