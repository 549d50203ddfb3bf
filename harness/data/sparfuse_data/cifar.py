"""Reads CIFAR-10 and CIFAR-100 as their authors give them: pickles of Python 2, or binary files."""

import io
import pathlib
import pickle
import tarfile
import zlib

from .errors import DataError
from .images import Entry, Images

PIXELS = 3 * 32 * 32
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
        if self.folder:
            return (self.folder / name).read_bytes()
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
    names = _unpickle(files.read(meta), meta)[key]
    return [name.decode() if isinstance(name, bytes) else name for name in names]


def find(place):
    """The data set at a folder or a tar, or None where it is no CIFAR."""
    files = _Files(place)
    for form, (splits, meta, labels, names) in _PICKLES.items():
        if all(files.has(name) for batch in splits.values() for name in batch) and files.has(meta):
            return _of_pickles(place, files, form, splits, _names(files, meta, names), labels)
    for form, (splits, names, width) in _BINARY.items():
        if all(files.has(name) for batch in splits.values() for name in batch):
            if not files.has(names):
                raise DataError(f"{place}: lacks {names}; expected it beside the images")
            classes = files.read(names).decode().split()
            return _of_binary(place, files, form, splits, classes, width)
    return None


def _check_labels(labels, classes, place):
    wrong = next((i for i, label in enumerate(labels) if not 0 <= label < len(classes)), None)
    if wrong is not None:
        raise DataError(f"{place}: the label of image {wrong} is {labels[wrong]}; expected 0 to "
                        f"{len(classes) - 1}")


def _of_pickles(place, files, form, splits, classes, key):
    found = {}
    for split, names in splits.items():
        entries = found[split] = []
        for name in names:
            table = _unpickle(files.read(name), f"{place}/{name}")
            if key not in table or "data" not in table:
                raise DataError(f"{place}/{name}: has the keys {', '.join(sorted(table))}; expected data "
                                f"and {key}: is this the other CIFAR?")
            images, labels = table["data"], list(table[key])
            if images.shape != (len(labels), PIXELS) or images.dtype != "uint8":
                raise DataError(f"{place}/{name}: data is {images.dtype} {list(images.shape)}; expected "
                                f"uint8 [{len(labels)}, {PIXELS}]")
            _check_labels(labels, classes, f"{place}/{name}")
            entries += [Entry(label, f"{name}/{i}", PIXELS, images[i])
                        for i, label in enumerate(labels)]
    return _in_order(form, classes, found, lambda image: image.tobytes())


def _of_binary(place, files, form, splits, classes, width):
    found, size = {}, width + PIXELS
    for split, names in splits.items():
        entries = found[split] = []
        for name in names:
            data = files.read(name)
            if len(data) % size:
                raise DataError(f"{place}/{name}: has {len(data):,} bytes; expected a multiple of {size}")
            labels = list(data[width - 1::size])
            _check_labels(labels, classes, f"{place}/{name}")
            view = memoryview(data)
            entries += [Entry(label, f"{name}/{i}", PIXELS, view[i * size + width:(i + 1) * size])
                        for i, label in enumerate(labels)]
    return _in_order(form, classes, found, bytes)


def _in_order(form, classes, splits, read):
    """Images stay in the order of their files: that of both forms is the same."""
    return Images(form, classes, splits, read, coding="planes", shape=(3, 32, 32))
