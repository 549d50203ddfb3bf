"""Finds images in parquet, as Hugging Face's data sets have them. Rows stay in the order of their files."""

import io
import json

from .errors import DataError
from .images import Entry, Images
from .texts import words_of_name

_SPLITS = {"train": ("train",), "test": ("validation", "valid", "val", "test")}
_IMAGES, _LABELS = ("image", "img"), ("fine_label", "label")
_SIDE = 32  # of CIFAR's images, which are pixels in every form


def find(place, parquet):
    """Images of a folder of parquet files, or None. parquet: opens one."""
    paths = sorted(place.glob("*.parquet")) or sorted(place.glob("data/*.parquet"))
    if not paths or _columns(parquet(paths[0])) is None:
        return None
    files = {}
    for path in paths:
        words = words_of_name(path)
        name = next((name for names in _SPLITS.values() for name in names if name in words), None)
        if name is None:
            raise DataError(f"{path}: belongs to no split; expected train, validation or test in its name")
        files.setdefault(name, []).append(path)
    splits = {split: next((files[name] for name in names if name in files), None)
              for split, names in _SPLITS.items()}
    if None in splits.values():
        raise DataError(f"{place}: has files of {', '.join(files)}; expected train and one of "
                        f"{', '.join(_SPLITS['test'])}")
    rows = _Rows(parquet)
    found = {split: [entry for path in of_split for entry in rows.entries(path)]
             for split, of_split in splits.items()}
    classes = rows.classes or [str(i) for i in range(1 + max(e.label for e in found["train"]))]
    for split, entries in found.items():
        wrong = next((e for e in entries if not 0 <= e.label < len(classes)), None)
        if wrong:
            raise DataError(f"{wrong.name}: its label is {wrong.label}; expected 0 to {len(classes) - 1}")
        if not entries:
            raise DataError(f"{place}: {split} has no rows; expected images")
    pixels = _is_cifar(rows.read(found["train"][0].at))
    if pixels:
        found = {split: [Entry(e.label, e.name, 3 * _SIDE * _SIDE, e.at) for e in entries]
                 for split, entries in found.items()}
    more = {"coding": "planes", "shape": (3, _SIDE, _SIDE)} if pixels else {}
    return Images("parquet of images", classes, found, rows.planes if pixels else rows.read, **more)


def _columns(file):
    """(column of images, column of labels) of an opened file, or None."""
    names = file.schema_arrow.names
    image = next((n for n in _IMAGES if n in names and str(file.schema_arrow.field(n).type)
                  .startswith("struct<bytes")), None)
    label = next((n for n in _LABELS if n in names), None)
    return (image, label) if image and label else None


def _is_cifar(data):
    from PIL import Image
    try:
        image = Image.open(io.BytesIO(data))
        return image.format == "PNG" and image.size == (_SIDE, _SIDE) and image.mode == "RGB"
    except Exception:  # said of the image that it is, when it is read
        return False


class _Rows:
    """Rows of files, a row group in memory at a time."""

    def __init__(self, parquet):
        self.parquet, self.files, self.classes = parquet, {}, None
        self.group, self.images = None, []

    def entries(self, path):
        file = self.files[path] = self.parquet(path)
        columns = _columns(file)
        if columns is None:
            raise DataError(f"{path}: has the columns {', '.join(file.schema_arrow.names)}; expected "
                            f"{' or '.join(_IMAGES)}, of bytes and path, and {' or '.join(_LABELS)}")
        self._learn_classes(file, columns[1])
        number = 0
        for group in range(file.num_row_groups):
            labels = file.read_row_group(group, columns=[columns[1]]).column(0).to_pylist()
            size = file.metadata.row_group(group).total_byte_size // max(1, len(labels))
            for row, label in enumerate(labels):
                if not isinstance(label, int):
                    raise DataError(f"{path}: row {number} has the label {label!r}; expected a number")
                yield Entry(label, f"{path.name}/{number}", size, (path, group, row))
                number += 1

    def _learn_classes(self, file, label):
        """The classes' names stand in the schema, where a data set has them."""
        try:
            info = json.loads((file.schema_arrow.metadata or {})[b"huggingface"])
            self.classes = self.classes or list(info["info"]["features"][label]["names"])
        except (KeyError, ValueError, TypeError):
            pass

    def read(self, at):
        path, group, row = at
        if self.group != (path, group):
            column = _columns(self.files[path])[0]
            read = self.files[path].read_row_group(group, columns=[column])
            self.images, self.group = read.column(0).to_pylist(), (path, group)
        data = (self.images[row] or {}).get("bytes")
        if not data:
            raise DataError(f"{path}: row {row} of row group {group} has no bytes; expected an image in it")
        return data

    def planes(self, at):
        """Red, green and blue, each row after row, as CIFAR's own files have them."""
        from PIL import Image
        try:
            image = Image.open(io.BytesIO(self.read(at)))
            bands = [band.tobytes() for band in image.convert("RGB").split()]
        except DataError:
            raise
        except Exception as error:
            raise DataError(f"{at[0]}: row {at[2]} of row group {at[1]} cannot be decoded ({error})"
                            ) from error
        if image.size != (_SIDE, _SIDE):
            raise DataError(f"{at[0]}: row {at[2]} of row group {at[1]} has {image.size[0]} x "
                            f"{image.size[1]} pixels; expected {_SIDE} x {_SIDE}, as the first has")
        return b"".join(bands)
