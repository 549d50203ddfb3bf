"""Scores answers as SQuAD 1.1 does: exact match and F1 of words, without articles and punctuation.

The normal form is what the program scores answers in while it trains: a text of which all that
Unicode knows is decided, so that a part of it can be normalised as bytes.
"""

import collections
import json
import pathlib
import re
import string

from .errors import DataError

_PUNCTUATION = frozenset(string.punctuation)
MARK = "\x01"  # stands before a character that is no part of a word and yet stays


def words_of(text):
    """The words that count of an answer."""
    kept = "".join(c for c in text.lower() if c not in _PUNCTUATION)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def f1(prediction, answer):
    ours, theirs = words_of(prediction), words_of(answer)
    same = sum((collections.Counter(ours) & collections.Counter(theirs)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(ours), same / len(theirs)
    return 2 * precision * recall / (precision + recall)


def normal_form(text):
    """(the text in lower case, without ASCII punctuation, each white space a blank, with MARK before
    what else is no part of a word; for each character and the end, how many bytes come before)."""
    form, places, size = [], [], 0
    lower, at = text.lower(), 0  # as a whole: a sigma at the end of a word has a form of its own
    for character in text:
        places.append(size)
        begin, at = at, at + len(character.lower())
        for c in lower[begin:at]:
            if c in _PUNCTUATION:
                continue
            if c.isspace():
                c = " "
            elif not (c.isalnum() or c == "_"):
                c = MARK + c
            form.append(c)
            size += len(c.encode())
    places.append(size)
    return "".join(form), places


def score(folder, predictions):
    """{"exact_match", "f1", "questions", "unanswered"} in percent of {id: text}, in a file, against a
    prepared data set."""
    folder = pathlib.Path(folder)
    try:
        key = json.loads((folder / "test.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{folder}: has no test.json; expected prepared questions") from error
    try:
        given = json.loads(pathlib.Path(predictions).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{predictions}: cannot be read ({error}); expected JSON with an answer for each id") from error
    if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
        raise DataError(f"{predictions}: expected {{\"ID\": \"answer\", ...}}")
    known = {question["id"] for question in key["questions"]}
    other = sorted(set(given) - known)
    if other:
        raise DataError(f"{predictions}: question {other[0]}: is not in {folder}")
    matches = total = 0.0
    for question in key["questions"]:
        text = given.get(question["id"])
        if text is None:  # counts as wrong, as in the official script
            continue
        matches += max(words_of(text) == words_of(answer) for answer in question["answers"])
        total += max(f1(text, answer) for answer in question["answers"])
    count = len(key["questions"])
    return {"exact_match": 100 * matches / count, "f1": 100 * total / count, "questions": count,
            "unanswered": count - len(given)}
