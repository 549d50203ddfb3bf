"""Reads files of weights, PyTorch's without running anything of theirs, and writes safetensors."""

import functools
import hashlib
import io
import itertools
import json
import math
import operator
import os
import pathlib
import pickle
import reprlib
import struct
import zipfile

from .errors import DataError, refuse_stand_in
from .writing import naming_full_disks

_MAGIC = 0x1950A86A20F9469CFC6C  # of PyTorch's files before 1.6
_TYPES = {"FloatStorage": ("F32", 4), "HalfStorage": ("F16", 2), "BFloat16Storage": ("BF16", 2),
          "DoubleStorage": ("F64", 8), "LongStorage": ("I64", 8), "IntStorage": ("I32", 4),
          "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1), "ByteStorage": ("U8", 1),
          "BoolStorage": ("BOOL", 1)}
_NESTED = ("model", "state_dict", "model_state", "model_state_dict")  # where programs put weights
# What a folder of Hugging Face has, the best first.
_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
          "pytorch_model.bin.index.json")
_WIDTHS = {**dict(_TYPES.values()), "F8_E5M2": 1, "F8_E4M3": 1, "U16": 2, "U32": 4, "U64": 8}
_MOST_ELEMENTS = 100_000  # of a tuple with those in it; those of tensors have ten
_MOST_HEADER = 100_000_000  # bytes, as the format's own reader allows


class _Dictionary(dict):
    """An OrderedDict; `state_dict()` gives it an attribute with versions, which says nothing of weights."""

    def __setstate__(self, state):
        pass


def _whole(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class _Tensor:
    def __init__(self, storage, offset, shape, strides):
        self.storage, self.offset = storage, offset
        self.shape, self.strides = tuple(shape), tuple(strides)
        if not (isinstance(storage, _Storage) and len(self.shape) == len(self.strides) and
                all(map(_whole, (offset, *self.shape, *self.strides)))):
            raise pickle.UnpicklingError("a tensor has no whole shape")

    def __setstate__(self, state):
        raise pickle.UnpicklingError("a tensor has a state, which none of torch.save's has")

    def bytes(self):
        """Its elements in order, or None if they lie outside the storage."""
        width = _TYPES[self.storage.type_name][1]
        numel = math.prod(self.shape)
        if numel == 0:
            return b""
        expected = [*itertools.accumulate(self.shape[:0:-1], operator.mul, initial=1)][::-1]
        contiguous = all(e == 1 or s == x for e, s, x in zip(self.shape, self.strides, expected))
        last = self.offset + sum((e - 1) * s for e, s in zip(self.shape, self.strides))
        data = self.storage.data
        if (last + 1) * width > len(data) or (not contiguous and numel * width > len(data)):
            return None
        if contiguous:
            return data[self.offset * width:(self.offset + numel) * width]
        import numpy

        whole = numpy.frombuffer(data, f"V{width}", offset=self.offset * width)
        return numpy.lib.stride_tricks.as_strided(
            whole, self.shape, [width * s for s in self.strides]).tobytes()


class _Storage:
    def __init__(self, type_name, key, numel):
        self.type_name, self.key, self.numel, self.data = type_name, key, numel, None

    def __setstate__(self, state):
        raise pickle.UnpicklingError("a storage has a state, which none of torch.save's has")


def _rebuild_tensor(storage, offset, shape, strides, *_):
    return _Tensor(storage, offset, shape, strides)


class _OfTensors(pickle._Unpickler):
    """Knows tensors, their storages and ordered dictionaries, and nothing else.

    The unpickler in C would make a memo as large as a file says, and hash tuples that hold one another
    twice, of which sixty have more elements than any machine counts.
    """

    def __init__(self, file, storages):
        super().__init__(file, encoding="utf-8")
        self.storages = storages
        self.sizes = {}  # {id of a tuple: (its elements with those of tuples in it, the tuple)}

    def _tuple(self, make):
        make(self)
        made = self.stack[-1]
        size = len(made) + sum(self.sizes.get(id(inner), (0, None))[0] for inner in made)
        if size > _MOST_ELEMENTS:
            raise pickle.UnpicklingError(f"it has a tuple of {size:,} elements")
        self.sizes[id(made)] = size, made

    dispatch = pickle._Unpickler.dispatch | {
        code[0]: functools.partial(lambda self, make: self._tuple(make), make=pickle._Unpickler.dispatch[code[0]])
        for code in (pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3)}

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return _Dictionary
        if module == "torch._utils" and name in ("_rebuild_tensor", "_rebuild_tensor_v2"):
            return _rebuild_tensor
        if module == "torch._utils" and name == "_rebuild_parameter":
            return lambda tensor, *_: tensor
        if module == "torch" and name in _TYPES:
            return name
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, said):
        if not (isinstance(said, tuple) and len(said) >= 5 and said[0] == "storage" and
                isinstance(said[1], str) and said[1] in _TYPES and _whole(said[4])):
            raise pickle.UnpicklingError(f"it refers to {reprlib.repr(said)}")
        if len(said) > 5 and said[5] is not None:
            raise pickle.UnpicklingError("a storage is a view of another")
        _, type_name, key, _, numel = said[:5]
        return self.storages.setdefault(str(key), _Storage(type_name, str(key), numel))


def _require_size(path, name, size, storage):
    """Before the memory is taken."""
    expected = storage.numel * _TYPES[storage.type_name][1]
    if size < expected:
        raise DataError(f"{path}: storage {name} has {size:,} bytes, and its tensors need {expected:,}; was the "
                        "file copied to its end?")


def _of_zip(path):
    storages = {}
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        main = next((name for name in names if name.endswith("/data.pkl")), None)
        if main is None:
            raise DataError(f"{path}: has no data.pkl; expected a file of torch.save")
        top = main[:-len("data.pkl")]
        order = f"{top}byteorder"
        if order in names and archive.read(order).strip() != b"little":
            raise DataError(f"{path}: is written with the other order of bytes")
        if archive.getinfo(main).file_size > _MOST_HEADER:
            raise DataError(f"{path}: its data.pkl has {archive.getinfo(main).file_size:,} bytes; expected names "
                            f"and shapes of tensors, at most {_MOST_HEADER:,}")
        table = _OfTensors(io.BytesIO(archive.read(main)), storages).load()
        for storage in storages.values():
            name = f"{top}data/{storage.key}"
            _require_size(path, name, archive.getinfo(name).file_size, storage)
            storage.data = archive.read(name)
    return table


def _of_legacy(path):
    storages = {}
    with open(path, "rb") as file:
        if _OfTensors(file, storages).load() != _MAGIC:
            raise pickle.UnpicklingError("it does not begin as a file of torch.save")
        for _ in range(2):  # version; sizes of the machine's types
            _OfTensors(file, storages).load()
        table = _OfTensors(file, storages).load()
        for key in _OfTensors(file, storages).load():
            storage = storages[str(key)]
            numel = struct.unpack("<q", file.read(8))[0]
            if numel != storage.numel:
                raise pickle.UnpicklingError("a storage has another size than was said")
            _require_size(path, key, os.path.getsize(path) - file.tell(), storage)
            storage.data = file.read(numel * _TYPES[storage.type_name][1])
    return table


def _tensors_of_torch(path):
    """{name: (type, shape, bytes)}."""
    with open(path, "rb") as file:
        start = file.read(64)
    refuse_stand_in(path, start)
    if start.startswith(b"PK") and not zipfile.is_zipfile(path):
        raise DataError(f"{path}: is no whole file of torch.save; was it copied to its end?")
    try:
        table = _of_zip(path) if zipfile.is_zipfile(path) else _of_legacy(path)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path}: is no file of weights that can be read without running it "
                        f"({error}); expected a state_dict, tensors by name") from error
    table = table if isinstance(table, dict) else {}
    table = next((table[key] for key in _NESTED if isinstance(table.get(key), dict)), table)
    tensors = {}
    for name, value in table.items():
        if not isinstance(value, _Tensor):
            continue
        data = value.bytes()
        if data is None:
            raise DataError(f"{path}: {name} ends outside its storage; was the file copied to its end?")
        tensors[str(name)] = (_TYPES[value.storage.type_name][0], value.shape, data)
    if not tensors:
        raise DataError(f"{path}: no tensors in it; expected a state_dict")
    return tensors


def _no_doubles(pairs):
    table = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"it has {key!r} twice")
        table[key] = value
    return table


def _header(path, file):
    """(header, where the data begins) of an opened safetensors file."""
    start = file.read(64)
    refuse_stand_in(path, start)
    length, size = int.from_bytes(start[:8], "little"), os.path.getsize(path)
    if len(start) < 10 or not 2 <= length <= min(size - 8, _MOST_HEADER):
        raise DataError(f"{path}: its header would have {length:,} bytes; expected a safetensors "
                        "file")
    file.seek(8)
    try:
        header = json.loads(file.read(length), object_pairs_hook=_no_doubles)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: its header is no JSON of tensors ({error})") from error
    if not isinstance(header, dict):
        raise DataError(f"{path}: its header is no object; expected a name and a tensor for each")
    header.pop("__metadata__", None)
    return header, 8 + length


def _problem(said):
    """Why a tensor's entry in a header is no entry, or ""."""
    if not (isinstance(said, dict) and isinstance(said.get("dtype"), str) and
            all(isinstance(said.get(key), list) and all(map(_whole, said[key]))
                for key in ("shape", "data_offsets")) and len(said["data_offsets"]) == 2):
        return "lacks dtype, shape or data_offsets"
    if said["dtype"] not in _WIDTHS:
        return f"is of an unknown type {said['dtype'][:20]}"
    begin, end = said["data_offsets"]
    size = _WIDTHS[said["dtype"]] * math.prod(said["shape"])
    return "" if end - begin == size else (f"has data_offsets {said['data_offsets']} and a shape of "
                                           f"{size:,} bytes")


def _tensors_of_safetensors(path):
    tensors = {}
    with open(path, "rb") as file:
        header, first = _header(path, file)
        for name, said in header.items():
            if problem := _problem(said):
                raise DataError(f"{path}: {name} {problem}; expected a safetensors file")
        at = 0
        for name, said in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = said["data_offsets"]
            if begin != at:
                raise DataError(f"{path}: {name} begins at byte {begin:,} of the data, expected {at:,}: "
                                "its tensors overlap, or leave bytes between them")
            file.seek(first + begin)
            data = file.read(end - begin)
            if len(data) != end - begin:
                raise DataError(f"{path}: {name} ends after the end of the file; was it copied to its end?")
            tensors[name] = (said["dtype"], tuple(said["shape"]), data)
            at = end
    if first + at != os.path.getsize(path):
        raise DataError(f"{path}: has bytes after its tensors; expected its end at byte {first + at:,}")
    return tensors


def _tensors_of_shards(index):
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{index}: has no weight_map; expected the index of a sharded file") from error
    if not isinstance(places, dict) or not places:
        raise DataError(f"{index}: weight_map is no table; expected a shard for each tensor")
    for name, shard in places.items():
        if not isinstance(shard, str) or pathlib.PurePath(shard).name != shard:
            raise DataError(f"{index}: places {name} in {shard!r}; expected the name of a file beside it")
    tensors = {}
    for shard in sorted(set(places.values())):
        path = index.with_name(shard)
        if not path.is_file():
            raise DataError(f"{path}: is not there; {index.name} says that it has tensors")
        for name, tensor in _tensors_of(path).items():
            if places.get(name) != shard:
                raise DataError(f"{path}: has {name}, which {index.name} places in "
                                f"{places.get(name, 'no shard')}")
            tensors[name] = tensor
    if lacking := sorted(set(places) - set(tensors)):
        raise DataError(f"{index}: no shard has {lacking[0]}")
    return tensors


def _tensors_of(path):
    return _tensors_of_safetensors(path) if path.suffix == ".safetensors" else _tensors_of_torch(path)


def prepare(place, out, say=print):
    """Writes the safetensors file `out`; its SHA-256."""
    place, out = pathlib.Path(place), pathlib.Path(out)
    if out.exists():
        raise DataError(f"{out}: is there already; remove it to prepare it again")
    if place.is_dir():
        found = next((place / name for name in _FILES if (place / name).is_file()), None)
        if found is None:
            raise DataError(f"{place}: is a folder without {', '.join(_FILES[:-1])} or {_FILES[-1]}; "
                            "expected one of them, or a file of weights")
        place = found
    if not place.is_file():
        raise DataError(f"{place}: is not there; expected a file of weights")
    tensors = _tensors_of_shards(place) if place.name.endswith(".index.json") else _tensors_of(place)
    header, offset = {}, 0
    for name in sorted(tensors):
        kind, shape, data = tensors[name]
        header[name] = {"dtype": kind, "shape": list(shape),
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    digest = hashlib.sha256()
    try:
        with naming_full_disks(partial, goes_on=False), open(partial, "wb") as file:
            for block in (len(text).to_bytes(8, "little"), text, *(tensors[n][2] for n in sorted(tensors))):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, out)
    finally:
        partial.unlink(missing_ok=True)
    say(f"{out}: {len(tensors)} tensors, {offset / 1e6:,.1f} MB, SHA-256 {digest.hexdigest()}")
    return digest.hexdigest()
