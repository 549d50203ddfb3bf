"""Reads the Collaborative International Dictionary of English as a text: 40 MB of real English.

Debian's package dict-gcide has it as one file, gcide.dict.dz. An entry belongs to a split by the hash
of its headword, so that no word is defined in two.
"""

import collections
import dataclasses
import functools
import gzip
import hashlib
import re
import zlib

from . import texts
from .errors import DataError

NAME = "gcide.dict.dz"
UNKNOWN = "<unk>"
WORDS = 10000  # that a text of words keeps, the most frequent of train; with <unk> and <eos>
_SHARES = {"valid": (0,), "test": (1,)}  # of 20; the rest is for training


@dataclasses.dataclass
class Dictionary(texts.Texts):
    """Raw lines for a tokenizer, or words with <unk> in the place of rare ones."""

    def lines(self, split):
        yield from _by_split(self.files[split][0])[split]

    def of_words(self):
        """The same text as words between blanks, of a limited vocabulary."""
        counts = collections.Counter(word for line in self.lines("train") for word in _words(line))
        kept = sorted(counts, key=lambda word: (-counts[word], word))[:WORDS - 2]
        return _Words(self.form + f", its {len(kept):,} most frequent words", self.files, raw=False,
                      kept=frozenset(kept))


@dataclasses.dataclass
class _Words(Dictionary):
    kept: frozenset = frozenset()

    def lines(self, split):
        for line in super().lines(split):
            yield " ".join(word if word in self.kept else UNKNOWN for word in _words(line))


def find(place):
    """The Dictionary of a folder or of the file itself, or None."""
    path = place / NAME if place.is_dir() else place
    if path.name != NAME or not path.exists():
        return None
    return Dictionary("GCIDE", {split: [path] for split in ("train", "valid", "test")}, raw=True)


def _words(line):
    return re.findall(r"\w+|[^\w\s]", line)


@functools.lru_cache(maxsize=1)
def _by_split(path):
    """{split: paragraphs}: each split is read several times, the file once."""
    paragraphs = {"train": [], "valid": [], "test": []}
    for split, paragraph in _entries(path):
        paragraphs[split].append(paragraph)
    return paragraphs


def _entries(path):
    """(split, paragraph) of each paragraph of each entry, behind the notes in front."""
    split, paragraph = None, []
    try:
        with gzip.open(path, "rt", encoding="cp1252", errors="replace") as file:
            for line in file:
                headword = line[:1].strip()
                if (headword or not line.strip()) and paragraph:
                    if split:
                        yield split, " ".join(paragraph)
                    paragraph = []
                if headword:
                    split = _split_of(line)
                if line.strip():
                    paragraph.append(line.strip())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: is no whole gzip of a dictionary ({error}); expected {NAME} of "
                        "Debian's dict-gcide") from error
    if split and paragraph:
        yield split, " ".join(paragraph)


def _split_of(line):
    """The split of the entry that the line begins, or None of the notes on the dictionary."""
    word = line.partition(" \\")[0].strip().lower()
    if word.startswith("00-database"):
        return None
    share = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") % 20
    return next((split for split, shares in _SHARES.items() if share in shares), "train")
