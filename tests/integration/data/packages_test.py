"""Prepares data in the forms of WordNet and of the dictionary GCIDE, made here.

  packages_test.py SPARFUSE
"""

import gzip
import json
import random
import struct
import sys
import unittest

from data_case import DataCase

DataCase.program = sys.argv.pop(1)
PARTS = ("noun", "verb", "adj", "adv")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def word_of(number):
    return "w" + "".join(LETTERS[(number // 26 ** i) % 26] for i in range(3))


class Packages(DataCase):
    def write_wordnet(self, senses):
        """Writes WordNet's files. senses: [(words, gloss)], the same for each part of speech."""
        for part in PARTS:
            lines = ["  1 This software is provided as it is  \n"]
            for number, (words, gloss) in enumerate(senses):
                fields = " ".join(f"{word} 0" for word in words)
                lines.append(f"{number:08d} 00 {part[0]} {len(words):02x} {fields} 000 | {gloss}  \n")
            (self.source / f"data.{part}").write_text("".join(lines), encoding="utf-8")

    def prepare_wordnet(self, check=0):
        vocabulary = self.home / "vocab.txt"
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, *("##" + c for c in LETTERS), ".", "_"]
        vocabulary.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
        return self.prepare("questions", self.source, "--tokenizer", vocabulary, "--window", 200, "--stride", 100,
                            check=check)

    def test_questions_of_wordnet_have_their_word_as_answer(self):
        senses = [([word_of(i)], f'the meaning {word_of(i + 5000)}; "he met {word_of(i)} there"')
                  for i in range(300)]
        senses += [([word_of(400)], f'{word_of(400)} itself; "{word_of(400)} is here"'),  # the gloss has the answer
                   ([word_of(401)], f'a thing; "{word_of(401)} and {word_of(401)}"'),  # the example has it twice
                   ([word_of(402)], "without an example"),
                   (["two_words(a)", word_of(403)], 'more; "these two words, once"')]
        self.write_wordnet(senses)
        self.prepare_wordnet()
        counts = {name: split["questions"] for name, split in self.meta("questions")["content"]["splits"].items()}
        self.assertGreater(counts["train"], 4 * 240)
        self.assertGreater(counts["test"], 0)
        self.assertLess(sum(counts.values()), 4 * 301)  # the other questions are for choosing rates
        key = json.loads((self.data / "questions" / "test.json").read_text())
        meanings = {f"{part}-{number:08d}": words for part in PARTS
                    for number, (words, _) in enumerate(senses)}
        for question in key["questions"]:
            (answer,) = question["answers"]
            self.assertEqual([answer], [w.removesuffix("(a)").replace("_", " ")
                                        for w in meanings[question["id"]][:1]])
            text = key["contexts"][question["context"]]["text"]
            self.assertEqual(text.count(answer), 1)
            self.assertEqual(text.count(". "), 7)  # eight examples
        # No word is an answer in both splits, in any part of speech.
        counted = sum(any(q["id"] == f"noun-{i:08d}" for q in key["questions"]) for i in range(304))
        self.assertEqual(counts["test"], 4 * counted)

    def test_broken_files_of_wordnet_are_named(self):
        self.write_wordnet([([word_of(i)], f'meaning; "{word_of(i)} here"') for i in range(300)])
        path = self.source / "data.verb"
        text = path.read_text()
        path.write_text(text.replace(" | ", " : ", 1))
        self.assertIn("data.verb:2: has no gloss; expected ' | '", self.prepare_wordnet(1).stderr)
        path.write_text(text + "what is this\n")
        self.assertIn("data.verb:302: 'what is this", self.prepare_wordnet(1).stderr)
        path.unlink()
        self.assertIn("data.verb: is not there", self.prepare_wordnet(1).stderr)
        self.write_wordnet([])
        self.assertIn("has an example that holds its word", self.prepare_wordnet(1).stderr)
        self.assertFalse((self.data / "questions").exists())

    def test_a_dictionary_is_split_by_its_headwords(self):
        random.seed(1)
        words = [word_of(i) for i in range(12000)]
        entries = ["00-database-info\n   This notice is no text.\n\n"]
        for i in range(2000):
            body = " ".join(random.choices(words, k=40))
            for number in (1, 2):  # both entries of a headword go to one split
                entries.append(f"Head{i} \\Head\\, n.\n   1. {body}\n      x{number}.\n\n   2. Again; {i}.\n\n")
        packed = gzip.compress("".join(entries).encode())
        (self.source / "gcide.dict.dz").write_bytes(packed)
        self.prepare("words")
        self.run_program("data", "check", "words", check=0)
        folder = self.data / "words"
        self.assertEqual(self.meta("words")["content"]["vocabulary_size"], 10000)
        vocabulary = (folder / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
        self.assertIn("<unk>", vocabulary)
        heads = {}
        for split in ("train", "valid", "test"):
            raw = (folder / f"{split}.tokens").read_bytes()
            text = " ".join(vocabulary[t] for t in struct.unpack(f"<{len(raw) // 2}H", raw))
            self.assertNotIn("notice", text)
            lines = text.split(" <eos>")
            heads[split] = [line.split()[-2] for line in lines if " Again ; " in line]
        self.assertEqual(sum(map(len, heads.values())), 4000)
        numbers = {split: set(found) - {"<unk>"} for split, found in heads.items()}
        for a, b in (("train", "valid"), ("train", "test"), ("valid", "test")):
            self.assertFalse(numbers[a] & numbers[b])
        self.assertGreater(len(heads["train"]), 3400)
        self.assertGreater(min(map(len, heads.values())), 100)
        (self.source / "gcide.dict.dz").write_bytes(packed[:-1000])
        done = self.prepare("cut", self.source / "gcide.dict.dz", check=1)
        self.assertIn("gcide.dict.dz: is no whole gzip of a dictionary", done.stderr)


if __name__ == "__main__":
    unittest.main()
