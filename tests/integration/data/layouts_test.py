"""Prepares the same small images from TFRecords, parquet, shards and with ImageNet's development kit.

  layouts_test.py SPARFUSE

Parquet needs pyarrow and the development kit scipy; without them it is tested that the error says so.
"""

import hashlib
import importlib.util
import io
import json
import pickle
import random
import struct
import sys
import tarfile
import unittest

import numpy
from data_case import DataCase, add_member
from PIL import Image

DataCase.program = sys.argv.pop(1)
CLASSES = ("n01440764", "n01443537", "n01484850")
HAS_PYARROW = importlib.util.find_spec("pyarrow") is not None
HAS_SCIPY = importlib.util.find_spec("scipy") is not None


def jpeg(seed, width=20, height=14):
    rng = random.Random(seed)
    small = numpy.array([rng.randrange(256) for _ in range(48)], numpy.uint8).reshape(4, 4, 3)
    file = io.BytesIO()
    Image.fromarray(small).resize((width, height), Image.BICUBIC).save(file, "JPEG")
    return file.getvalue()


def images():
    """Small images as {split: [(class number, file name, bytes)]}."""
    made = {"train": [], "val": []}
    for number, name in enumerate(CLASSES):
        for i in range(6):
            made["train"].append((number, f"{name}_{i}.JPEG", jpeg(f"t{number}{i}")))
    order = random.Random(5).sample([n for n in range(3) for _ in range(3)], 9)
    for i, number in enumerate(order, 1):
        made["val"].append((number, f"ILSVRC2012_val_{i:08d}.JPEG", jpeg(f"v{i}")))
    return made


# ---- A TFRecord file, written by hand ---------------------------------------------------------------


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(features):
    entries = b""
    for name, value in features.items():
        numbers = isinstance(value, int)
        # Some writers pack numbers, others do not.
        inner = (field(1, varint(value)) if value % 2 else b"\x08" + varint(value)) if numbers else \
            field(1, value)
        entries += field(1, field(1, name.encode()) + field(2, field(3 if numbers else 1, inner)))
    return field(1, entries)


def record(data):
    return struct.pack("<QI", len(data), 7) + data + struct.pack("<I", 7)


class Layouts(DataCase):
    def setUp(self):
        super().setUp()
        self.images = images()

    def prepare(self, name, source, *more, check=0):
        done = super().prepare(name, source, *more, check=check)
        return done.stdout + done.stderr

    def prepare_folder(self):
        for split, made in self.images.items():
            for number, file, data in made:
                path = self.home / "folder" / split / CLASSES[number] / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        self.prepare("folder", self.home / "folder")
        return self.meta("folder")["id"]

    # ---- TFRecords ---------------------------------------------------------------------------------

    def write_records(self, **left_out):
        for split, made in self.images.items():
            name = "train" if split == "train" else "validation"
            for shard in range(2):
                records = []
                for number, file, data in made[shard::2]:
                    features = {"image/class/label": number + 1, "image/encoded": data,
                                "image/class/synset": CLASSES[number].encode(),
                                "image/filename": file.encode(), "image/height": 14}
                    records.append(record(example({k: v for k, v in features.items()
                                                   if k not in left_out.get("names", ())})))
                (self.source / f"{name}-{shard:05d}-of-00002").write_bytes(b"".join(records))

    def test_tfrecords_are_the_same_data_as_folders(self):
        self.write_records()
        self.assertIn("TFRecord files, 3 classes, 18 images of train, 9 images of test",
                      self.prepare("records", self.source))
        self.assertEqual(self.meta("records")["id"], self.prepare_folder())

    def test_tfrecords_without_names_have_numbers_as_classes(self):
        self.write_records(names=("image/class/synset", "image/filename"))
        self.prepare("records", self.source)
        self.assertEqual(self.meta("records")["content"]["classes"], ["1", "2", "3"])

    def test_tfrecords_that_are_cut_or_of_something_else_are_refused(self):
        self.write_records()
        path = self.source / "train-00001-of-00002"
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        self.assertIn("goes past the file's end", self.prepare("bad", self.source, check=1))
        path.write_bytes(whole[:6])
        self.assertIn("the record at byte 0 goes past", self.prepare("bad", self.source, check=1))
        path.write_bytes(record(example({"words": b"none"})))
        self.assertIn("'image/encoded'", self.prepare("bad", self.source, check=1))
        path.write_bytes(record(b"\xff" * 40))
        self.assertIn("is no image", self.prepare("bad", self.source, check=1))
        path.write_bytes(whole)
        for path in self.source.glob("validation*"):
            path.unlink()
        self.assertIn("has no record of test", self.prepare("bad", self.source, check=1))
        self.assertFalse((self.data / "bad").exists())

    # ---- Shards ------------------------------------------------------------------------------------

    def test_shards_may_have_their_classes_in_json(self):
        for split, made in self.images.items():
            with tarfile.open(self.source / f"{split}-0000.tar", "w") as tar:
                for i, (number, _, data) in enumerate(made):
                    for end, content in (("jpg", data), ("json", json.dumps({"label": number}).encode())):
                        add_member(tar, f"{i:04d}.{end}", content)
        self.assertIn("18 images of train, 9 images of test", self.prepare("shards", self.source))
        with tarfile.open(self.source / "val-0000.tar", "w") as tar:
            for end, content in (("jpg", self.images["val"][0][2]), ("json", b'{"caption": "a fish"}')):
                add_member(tar, f"0.{end}", content)
        self.assertIn("expected an object with the key label", self.prepare("bad", self.source, check=1))

    # ---- Parquet -----------------------------------------------------------------------------------

    def write_parquet(self, rows, columns=("image", "label"), classes=CLASSES):
        import pyarrow
        import pyarrow.parquet
        for split, made in rows.items():
            images_ = [{"bytes": data, "path": file} for _, file, data in made]
            table = pyarrow.table({columns[0]: images_, columns[1]: [number for number, _, _ in made]})
            info = {"info": {"features": {columns[1]: {"names": list(classes), "_type": "ClassLabel"}}}}
            table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
            pyarrow.parquet.write_table(table, self.source / f"{split}-00000-of-00001.parquet",
                                        row_group_size=4)

    @unittest.skipUnless(HAS_PYARROW, "pyarrow is not installed")
    def test_parquet_of_images_has_the_classes_of_its_schema(self):
        self.write_parquet({"train": self.images["train"], "validation": self.images["val"]})
        self.assertIn("parquet of images, 3 classes, 18 images of train, 9 images of test",
                      self.prepare("rows", self.source))
        content = self.meta("rows")["content"]
        self.assertEqual(content["classes"], list(CLASSES))
        rows = b"".join(data for _, _, data in self.images["val"])
        self.assertEqual((self.data / "rows" / "test.records").read_bytes(), rows)
        labels = (self.data / "rows" / "test.labels").read_bytes()
        self.assertEqual(struct.unpack("<9H", labels), tuple(n for n, _, _ in self.images["val"]))
        self.write_parquet({"train": self.images["train"], "validation": [(-1, "x", jpeg(1))]})
        self.assertIn("its label is -1; expected 0 to 2", self.prepare("bad", self.source, check=1))
        self.write_parquet({"train": self.images["train"], "validation": [(0, "x", b"")]})
        self.assertIn("has no bytes", self.prepare("bad", self.source, check=1))

    @unittest.skipUnless(HAS_PYARROW, "pyarrow is not installed")
    def test_parquet_of_cifar_is_the_same_data_as_its_pickles(self):
        rng = numpy.random.default_rng(3)
        names = [f"class{i}" for i in range(100)]
        rows = {}
        for split, count in (("train", 30), ("test", 10)):
            pixels = rng.integers(0, 256, (count, 32, 32, 3), numpy.uint8)
            labels = rng.integers(0, 100, count).tolist()
            rows[split] = []
            for label, image in zip(labels, pixels):
                file = io.BytesIO()
                Image.fromarray(image).save(file, "PNG")
                rows[split].append((label, "x.png", file.getvalue()))
            folder = self.home / "cifar-100-python"
            folder.mkdir(exist_ok=True)
            (folder / split).write_bytes(pickle.dumps(
                {b"data": pixels.transpose(0, 3, 1, 2).reshape(count, -1).copy(), b"fine_labels": labels},
                protocol=2))
            (folder / "meta").write_bytes(pickle.dumps(
                {b"fine_label_names": [name.encode() for name in names]}, protocol=2))
        self.write_parquet(rows, ("img", "fine_label"), names)
        self.prepare("rows", self.source)
        self.prepare("pickles", self.home / "cifar-100-python")
        self.assertEqual(self.meta("rows")["id"], self.meta("pickles")["id"])

    # ---- The development kit -----------------------------------------------------------------------

    def flat(self):
        for number, file, data in self.images["train"]:
            path = self.source / "train" / CLASSES[number] / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (self.source / "val").mkdir()
        for _, file, data in self.images["val"]:
            (self.source / "val" / file).write_bytes(data)

    def test_a_flat_folder_needs_labels(self):
        self.flat()
        self.assertIn("or ImageNet's development kit", self.prepare("bad", self.source, check=1))
        kit = self.home / "kit"
        kit.mkdir()
        self.assertIn("has no ILSVRC2012_validation_ground_truth.txt",
                      self.prepare("bad", self.source, "--val-labels", kit, check=1))
        (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n")
        (kit / "meta.mat").write_bytes(b"none")
        said = self.prepare("bad", self.source, "--val-labels", kit, check=1)
        self.assertIn("cannot be read" if HAS_SCIPY else "pip install scipy", said)

    @unittest.skipUnless(HAS_SCIPY, "scipy is not installed")
    def test_the_development_kit_numbers_classes_by_itself(self):
        import scipy.io
        self.flat()
        kit = self.home / "ILSVRC2012_devkit_t12" / "data"
        kit.mkdir(parents=True)
        own = {0: 3, 1: 1, 2: 2}  # {our class: the kit's number}, not in the order of WNIDs
        kind = [("ILSVRC2012_ID", object), ("WNID", object), ("num_children", object)]
        synsets = numpy.array([(own[i], name, 0) for i, name in enumerate(CLASSES)] +
                              [(1001, "n00000001", 3)], dtype=kind)
        scipy.io.savemat(kit / "meta.mat", {"synsets": synsets})
        (kit / "ILSVRC2012_validation_ground_truth.txt").write_text(
            "".join(f"{own[number]}\n" for number, _, _ in self.images["val"]))
        with tarfile.open(self.home / "kit.tar.gz", "w:gz") as tar:
            tar.add(kit.parent, kit.parent.name)
        same = self.prepare_folder()
        for name, place in (("a", kit.parent), ("b", self.home / "kit.tar.gz")):
            self.prepare(name, self.source, "--val-labels", place)
            self.assertEqual(self.meta(name)["id"], same)

    # ---- ImageNet's archives -----------------------------------------------------------------------

    def write_archives(self):
        with tarfile.open(self.source / "ILSVRC2012_img_train.tar", "w") as outer:
            for number, name in enumerate(CLASSES):
                inner = io.BytesIO()
                with tarfile.open(fileobj=inner, mode="w") as tar:
                    for _, file, data in (image for image in self.images["train"] if image[0] == number):
                        add_member(tar, file, data)
                add_member(outer, f"{name}.tar", inner.getvalue())
        with tarfile.open(self.source / "ILSVRC2012_img_val.tar", "w") as tar:
            for _, file, data in self.images["val"]:
                add_member(tar, file, data)
        labels = self.home / "labels.txt"
        labels.write_text("".join(f"{file} {CLASSES[number]}\n" for number, file, _ in self.images["val"]))
        return labels

    def test_imagenets_archives_are_held_to_their_published_sums(self):
        labels = self.write_archives()
        self.assertIn("classes 3, expected 1,000",
                      self.prepare("imagenet", self.source, "--val-labels", labels, check=1))
        said = self.prepare("imagenet", self.source, "--val-labels", labels, "--accept")
        digest = hashlib.md5((self.source / "ILSVRC2012_img_val.tar").read_bytes()).hexdigest()
        self.assertIn(f"ILSVRC2012_img_val.tar: MD5 {digest}, expected 29b22e2961454d5413ddabcf34fc5622", said)
        self.assertIn("ILSVRC2012_img_train.tar: MD5", said)
        self.assertEqual(self.meta("imagenet")["id"], self.prepare_folder())
        said = self.prepare("mine", self.source, "--val-labels", labels)  # of another name
        self.assertNotIn("MD5", said)


if __name__ == "__main__":
    unittest.main()
