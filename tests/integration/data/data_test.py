"""Prepares, lists and checks small data sets made here, with the program as its users do.

  data_test.py SPARFUSE
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
import time
import unittest
import zipfile

import numpy
from data_case import DataCase, add_member
from PIL import Image

DataCase.program = sys.argv.pop(1)
CLASSES = ("bird", "cat", "cow", "dog")


def picture(rng, width, height):
    """An image of random smooth colours."""
    small = numpy.array([rng.randrange(256) for _ in range(4 * 4 * 3)], numpy.uint8).reshape(4, 4, 3)
    return Image.fromarray(small).resize((width, height), Image.BICUBIC)


def encoded(image, number):
    """The image in one of seven forms of files, chosen by `number`."""
    file = io.BytesIO()
    form = number % 7
    if form == 0:
        image.save(file, "PNG")  # a PNG under a JPEG's name
    elif form == 1:
        image.convert("L").save(file, "JPEG")
    elif form == 2:
        image.convert("CMYK").save(file, "JPEG")
    elif form == 3:
        image.save(file, "JPEG", progressive=True)
    elif form == 4:
        image.quantize(16).save(file, "PNG")
    else:
        image.save(file, "JPEG", quality=80, subsampling=form - 5)
    return file.getvalue()


def make_folder(top, per_class=16, side=None, splits=("train", "val")):
    """Makes an ImageFolder with files of all forms; returns these."""
    rng = random.Random(1)
    files = {}
    for split in splits:
        for name in CLASSES:
            for i in range(per_class if split == "train" else 4):
                width, height = (side, side) if side else (rng.randint(1, 80), rng.randint(1, 60))
                data = encoded(picture(rng, width, height), i)
                path = pathlib.Path(split) / name / f"{i:03}.jpg"
                files[path] = data
                (top / path).parent.mkdir(parents=True, exist_ok=True)
                (top / path).write_bytes(data)
    return files


class Data(DataCase):
    def refused(self, source, *parts, name="bad", more=()):
        """Checks that preparing `source` fails with `parts` in the error and leaves nothing under the name."""
        done = self.prepare(name, source, *more, check=1)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertFalse((self.data / name).exists())
        return done

    def experiment_on_pictures(self, lines):
        """The file of an experiment that trains on the data set "pictures", with `lines` in its defaults."""
        file = self.home / "images.toml"
        file.write_text(f"""\
id = "images"
title = "images"
paper = ""
[defaults]
mode = "measured"
kind = "convergence"
recipe = {{ name = "cifar10-resnet20", epochs = 1 }}
data = "pictures"
{lines}
[[axis]]
method = ["dense"]
""")
        return file

    # ---- Layouts -----------------------------------------------------------------------------------

    def test_folder_zip_and_tar_of_the_same_images_are_the_same_data(self):
        files = make_folder(self.source)
        with zipfile.ZipFile(self.home / "set.zip", "w") as archive:
            for path, data in reversed(files.items()):
                archive.writestr(f"set/{path}", data)
        with tarfile.open(self.home / "set.tar", "w") as archive:
            archive.add(self.source, ".")
        ids = set()
        for name, place in (("a", self.source), ("b", self.home / "set.zip"),
                            ("c", self.home / "set.tar")):
            self.assertIn("4 classes, 64 images of train, 16 images of test",
                          self.prepare(name, place).stdout)
            ids.add(self.meta(name)["id"])
        self.assertEqual(len(ids), 1)
        content = self.meta("a")["content"]
        self.assertEqual(content["classes"], list(CLASSES))
        self.assertEqual(content["splits"]["train"]["count"], 64)
        self.assertEqual(sum(self.meta("a")["source"]["decoded"].values()), 4 * (7 + 2))
        listed = json.loads(self.run_program("data", "list", "--json", check=0).stdout)
        self.assertEqual([entry["name"] for entry in listed], ["a", "b", "c"])
        self.run_program("data", "check", "a", check=0)

    def test_archives_of_imagenet_are_a_tar_of_tars_and_a_flat_one(self):
        make_folder(self.source)
        archives = self.home / "archives"
        archives.mkdir()
        with tarfile.open(archives / "train.tar", "w") as train:
            for name in CLASSES:
                inner = self.home / f"{name}.tar"
                with tarfile.open(inner, "w") as tar:
                    for path in sorted((self.source / "train" / name).iterdir()):
                        tar.add(path, path.name)
                train.add(inner, inner.name)
        labels = []
        with tarfile.open(archives / "val.tar", "w") as val:
            for name in CLASSES:
                for path in sorted((self.source / "val" / name).iterdir()):
                    val.add(path, f"val_{name}_{path.name}")
                    labels.append(f"val_{name}_{path.name} {name}\n")
        self.refused(archives, "images lie flat", "--val-labels")
        (self.home / "labels").write_text("".join(labels))
        self.prepare("c", archives, "--val-labels", self.home / "labels")
        self.prepare("a", self.source)
        self.assertEqual(self.meta("a")["content"]["splits"]["train"],
                         self.meta("c")["content"]["splits"]["train"])

    def test_shards_have_an_image_and_a_class_for_each_key(self):
        def shard(name, members):
            with tarfile.open(self.source / name, "w") as tar:
                for path, data in members:
                    add_member(tar, path, data)

        jpeg = encoded(picture(random.Random(2), 8, 8), 5)
        one = [(f"{i:04}.{e}", d) for i in range(6) for e, d in
               (("jpg", jpeg), ("cls", str(i % 3).encode()))]
        shard("train-0000.tar", one)
        shard("val-0000.tar", one)
        self.prepare("shards", self.source)
        self.assertEqual(self.meta("shards")["content"]["classes"], ["0", "1", "2"])
        shard("train-0001.tar", one[:2])
        self.refused(self.source, "0000 is in another shard")
        shard("train-0001.tar", [("x.jpg", jpeg)])
        self.refused(self.source, "the key x has .jpg", "expected an image", "and its class")
        shard("train-0001.tar", [("y.jpg", jpeg), ("y.cls", b"bird")])
        self.refused(self.source, "y.cls = 'bird'", "expected a class number")

    def cifar(self, classes):
        """40 images in the form of CIFAR, as {(split, i): (label, pixels)}."""
        rng = random.Random(3)
        return {(split, i): (rng.randrange(classes), rng.randbytes(3072))
                for split, count in (("train", 30), ("test", 10)) for i in range(count)}

    def test_pickles_and_binary_of_cifar_100_are_the_same_data(self):
        images = self.cifar(100)
        names = [f"class{i}".encode() for i in range(100)]
        pickles, binary = self.home / "pickles", self.home / "binary"
        pickles.mkdir()
        binary.mkdir()
        for split in ("train", "test"):
            those = [v for (s, _), v in images.items() if s == split]
            table = {b"data": numpy.frombuffer(b"".join(p for _, p in those), numpy.uint8)
                     .reshape(-1, 3072), b"fine_labels": [label for label, _ in those],
                     b"coarse_labels": [label // 5 for label, _ in those], b"filenames": []}
            (pickles / split).write_bytes(pickle.dumps(table, protocol=2))
            (binary / f"{split}.bin").write_bytes(
                b"".join(bytes([label // 5, label]) + pixels for label, pixels in those))
        (pickles / "meta").write_bytes(pickle.dumps({b"fine_label_names": names}, protocol=2))
        (binary / "fine_label_names.txt").write_bytes(b"\n".join(names) + b"\n")
        self.prepare("p", pickles)
        self.prepare("b", binary)
        self.assertEqual(self.meta("p")["id"], self.meta("b")["id"])
        self.assertEqual(self.meta("p")["content"]["shape"], [3, 32, 32])
        # The name is right, and the content is wrong.
        self.refused(pickles, "train 30, expected 50,000", "--accept", name="cifar100")
        done = self.prepare("cifar100", pickles, "--accept")
        self.assertIn("warning: cifar100: train 30, expected 50,000", done.stdout)
        # A pickle with the coarse labels alone, and one that would run a command.
        (pickles / "train").write_bytes(pickle.dumps({b"data": table[b"data"],
                                                      b"coarse_labels": table[b"coarse_labels"]}, 2))
        self.refused(pickles, "expected data and fine_labels")
        (pickles / "train").write_bytes(b"cposix\nsystem\n(S'true'\ntR.")
        self.refused(pickles, "it asks for posix.system")
        data = bytearray((binary / "test.bin").read_bytes())
        data[1] = 100
        (binary / "test.bin").write_bytes(data)
        self.refused(binary, "the label of image 0 is 100", "expected 0 to 99")
        (binary / "test.bin").write_bytes(data[:-1])
        self.refused(binary, "expected a multiple of 3074")

    def test_wikitext_is_words_in_order_of_appearance(self):
        (self.source / "wiki.train.tokens").write_text(" \n = A = \n \n the <unk> of the \n")
        (self.source / "wiki.valid.tokens").write_text("of a\n")
        (self.source / "wiki.test.tokens").write_text("the end\n")
        self.prepare("mine", self.source)
        content = self.meta("mine")["content"]
        words = (self.data / "mine" / "vocabulary.txt").read_text().split()
        self.assertEqual(words, ["<eos>", "=", "A", "the", "<unk>", "of", "a", "end"])
        tokens = numpy.fromfile(self.data / "mine" / "train.tokens", "<u2").tolist()
        self.assertEqual(tokens, [0, 1, 2, 1, 0, 0, 3, 4, 5, 3, 0])
        self.assertEqual(content["splits"]["valid"]["count"], 3)
        (self.source / "wiki.valid.tokens").write_bytes(b"of a\r\n")
        self.refused(self.source, "wiki.valid.tokens:1: ends with CR LF")
        (self.source / "wiki.valid.tokens").write_bytes(b"\xef\xbb\xbfof a\n")
        self.refused(self.source, "byte-order mark")
        (self.source / "wiki.valid.tokens").write_bytes(b"of \xff\n")
        self.refused(self.source, "is not UTF-8")
        (self.source / "wiki.valid.tokens").unlink()
        (self.source / "wiki.test.tokens").unlink()
        self.refused(self.source, "expected valid or test beside it")

    # ---- What goes wrong ---------------------------------------------------------------------------

    def test_bad_folders_are_refused_with_their_place(self):
        for spoil, parts in (
                (lambda s: shutil.rmtree(s / "val" / "cow"), ("cow have no test images",)),
                (lambda s: (s / "val" / "emu").mkdir() or (s / "val" / "emu" / "a.jpg").write_bytes(b"x"),
                 ("emu have no training images",)),
                (lambda s: (s / "train" / "emu").mkdir(), ("train/emu: is empty",)),
                (lambda s: (s / "train" / "cat" / "005.jpg").write_bytes(b""),
                 ("train/cat/005.jpg has no bytes",)),
                (lambda s: (s / "train" / "cat" / "005.jpg").write_text("<html>"),
                 ("train/cat/005.jpg: is a page of HTML",)),
                (lambda s: (s / "train" / "cat" / "005.jpg").write_bytes(
                    (s / "train" / "cat" / "005.jpg").read_bytes()[:-40]),
                 ("train/cat/005.jpg: cannot be decoded",)),
                (lambda s: (s / "train" / "cat" / "loop").symlink_to(s / "train"),
                 ("expected every folder once",)),
                (lambda s: (s / "train" / "cat" / "gone.jpg").symlink_to(s / "nowhere"),
                 ("gone.jpg", "expected an image")),
                (lambda s: (s / "train").rename(s / "Train") and (s / "val").rename(s / "Val"),
                 ("Train: looks like a split", "expected train, and one of val,")),
                (lambda s: os.rename(os.fsencode(s / "train" / "cat" / "005.jpg"),
                                     os.fsencode(s / "train" / "cat") + b"/\xff.jpg"),
                 ("is not UTF-8",)),
                (lambda s: [shutil.move(p, s / "val" / f"{p.parent.name}-{p.name}")
                            for p in sorted((s / "val").glob("*/*.jpg"))] and
                 [p.rmdir() for p in (s / "val").iterdir() if p.is_dir()], ("images lie flat",))):
            with self.subTest(parts[0]):
                shutil.rmtree(self.source, ignore_errors=True)
                make_folder(self.source, per_class=8)
                spoil(self.source)
                self.refused(self.source, *parts)
        self.refused(self.home / "nothing", "is not there")
        (self.home / "set.tar.gz").write_bytes(b"\x1f\x8b\x08" + bytes(20))
        self.refused(self.home / "set.tar.gz", "gunzip it first")
        make_folder(self.source, per_class=8)
        with tarfile.open(self.home / "cut.tar", "w") as tar:
            tar.add(self.source, ".")
        (self.home / "cut.tar").write_bytes((self.home / "cut.tar").read_bytes()[:30000])
        self.refused(self.home / "cut.tar", "cut.tar", "copied to its end")

    def test_folders_without_a_test_split_hold_some_images_out(self):
        make_folder(self.source, per_class=40, splits=("train",))
        self.prepare("own", self.source / "train")
        splits = self.meta("own")["content"]["splits"]
        self.assertEqual(splits["train"]["count"] + splits["test"]["count"], 160)
        self.assertTrue(4 <= splits["test"]["count"] <= 40, splits["test"]["count"])

    def test_a_killed_run_goes_on_and_ends_with_the_same_data(self):
        make_folder(self.source, per_class=400, side=64)
        self.prepare("whole", self.source)
        folder = self.data / "killed.partial"
        run = subprocess.Popen([self.program, "data", "prepare", "killed", "--from", self.source],
                               env=os.environ | {"SPARFUSE_DATA": str(self.data)},
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
        while run.poll() is None and not (folder / "state.json").exists():
            time.sleep(0.01)
        if run.poll() is not None:
            self.skipTest("all was prepared before the program could be stopped")
        os.killpg(run.pid, signal.SIGSTOP)
        if (self.data / "killed").exists():
            os.killpg(run.pid, signal.SIGKILL)
            self.skipTest("all was prepared before the program could be stopped")
        two = self.prepare("killed", self.source, check=None)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        self.assertFalse((self.data / "killed").exists())
        self.assertIn("another `sparfuse data prepare` writes it", two.stderr)
        # A half-written record after a checkpoint is written again.
        with open(folder / "test.records", "ab") as file:
            file.write(b"half a record")
        listed = self.run_program("data", "list", check=0).stdout
        self.assertIn("killed.partial: not finished", listed.replace(str(self.data) + "/", ""))
        done = self.prepare("killed", self.source)
        self.assertIn("goes on after", done.stdout)
        self.assertEqual(self.meta("whole")["id"], self.meta("killed")["id"])
        self.assertIn("is there already", self.prepare("killed", self.source, check=1).stderr)

    def test_a_byte_that_was_edited_is_found(self):
        make_folder(self.source, per_class=8)
        self.prepare("set", self.source)
        for name in ("train.records", "train.index", "test.labels", "test.sums"):
            path = self.data / "set" / name
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            kept = path.read_bytes()
            path.write_bytes(data)
            done = self.run_program("data", "check", "set", check=1)
            self.assertIn(f"{name}: its SHA-256 is", done.stderr)
            path.write_bytes(kept)
        meta = self.data / "set" / "meta.json"
        kept = meta.read_text()
        meta.write_text(kept.replace('"bird"', '"fish"'))
        self.assertIn("it was edited", self.run_program("data", "check", "set", check=1).stderr)
        meta.write_text(kept.replace('"format": 2', '"format": 3'))
        self.assertIn("format = 3", self.run_program("data", "check", "set", check=1).stderr)

    def test_decoded_pixels_are_pillows(self):
        files = make_folder(self.source, per_class=16)
        self.prepare("set", self.source)
        train = sorted((str(path), data) for path, data in files.items() if path.parts[0] == "train")
        out = self.home / "shown.ppm"
        for number, (path, data) in enumerate(train):
            done = self.run_program("data", "show", "set", number, "--out", out, check=0)
            self.assertIn(path.split("/")[1], done.stdout)
            expected = Image.open(io.BytesIO(data)).convert("RGB")
            self.assertEqual(Image.open(out).tobytes(), expected.tobytes(), path)

    def test_experiments_say_that_data_is_missing_before_anything_starts(self):
        experiment = self.experiment_on_pictures('workers = 1\ntransport = "threads"')
        results = self.home / "results"
        done = self.run_program("--results", results, "plan", experiment, check=0)
        self.assertIn('warning: the data set "pictures": ', done.stdout)
        done = self.run_program("--results", results, "run", experiment)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("`sparfuse data prepare pictures --from PLACE` makes it", done.stderr)
        make_folder(self.source, per_class=16, side=32)
        self.prepare("pictures", self.source)
        planned = json.loads(self.run_program("--results", results, "plan", experiment, "--json",
                                              check=0).stdout)["missing"][0]["config"]
        self.assertEqual(planned["data_id"], self.meta("pictures")["id"][:16])
        self.assertEqual(planned["workload"], "resnet20-cifar10")
        self.assertEqual(planned["steps"], 2)  # 64 images in batches of 32

    def test_a_rank_that_finds_other_data_ends_the_trial_at_its_start(self):
        make_folder(self.source, per_class=16, side=32)
        self.prepare("pictures", self.source)
        first = next(self.source.glob("train/*/000.jpg"))
        first.write_bytes(encoded(picture(random.Random(2), 32, 32), 5))
        other = self.home / "other"
        self.prepare("pictures", self.source, "--out", other / "pictures")
        experiment = self.experiment_on_pictures('workers = 2\ntransport = "mpi"\nbatch_per_worker = 8')
        (self.home / "as_rank").write_text(f"""\
if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then export SPARFUSE_DATA={other}; fi
exec "$@"
""")
        launcher = self.home / "launcher.toml"
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "{ranks}", "env", "{environment}", "sh",
                 str(self.home / "as_rank"), "{worker}", "{arguments}"]
        launcher.write_text(f"command = {json.dumps(words)}\n")
        done = self.run_program("--results", self.home / "results", "run", experiment, "--launch", launcher)
        self.assertNotEqual(done.returncode, 0)
        said = done.stdout + done.stderr
        self.assertIn(str(other / "pictures"), said)
        self.assertIn(self.meta("pictures")["id"][:16], said)
        self.assertIn(json.loads((other / "pictures/meta.json").read_text())["id"][:16], said)


if __name__ == "__main__":
    unittest.main()
