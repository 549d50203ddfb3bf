"""Finds texts of words or of a tokenizer's tokens, and turns them into streams of token numbers.

A word-level text is WikiText's form: words between white space, an end token `<eos>` for each line,
numbered in the order in which train, valid and test first have them.
"""

import collections
import dataclasses
import json
import pathlib
import re

from .errors import DataError, refuse_stand_in

END = "<eos>"
ROWS = 1000  # lines that a tokenizer gets at once
MOST_SPECIAL = 16  # tokens of a vocabulary that no merge makes, such as <|endoftext|>
_SPLITS = {"train": ("train",), "valid": ("valid", "validation", "val"), "test": ("test",)}


@dataclasses.dataclass
class Texts:
    form: str
    files: dict[str, list[pathlib.Path]]  # by split
    raw: bool  # without <unk> for rare words

    def lines(self, split):
        for path in self.files[split]:
            if path.suffix == ".parquet":
                yield from _parquet_lines(path)
            else:
                yield from _file_lines(path)


def _file_lines(path):
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1:
                refuse_stand_in(path, line)
            if number == 1 and line.startswith(b"\xef\xbb\xbf"):
                raise DataError(f"{path}:1: begins with a byte-order mark; expected none: "
                                f"sed -i '1s/^\\xEF\\xBB\\xBF//' {path.name}")
            if line.endswith(b"\r\n"):
                raise DataError(f"{path}:{number}: ends with CR LF; expected LF alone: "
                                f"sed -i 's/\\r$//' {path.name}")
            try:
                yield line.decode("utf-8").rstrip("\n")
            except UnicodeDecodeError as error:
                raise DataError(f"{path}:{number}: is not UTF-8 ({error.reason})") from error


def parquet(path):
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{path}: is parquet, which pyarrow reads; .venv/bin/pip install pyarrow "
                        "brings it") from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except Exception as error:
        raise DataError(f"{path}: is no whole parquet file ({error})") from error


def _parquet_lines(path):
    file = parquet(path)
    if "text" not in file.schema_arrow.names:
        raise DataError(f"{path}: has the columns {', '.join(file.schema_arrow.names)}; expected text")
    number = 0
    for batch in file.iter_batches(columns=["text"]):
        for row in batch.column(0).to_pylist():
            if not isinstance(row, str):
                raise DataError(f"{path}: row {number} is {row!r:.40}; expected a text")
            yield row.rstrip("\n")
            number += 1


def find(place):
    """The texts of a folder or of one file, or None if there are none."""
    paths = sorted(p for p in ([place] if place.is_file() else place.iterdir()) if p.is_file())
    paths = [p for p in paths if p.suffix in (".tokens", ".raw", ".txt", ".parquet")]
    files = {split: [p for p in paths if set(names) & set(words_of_name(p))]
             for split, names in _SPLITS.items()}
    files = {split: found for split, found in files.items() if found}
    if "train" not in files:
        return None
    for split, found in files.items():
        if len({p.suffix for p in found}) > 1 or (len(found) > 1 and found[0].suffix != ".parquet"):
            raise DataError(f"{place}: {split} is there as {' and '.join(p.name for p in found)}; "
                            "expected one form of it: a folder of its own for each")
    if not {"valid", "test"} & set(files):
        raise DataError(f"{place}: has {files['train'][0].name} alone; expected valid or test beside it")
    suffix = files["train"][0].suffix
    form = {".tokens": "WikiText, .tokens", ".raw": "WikiText, .raw", ".txt": "text files",
            ".parquet": "parquet rows"}[suffix]
    texts = Texts(form, files, raw=True)
    texts.raw = not any("<unk>" in line for _, line in zip(range(10000), texts.lines("train")))
    return texts


def words_of_name(path):
    """The words of a file's name, such as train, 00000 and parquet."""
    return re.split("[-_.]", path.name.lower())


def count_words(texts):
    """(number of each word in order of appearance, tokens by split)."""
    numbers, counts = {}, collections.Counter()
    for split in ordered(texts):
        for line in texts.lines(split):
            words = line.split()
            counts[split] += len(words) + 1
            for word in (*words, END):
                numbers.setdefault(word, len(numbers))
    return numbers, counts


def word_numbers(texts, split, numbers):
    """Lists of token numbers, a line each."""
    end = numbers[END]
    for line in texts.lines(split):
        yield [*(numbers[word] for word in line.split()), end]


def tokenizer_of(path):
    """A tokenizer: tokenizer.json, or the folder of vocab.json and merges.txt."""
    path = pathlib.Path(path)
    pair = _vocabulary_and_merges(path) if path.is_dir() else None
    try:
        import tokenizers
    except ImportError as error:
        raise DataError(f"{path}: is read by the package tokenizers, which this Python lacks; "
                        ".venv/bin/pip install tokenizers installs it") from error
    try:
        if pair:
            return tokenizers.ByteLevelBPETokenizer(*map(str, pair)), list(pair)
        made = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        raise DataError(f"{path}: is no tokenizer ({error})") from error
    made.no_truncation()
    made.no_padding()
    return made, [path]


def _vocabulary_and_merges(folder):
    vocabulary, merges = (next((folder / name for name in names if (folder / name).exists()), None)
                          for names in (("vocab.json", "encoder.json"), ("merges.txt", "vocab.bpe")))
    if vocabulary is None or merges is None:
        raise DataError(f"{folder}: expected vocab.json (or encoder.json) and merges.txt (or vocab.bpe)")
    _check_merges(vocabulary, merges)
    return vocabulary, merges


def _check_merges(vocabulary, merges):
    try:
        known = json.loads(vocabulary.read_text(encoding="utf-8"))
        lines = merges.read_text(encoding="utf-8").split("\n")
    except (ValueError, RecursionError) as error:
        raise DataError(f"{vocabulary} or {merges.name}: is no vocabulary ({error})") from error
    if not isinstance(known, dict) or sorted(map(str, known.values())) != sorted(map(str, range(len(known)))):
        raise DataError(f"{vocabulary}: expected tokens with the numbers 0 to their count less one, each once")
    made = set()
    for number, line in enumerate(lines, 1):
        if line.startswith("#version") or not line:
            continue
        token = line.rstrip("\r").replace(" ", "", 1)
        if token not in known:
            raise DataError(f"{merges}:{number}: merges to {token!r}, which {vocabulary} "
                            "lacks: the two do not belong together")
        made.add(token)
    unmade = [token for token in known if len(token) > 1 and token not in made]
    if len(unmade) > MOST_SPECIAL:
        plain = next((token for token in unmade if not token.startswith("<")), unmade[0])
        raise DataError(f"{vocabulary}: has {plain!r} and {len(unmade) - 1} others that no line of {merges} "
                        "merges to: the two do not belong together")


def token_numbers(texts, split, tokenizer):
    rows = []
    for line in texts.lines(split):
        rows.append(line + "\n")
        if len(rows) == ROWS:
            yield from (encoded.ids for encoded in tokenizer.encode_batch(rows))
            rows = []
    yield from (encoded.ids for encoded in tokenizer.encode_batch(rows))


def ordered(texts):
    return [split for split in _SPLITS if split in texts.files]
