"""Prepares and checks weights in each of their containers, made here byte by byte.

  weights_test.py SPARFUSE
"""

import collections
import io
import json
import os
import pickle
import random
import struct
import sys
import types
import unittest
import zipfile

from data_case import DataCase

DataCase.program = sys.argv.pop(1)
WORKLOAD = "gpt-small"  # GPT-2's names: 3 layers of width 96, 63 tokens


def shapes():
    """{name: shape} of the tensors in the workload's files, with Hugging Face's names."""
    made = {"wte.weight": (63, 96), "wpe.weight": (64, 96), "ln_f.weight": (96,), "ln_f.bias": (96,)}
    for i in range(3):
        for name, shape in (("ln_1", (96,)), ("ln_2", (96,))):
            made[f"h.{i}.{name}.weight"] = made[f"h.{i}.{name}.bias"] = shape
        for name, rows, columns in (("attn.c_attn", 96, 288), ("attn.c_proj", 96, 96),
                                    ("mlp.c_fc", 96, 384), ("mlp.c_proj", 384, 96)):
            made[f"h.{i}.{name}.weight"] = (rows, columns)
            made[f"h.{i}.{name}.bias"] = (columns,)
    return made


def made_tensors(prefix=""):
    rng = random.Random(5)
    tensors = {}
    for name, shape in shapes().items():
        numel = 1
        for extent in shape:
            numel *= extent
        tensors[prefix + name] = (shape, struct.pack(f"<{numel}f", *(rng.gauss(0, 0.1)
                                                                      for _ in range(numel))))
    return tensors


def safetensors(tensors, change=None, behind=b""):
    header, offset = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    if change:
        change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(d for _, d in tensors.values()) + behind


class Storage:
    def __init__(self, key, numel):
        self.key, self.numel = key, numel


def fake_torch():
    """Fake modules that give pickles PyTorch's names."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def rebuild(*_):
        raise AssertionError

    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = rebuild
    torch.FloatStorage = type("FloatStorage", (), {"__module__": "torch"})
    sys.modules["torch"], sys.modules["torch._utils"] = torch, utils
    return torch, rebuild


class Tensor:
    def __init__(self, rebuild, storage, shape, strides=None):
        self.parts = (rebuild, storage, shape, strides)

    def __reduce__(self):
        rebuild, storage, shape, strides = self.parts
        if strides is None:
            strides, step = [], 1
            for extent in reversed(shape):
                strides.insert(0, step)
                step *= extent
        return rebuild, (storage, 0, shape, tuple(strides), False, collections.OrderedDict())


def torch_file(tensors, legacy, nested=None, evil=False, strides=None):
    torch, rebuild = fake_torch()
    table, datas = collections.OrderedDict(), {}
    table._metadata = collections.OrderedDict({"": {"version": 1}})  # as state_dict() leaves it
    for i, (name, (shape, data)) in enumerate(tensors.items()):
        table[name] = Tensor(rebuild, Storage(str(i), len(data) // 4), shape, strides)
        datas[str(i)] = data
    if nested:
        table = {nested: table, "step": 7}
    if evil:
        table["evil"] = os.system

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if isinstance(value, Storage):
                said = ("storage", torch.FloatStorage, value.key, "cpu", value.numel)
                return (*said, None) if legacy else said
            return None

    def pickled(value):
        file = io.BytesIO()
        Pickler(file, protocol=2).dump(value)
        return file.getvalue()

    if legacy:
        file = pickled(0x1950A86A20F9469CFC6C) + pickled(1001) + pickled({"little_endian": True})
        file += pickled(table) + pickled(list(datas))
        return file + b"".join(struct.pack("<q", len(d) // 4) + d for d in datas.values())
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(table))
        archive.writestr("archive/byteorder", "little")
        for key, data in datas.items():
            archive.writestr(f"archive/data/{key}", data)
    return file.getvalue()


class Weights(DataCase):
    def setUp(self):
        super().setUp()
        self.number = 0

    def weights(self, *words, check=None):
        return self.run_program("weights", *words, check=check)

    def file(self, name, data):
        path = self.data / name
        path.write_bytes(data)
        return path

    def prepared(self, name, data):
        """Prepares a file of this content; returns (the safetensors file made from it, its name)."""
        self.number += 1
        made = f"made{self.number}"
        self.weights("prepare", made, "--from", self.file(name, data), check=0)
        return (self.data / "weights" / f"{made}.safetensors").read_bytes(), made

    def test_every_container_gives_the_same_file(self):
        tensors = made_tensors("transformer.")
        kept, name = self.prepared("a.safetensors", safetensors(tensors))
        for form, data in (("zip.bin", torch_file(tensors, legacy=False)),
                           ("old.pth", torch_file(tensors, legacy=True)),
                           ("nested.pt", torch_file(tensors, legacy=True, nested="model_state"))):
            self.assertEqual(self.prepared(form, data)[0], kept, form)
        names = list(tensors)
        shards = {"one.safetensors": names[:10], "two.safetensors": names[10:]}
        for shard, part in shards.items():
            self.file(shard, safetensors({n: tensors[n] for n in part}))
        index = json.dumps({"weight_map": {n: s for s, part in shards.items() for n in part}}).encode()
        self.assertEqual(self.prepared("m.safetensors.index.json", index)[0], kept)
        for shard, part in shards.items():
            self.file(shard.replace("safetensors", "bin"), torch_file({n: tensors[n] for n in part}, legacy=False))
        self.assertEqual(self.prepared("p.bin.index.json", index.replace(b".safetensors", b".bin"))[0], kept)
        self.weights("prepare", "folder", "--from", self.data, check=1)  # has files of other names
        self.file("pytorch_model.bin", torch_file(tensors, legacy=False))
        self.weights("prepare", "folder", "--from", self.data, check=0)
        self.assertEqual((self.data / "weights" / "folder.safetensors").read_bytes(), kept)
        done = self.weights("check", WORKLOAD, name, check=0)
        self.assertIn("filled   wte.weight  from transformer.wte.weight", done.stdout)
        self.assertIn(f"{len(tensors)} tensors fill {WORKLOAD}", done.stdout)

    def test_prefixes_of_modules_around_the_model_are_taken_off(self):
        tensors = made_tensors("transformer.")
        for prefix in ("module.", "_orig_mod.", "model.", "model._orig_mod.module."):
            path = self.file("around.safetensors", safetensors({prefix + n: t for n, t in tensors.items()}))
            done = self.weights("check", WORKLOAD, path, check=0)
            self.assertIn(f"filled   wte.weight  from {prefix}transformer.wte.weight", done.stdout)
        both = tensors | {"module.transformer.ln_f.bias": tensors["transformer.ln_f.bias"]}
        self.refused(safetensors(both), "transformer.ln_f.bias: ln_f.bias is filled already")

    def test_tensors_that_are_not_contiguous_are_read_in_order(self):
        data = struct.pack("<6f", *range(6))
        for legacy in (False, True):
            file = torch_file({"a": ((3, 2), data)}, legacy, strides=(1, 3))
            expected = safetensors({"a": ((3, 2), struct.pack("<6f", 0, 3, 1, 4, 2, 5))})
            self.assertEqual(self.prepared("t.pt", file)[0][-24:], expected[-24:])
            for strides in ((1, 4), (1 << 60, 1), (-1, 1), (1,)):
                file = torch_file({"a": ((3, 2), data)}, legacy, strides=strides)
                self.not_prepared("bad.pt", file)

    def test_headers_whose_length_begins_as_other_files_do_are_read(self):
        data = safetensors(made_tensors())
        length = int.from_bytes(data[:8], "little")
        for begin in (b"\x80", b"PK", b"<"):  # first bytes of pickles, zip files and HTML pages
            step = 256 ** len(begin)
            longer = length + (int.from_bytes(begin, "little") - length) % step
            padded = longer.to_bytes(8, "little") + data[8:8 + length].ljust(longer) + data[8 + length:]
            self.assertTrue(padded.startswith(begin))
            self.weights("check", WORKLOAD, self.file("padded.safetensors", padded), check=0)

    def refused(self, data, *parts):
        path = self.file("bad.safetensors", data)
        done = self.weights("check", WORKLOAD, path)
        self.assertNotEqual(done.returncode, 0)
        for part in parts:
            self.assertIn(part, done.stderr)

    def not_prepared(self, name, data):
        path = self.file(name, data)
        done = self.weights("prepare", "bad", "--from", path)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"error: {path}: ", done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(list((self.data / "weights").glob("bad*")), [])
        return done.stderr

    def malformed(self, data, *parts):
        """Neither a check nor a preparation takes the file."""
        self.refused(data, *parts)
        self.not_prepared("bad.safetensors", data)

    def test_files_that_are_not_well_formed_are_refused(self):
        tensors = made_tensors()
        good = safetensors(tensors)
        length = int.from_bytes(good[:8], "little")

        def changed(**keys):
            return safetensors(tensors, lambda header: header["wte.weight"].update(keys))

        self.malformed(b"", "too short")
        self.malformed((1 << 40).to_bytes(8, "little") + good[8:], "its header would have")
        self.malformed((1).to_bytes(8, "little") + good[8:], "its header would have 1 bytes")
        for entry in ("3", '{"dtype": "F32", "shape": [1], "data_offsets": "ab"}', "[" * 100000):
            header = f'{{"a": {entry}}}'.encode()
            self.malformed(len(header).to_bytes(8, "little") + header, "is not a safetensors file")
        self.malformed(good[:8] + b"[" + good[9:], "does not begin with {")
        self.malformed(good[:8] + b"{" * length + good[8 + length:], "header")
        self.malformed(changed(dtype="F31"), "unknown type F31")
        self.malformed(changed(shape=[63, 95]), "wte.weight", "data_offsets")
        self.malformed(changed(shape=[1 << 40, 1 << 40]), "larger than the file")
        self.malformed(changed(shape=[-63, -96]), "lacks dtype, shape or data_offsets")
        self.malformed(changed(data_offsets=[0, 1 << 50]), "data_offsets")
        self.malformed(safetensors(tensors, behind=b"more"), "bytes after its tensors")
        self.malformed(good[:-4], "data_offsets")
        twice = good[8:8 + length].replace(b'"wpe.weight"', b'"wte.weight"')
        self.malformed(good[:8] + twice + good[8 + length:], 'has "wte.weight" twice')
        self.malformed(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS")
        self.malformed(b"<!DOCTYPE html><html></html>", "HTML")
        self.malformed(torch_file(tensors, legacy=True), "weights prepare")
        self.malformed(torch_file(tensors, legacy=False), "weights prepare")

    def test_files_of_another_model_are_named_by_their_tensors(self):
        tensors = made_tensors()
        without = {n: t for n, t in tensors.items() if n != "h.1.mlp.c_fc.bias"}
        self.refused(safetensors(without), "nothing fills h.1.mlp.c_fc.bias")
        self.refused(safetensors(tensors | {"h.7.ln_1.weight": ((96,), bytes(384))}),
                     "unknown: h.7.ln_1.weight")
        wide = tensors | {"h.0.attn.c_attn.weight": ((288, 96), tensors["h.0.attn.c_attn.weight"][1])}
        self.refused(safetensors(wide), "h.0.attn.c_attn.weight [288, 96], expected [96, 288]")
        other = tensors | {"lm_head.weight": ((63, 96), bytes(4 * 63 * 96))}
        self.refused(safetensors(other), "lm_head.weight: differs from wte.weight")
        nan = tensors | {"ln_f.bias": ((96,), struct.pack("<96f", *[0.0] * 95, float("nan")))}
        self.refused(safetensors(nan), "element 95 of ln_f.bias is nan")
        tied = tensors | {"lm_head.weight": tensors["wte.weight"]}
        path = self.file("tied.safetensors", safetensors(tied))
        self.assertIn("skipped  lm_head.weight: the same as wte.weight",
                      self.weights("check", WORKLOAD, path, check=0).stdout)

    def test_a_model_is_as_large_as_its_data(self):
        for split in ("train", "valid"):
            self.file(f"{split}.txt", b"one two three four\n" * 300)
        self.prepare("own", self.data)
        tensors = made_tensors()
        tensors["wte.weight"] = ((5, 96), tensors["wte.weight"][1][:4 * 5 * 96])  # four words and <eos>
        _, name = self.prepared("own.safetensors", safetensors(tensors))
        self.assertIn("wte.weight [5, 96], expected [63, 96]", self.weights("check", WORKLOAD, name, check=1).stderr)
        self.weights("check", WORKLOAD, name, "--data", "own", check=0)
        experiment = self.file("own.toml", f"""
            id = "own"\ntitle = "own"\npaper = ""\n[defaults]\nkind = "convergence"\nmode = "measured"
            transport = "threads"\nworkers = 1\nworkload = "{WORKLOAD}"\ndata = "own"\nweights = "{name}"\nsteps = 2
            [repeat]\nblocks = 1\n[[axis]]\nmethod = ["dense"]\n[[figure]]\nkind = "convergence"
            """.encode())
        self.run_program("--results", self.home / "results", "plan", experiment, check=0)

    def test_pickles_are_not_run(self):
        data = torch_file(made_tensors(), legacy=True, evil=True)
        done = self.weights("prepare", "evil", "--from", self.file("evil.pt", data))
        self.assertEqual(done.returncode, 1)
        self.assertIn("it asks for posix.system", done.stderr)
        whole = torch_file(made_tensors(), legacy=False)
        for name, content, part in (("cut.pt", data[:200], "is no file of weights"),
                                    ("cut.bin", whole[:-200], "was it copied to its end?"),
                                    ("page.bin", b"<html>", "is a page of HTML"),
                                    ("pointer.pth", b"version https://git-lfs.github.com/", "Git LFS")):
            self.assertIn(part, self.not_prepared(name, content))

    def test_files_that_would_take_memory_or_time_without_end_are_refused(self):
        """As a file may say anything of its sizes: 2**31 entries of a memo, 2**60 elements, 2**40 bytes."""
        shared = b"\x80\x02K\x00q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(60))

        def zipped(data_pkl, storage=bytes(16)):
            file = io.BytesIO()
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("archive/data.pkl", data_pkl)
                archive.writestr("archive/data/0", storage)
            return file.getvalue()

        def tensor(numel, more=b""):
            return (b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
                    b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu\x8a\x08%btQK\x00K\x04\x85K\x01\x85"
                    b"\x89ccollections\nOrderedDict\n)RtR%bs." % (struct.pack("<q", numel), more))

        self.assertIn(" 1 tensors", self.weights("prepare", "good", "--from", self.file("good.pt", zipped(tensor(4))),
                                                      check=0).stdout)
        legacy = b"".join(pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {}))
        legacy += tensor(1 << 40) + pickle.dumps(["0"], 2) + struct.pack("<q", 1 << 40) + bytes(16)
        for data, part in (
                (zipped(shared + b"}h\x3cK\x01s."), "it has a tuple of 131,070 elements"),
                (zipped(b"\x80\x02}r\xff\xff\xff\x7f."), "no tensors in it"),
                (zipped(b"\x80\x02((K\x01K\x02ttQ."), "it refers to ((1, 2),)"),
                (zipped(b"\x80\x02X\xff\xff\xff\x06" + bytes(0x6ffffff) + b"."), "its data.pkl has 117,440,519 bytes"),
                (zipped(tensor(1 << 40)), "storage archive/data/0 has 16 bytes, and its tensors need 4,398,046,511,104"),
                (legacy, "storage 0 has 16 bytes, and its tensors need 4,398,046,511,104"),
                (zipped(tensor(4, b"}X\x07\x00\x00\x00stridesJ\x00\x00\x00\x80\x85sb")), "a tensor has a state")):
            self.assertIn(part, self.not_prepared("bad.pt", data))

    def test_an_index_places_tensors_in_files_beside_it(self):
        for places, part in (('{"a": "../b.safetensors"}', "places a in"), ('{"a": 3}', "places a in 3"),
                             ("[1]", "weight_map is no table"), ('{"a": "b.safetensors"}', "is not there")):
            index = self.file("m.safetensors.index.json", f'{{"weight_map": {places}}}'.encode())
            done = self.weights("prepare", "bad", "--from", index, check=1)
            self.assertIn(part, done.stderr)


if __name__ == "__main__":
    unittest.main()
