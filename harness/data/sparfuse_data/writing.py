"""Writes the prepared form: a folder NAME.partial that becomes NAME when all of it is on the disk.

What a killed run has written stays and the next one goes on behind it, if its source still is the
same. Only one run at a time writes a folder.
"""

import array
import collections
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import sys
import time
import zlib

from .errors import DataError, NoRoom

FORMAT = 2
CHECKPOINT_BYTES = 64 << 20  # between two of them at most as many are lost
CHECKPOINT_SECONDS = 5
READ_BYTES = 1 << 20


def canonical(value):
    """The text whose SHA-256 is an id; C++ makes the same one."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha256_of(text):
    return hashlib.sha256(text.encode()).hexdigest()


def sums_of(path):
    """{"bytes", "crc32", "sha256"} of a file."""
    crc, digest, size = 0, hashlib.sha256(), 0
    with open(path, "rb") as file:
        while block := file.read(READ_BYTES):
            crc = zlib.crc32(block, crc)
            digest.update(block)
            size += len(block)
    return {"bytes": size, "crc32": crc, "sha256": digest.hexdigest()}


@contextlib.contextmanager
def naming_full_disks(folder, goes_on=True):
    """goes_on: whether the next run begins where this one ends."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        what = ("a file would be larger than ulimit -f allows" if error.errno == errno.EFBIG else
                "no space is left on its disk")
        if goes_on:
            raise NoRoom(f"{folder}: {what}; written data stays, and the same command goes on once there is room"
                         ) from error
        raise DataError(f"{folder}: {what}; expected the same command again once there is room") from error


class Progress:
    """A line on the terminal every two seconds, or every half minute in a log."""

    def __init__(self, total, unit):
        self.total, self.unit = total, unit
        self.begun = self.said = time.monotonic()
        self.first = None
        self.every = 2 if sys.stderr.isatty() else 30

    def at(self, done, size):
        now = time.monotonic()
        if self.first is None:
            self.first = (done, size)
        if now - self.said < self.every:
            return
        self.said = now
        seconds = max(now - self.begun, 1e-3)
        made = done - self.first[0]
        left = (self.total - done) * seconds / made if made else 0
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"{done:,} of {self.total:,} {self.unit}, {(size - self.first[1]) / seconds / 1e6:.0f} "
              f"MB/s, {left / 60:.1f} min left   ", end=end, file=sys.stderr, flush=True)


class Folder:
    """NAME.partial, locked."""

    def __init__(self, out, source):
        self.out = pathlib.Path(out)
        self.partial = self.out.with_name(self.out.name + ".partial")
        self.source = sha256_of(canonical(source))

    def __enter__(self):
        if self.out.exists():
            raise DataError(f"{self.out}: is there already; remove it to prepare it again")
        self.partial.mkdir(parents=True, exist_ok=True)
        self.lock = open(self.partial / "lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(f"{self.partial}: another `sparfuse data prepare` writes it; expected "
                            "one at a time") from error
        if self.out.exists():  # another run has finished it since
            shutil.rmtree(self.partial)
            raise DataError(f"{self.out}: is there already; remove it to prepare it again")
        self.state = self._read_state()
        return self

    def __exit__(self, kind, error, _):
        # What is refused is never gone on with, as its source has to change.
        begun = any(file.name != "lock" for file in self.partial.iterdir()) if self.partial.exists() else False
        if isinstance(error, DataError) and not (isinstance(error, NoRoom) and begun):
            shutil.rmtree(self.partial, ignore_errors=True)
        self.lock.close()

    def _read_state(self):
        """How many records of each split are whole, of an earlier run on the same source."""
        try:
            state = json.loads((self.partial / "state.json").read_text())
        except (OSError, ValueError):
            state = {}
        if state.get("source") == self.source and state.get("format") == FORMAT:
            return state["splits"]
        for file in self.partial.iterdir():
            if file.name != "lock":
                file.unlink()
        return {}

    def save_state(self):
        new = self.partial / "state.json.new"
        new.write_text(json.dumps({"format": FORMAT, "source": self.source, "splits": self.state}))
        os.replace(new, self.partial / "state.json")

    def require_space(self, size):
        free = shutil.disk_usage(self.partial).free
        have = sum(file.stat().st_size for file in self.partial.iterdir())
        if free + have < size:
            raise NoRoom(f"{self.partial}: some {size / 1e6:,.1f} MB are to be written and "
                         f"{free / 1e6:,.1f} MB are free; --out names another folder")

    def finish(self, content, source):
        """Writes meta.json and gives the folder its name. Returns the id."""
        identity = sha256_of(canonical(content))
        meta = {"format": FORMAT, "id": identity, "content": content, "source": source}
        path = self.partial / "meta.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(meta, file, indent=1, ensure_ascii=False, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        for name in ("state.json", "lock"):
            (self.partial / name).unlink(missing_ok=True)
        os.rename(self.partial, self.out)
        descriptor = os.open(self.out.parent, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        return identity


class RecordsWriter:
    """SPLIT.records, .index, .labels and .sums of one split, from where an earlier run ended."""

    FILES = ("records", "index", "labels", "sums")

    def __init__(self, folder, split, labelled=True):
        self.folder, self.split = folder, split
        self.names = [name for name in self.FILES if labelled or name != "labels"]
        self.done = folder.state.get(split, {"count": 0, "bytes": 0})
        self.count, self.size = self.done["count"], self.done["bytes"]
        self.decoded = collections.Counter(self.done.get("decoded", {}))  # why files are not kept
        sizes = dict(zip(self.FILES, (self.size, 8 * (self.count + 1), 2 * self.count,
                                      4 * self.count)))
        self.files = {}
        for name in self.names:
            path = folder.partial / f"{split}.{name}"
            path.touch()
            file = self.files[name] = open(path, "r+b")
            file.truncate(sizes[name] if self.count else 0)
            file.seek(0, os.SEEK_END)
        if self.count == 0:
            self.files["index"].write(bytes(8))
        self.saved_at, self.saved_size = time.monotonic(), self.size

    def add(self, record, label=None):
        self.files["records"].write(record)
        self.count += 1
        self.size += len(record)
        self.files["index"].write(self.size.to_bytes(8, "little"))
        if label is not None:
            self.files["labels"].write(label.to_bytes(2, "little"))
        self.files["sums"].write(zlib.crc32(record).to_bytes(4, "little"))
        if (self.size - self.saved_size >= CHECKPOINT_BYTES or
                time.monotonic() - self.saved_at >= CHECKPOINT_SECONDS):
            self.save()

    def save(self):
        for file in self.files.values():
            file.flush()
            os.fdatasync(file.fileno())
        self.folder.state[self.split] = {"count": self.count, "bytes": self.size,
                                         "decoded": dict(self.decoded)}
        self.folder.save_state()
        self.saved_at, self.saved_size = time.monotonic(), self.size

    def close(self):
        """The entry of meta.json for the split."""
        self.save()
        for file in self.files.values():
            file.close()
        return {"count": self.count,
                "files": {name: sums_of(self.folder.partial / f"{self.split}.{name}")
                          for name in self.names}}


class TokensWriter:
    """SPLIT.tokens, of 2 or 4 bytes each."""

    def __init__(self, folder, split, width):
        self.path = folder.partial / f"{split}.tokens"
        self.file = open(self.path, "wb")
        self.type = {2: "H", 4: "I"}[width]
        self.count = 0

    def add(self, tokens):
        values = array.array(self.type, tokens)
        if sys.byteorder == "big":
            values.byteswap()
        self.file.write(values.tobytes())
        self.count += len(values)

    def close(self):
        self.file.flush()
        os.fdatasync(self.file.fileno())
        self.file.close()
        return {"count": self.count, "files": {"tokens": sums_of(self.path)}}
