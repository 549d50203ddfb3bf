"""Prepares data that is damaged, or while something goes wrong: killed, a full disk, odd images.

  faults_test.py SPARFUSE
"""

import io
import json
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import tarfile
import unittest

import numpy
from data_case import DataCase
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

    def prepare(self, name, source=None, *more):
        return self.run_program("data", "prepare", name, "--from", source or self.source, *more)

    def refused(self, *parts, source=None, name="bad", more=()):
        done = self.prepare(name, source, *more)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertFalse((self.data / name).exists())

    def prepared(self, name, source=None, *more):
        done = self.prepare(name, source, *more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads((self.data / name / "meta.json").read_text())

    def folder(self, per_class=4, classes=("cat", "dog")):
        for split in ("train", "test"):
            for name in classes:
                place = self.source / split / name
                place.mkdir(parents=True, exist_ok=True)
                for i in range(per_class):
                    (place / f"{i:04}.jpg").write_bytes(jpeg(self.rng))

    # ---- Broken off ----------------------------------------------------------------------------------

    def broken_off(self, end):
        driver = DRIVER.format(change=BROKEN_OFF.format(end=end))
        environment = os.environ | {"PYTHONPATH": str(ROOT / "harness" / "data")}
        return subprocess.run([sys.executable, "-c", driver, str(self.source), str(self.data / "set")],
                              capture_output=True, text=True, timeout=300, env=environment)

    def goes_on(self):
        """Checks that the next run continues within the split, and ends with the data of an unbroken run."""
        self.assertFalse((self.data / "set").exists())
        done = self.prepare("set")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"train: goes on behind [1-9]\d? images that an earlier run wrote")
        self.assertEqual(json.loads((self.data / "set" / "meta.json").read_text())["id"],
                         self.prepared("whole")["id"])
        self.assertEqual(self.run_program("data", "check", "set").returncode, 0)

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

    def test_a_source_that_changed_begins_again(self):
        self.folder(per_class=80)
        self.broken_off("os.kill(os.getpid(), signal.SIGKILL)")
        (self.source / "train" / "cat" / "0000.jpg").write_bytes(jpeg(self.rng, 8, 8))
        done = self.prepare("set")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("goes on", done.stdout)

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
            done = self.run_program("data", "show", "set", names.index(f"a-{name}.jpg"), "--out", shown)
            self.assertEqual(done.returncode, 0, done.stderr)
            expected = Image.open(io.BytesIO(data)).convert("RGB")
            with Image.open(shown) as image:
                self.assertEqual(image.tobytes(), expected.tobytes(), name)
                self.assertEqual(image.size, (24, 20), name)

    def test_images_beyond_the_limit_are_refused(self):
        self.folder()
        (self.source / "train" / "cat" / "0001.jpg").write_bytes(b"P6\n20000 20000\n255\n" + bytes(64))
        self.refused("train/cat/0001.jpg: has 20000 x 20000 pixels; expected at most 268,435,456")

    # ---- Archives ------------------------------------------------------------------------------------

    def shard(self, name, keys):
        with tarfile.open(self.source / name, "w") as tar:
            for key, label in keys:
                for extension, data in (("jpg", jpeg(self.rng)), ("cls", label)):
                    info = tarfile.TarInfo(f"{key}.{extension}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))

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

    def test_another_cifar_than_its_name_says_is_refused(self):
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            table = {b"data": numpy.zeros((10, 3072), numpy.uint8), b"labels": list(range(10))}
            (self.source / name).write_bytes(pickle.dumps(table, 2))
        (self.source / "batches.meta").write_bytes(
            pickle.dumps({b"label_names": [b"c%d" % i for i in range(10)]}, 2))
        self.refused("classes 10, expected 100", name="cifar100")
        archive = self.home / "cifar.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(self.source, "cifar-10-batches-py")
        self.assertEqual(self.prepared("a")["id"], self.prepared("b", archive)["id"])
        archive.write_bytes(archive.read_bytes()[:-500])
        self.refused("cifar.tar.gz: is no whole archive", source=archive)

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
        (self.source / "train.parquet").write_bytes(b"PAR1")
        self.refused("train.parquet: is no whole parquet file")


if __name__ == "__main__":
    unittest.main()
