"""Cuts text into BERT's WordPieces, of the uncased models, each with its place in the text."""

import json
import pathlib
import re
import string
import unicodedata

from .errors import DataError

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
LONGEST_WORD = 100  # characters; longer ones are unknown
_CHINESE = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
            (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


class WordPiece:
    def __init__(self, numbers, files):
        self.numbers, self.files = numbers, files
        missing = [name for name in SPECIAL if name not in numbers]
        if missing:
            raise DataError(f"{files[0]}: lacks {', '.join(missing)}; expected the vocabulary of an "
                            "uncased BERT")
        self.pad, self.unknown, self.begin, self.end = (numbers[name] for name in SPECIAL)
        # Texts that say "[SEP]" get the piece of that name, as from the published tokenizers.
        self._special = re.compile("|".join(re.escape(name) for name in (*SPECIAL, "[MASK]") if name in numbers))
        self._pieces = {}  # of words met so far
        self._kinds = {}  # of characters

    def __len__(self):
        return len(self.numbers)

    def cut(self, text):
        """[(number, begin, end)]: pieces with where their characters are in the text."""
        found, begin = [], 0
        for match in self._special.finditer(text):
            self._cut(text, begin, match.start(), found)
            found.append((self.numbers[match[0]], *match.span()))
            begin = match.end()
        self._cut(text, begin, len(text), found)
        return found

    def _cut(self, text, begin, end, found):
        word = []
        for at, character in enumerate(text[begin:end], begin):
            kind = self._kinds.get(character)
            if kind is None:
                kind = self._kinds[character] = _kind(character)
            what, characters = kind
            if what == "drop":
                continue
            if what != "letter" and word:
                self._add(word, found)
                word = []
            if what == "alone":
                for each in characters:
                    self._add([(each, at)], found)
            elif what == "letter":
                word += [(each, at) for each in characters]
        if word:
            self._add(word, found)

    def _add(self, word, found):
        text = "".join(character for character, _ in word)
        pieces = self._pieces.get(text)
        if pieces is None:
            pieces = self._pieces[text] = self._split(text)
        for number, begin, end in pieces:
            found.append((number, word[begin][1], word[end - 1][1] + 1))

    def _split(self, word):
        """The longest piece that fits, again and again; one unknown where one does not."""
        if len(word) > LONGEST_WORD:
            return [(self.unknown, 0, len(word))]
        pieces, begin = [], 0
        while begin < len(word):
            for end in range(len(word), begin, -1):
                number = self.numbers.get(("##" if begin else "") + word[begin:end])
                if number is not None:
                    pieces.append((number, begin, end))
                    begin = end
                    break
            else:
                return [(self.unknown, 0, len(word))]
        return pieces


def _kind(character):
    """("drop" | "space" | "alone" | "letter", the characters without accents, in lower case)."""
    code = ord(character)
    if character in "\t\n\r" or (character.isspace() and code not in (0x0B, 0x0C, 0x85, *range(0x1C, 0x20))):
        return "space", ""
    if code in (0, 0xFFFD) or unicodedata.category(character) in ("Cc", "Cf", "Co"):
        return "drop", ""
    plain = "".join(c.lower() for c in unicodedata.normalize("NFD", character) if unicodedata.category(c) != "Mn")
    if not plain:
        return "drop", ""
    is_chinese = any(low <= code <= high for low, high in _CHINESE)
    is_punctuation = plain[0] in string.punctuation or unicodedata.category(plain[0]).startswith("P")
    return "alone" if is_chinese or is_punctuation else "letter", plain


def read(path):
    """Of vocab.txt, a piece a line, or the tokenizer.json of an uncased BERT."""
    path = pathlib.Path(path)
    if path.is_dir():
        path = next((path / n for n in ("vocab.txt", "tokenizer.json") if (path / n).exists()),
                    path / "vocab.txt")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); expected BERT's vocab.txt or "
                        "tokenizer.json") from error
    if path.suffix != ".json":
        pieces = text.split("\n")
        if pieces and not pieces[-1]:
            pieces.pop()
        return WordPiece({piece.rstrip("\r"): i for i, piece in enumerate(pieces)}, [path])
    try:
        given = json.loads(text)
        model, normaliser = given["model"], given.get("normalizer") or {}
        numbers = model["vocab"]
        if model.get("type", "WordPiece") != "WordPiece" or not isinstance(numbers, dict):
            raise DataError(f"{path}: its model is {model.get('type')}; expected WordPiece, BERT's")
        if not normaliser.get("lowercase", True):
            raise DataError(f"{path}: keeps capitals; expected the tokenizer of an uncased BERT")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: is no tokenizer.json ({error})") from error
    return WordPiece(numbers, [path])
