"""Makes questions in SQuAD's form of WordNet's files: which word of some usage examples has this meaning?

The question is the definition of a sense. The context is usage examples: of that sense, and of seven
others of the same part of speech. The answer is the word itself, in its example. No word is an answer
in both splits, so that a model has to know words, not to remember them.
"""

import dataclasses
import hashlib
import itertools
import re

from .errors import DataError
from .squad import Question, Questions

OTHERS = 7  # examples of other senses in a context
_PARTS = ("noun", "verb", "adj", "adv")
_SPLIT = {"train": range(90), "test": range(90, 95)}  # of 100; the rest is for choosing rates


@dataclasses.dataclass(frozen=True)
class _Sense:
    name: str  # part of speech and place in its file
    word: str
    definition: str
    example: str
    begins: int  # of the word in the example


def find(place):
    """Questions of a folder with data.noun, data.verb, data.adj and data.adv, or None."""
    if not place.is_dir() or not (place / "data.noun").exists():
        return None
    files = {part: place / f"data.{part}" for part in _PARTS}
    for path in files.values():
        if not path.exists():
            raise DataError(f"{path}: is not there; expected WordNet's four files data.noun, data.verb, "
                            "data.adj and data.adv")
    found = Questions("WordNet's senses and examples", files, {"train": [], "test": []},
                      {"train": [], "test": []})
    for part, path in files.items():
        senses = {split: [] for split in _SPLIT}
        for sense in _senses(part, path):
            share = _number("split", sense.word.lower()) % 100
            for split, shares in _SPLIT.items():
                if share in shares:
                    senses[split].append(sense)
        for split, of_split in senses.items():
            _ask(found, split, sorted(of_split, key=lambda s: _number("order", s.name)))
    for split, questions in found.questions.items():
        if not questions:
            raise DataError(f"{place}: no sense of {split} has an example that holds its word; expected "
                            "WordNet's files, of some ten thousand such senses")
    return found


def _number(use, text):
    """The same for everybody who makes these questions."""
    return int.from_bytes(hashlib.sha256(f"{use} {text}".encode()).digest()[:8], "big")


def _senses(part, path):
    """Each sense with an example that holds its word once, and a definition that does not."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.startswith("  "):  # the licence
                continue
            fields, bar, gloss = line.partition(" | ")
            fields = fields.split()
            try:
                words = [fields[4 + 2 * i] for i in range(int(fields[3], 16))]
            except (IndexError, ValueError) as error:
                raise DataError(f"{path}:{number}: {line[:40]!r}; expected WordNet's form: place, file, "
                                "type, number of words, words") from error
            if not bar:
                raise DataError(f"{path}:{number}: has no gloss; expected ' | ' in front of one")
            definition = gloss.partition('"')[0].strip().rstrip(";").strip()
            sense = _asked(f"{part}-{fields[0]}", words, definition, re.findall('"([^"]+)"', gloss))
            if sense:
                yield sense


def _asked(name, words, definition, examples):
    for word in words:
        word = re.sub(r"\(\w+\)$", "", word).replace("_", " ")
        whole = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
        if not definition or whole.search(definition):
            continue
        for example in examples:
            places = [match.start() for match in whole.finditer(example)]
            if len(places) == 1:
                return _Sense(name, word, definition, example.strip(),
                              places[0] - len(example) + len(example.lstrip()))
    return None


def _ask(found, split, senses):
    """Appends a question for each sense; the senses behind it lend their examples."""
    for at, sense in enumerate(senses):
        whole = re.compile(rf"\b{re.escape(sense.word)}\b", re.IGNORECASE)
        behind = (senses[(at + step) % len(senses)] for step in range(1, len(senses)))
        others = itertools.islice((other for other in behind if not whole.search(other.example)), OTHERS)
        shown = sorted([sense, *others], key=lambda s: _number(sense.name, s.name))
        before = shown[:shown.index(sense)]
        begins = sum(len(each.example) + 2 for each in before) + sense.begins
        context = ". ".join(each.example for each in shown) + "."
        answer = context[begins:begins + len(sense.word)]
        found.questions[split].append(Question(sense.name, len(found.contexts[split]), sense.definition,
                                               ((answer, begins),)))
        found.contexts[split].append(context)
