"""Reads questions in SQuAD's form, version 1.1, and cuts them into windows of word pieces."""

import dataclasses
import itertools
import json
import pathlib
import struct

from . import scoring
from .errors import DataError, refuse_stand_in
from .texts import parquet, words_of_name

WINDOW, STRIDE, QUESTION = 384, 128, 64  # pieces of a window, between two, of a question at most
_SPLITS = {"train": ("train",), "test": ("dev", "validation", "valid", "test")}
_SPACES = " \t\r\n\u202f"  # between words


@dataclasses.dataclass(frozen=True)
class Question:
    name: str
    context: int
    text: str
    answers: tuple  # (text, where it begins)


@dataclasses.dataclass
class Questions:
    form: str
    files: dict[str, pathlib.Path]
    contexts: dict[str, list[str]]
    questions: dict[str, list[Question]]


def find(place):
    """Questions of a folder, or None if it has none."""
    if not place.is_dir():
        return None
    files = {}
    for path in sorted(place.iterdir()):
        if path.suffix not in (".json", ".parquet") or path.name == "meta.json":
            continue
        split = next((s for s, names in _SPLITS.items() if set(names) & set(words_of_name(path))), None)
        if split is None or not _is_questions(path):
            continue
        if split in files:
            raise DataError(f"{place}: has {files[split].name} and {path.name}; expected one file "
                            f"of {split}")
        files[split] = path
    if not files:
        return None
    for split, names in _SPLITS.items():
        if split not in files:
            raise DataError(f"{place}: has no file of {split}; expected one with {' or '.join(names)} "
                            "in its name beside the other")
    form = "SQuAD parquet" if files["train"].suffix == ".parquet" else "SQuAD 1.1 JSON"
    found = Questions(form, files, {}, {})
    for split, path in files.items():
        rows = _of_parquet(path) if path.suffix == ".parquet" else _of_json(path)
        found.contexts[split], found.questions[split] = _checked(path, rows)
    return found


def _is_questions(path):
    if path.suffix == ".parquet":
        return {"context", "question", "answers"} <= set(parquet(path).schema_arrow.names)
    with open(path, "rb") as file:
        head = file.read(4096)
    refuse_stand_in(path, head)
    return b'"data"' in head or b'"paragraphs"' in head or b'"version"' in head


def _of_json(path):
    """(context, id, question, [(answer, begin)]) of each question."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is no whole JSON ({error}); was it downloaded to its end?") from error
    if not isinstance(given, dict) or not isinstance(given.get("data"), list):
        raise DataError(f"{path}: expected SQuAD's form: \"version\" and \"data\", a list")
    version = str(given.get("version", ""))
    if version.lstrip("v") != "1.1":
        raise DataError(f"{path}: version = {version!r}; expected \"1.1\": in version 2.0 half of the "
                        "questions have no answer")
    try:
        for article in given["data"]:
            for paragraph in article["paragraphs"]:
                for each in paragraph["qas"]:
                    if each.get("is_impossible"):
                        raise DataError(f"{path}: question {each['id']}: has no answer, as in version "
                                        "2.0; expected version 1.1")
                    yield (paragraph["context"], str(each["id"]), each["question"],
                           [(answer["text"], answer["answer_start"]) for answer in each["answers"]])
    except (KeyError, TypeError, AttributeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"is malformed ({error})"
        raise DataError(f"{path}: a question {what}; expected SQuAD's form: data[]."
                        "paragraphs[].qas[] with id, question and answers[].text, .answer_start"
                        ) from error


def _of_parquet(path):
    file = parquet(path)
    lacks = {"id", "context", "question", "answers"} - set(file.schema_arrow.names)
    if lacks:
        raise DataError(f"{path}: lacks the columns {', '.join(sorted(lacks))}; expected id, context, "
                        "question, answers")
    for batch in file.iter_batches(columns=["id", "context", "question", "answers"]):
        for row in batch.to_pylist():
            answers = row["answers"]
            yield (row["context"], str(row["id"]), row["question"],
                   list(zip(answers["text"], answers["answer_start"])))


def _checked(path, rows):
    """(contexts, questions), or an error that names the question."""
    numbers, questions, names = {}, [], set()
    for context, name, text, answers in rows:
        if not all(isinstance(each, str) for each in (context, text, *(answer for answer, _ in answers))):
            raise DataError(f"{path}: question {name}: its context, question or answer is no text; "
                            "expected all three")
        if name in names:
            raise DataError(f"{path}: question {name}: is there twice; expected each id once")
        names.add(name)
        if not answers:
            raise DataError(f"{path}: question {name}: has no answer; expected at least one, as in "
                            "version 1.1")
        for answer, begin in answers:
            if type(begin) is not int or not 0 <= begin < len(context):
                raise DataError(f"{path}: question {name}: answer_start = {begin!r}; expected 0 to "
                                f"{len(context) - 1}, a character of its context")
            if context[begin:begin + len(answer)] != answer or not answer:
                raise DataError(
                    f"{path}: question {name}: the answer {answer[:40]!r} is not at character {begin}, "
                    f"which has {context[begin:begin + len(answer)][:40]!r}; offsets count characters, "
                    "not bytes")
        questions.append(Question(name, numbers.setdefault(context, len(numbers)), text,
                                  tuple(answers)))
    if not questions:
        raise DataError(f"{path}: has no question")
    return list(numbers), questions


# ---- Windows ---------------------------------------------------------------------------------------

# Of a record behind its pieces (u16 each) and whether each has its best context there (u8 each).
TAIL = struct.Struct("<6I")  # length, question's, first and last piece of the answer, question, skipped


class Windows:
    """Windows of a split's questions as records; `dropped` counts questions without any."""

    def __init__(self, found, split, pieces, window, stride, question):
        self.split, self.pieces = split, pieces
        self.contexts, self.questions = found.contexts[split], found.questions[split]
        self.window, self.stride, self.longest_question = window, stride, question
        self.dropped = 0
        self._cut, self._words = {}, {}

    def cut_context(self, number):
        if number not in self._cut:
            self._cut[number] = self.pieces.cut(self.contexts[number])
        return self._cut[number]

    def words(self, number):
        """([(begin, end)] of a context's words, between white space; for each character the last word that
        begins there or before, -1 in front of the first)."""
        if number not in self._words:
            spans, of_characters, inside = [], [], False
            for at, character in enumerate(self.contexts[number]):
                if character in _SPACES:
                    inside = False
                else:
                    spans.append((spans.pop()[0] if inside else at, at + 1))
                    inside = True
                of_characters.append(len(spans) - 1)
            self._words[number] = spans, of_characters
        return self._words[number]

    def records(self):
        """(number of the question, record) in order."""
        for number, question in enumerate(self.questions):
            tokens = self.cut_context(question.context)
            asked = [token for token, _, _ in self.pieces.cut(question.text)][:self.longest_question]
            room = self.window - len(asked) - 3
            answer = None
            if self.split == "train":
                answer = self._answer(question, tokens)
                if answer is None:
                    self.dropped += 1
                    continue
            spans = _spans(len(tokens), room, self.stride)
            for begin, length in spans:
                yield number, self._record(number, asked, tokens, spans, begin, length, answer)

    def _record(self, number, asked, tokens, spans, begin, length, answer):
        pieces = self.pieces
        ids = [pieces.begin, *asked, pieces.end,
               *(token for token, _, _ in tokens[begin:begin + length]), pieces.end]
        skipped = len(asked) + 2
        first = last = 0
        if answer and begin <= answer[0] and answer[1] < begin + length:
            first, last = (skipped + place - begin for place in answer)
        best = bytearray(self.window)
        for i in range(length):
            best[skipped + i] = _best_span(spans, begin + i) == begin
        padded = ids + [pieces.pad] * (self.window - len(ids))
        return (struct.pack(f"<{self.window}H", *padded) + bytes(best) +
                TAIL.pack(len(ids), len(asked), first, last, number, begin))

    def _answer(self, question, tokens):
        """(first, last) piece of the first answer, as near to it as whole pieces come; None where
        its words are not those of the context: the answer is cut at any white space, a context is not."""
        text, begin = question.answers[0]
        context = self.contexts[question.context]
        spans, word_at = self.words(question.context)
        touched = spans[max(word_at[begin], 0):word_at[begin + len(text) - 1] + 1]
        if not touched or " ".join(text.split()) not in " ".join(context[b:e] for b, e in touched):
            return None
        low, high = touched[0][0], touched[-1][1]
        inside = [i for i, (_, b, e) in enumerate(tokens) if b >= low and e <= high]
        if not inside:
            return None
        first, last = inside[0], inside[-1]
        wanted = [token for token, _, _ in self.pieces.cut(text)]
        for start in range(first, last + 1):
            for stop in range(last, start - 1, -1):
                if [token for token, _, _ in tokens[start:stop + 1]] == wanted:
                    return start, stop
        return first, last


def _spans(count, room, stride):
    """[(begin, length)] of windows over `count` pieces."""
    spans, begin = [], 0
    while True:
        length = min(count - begin, room)
        spans.append((begin, length))
        if begin + length == count:
            return spans
        begin += min(length, stride)


def _best_span(spans, place):
    """The begin of the window with most context on the poorer side of a piece."""
    def score(span):
        begin, length = span
        return min(place - begin, begin + length - 1 - place) + 0.01 * length

    return max(((begin, length) for begin, length in spans if begin <= place < begin + length), key=score)[0]


def key_of(windows):
    """What scoring needs of a split: contexts with the places of their pieces, questions with their
    answers. Places are in bytes, of the text and of its normal form (scoring.py)."""
    contexts = []
    for number, text in enumerate(windows.contexts):
        normal, places = scoring.normal_form(text)
        starts = [0, *itertools.accumulate(len(character.encode()) for character in text)]
        contexts.append({"text": text, "normal": normal,
                         "pieces": [[starts[b], starts[e], places[b], places[e]]
                                    for _, b, e in windows.cut_context(number)]})
    questions = [{"id": question.name, "context": question.context,
                  "answers": [text for text, _ in question.answers],
                  "normal": [scoring.normal_form(text)[0] for text, _ in question.answers]}
                 for question in windows.questions]
    return {"contexts": contexts, "questions": questions}
