"""Prepares data that is damaged, or while something goes wrong: killed, a full disk, odd images.

  faults_test.py SPARFUSE
"""

import io
import json
import os
import pathlib
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import unittest
import zipfile

import numpy
from data_case import DataCase, add_member
from PIL import Image

DataCase.program = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[3]

# Runs the preparation in its own process, after `change`, a piece of Python.
DRIVER = """\
import errno, os, pathlib, signal, sys
from sparfuse_data import __main__, writing
add, count = writing.RecordsWriter.add, 0
{change}
sys.exit(__main__.main(["prepare", "set", "--from", sys.argv[1], "--out", sys.argv[2]]))
"""
# Makes a checkpoint every 4 kB, and runs `end`, a piece of Python, at record 100.
BROKEN_OFF = """\
writing.CHECKPOINT_BYTES = 4096
def broken(self, record, label=None):
    global count
    count += 1
    if count == 100:
        {end}
    add(self, record, label)
writing.RecordsWriter.add = broken
"""


def jpeg(rng, width=16, height=12, **more):
    pixels = numpy.frombuffer(rng.randbytes(3 * width * height), numpy.uint8).reshape(height, width, 3)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **more)
    return file.getvalue()


def saved(image, form, **more):
    file = io.BytesIO()
    image.save(file, form, **more)
    return file.getvalue()


class Faults(DataCase):
    def setUp(self):
        super().setUp()
        self.rng = random.Random(7)

    def refused(self, *parts, source=None, name="bad", more=()):
        done = self.prepare(name, source, *more, check=1)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(list(self.data.glob(f"{name}*")), [])  # nothing, and nothing half written

    def prepared(self, name, source=None, *more):
        self.prepare(name, source, *more)
        return self.meta(name)

    def folder(self, per_class=4, classes=("cat", "dog")):
        for split in ("train", "test"):
            for name in classes:
                place = self.source / split / name
                place.mkdir(parents=True, exist_ok=True)
                for i in range(per_class):
                    (place / f"{i:04}.jpg").write_bytes(jpeg(self.rng))

    # ---- Broken off ----------------------------------------------------------------------------------

    def driven(self, change):
        """Prepares "set" in a process of its own after `change`, a piece of Python."""
        environment = os.environ | {"PYTHONPATH": str(ROOT / "harness" / "data")}
        return subprocess.run([sys.executable, "-c", DRIVER.format(change=change), str(self.source),
                               str(self.data / "set")], capture_output=True, text=True, timeout=300, env=environment)

    def broken_off(self, end):
        return self.driven(BROKEN_OFF.format(end=end))

    def goes_on(self):
        """Checks that the next run continues within the split, and ends with the data of an unbroken run."""
        self.assertFalse((self.data / "set").exists())
        self.assertRegex(self.prepare("set").stdout, r"train: goes on after [1-9]\d? images of an earlier run")
        self.assertEqual(self.meta("set")["id"], self.prepared("whole")["id"])
        self.run_program("data", "check", "set", check=0)

    def test_a_killed_run_goes_on_within_a_split(self):
        self.folder(per_class=80)
        killed = self.broken_off("os.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual(killed.returncode, -signal.SIGKILL, killed.stderr)
        self.goes_on()

    def test_a_full_disk_is_said_and_the_next_run_goes_on(self):
        self.folder(per_class=80)
        full = self.broken_off('raise OSError(errno.ENOSPC, "No space left on device")')
        self.assertEqual(full.returncode, 1)
        self.assertIn("no space is left on its disk", full.stderr)
        self.goes_on()

    def test_a_limit_of_files_sizes_is_said_and_the_next_run_goes_on(self):
        self.folder(per_class=80)
        limited = self.broken_off('raise OSError(errno.EFBIG, "File too large")')
        self.assertEqual(limited.returncode, 1)
        self.assertIn("set.partial: a file would be larger than ulimit -f allows; written data stays", limited.stderr)
        self.goes_on()

    def test_a_full_disk_leaves_nothing_of_what_begins_again(self):
        for split in ("train", "valid"):
            (self.source / f"{split}.txt").write_text("a b\n")
        for _ in range(2):
            done = self.driven("""
def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")
writing.TokensWriter.add = writing.Folder.require_space = full""")
            self.assertEqual(done.returncode, 1)
            self.assertIn("no space is left on its disk", done.stderr)
            self.assertEqual(list(self.data.iterdir()), [])
            shutil.rmtree(self.source)
            self.folder()

    def test_a_source_that_changed_begins_again(self):
        self.folder(per_class=80)
        self.broken_off("os.kill(os.getpid(), signal.SIGKILL)")
        (self.source / "train" / "cat" / "0000.jpg").write_bytes(jpeg(self.rng, 8, 8))
        self.assertNotIn("goes on", self.prepare("set").stdout)

    def test_what_is_refused_leaves_what_is_there(self):
        self.folder()
        self.prepared("set")
        self.assertIn("is there already", self.prepare("set", check=1).stderr)
        self.assertEqual([path.name for path in self.data.iterdir()], ["set"])
        for name in ("..", ".hidden", "a.partial", "weights", "text"):
            self.assertIn("expected a name", self.prepare(name, check=2).stderr)

    # ---- Images --------------------------------------------------------------------------------------

    def test_images_of_all_modes_are_pillows_pixels(self):
        self.folder()
        place = self.source / "train" / "cat"
        colours = Image.open(io.BytesIO(jpeg(self.rng, 24, 20)))
        exif = Image.Exif()
        exif[0x0112] = 6  # orientation: turned
        grey = numpy.arange(480, dtype=numpy.uint16).reshape(20, 24) * 100
        odd = {"rgba": saved(colours.convert("RGBA"), "PNG"), "16-bit": saved(Image.fromarray(grey), "PNG"),
               "grey": saved(colours.convert("L"), "PNG"), "cmyk": saved(colours.convert("CMYK"), "JPEG"),
               "exif": saved(colours, "JPEG", exif=exif), "bw": saved(colours.convert("1"), "PNG"),
               "progressive": saved(colours, "JPEG", progressive=True)}
        for name, data in odd.items():
            (place / f"a-{name}.jpg").write_bytes(data)
        meta = self.prepared("set")
        self.assertEqual(sum(meta["source"]["decoded"].values()), 5)
        names = sorted(path.name for path in place.iterdir())
        for name, data in odd.items():
            shown = self.home / "shown.ppm"
            self.run_program("data", "show", "set", names.index(f"a-{name}.jpg"), "--out", shown, check=0)
            expected = Image.open(io.BytesIO(data)).convert("RGB")
            with Image.open(shown) as image:
                self.assertEqual(image.tobytes(), expected.tobytes(), name)
                self.assertEqual(image.size, (24, 20), name)

    def test_one_folder_is_the_test_split_and_others_are_named(self):
        self.folder(per_class=20)
        whole = self.prepared("whole")
        shutil.copytree(self.source / "test", self.source / "val")
        (self.source / "test" / "flat.jpg").write_bytes(jpeg(self.rng))  # as ImageNet's own test images
        shutil.copytree(self.source / "val", self.source / "testing")
        done = self.prepare("set")
        self.assertIn("test is left out, as val is the test split", done.stdout)
        self.assertIn("testing: left out, as it is neither train nor", done.stdout)
        self.assertEqual(self.meta("set")["id"], whole["id"])
        shutil.rmtree(self.source / "val")
        self.refused(f"{self.source}/test: images lie flat in it")
        self.refused("nothing: cannot be read", more=("--val-labels", self.home / "nothing"))
        shutil.rmtree(self.source / "test")
        self.refused("testing: looks like a split with a folder for each class, by another name")
        shutil.rmtree(self.source / "testing")
        (self.source / "stray.JPG").write_bytes(jpeg(self.rng))
        self.assertIn("images beside the folders of classes are left out: 1, stray.JPG for one",
                      self.prepare("stray").stdout)
        self.assertIn("one image in 10 is held out for tests", self.prepare("held").stdout)
        os.mkfifo(self.source / "train" / "cat" / "pipe.jpg")
        self.refused("pipe.jpg: is no file")

    def test_images_beyond_the_limit_are_refused(self):
        self.folder()
        (self.source / "train" / "cat" / "0001.jpg").write_bytes(b"P6\n20000 20000\n255\n" + bytes(64))
        self.refused("train/cat/0001.jpg: has 20000 x 20000 pixels; expected at most 268,435,456")

    # ---- Archives ------------------------------------------------------------------------------------

    def shard(self, name, keys):
        with tarfile.open(self.source / name, "w") as tar:
            for key, label in keys:
                for extension, data in (("jpg", jpeg(self.rng)), ("cls", label)):
                    add_member(tar, f"{key}.{extension}", data)

    def test_shards_that_are_cut_or_mislabelled_are_refused(self):
        keys = [(f"{i:04}", b"%d" % (i % 2)) for i in range(8)]
        self.shard("val-0.tar", keys)
        self.shard("train-0.tar", keys)
        whole = (self.source / "train-0.tar").read_bytes()
        (self.source / "train-0.tar").write_bytes(whole[:len(whole) // 2 + 100])
        self.refused("train-0.tar", "was it copied to its end?")
        self.shard("train-0.tar", [*keys[:7], ("0007", b"70000")])
        self.refused("train-0.tar: 0007.cls = '70000'", "expected a class number")
        self.shard("train-0.tar", [*keys[:7], ("0007", b"-1")])
        self.refused("0007.cls = '-1'")

    def test_names_in_a_zip_are_utf_8_also_where_it_does_not_say_so(self):
        self.folder(classes=("cat", "Übung"))
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for path in sorted(self.source.rglob("*.jpg")):
                archive.write(path, str(path.relative_to(self.source)))
        flagged = bytearray(file.getvalue())
        for begin, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # without the flag, as zip writes them in LANG=C
            at = flagged.find(begin)
            while at >= 0:
                flagged[at + flags + 1] &= ~8 & 255
                at = flagged.find(begin, at + 4)
        (self.home / "set.zip").write_bytes(flagged)
        self.assertEqual(self.prepared("zip", self.home / "set.zip")["id"], self.prepared("folder")["id"])

    def test_a_zip_with_a_damaged_member_is_refused(self):
        self.folder()
        archive = self.home / "set.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
            for path in sorted(self.source.rglob("*.jpg")):
                made.write(path, path.relative_to(self.source))
            first = made.infolist()[0]
        data = bytearray(archive.read_bytes())
        begin = first.header_offset + 30 + len(first.filename)
        data[begin:begin + first.compress_size] = b"\xff" * first.compress_size
        archive.write_bytes(data)
        self.refused(f"set.zip: {first.filename} is damaged", source=archive)

    def test_another_cifar_than_its_name_says_is_refused(self):
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            table = {b"data": numpy.zeros((10, 3072), numpy.uint8), b"labels": list(range(10))}
            (self.source / name).write_bytes(pickle.dumps(table, 2))
        (self.source / "batches.meta").write_bytes(
            pickle.dumps({b"label_names": [b"c%d" % i for i in range(10)]}, 2))
        self.refused("classes 10, expected 100", name="cifar100")
        self.refused("data_batch_1: MD5 ", "expected c99cafc152244af753f735de768cd75f", name="cifar10")
        archive = self.home / "cifar.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(self.source, "cifar-10-batches-py")
        self.assertEqual(self.prepared("a")["id"], self.prepared("b", archive)["id"])
        archive.write_bytes(archive.read_bytes()[:-500])
        self.refused("cifar.tar.gz: is no whole archive", source=archive)

    def cifar_100(self, change=None):
        """Pickles of 200 images each, with all labels."""
        for split in ("train", "test"):
            fine = [i % 100 for i in range(200)]
            table = {b"data": numpy.zeros((200, 3072), numpy.uint8), b"fine_labels": fine,
                     b"coarse_labels": [label // 5 for label in fine]}
            if change and split == "train":
                change(table)
            (self.source / split).write_bytes(pickle.dumps(table, 2))
        (self.source / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"c%d" % i for i in range(100)]}, 2))

    def test_labels_of_cifar_100_are_the_fine_ones(self):
        for change, part in (
                (lambda t: t.update({b"fine_labels": t[b"coarse_labels"]}), "are these the coarse ones?"),
                (lambda t: t.update({b"fine_labels": [b"x"] * 200}), "the label of image 0 is b'x'"),
                (lambda t: t.update({b"data": [1]}), "expected an array and a list")):
            self.cifar_100(change)
            self.refused(part)
        self.cifar_100()
        (self.source / "meta").write_bytes(pickle.dumps({b"x": 1}, 2))
        self.refused("meta: has the keys x; expected fine_label_names")
        (self.source / "meta").unlink()
        self.refused("lacks meta")
        for split in ("train", "test"):
            (self.source / split).unlink()
            (self.source / f"{split}.bin").write_bytes(b"".join(bytes([i % 20, i % 100]) + bytes(3072)
                                                                for i in range(40)))
        (self.source / "fine_label_names.txt").write_text("\n".join(f"c{i}" for i in range(100)))
        self.assertIn("60 of 100 classes have no image of train, c40 for one", self.prepare("set").stdout)
        (self.source / "train.bin").write_bytes(b"")
        self.refused("train has no image")
        (self.source / "train.bin").write_bytes((bytes([99, 3]) + bytes(3072)) * 40)
        self.refused("train.bin: a first byte is 99, the coarse label", "are the two labels swapped?")

    # ---- Texts ---------------------------------------------------------------------------------------

    def test_texts_and_tokenizers_that_do_not_fit_are_refused(self):
        for split in ("train", "valid"):
            (self.source / f"wiki.{split}.tokens").write_text("a <unk> b\n")
        tokenizer = self.home / "tokenizer"
        tokenizer.mkdir()
        self.refused("has <unk> in the place of rare words", "expected the raw form", more=(
            "--tokenizer", tokenizer))
        for split in ("train", "valid"):
            (self.source / f"wiki.{split}.tokens").rename(self.source / f"wiki.{split}.raw")
            (self.source / f"wiki.{split}.raw").write_text("a word b\n")
        self.refused("expected vocab.json (or encoder.json)", more=("--tokenizer", tokenizer))
        (tokenizer / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
        (tokenizer / "merges.txt").write_text("#version: 0.2\na b\nb b\n")
        self.refused("merges.txt:3: merges to 'bb', which", "do not belong together",
                     more=("--tokenizer", tokenizer))
        tokens = ["a", "b", *("a" * i for i in range(2, 40)), "<|endoftext|>"]
        (tokenizer / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
        (tokenizer / "merges.txt").write_text("#version: 0.2\na a\n")
        self.refused("has 'aaa' and 37 others that no line of", "do not belong together",
                     more=("--tokenizer", tokenizer))
        (tokenizer / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 70000}')
        self.refused("vocab.json: expected tokens with the numbers 0 to", more=("--tokenizer", tokenizer))

    def test_files_in_the_place_of_a_text_are_refused(self):
        for content, part in ((b"", "has no line; expected the text of train"),
                              (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS"),
                              (b"<!DOCTYPE html><html>", "is a page of HTML")):
            (self.source / "valid.txt").write_bytes(b"a b\n")
            (self.source / "train.txt").write_bytes(content)
            self.refused("train.txt: " + part)
        (self.source / "train.txt").write_bytes(b"a b\n")
        self.refused("expected --val-labels with images alone", more=("--val-labels", self.source))

    def test_parquet_of_another_schema_is_refused(self):
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            for split in ("train", "valid"):
                (self.source / f"{split}.parquet").write_bytes(b"PAR1")
            self.refused("pyarrow")
            return
        for split in ("train", "valid"):
            pyarrow.parquet.write_table(pyarrow.table({"words": ["a"]}), self.source / f"{split}.parquet")
        self.refused("has the columns words; expected text")
        for value in (1, None):
            table = pyarrow.table({"text": pyarrow.array([value], pyarrow.int32())})
            pyarrow.parquet.write_table(table, self.source / "train.parquet")
            self.refused(f"train.parquet: row 0 is {value}; expected a text")
        (self.source / "train.parquet").write_bytes(b"PAR1")
        self.refused("train.parquet: is no whole parquet file")


if __name__ == "__main__":
    unittest.main()
