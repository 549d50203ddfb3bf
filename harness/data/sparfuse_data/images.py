"""Finds images in the usual layouts, and makes the record of each file."""

import dataclasses
import hashlib
import io
import json
import os
import pathlib
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable

from . import devkit
from .errors import DataError, refuse_stand_in

TEST_FOLDERS = ("val", "validation", "valid", "test")  # the first that is there is the test split
HELD_OUT = 10  # of images without a test split every so-manieth, by the hash of its name, is for tests
MOST_PIXELS = 1 << 28
# What people call a split, in any case; `train` and TEST_FOLDERS are the names that count.
SPLIT_WORDS = {"train", "training", *TEST_FOLDERS, "testing", "eval", "dev"}
IMAGE_NAME = re.compile(r"\.(jpe?g|png|ppm|bmp|gif|tiff?|webp)$", re.IGNORECASE)
FLAT = ("{0}: images lie flat in it, and nothing tells their classes; expected a folder for "
        "each class, or --val-labels FILE with a line \"NAME CLASS\" for each image or ImageNet's development kit")


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    label: int
    name: str  # in its class
    size: int
    at: object  # what `read` takes


@dataclasses.dataclass
class Images:
    """A data set of images, found and not read."""

    form: str
    classes: list[str]
    splits: dict[str, list[Entry]]
    read: Callable[[object], bytes]
    coding: str = "files"
    shape: tuple = ()
    source: dict = dataclasses.field(default_factory=dict)
    changed: int = 0  # when the newest file of a folder was written, in nanoseconds
    notes: list[str] = dataclasses.field(default_factory=list)  # of what became of the files
    sums: dict[str, str] = dataclasses.field(default_factory=dict)  # MD5 of files, where it is known

    def size(self):
        return sum(entry.size for entries in self.splits.values() for entry in entries)


def _text(name, place):
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{place}: the name {name!r} is not UTF-8; expected UTF-8 names") from error
    return name


# ---- Folders, zips and tars of one folder a class ---------------------------------------------------


class _Tree:
    """Files of an ImageFolder, wherever it lies: {split: {class: [(name, size, at)]}}."""

    def __init__(self, place):
        self.place = place
        self.splits = {}
        self.flat = {}

    def add(self, parts, size, at):
        """parts: the path of a file, from where the data set begins."""
        if any(part.startswith((".", "__MACOSX")) for part in parts):
            return
        split = ""
        if parts[0] == "train" or parts[0] in TEST_FOLDERS:
            split, parts = parts[0], parts[1:]
        if len(parts) == 1:
            self.flat.setdefault(split, []).append((parts[0], size, at))
        elif parts:
            self.splits.setdefault(split, {}).setdefault(parts[0], []).append(
                ("/".join(parts[1:]), size, at))


def _labelled(tree, split, labels):
    """Files that lie flat, by a file of "NAME CLASS" lines or the development kit."""
    if devkit.is_kit(labels):
        classes = devkit.classes(labels)
    else:
        try:
            text = pathlib.Path(labels).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{labels}: cannot be read ({error}); expected lines \"IMAGE CLASS\"") from error
        lines = (line.split() for line in text.splitlines())
        classes = {words[0]: words[1] for words in lines if len(words) == 2}
    for name, size, at in tree.flat.pop(split):
        if name not in classes:
            raise DataError(f"{labels}: says nothing of {name}; expected a line \"{name} CLASS\"")
        tree.splits.setdefault(split, {}).setdefault(classes[name], []).append((name, size, at))


def _refuse_splits(place, others):
    """Refuses folders that would be read as classes, or be left out, and are splits under another name."""
    for name, files in sorted(others.items()):
        if name.casefold() in SPLIT_WORDS and all("/" in file for file, _, _ in files):
            raise DataError(f"{place}/{name}: looks like a split with a folder for each class, by another name; "
                            f"expected train, and one of {', '.join(TEST_FOLDERS)}, in small letters: rename it")


def _of_tree(tree, form, read, labels=None):
    place = tree.place
    flat = {split for split, files in tree.flat.items()
            if split and any(IMAGE_NAME.search(name) for name, _, _ in files)}
    tests = [name for name in TEST_FOLDERS if name in tree.splits or name in flat]
    for split in ["train", *tests[:1]]:
        if split not in flat:
            continue
        if labels is None:
            raise DataError(FLAT.format(f"{place}/{split}"))
        _labelled(tree, split, labels)
    notes = [f"{name} is left out, as {tests[0]} is the test split" for name in tests[1:]]
    beside = [name for name, _, _ in tree.flat.get("", ()) if IMAGE_NAME.search(name)]
    if beside:
        notes.append(f"images beside the folders of classes are left out: {len(beside)}, {min(beside)} for one")
    others = tree.splits.pop("", {})
    if "train" not in tree.splits or not tests:
        _refuse_splits(place, others)
    if "train" in tree.splits:
        if others:
            notes.append(f"{', '.join(sorted(others)[:5])}: left out, as it is neither train nor one of "
                         f"{', '.join(TEST_FOLDERS)}")
        tree.splits = {"train": tree.splits["train"]} | (
            {"test": tree.splits[tests[0]]} if tests else {})
    elif others:
        tree.splits = {"train": others}
    if "train" not in tree.splits:
        raise DataError(f"{place}: no images in it; expected train/CLASS/IMAGE, or CLASS/IMAGE; of a text train.txt "
                        "beside valid.txt or test.txt; of questions train-v1.1.json and dev-v1.1.json")
    classes = sorted(_text(name, place) for name in tree.splits["train"])
    if len(classes) < 2:
        raise DataError(f"{place}: one class, {classes[0]}; expected train/CLASS/IMAGE, or CLASS/IMAGE, "
                        "of several classes")
    if len(classes) > 65535:
        raise DataError(f"{place}: {len(classes)} classes; expected at most 65,535")
    numbers = {name: i for i, name in enumerate(classes)}
    extra = sorted(set(tree.splits.get("test", {})) ^ set(classes))
    if "test" in tree.splits and extra:
        lacking = [name for name in extra if name in numbers]
        raise DataError(
            f"{place}: the classes of train and of the test split differ: " +
            (f"{', '.join(lacking[:5])} have no test images" if lacking else
             f"{', '.join(extra[:5])} have no training images") +
            "; expected the same folders in both")
    splits = {}
    for split, by_class in tree.splits.items():
        entries = splits[split] = []
        for name in classes:
            for file, size, at in sorted(by_class.pop(name)):  # popped: ImageNet has a million
                if size == 0:
                    raise DataError(f"{place}: {split}/{name}/{file} has no bytes; expected an image")
                entries.append(Entry(numbers[name], f"{name}/{_text(file, place)}", size, at))
    source = {}
    if "test" not in splits:
        train, test = [], []
        for entry in splits["train"]:
            digest = hashlib.sha256(entry.name.encode()).digest()
            (test if digest[0] % HELD_OUT == 0 else train).append(entry)
        splits = {"train": train, "test": test}
        source["held_out"] = f"one in {HELD_OUT}, by the hash of its name"
        notes.append(f"there is none of {', '.join(TEST_FOLDERS)}: one image in {HELD_OUT} is held out for tests")
        if not test:
            raise DataError(f"{place}: {len(train)} images are too few to hold out one in {HELD_OUT}"
                            "; expected a test split")
    return Images(form, classes, splits, read, source=source, notes=notes)


def _walk(top):
    """(parts, status, path) of files beneath a folder; links are followed, each folder once."""
    waiting, seen = [(pathlib.Path(top), ())], set()
    while waiting:
        folder, parts = waiting.pop()
        status = folder.stat()
        if (status.st_dev, status.st_ino) in seen:
            raise DataError(f"{folder}: is linked to a folder that it lies in, or is there twice; "
                            "expected every folder once")
        seen.add((status.st_dev, status.st_ino))
        files = 0
        with os.scandir(folder) as inside:
            for entry in inside:
                here = (*parts, entry.name)
                if entry.name.startswith("."):
                    continue
                files += 1
                try:
                    if entry.is_dir():
                        waiting.append((pathlib.Path(entry.path), here))
                        continue
                    status = entry.stat()
                except OSError as error:
                    raise DataError(f"{entry.path}: {error.strerror}; expected an image") from error
                if not stat.S_ISREG(status.st_mode):
                    raise DataError(f"{entry.path}: is no file; expected an image")
                yield here, status, entry.path
        if files == 0 and parts:
            raise DataError(f"{folder}: is empty; expected images, or no such folder")


def from_folder(place, labels):
    tree, changed = _Tree(place), 0
    for parts, status, path in _walk(place):
        tree.add(parts, status.st_size, path)
        changed = max(changed, status.st_mtime_ns)
    found = _of_tree(tree, "imagefolder", lambda path: pathlib.Path(path).read_bytes(), labels)
    found.changed = changed
    return found


def _without_common_folder(names):
    """How many leading parts all names share, up to where train/ or classes begin."""
    first = {parts[0] for parts in names if len(parts) > 1}
    if len(first) == 1 and not first & {"train", *TEST_FOLDERS} and all(
            len(parts) > 2 for parts in names if parts[0] in first):
        return 1
    return 0


def _of_members(place, form, members, read, labels):
    """members: [(parts, size, at)] of an archive."""
    members = [member for member in members if not any(
        part.startswith((".", "__MACOSX")) for part in member[0])]
    skip = _without_common_folder([parts for parts, _, _ in members])
    tree = _Tree(place)
    for parts, size, at in members:
        tree.add(parts[skip:], size, at)
    return _of_tree(tree, form, read, labels)


def _name_in_zip(info):
    """zip writes UTF-8 without the flag that says so, where the locale knows ASCII alone."""
    if info.flag_bits & 0x800:
        return info.filename
    try:
        return info.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return info.filename


def from_zip(place, labels):
    try:
        archive = zipfile.ZipFile(place)
    except zipfile.BadZipFile as error:
        raise DataError(f"{place}: is no whole zip ({error}); was it downloaded to its end?") from error
    members = [(tuple(_name_in_zip(info).split("/")), info.file_size, info.filename)
               for info in archive.infolist() if not info.is_dir()]

    def read(name):
        try:
            return archive.read(name)
        except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, zlib.error) as error:  # RuntimeError: encrypted
            raise DataError(f"{place}: {name} is damaged ({error})") from error

    return _of_members(place, "zip of an imagefolder", members, read, labels)


def _members_of_tar(place, begin=0, size=None):
    """(name, size, offset in the file) of each file of a plain tar that lies within another file."""
    with open(place, "rb") as file:
        file.seek(begin)
        if file.read(2) == b"\x1f\x8b":
            raise DataError(f"{place}: is compressed by gzip, and no part of it can be read by itself; "
                            "expected a plain tar: gunzip it first")
        file.seek(begin)
        try:
            with tarfile.open(fileobj=file, mode="r:") as tar:
                for member in tar:
                    if member.isfile():
                        yield member.name, member.size, member.offset_data
                end = tar.offset
        except tarfile.TarError as error:
            raise DataError(f"{place}: is no whole tar ({error}); was it copied to its end?") from error
        file.seek(end)
        if file.read(512) != bytes(512):  # where tarfile meets anything else it stops and says nothing
            raise DataError(f"{place}: is no whole tar: at byte {end:,} is neither a member nor a tar's "
                            "end; was it copied to its end?")
    if size is not None and os.path.getsize(place) < begin + size:
        raise DataError(f"{place}: ends in the middle of a member; was it copied to its end?")


def _reader_of_parts():
    open_files = {}

    def read(at):
        path, offset, size = at
        if path not in open_files:
            if len(open_files) > 64:
                os.close(open_files.pop(next(iter(open_files))))
            open_files[path] = os.open(path, os.O_RDONLY)
        data = os.pread(open_files[path], size, offset)
        if len(data) != size:
            raise DataError(f"{path}: ends in the middle of a member at byte {offset:,}; was it copied "
                            "to its end?")
        return data

    return read


def from_tars(place, paths, labels):
    """A tar of an ImageFolder, or ImageNet's archives: a tar of one tar a class, and a flat one."""
    members = []
    for path in paths:
        for name, size, offset in _members_of_tar(path):
            stem = pathlib.PurePosixPath(name)
            if stem.suffix == ".tar":  # a class of ImageNet's training archive
                for inner, inner_size, inner_offset in _members_of_tar(path, offset, size):
                    members.append((("train", stem.stem, inner), inner_size,
                                    (path, inner_offset, inner_size)))
            elif len(stem.parts) == 1 and "val" in stem.name:
                members.append((("val", stem.name), size, (path, offset, size)))
            else:
                members.append((tuple(part for part in stem.parts if part != "."), size,
                                (path, offset, size)))
    return _of_members(place, "tar", members, _reader_of_parts(), labels)


# ---- WebDataset shards -------------------------------------------------------------------------------


def from_shards(place, paths):
    """KEY.jpg and KEY.cls in tars; shards belong to train unless named otherwise."""
    splits, classes, keys = {"train": [], "test": []}, set(), set()
    read = _reader_of_parts()
    for path in sorted(paths):
        split = "test" if re.search(r"val|test", os.path.basename(path)) else "train"
        by_key = {}
        for name, size, offset in _members_of_tar(path):
            base = os.path.basename(name)
            key = os.path.join(os.path.dirname(name), base.partition(".")[0])
            parts = by_key.setdefault(key, {})
            extension = base.partition(".")[2].lower()
            if extension in parts:
                raise DataError(f"{path}: the key {key} has two parts .{extension}; expected one")
            parts[extension] = (path, offset, size)
        for key, parts in by_key.items():
            image = next((parts[e] for e in ("jpg", "jpeg", "png") if e in parts), None)
            if image is None or not {"cls", "json"} & set(parts):
                raise DataError(f"{path}: the key {key} has .{', .'.join(sorted(parts))}; expected "
                                "an image (.jpg, .jpeg, .png) and its class (.cls, or .json with label)")
            if (split, key) in keys:
                raise DataError(f"{path}: the key {key} is in another shard, too; expected it once")
            keys.add((split, key))
            label = _class_of(path, key, parts, read)
            classes.add(label)
            splits[split].append(Entry(label, key, image[2], image))
    last = max(classes)
    if not splits["test"]:
        raise DataError(f"{place}: no shard belongs to a test split; expected some named val or test")
    names = [f"{i:0{len(str(last))}d}" for i in range(last + 1)]
    for entries in splits.values():
        entries.sort(key=lambda entry: (entry.label, entry.name))
    return Images("webdataset shards", names, splits, read)


def _class_of(path, key, parts, read):
    part = "cls" if "cls" in parts else "json"
    text = read(parts[part]).strip().decode("utf-8", "replace")
    if part == "json":
        try:
            given = json.loads(text)
            text = str(next(given[name] for name in ("label", "cls", "class") if name in given))
        except (ValueError, TypeError, StopIteration) as error:
            raise DataError(f"{path}: {key}.json = {text[:40]!r}; expected an object with the key label"
                            ) from error
    if not text.isdecimal() or int(text) > 65534:
        raise DataError(f"{path}: {key}.{part} = {text[:40]!r}; expected a class number")
    return int(text)


# ---- What becomes of a file --------------------------------------------------------------------------


def record_of(data, place):
    """(record, why it is not the file's bytes or ""). A JPEG in colour or grey stays as it is; all
    else is decoded by Pillow and stands as a binary PPM, pixel for pixel what Pillow's convert gives."""
    from PIL import Image, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None
    try:
        image = Image.open(io.BytesIO(data))
        if image.width * image.height > MOST_PIXELS:
            raise DataError(f"{place}: has {image.width} x {image.height} pixels; expected at most "
                            f"{MOST_PIXELS:,}")
        if image.format == "JPEG" and image.mode in ("RGB", "L"):
            if not data.endswith(b"\xff\xd9"):
                image.load()  # bytes behind its end are harmless, an end that is missing is not
            return data, ""
        why = f"{image.format} {image.mode}"
        pixels = image.convert("RGB")
    except DataError:
        raise
    except UnidentifiedImageError as error:
        refuse_stand_in(place, data[:64])
        raise DataError(f"{place}: is no image that Pillow knows; expected a JPEG or PNG") from error
    except Exception as error:  # of its many decoders
        raise DataError(f"{place}: cannot be decoded ({error}); is it truncated?") from error
    return b"P6\n%d %d\n255\n" % pixels.size + pixels.tobytes(), why
