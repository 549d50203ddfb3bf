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

_TEN = [f"data_batch_{i}" for i in range(1, 6)]
# {form: ({split: files}, file of class names, how they are read)}: pickles by the keys of the labels and of
# the class names, binary files by the bytes of a label, of which the last is the fine one.
_FORMS: dict[str, tuple[dict[str, list[str]], str, tuple[str, str] | int]] = {
    "CIFAR-10, Python pickles": ({"train": _TEN, "test": ["test_batch"]}, "batches.meta", ("labels", "label_names")),
    "CIFAR-100, Python pickles": ({"train": ["train"], "test": ["test"]}, "meta", ("fine_labels", "fine_label_names")),
    "CIFAR-10, binary": ({"train": [f"{name}.bin" for name in _TEN], "test": ["test_batch.bin"]},
                         "batches.meta.txt", 1),
    "CIFAR-100, binary": ({"train": ["train.bin"], "test": ["test.bin"]}, "fine_label_names.txt", 2),
}
_NAMES = {name for splits, meta, _ in _FORMS.values() for names in ([meta], *splits.values()) for name in names}


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
            folders = [place, *(child for child in place.iterdir() if child.is_dir())]
            tests = [splits["test"][0] for splits, *_ in _FORMS.values()]
            self.folder = next((f for f in folders if any((f / name).is_file() for name in tests)), None)
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
    """The class names in a pickle under a key; without a key in a text."""
    if key is None:
        try:
            return files.read(meta).decode().split()
        except UnicodeDecodeError as error:
            raise DataError(f"{files.place}/{meta}: is not UTF-8 ({error.reason}); expected names") from error
    table = _unpickle(files.read(meta), meta)
    try:
        return [name.decode() if isinstance(name, bytes) else str(name) for name in table[key]]
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise DataError(f"{files.place}/{meta}: has the keys {', '.join(map(str, sorted(table)))}; expected "
                        f"{key}, a list of names") from error


def find(place):
    """The data set at a folder or a tar, or None if it is not CIFAR. Images stay in the order of their
    files: that of both forms is the same."""
    files = _Files(place)
    for form, (splits, meta, how) in _FORMS.items():
        if not all(files.has(name) for batch in splits.values() for name in batch):
            continue
        if not files.has(meta):
            raise DataError(f"{place}: lacks {meta}; expected it beside the images")
        pickled = isinstance(how, tuple)
        classes = _names(files, meta, how[1] if pickled else None)
        found = {}
        for split, names in splits.items():
            entries = found[split] = []
            for name in names:
                data, file = files.read(name), f"{place}/{name}"
                labels, images = _of_pickle(data, file, how[0]) if pickled else _of_binary(data, file, how)
                _check_labels(labels, classes, file)
                entries += [Entry(label, f"{name}/{i}", PIXELS, image)
                            for i, (label, image) in enumerate(zip(labels, images))]
        return Images(form, classes, found, bytes, coding="planes", shape=(3, 32, 32), sums=files.sums)
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


def _of_pickle(data, place, key):
    """(labels, images) of a file."""
    table = _unpickle(data, place)
    if key not in table or "data" not in table:
        raise DataError(f"{place}: has the keys {', '.join(sorted(table))}; expected data "
                        f"and {key}: is this the other CIFAR?")
    images, labels = table["data"], table[key]
    if not isinstance(images, numpy.ndarray) or not isinstance(labels, list):
        raise DataError(f"{place}: data is a {type(images).__name__} and {key} a "
                        f"{type(labels).__name__}; expected an array and a list")
    if images.shape != (len(labels), PIXELS) or images.dtype != "uint8":
        raise DataError(f"{place}: data is {images.dtype} {list(images.shape)}; expected "
                        f"uint8 [{len(labels)}, {PIXELS}]")
    return labels, images


def _of_binary(data, place, width):
    """(labels, images) of a file."""
    size = width + PIXELS
    if len(data) % size:
        raise DataError(f"{place}: has {len(data):,} bytes; expected a multiple of {size}")
    if width == 2 and (coarse := max(data[::size], default=0)) >= _COARSE:
        raise DataError(f"{place}: a first byte is {coarse}, the coarse label; expected 0 to "
                        f"{_COARSE - 1}: are the two labels swapped?")
    view = memoryview(data)
    images = [view[begin + width:begin + size] for begin in range(0, len(data), size)]
    return list(data[width - 1::size]), images
