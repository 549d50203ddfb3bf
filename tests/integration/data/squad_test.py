"""Prepares questions made here, trains on them, and scores what a trial answered.

  squad_test.py SPARFUSE [OFF: trials cannot run here]
"""

import collections
import json
import random
import re
import string
import struct
import sys
import unittest

from data_case import DataCase

DataCase.program = sys.argv.pop(1)
TRIALS_RUN = len(sys.argv) < 2 or sys.argv.pop(1) != "OFF"
WINDOW, STRIDE, QUESTION = 37, 9, 8  # pieces, as in bert-small
WORDS = ["the", "a", "an", "river", "stone", "of", "bright", "An", "The", "ünder", "naïve", "東京",
         "can't", "U.S.", "“quoted”", "—", "100", "half-done", "Ωmega", "re_done", "straße", "theory",
         "another", "a\u0301b", "(the)", "the.", "ΟΔΟΣ"]


def vocabulary():
    """A vocabulary of some whole words, and of all characters as first and further pieces."""
    plain = ["river", "stone", "bright", "the", "an", "theory", "quoted", "100", "half", "done"]
    letters = sorted(set("abcdefghijklmnopqrstuvwxyz0123456789_ωοδςσ“”—.'()-?ß"))
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *plain, *letters, *("##" + c for c in letters)]


def made_squad(count, seed, per_context=4, length=30):
    """(SQuAD's JSON, {question's id: answers}), with answers of several forms, also at both ends."""
    rng = random.Random(seed)
    paragraphs, answers_of = [], {}
    for number in range(count // per_context):
        words = [rng.choice(WORDS) for _ in range(length)]
        context = rng.choice((" ", "  ", "\n")).join(words)
        qas = []
        for each in range(per_context):
            starts = [0]
            for match in re.finditer(r"\s+", context):
                starts.append(match.end())
            first = 0 if each == 0 else rng.randrange(len(starts))
            last = min(len(starts) - 1, first + rng.randrange(4))
            if each == 1:
                first = last = len(starts) - 1
            begin = starts[first]
            end = starts[last + 1] if last + 1 < len(starts) else len(context)
            text = context[begin:end].rstrip()
            name = f"{seed}-{number}-{each}"
            several = [{"text": text, "answer_start": begin}]
            if each > 1:
                several.append({"text": text.split()[0], "answer_start": begin})
            qas.append({"id": name, "question": " ".join(rng.choice(WORDS) for _ in range(6)) + "?",
                        "answers": several})
            answers_of[name] = [answer["text"] for answer in several]
        paragraphs.append({"context": context, "qas": qas})
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}, answers_of


# ---- SQuAD 1.1's rule, written again -------------------------------------------------------------


def normalised(text):
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(prediction, answer):
    ours, theirs = normalised(prediction).split(), normalised(answer).split()
    same = sum((collections.Counter(ours) & collections.Counter(theirs)).values())
    return 2 * same / (len(ours) + len(theirs)) if same else 0.0


class Squad(DataCase):
    def setUp(self):
        super().setUp()
        self.vocabulary = self.home / "vocab.txt"
        self.vocabulary.write_text("".join(f"{piece}\n" for piece in vocabulary()), encoding="utf-8")
        self.train, _ = made_squad(40, 1)
        self.dev, self.answers = made_squad(80, 2)
        self.write()

    def write(self):
        for name, squad in (("train-v1.1", self.train), ("dev-v1.1", self.dev)):
            (self.source / f"{name}.json").write_text(json.dumps(squad, ensure_ascii=False),
                                                      encoding="utf-8")

    def prepare(self, name, *more, check=0):
        return self.run_program("data", "prepare", name, "--from", self.source, "--tokenizer",
                                self.vocabulary, "--window", WINDOW, "--stride", STRIDE, "--question",
                                QUESTION, *more, check=check)

    def refused(self, *parts):
        self.write()
        done = self.prepare("bad", check=1)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(list(self.data.glob("bad*")), [])

    def windows(self, name, split):
        """Yields (pieces, best, length, question's length, first, last, question, skipped) of each window."""
        data = (self.data / name / f"{split}.records").read_bytes()
        size = 3 * WINDOW + 24
        self.assertEqual(len(data) % size, 0)
        for at in range(0, len(data), size):
            record = data[at:at + size]
            yield (struct.unpack(f"<{WINDOW}H", record[:2 * WINDOW]), record[2 * WINDOW:3 * WINDOW],
                   *struct.unpack("<6I", record[3 * WINDOW:]))

    def test_windows_overlap_and_hold_answers(self):
        printed = self.prepare("set").stdout
        self.assertIn("40 questions of train, 80 of test, windows of 37 pieces, 9 apart", printed)
        self.run_program("data", "check", "set", check=0)
        pieces, answers = vocabulary(), 0
        questions = [(p["context"], q) for a in self.train["data"] for p in a["paragraphs"]
                     for q in p["qas"]]
        covered = collections.defaultdict(set)
        best = collections.Counter()
        previous = {}
        for ids, marks, length, asked, first, last, number, skipped in self.windows("set", "train"):
            words = [pieces[i] for i in ids]
            self.assertEqual((words[0], words[asked + 1], words[length - 1]),
                             ("[CLS]", "[SEP]", "[SEP]"))
            self.assertTrue(all(word == "[PAD]" for word in words[length:]))
            self.assertLessEqual(asked, QUESTION)
            context = length - asked - 3
            covered[number] |= set(range(skipped, skipped + context))
            for i in range(WINDOW):
                if marks[i]:
                    self.assertTrue(asked + 2 <= i < length - 1)
                    best[number, skipped + i - asked - 2] += 1
            if skipped:  # a stride after the window before
                self.assertEqual(skipped - previous[number], min(STRIDE, WINDOW - asked - 3))
            previous[number] = skipped
            if (first, last) == (0, 0):
                continue
            answers += 1
            # The window has whole pieces of the answer: its letters without accents, unless one is unknown.
            found = "".join(word.removeprefix("##") for word in words[first:last + 1])
            if "[UNK]" not in found:
                text = questions[number][1]["answers"][0]["text"].lower()
                plain = "".join(c for c in text.replace("ü", "u").replace("ï", "i") if not c.isspace()
                                and c != "\u0301").replace("ς", "σ")
                self.assertEqual(found, plain.replace("á", "a"))
        self.assertGreaterEqual(answers, 40)
        for number, places in covered.items():
            self.assertEqual(places, set(range(len(places))))  # no piece of a context is left out
            for place in places:
                self.assertEqual(best[number, place], 1)  # and each piece is best in one window

    def test_answers_are_pieces_of_the_words_that_they_touch(self):
        context = "stone river  bright [SEP] ri\x0bver 100\u00a0half"
        given = {"river ": "river", " river": "river", "ight ": "bright", "  bright": "bright",
                 "[SEP]": "[SEP]", "stone": "stone",
                 "ri\x0bver": None, "100\u00a0half": None}  # cut at white space they are not in the context
        qas = [{"id": str(i), "question": "an?", "answers": [{"text": text, "answer_start": context.index(text)}]}
               for i, text in enumerate(given)]
        self.train = {"version": "1.1", "data": [{"paragraphs": [{"context": context, "qas": qas}]}]}
        self.write()
        self.assertIn("2 questions are left out", self.prepare("set").stdout)
        pieces, found = vocabulary(), {}
        for ids, _, _, _, first, last, number, _ in self.windows("set", "train"):
            found[list(given)[number]] = " ".join(pieces[i] for i in ids[first:last + 1])
            self.assertEqual([pieces[i] for i in ids].count("river"), 2)  # a control character is nothing
        self.assertEqual(found, {text: piece for text, piece in given.items() if piece})

    def test_other_forms_of_questions_are_refused_by_id(self):
        def first():
            return self.dev["data"][0]["paragraphs"][0]

        name = first()["qas"][0]["id"]
        self.dev["version"] = "v2.0"
        self.refused("dev-v1.1.json: version = 'v2.0'", 'expected "1.1"')
        self.dev["version"] = "1.1"
        first()["qas"][0]["is_impossible"] = True
        self.refused(f"question {name}: has no answer, as in version 2.0")
        del first()["qas"][0]["is_impossible"]
        kept = first()["qas"][0]["answers"]
        first()["qas"][0]["answers"] = [{"text": "river", "answer_start": 100000}]
        self.refused(f"question {name}: answer_start = 100000", "a character of its context")
        for begin in ("3", True):
            first()["qas"][0]["answers"] = [{"text": "river", "answer_start": begin}]
            self.refused(f"question {name}: answer_start = {begin!r}; expected 0 to")
        first()["qas"][0]["answers"] = [{"text": kept[0]["text"], "answer_start": 1}]
        self.refused(f"question {name}: the answer", "is not at character 1")
        first()["qas"][0]["answers"] = []
        self.refused(f"question {name}: has no answer")
        first()["qas"][0]["answers"] = kept
        first()["qas"][1]["id"] = name
        self.refused(f"question {name}: is there twice")
        del first()["qas"][1]["question"]
        first()["qas"][1]["id"] = "other"
        self.refused("a question lacks 'question'")
        first()["qas"][1]["question"] = None
        self.refused("question other: its context, question or answer is no text")
        first()["qas"][1]["question"] = "?"
        whole = json.dumps(self.dev)
        self.write()
        (self.source / "dev-v1.1.json").write_text(whole[:-40])
        self.assertIn("is no whole JSON", self.prepare("bad", check=1).stderr)
        (self.source / "dev-v1.1.json").write_text("[" * 100000)
        self.assertIn("has no file of test", self.prepare("bad", check=1).stderr)
        (self.source / "dev-v1.1.json").write_text('{"version": "1.1", "data": ' + "[" * 100000)
        self.assertIn("is no whole JSON", self.prepare("bad", check=1).stderr)
        (self.source / "dev-v1.1.json").write_text("<html>")
        self.assertIn("is a page of HTML", self.prepare("bad", check=1).stderr)
        (self.source / "dev-v1.1.json").unlink()
        self.assertIn("has no file of test", self.prepare("bad", check=1).stderr)
        self.write()
        done = self.run_program("data", "prepare", "bad", "--from", self.source, check=1)
        self.assertIn("expected --tokenizer FILE", done.stderr)
        self.vocabulary.write_text("a\nb\n")
        self.assertIn("lacks [PAD], [UNK], [CLS], [SEP]", self.prepare("bad", check=1).stderr)

    def test_files_of_the_known_name_and_other_content_are_refused(self):
        done = self.prepare("squad", check=1)
        self.assertIn("train 40, expected 87,599", done.stderr)
        self.assertIn("dev-v1.1.json: SHA-256 ", done.stderr)
        self.assertIn("--accept", done.stderr)
        done = self.prepare("squad", "--accept")
        self.assertIn("warning: squad: train-v1.1.json: SHA-256 ", done.stdout)

    def score(self, answers):
        path = self.home / "answers.json"
        path.write_text(json.dumps(answers))
        return json.loads(self.run_program("data", "score", "set", path, check=0).stdout)

    def test_answers_are_scored_as_squad_does(self):
        self.prepare("set")
        self.assertEqual(self.score({n: a[0] for n, a in self.answers.items()})["exact_match"], 100)
        rng = random.Random(4)
        for _ in range(12):  # 80 answers each time
            given = {name: " ".join(rng.choice([*WORDS, *several[-1].split(), "", "  ", "!"])
                                    for _ in range(rng.randrange(5)))
                     for name, several in self.answers.items()}
            found = self.score(given)
            exact = [max(normalised(given[n]) == normalised(a) for a in self.answers[n]) for n in given]
            every = [max(f1(given[n], a) for a in self.answers[n]) for n in given]
            self.assertAlmostEqual(found["exact_match"], 100 * sum(exact) / len(exact), 9)
            self.assertAlmostEqual(found["f1"], 100 * sum(every) / len(every), 9)
        given.popitem()
        self.assertEqual(self.score(given)["unanswered"], 1)
        (self.home / "answers.json").write_text('{"nobody": "x"}')
        done = self.run_program("data", "score", "set", self.home / "answers.json", check=1)
        self.assertIn("question nobody: is not in", done.stderr)

    def test_a_trial_scores_its_answers_as_others_would(self):
        if not TRIALS_RUN:
            self.skipTest("built without the worker")
        self.prepare("set")
        experiment = self.home / "questions.toml"
        experiment.write_text("""\
id = "questions"
title = "questions"
paper = ""
[defaults]
mode = "measured"
kind = "convergence"
workload = "bert-small"
recipe = { epochs = 2, learning_rate = 2e-3 }
data = "set"
workers = 2
batch_per_worker = 8
transport = "threads"
density = 0.05
[[axis]]
method = ["dense", "wfbp"]
""")
        results = self.home / "results"
        self.run_program("--results", results, "run", experiment, check=0)
        trials = sorted(results.glob("trials/questions/*/*/trial.json"))
        self.assertEqual(len(trials), 2)
        for trial in trials:
            metrics = json.loads(trial.read_text())["metrics"]
            answers = json.loads((trial.parent / "predictions.json").read_text())
            self.assertEqual(set(answers), set(self.answers))
            found = self.score(answers)
            every = [max(f1(text, a) for a in self.answers[n]) for n, text in answers.items()]
            self.assertAlmostEqual(metrics["final_metric"]["value"], sum(every) / len(every), 9)
            self.assertAlmostEqual(found["f1"], 100 * metrics["final_metric"]["value"], 9)
            self.assertAlmostEqual(found["exact_match"],
                                   100 * metrics["final_exact_match"]["value"], 9)
        # A user with the trials and without the data sees the same numbers.
        shown = self.run_program("--results", results, "table", experiment, check=0).stdout
        self.assertIn(" f1", shown)
        (self.data / "set").rename(self.data / "elsewhere")
        self.assertEqual(self.run_program("--results", results, "table", experiment, check=0).stdout, shown)


if __name__ == "__main__":
    unittest.main()
