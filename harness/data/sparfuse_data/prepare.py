"""Recognises a data set, and writes its prepared form."""

import collections
import hashlib
import itertools
import json
import os
import pathlib
import time

from . import cifar, gcide, image_rows, images, squad, texts, tfrecords, wordnet, wordpiece, writing
from .errors import DataError

# What data sets of these names have; others of the name are refused unless they are accepted.
KNOWN = {
    "cifar10": {"classes": 10, "train": 50000, "test": 10000},
    "cifar100": {"classes": 100, "train": 50000, "test": 10000},
    "imagenet": {"classes": 1000, "train": 1281167, "test": 50000},
    "squad": {"train": 87599, "test": 10570},
    "wikitext2": {"vocabulary": 33278, "train": 2088628, "valid": 217646, "test": 245569},
}
# SHA-256, or MD5 where only that is published, of their files as they are downloaded, of which not even
# a blank may differ.
KNOWN_FILES = {
    "cifar10": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    "cifar100": {
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
    "imagenet": {
        "ILSVRC2012_img_train.tar": "1d675b47d978889d74fa0da5fadfb00e",
        "ILSVRC2012_img_val.tar": "29b22e2961454d5413ddabcf34fc5622",
    },
    "squad": {
        "train-v1.1.json": "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
        "dev-v1.1.json": "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
    },
}


def recognise(place, labels=None):
    """Images, Texts or Questions of what lies at `place`. Throws DataError that lists what would be known."""
    place = pathlib.Path(place)
    if not place.exists():
        raise DataError(f"{place}: is not there; expected the folder or the archive of a data set")
    if place.is_file():
        if place.suffix == ".zip":
            return images.from_zip(place, labels)
        if found := cifar.find(place) or gcide.find(place):
            return found
        if place.suffix == ".tar":
            return images.from_tars(place, [place], labels)
        if place.suffix in (".gz", ".tgz"):
            raise DataError(f"{place}: is compressed, and no part of it can be read by itself; "
                            "expected a plain tar or a zip: gunzip it first")
        raise DataError(f"{place}: expected a folder, a zip, a tar, CIFAR's tar.gz, or "
                        f"{gcide.NAME}; texts, parquet and SQuAD's files are read as the folder that they "
                        "are in")
    if found := cifar.find(place) or wordnet.find(place) or gcide.find(place):
        return found
    tars = sorted(p for p in place.iterdir() if p.suffix == ".tar")
    if tars:
        first = itertools.islice(images._members_of_tar(tars[0]), 8)
        shards = any(name.endswith((".cls", ".json")) for name, _, _ in first)
        return images.from_shards(place, tars) if shards else images.from_tars(place, tars, labels)
    return (image_rows.find(place, texts.parquet) or tfrecords.find(place) or squad.find(place) or
            texts.find(place) or images.from_folder(place, labels))


def _warn(name, warnings, say):
    for warning in warnings:
        say(f"warning: {name}: {warning}")


def _key(name):
    return "".join(c for c in name.lower() if c.isalnum())


def _sums_of_archives(name, place, say):
    """{archive: MD5} of those that `name` is downloaded as and that lie at `place`: each is read once more,
    150 GB in some five minutes."""
    place = pathlib.Path(place)
    at_hand = [place] if place.is_file() else sorted(place.iterdir())
    archives = [path for path in at_hand if path.suffix == ".tar" and path.name in KNOWN_FILES.get(_key(name), {})]
    size = sum(path.stat().st_size for path in archives)
    if archives:
        say(f"{place}: checking the MD5 of {', '.join(path.name for path in archives)}, {size / 1e9:,.1f} GB")
    progress, done, sums = writing.Progress(size, "bytes"), 0, {}
    for path in archives:
        digest = hashlib.md5(usedforsecurity=False)
        with open(path, "rb") as file:
            while piece := file.read(1 << 22):
                digest.update(piece)
                done += len(piece)
                progress.at(done, done)
        sums[path.name] = digest.hexdigest()
    return sums


def check_known(name, facts, accept, files=()):
    """Refuses a data set of a well-known name that has other numbers, or files of other content, than
    that one. files: {name: SHA-256 or MD5}."""
    key = _key(name)
    known = KNOWN.get(key, {})
    wrong = [f"{what} {facts.get(what, 0):,}, expected {number:,}" for what, number in known.items()
             if facts.get(what) != number]
    for file, expected in KNOWN_FILES.get(key, {}).items():
        if file in files and files[file] != expected:
            wrong.append(f"{file}: {'MD5' if len(expected) == 32 else 'SHA-256'} {files[file]}, expected {expected}")
    if wrong and not accept:
        raise DataError(f"{name}: has other numbers than the data set of that name: {'; '.join(wrong)}; "
                        "expected another name, or --accept, which takes it as it is")
    return wrong


def prepare(name, place, out, *, labels=None, tokenizer=None, windows=None, accept=False, say=print):
    """Writes the folder `out` and returns its id. windows: {"window", "stride", "question"} of
    questions, in pieces."""
    begun = time.monotonic()
    found = recognise(place, labels)
    if labels is not None and not isinstance(found, images.Images):
        raise DataError(f"{place}: holds no images; expected --val-labels with images alone")
    if windows and not isinstance(found, squad.Questions):
        raise DataError(f"{place}: holds no questions; expected --window, --stride and --question with "
                        "SQuAD's form alone")
    if isinstance(found, squad.Questions):
        identity = _prepare_questions(name, place, out, found, tokenizer, windows or {}, accept, say)
    elif isinstance(found, images.Images):
        if tokenizer is not None:
            raise DataError(f"{place}: holds images; expected --tokenizer with a text alone")
        identity = _prepare_images(name, place, out, found, accept, say)
    else:
        identity = _prepare_texts(name, place, out, found, tokenizer, accept, say)
    say(f"{out}: id {identity}, {time.monotonic() - begun:.0f} s")
    return identity


def _prepare_images(name, place, out, found, accept, say):
    counts = {split: len(found.splits[split]) for split in ("train", "test")}
    for split, count in counts.items():
        if count == 0:
            raise DataError(f"{place}: {split} has no image; expected some")
    facts = {"classes": len(found.classes), **counts}
    if not found.sums:
        check_known(name, facts, accept)  # before archives are read for their sums
        found.sums = _sums_of_archives(name, place, say)
    warnings = check_known(name, facts, accept, found.sums)
    say(f"{place}: {found.form}, {len(found.classes)} classes, " +
        ", ".join(f"{count:,} images of {split}" for split, count in counts.items()) +
        f", {found.size() / 1e6:,.1f} MB")
    for note in found.notes:
        say(f"{place}: {note}")
    met = {entry.label for entry in found.splits["train"]}
    if len(met) < len(found.classes):
        lacking = next(name for number, name in enumerate(found.classes) if number not in met)
        warnings.append(f"{len(found.classes) - len(met)} of {len(found.classes)} classes have no image of "
                        f"train, {lacking} for one")
    _warn(name, warnings, say)
    listing = hashlib.sha256()
    for split in counts:
        for entry in found.splits[split]:
            listing.update(f"{split} {entry.label} {entry.name} {entry.size}\n".encode())
    source = {"form": found.form, "place": pathlib.Path(place).name, "listing": listing.hexdigest(),
              **found.source}
    changed = max(os.stat(place).st_mtime_ns, found.changed)
    with writing.Folder(out, {**source, "changed": changed}) as folder, \
            writing.naming_full_disks(folder.partial):
        folder.require_space(found.size() + 14 * sum(counts.values()))
        progress = writing.Progress(sum(counts.values()), "images")
        decoded, splits, behind = collections.Counter(), {}, 0
        for split in counts:
            entries = found.splits[split]
            writer = writing.RecordsWriter(folder, split)
            if writer.count:
                say(f"{split}: goes on after {writer.count:,} images of an earlier run")
            for entry in entries[writer.count:]:
                record = found.read(entry.at)
                if found.coding == "files":
                    record, why = images.record_of(record, f"{place}: {split}/{entry.name}")
                    if why:
                        writer.decoded[why] += 1
                writer.add(record, entry.label)
                progress.at(behind + writer.count, writer.size)
            behind += writer.count
            decoded.update(writer.decoded)
            splits[split] = writer.close()
        content = {"kind": "images", "coding": found.coding, "classes": found.classes,
                   "splits": splits}
        if found.shape:
            content["shape"] = list(found.shape)
        if decoded:
            source["decoded"] = dict(decoded)
            forms = ", ".join(f"{count:,} of {form}" for form, count in decoded.items())
            say(f"{sum(decoded.values()):,} images are no JPEG in colour or grey and are stored as pixels: {forms}")
        return folder.finish(content, source)


def _prepare_texts(name, place, out, found, tokenizer, accept, say):
    source = {"form": found.form, "place": pathlib.Path(place).name,
              "files": {path.name: writing.sums_of(path)["sha256"]
                        for split in texts.ordered(found) for path in found.files[split]}}
    with writing.Folder(out, {**source, "run": time.time_ns()}) as folder, \
            writing.naming_full_disks(folder.partial, goes_on=False):
        if tokenizer is None:
            if isinstance(found, gcide.Dictionary):
                found = found.of_words()
            numbers, counts = texts.count_words(found)
            size = len(numbers)
            facts = {"vocabulary": size, **counts}
            words = (folder.partial / "vocabulary.txt")
            words.write_text("".join(f"{word}\n" for word in numbers), encoding="utf-8")
            content = {"kind": "text", "tokens": "words", "vocabulary_size": size,
                       "vocabulary": writing.sums_of(words)}
            if found.raw:
                say(f"warning: {place}: no <unk> in it: every word of a raw text is a token, and its "
                    "perplexity compares with no published one of words")
        else:
            if not found.raw and not accept:
                raise DataError(f"{place}: has <unk> in the place of rare words, which a tokenizer would "
                                "cut into pieces; expected the raw form of the text, .raw; --accept takes "
                                "it as it is")
            made, files = texts.tokenizer_of(tokenizer)
            size = 1 + max(made.get_vocab().values())
            content = {"kind": "text", "tokens": "tokenizer", "vocabulary_size": size,
                       "tokenizer": {path.name: writing.sums_of(path)["sha256"] for path in files}}
        if tokenizer is None:
            _warn(name, check_known(name, facts, accept), say)
        width = 2 if size < 65536 else 4
        splits = {}
        for split in texts.ordered(found):
            writer = writing.TokensWriter(folder, split, width)
            lists = (texts.word_numbers(found, split, numbers) if tokenizer is None else
                     texts.token_numbers(found, split, made))
            for tokens in lists:
                writer.add(tokens)
            splits[split] = writer.close()
            if splits[split]["count"] == 0:
                raise DataError(f"{found.files[split][0]}: has no line; expected the text of {split}")
        say(f"{place}: {found.form}, a vocabulary of {size:,}, " +
            ", ".join(f"{split['count']:,} tokens of {name}" for name, split in splits.items()))
        content |= {"token_bytes": width, "splits": splits}
        return folder.finish(content, source)


def _prepare_questions(name, place, out, found, tokenizer, windows, accept, say):
    if tokenizer is None:
        raise DataError(f"{place}: holds questions; expected --tokenizer FILE, the vocab.txt of the "
                        "BERT that will be trained")
    pieces = wordpiece.read(tokenizer)
    size = {"window": squad.WINDOW, "stride": squad.STRIDE, "question": squad.QUESTION, **windows}
    if size["window"] < size["question"] + 4 or size["stride"] < 1 or size["question"] < 1:
        raise DataError(f"--window {size['window']} --stride {size['stride']} --question "
                        f"{size['question']}: expected room for a question and a piece of its context")
    if len(pieces) > 65535:
        raise DataError(f"{tokenizer}: has {len(pieces):,} pieces; expected at most 65,535")
    counts = {split: len(questions) for split, questions in found.questions.items()}
    sums = {path.name: writing.sums_of(path)["sha256"] for path in found.files.values()}
    warnings = check_known(name, counts, accept, sums)
    say(f"{place}: {found.form}, {counts['train']:,} questions of train, {counts['test']:,} of test, "
        f"windows of {size['window']} pieces, {size['stride']} apart")
    _warn(name, warnings, say)
    source = {"form": found.form, "place": pathlib.Path(place).name, "files": sums}
    tokenizer_sums = {path.name: writing.sums_of(path)["sha256"] for path in pieces.files}
    with writing.Folder(out, {**source, **size, "tokenizer": tokenizer_sums}) as folder, \
            writing.naming_full_disks(folder.partial):
        progress, behind, splits = writing.Progress(sum(counts.values()), "questions"), 0, {}
        for split in ("train", "test"):
            made = squad.Windows(found, split, pieces, **size)
            writer = writing.RecordsWriter(folder, split, labelled=False)
            done = writer.count
            if done:
                say(f"{split}: goes on after {done:,} windows of an earlier run")
            for i, (number, record) in enumerate(made.records()):
                if i >= done:
                    writer.add(record)
                    progress.at(behind + number + 1, writer.size)
            behind += counts[split]
            if split == "test":
                (folder.partial / "test.json").write_text(
                    json.dumps(squad.key_of(made), ensure_ascii=False), encoding="utf-8")
            splits[split] = writer.close()
            splits[split]["questions"] = counts[split] - made.dropped
            if split == "test":
                splits[split]["files"]["json"] = writing.sums_of(folder.partial / "test.json")
            say(f"{split}: {splits[split]['count']:,} windows" + (
                f"; {made.dropped} questions are left out, as their answers are no whole words there"
                if made.dropped else ""))
        content = {"kind": "questions", "tokens": "wordpiece", "vocabulary_size": len(pieces),
                   "tokenizer": tokenizer_sums, **size, "splits": splits}
        return folder.finish(content, source)
