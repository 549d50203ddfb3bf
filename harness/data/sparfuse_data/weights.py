"""Reads files of weights, PyTorch's without running anything of theirs, and writes safetensors."""

import hashlib
import io
import json
import os
import pathlib
import pickle
import struct
import zipfile

from .errors import DataError
from .writing import naming_full_disks

_MAGIC = 0x1950A86A20F9469CFC6C  # of PyTorch's files before 1.6
_TYPES = {"FloatStorage": ("F32", 4), "HalfStorage": ("F16", 2), "BFloat16Storage": ("BF16", 2),
          "DoubleStorage": ("F64", 8), "LongStorage": ("I64", 8), "IntStorage": ("I32", 4),
          "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1), "ByteStorage": ("U8", 1),
          "BoolStorage": ("BOOL", 1)}
_NESTED = ("model", "state_dict", "model_state", "model_state_dict")  # where programs put weights


class _Tensor:
    def __init__(self, storage, offset, shape, strides):
        self.storage, self.offset, self.shape = storage, offset, tuple(shape)
        expected, step = [], 1
        for extent in reversed(self.shape):
            expected.insert(0, step)
            step *= extent
        if any(e > 1 and s != x for e, s, x in zip(self.shape, strides, expected)):
            raise pickle.UnpicklingError("a tensor is not contiguous")
        self.numel = step


class _Storage:
    def __init__(self, type_name, key, numel):
        self.type_name, self.key, self.numel, self.data = type_name, key, numel, None


def _rebuild_tensor(storage, offset, shape, strides, *_):
    return _Tensor(storage, offset, shape, strides)


class _OfTensors(pickle.Unpickler):
    """Knows tensors, their storages and ordered dictionaries, and nothing else."""

    def __init__(self, file, storages):
        super().__init__(file, encoding="utf-8")
        self.storages = storages

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module == "torch._utils" and name in ("_rebuild_tensor", "_rebuild_tensor_v2"):
            return _rebuild_tensor
        if module == "torch._utils" and name == "_rebuild_parameter":
            return lambda tensor, *_: tensor
        if module == "torch" and name in _TYPES:
            return name
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, said):
        kind, type_name, key, _, numel = said[:5]
        if kind != "storage" or type_name not in _TYPES:
            raise pickle.UnpicklingError(f"it refers to {said[:2]}")
        if len(said) > 5 and said[5] is not None:
            raise pickle.UnpicklingError("a storage is a view of another")
        return self.storages.setdefault(str(key), _Storage(type_name, str(key), numel))


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
        table = _OfTensors(io.BytesIO(archive.read(main)), storages).load()
        for storage in storages.values():
            storage.data = archive.read(f"{top}data/{storage.key}")
    return table, storages


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
            storage.data = file.read(numel * _TYPES[storage.type_name][1])
    return table, storages


def _tensors_of_torch(path):
    """{name: (type, shape, bytes)}."""
    try:
        table, _ = _of_zip(path) if zipfile.is_zipfile(path) else _of_legacy(path)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path}: is no file of weights that can be read without running it "
                        f"({error})") from error
    for key in _NESTED:
        if isinstance(table, dict) and isinstance(table.get(key), dict):
            table = table[key]
            break
    tensors = {}
    for name, value in table.items() if isinstance(table, dict) else ():
        if not isinstance(value, _Tensor):
            continue
        kind, width = _TYPES[value.storage.type_name]
        begin = value.offset * width
        data = value.storage.data[begin:begin + value.numel * width]
        if len(data) != value.numel * width:
            raise DataError(f"{path}: {name} ends outside its storage; was the file copied to its end?")
        tensors[name] = (kind, value.shape, data)
    if not tensors:
        raise DataError(f"{path}: no tensors in it; expected a state_dict")
    return tensors


def _tensors_of_safetensors(path):
    with open(path, "rb") as file:
        start = file.read(8)
        if start.startswith(b"version "):
            raise DataError(f"{path}: is a pointer of Git LFS and not the file; git lfs pull fetches it")
        if start[:1] == b"<":
            raise DataError(f"{path}: is a page of HTML; was the download refused?")
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= os.path.getsize(path) - 8:
            raise DataError(f"{path}: its header would have {length:,} bytes; expected a safetensors "
                            "file")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise DataError(f"{path}: its header is no JSON ({error})") from error
        tensors = {}
        for name, said in header.items():
            if name == "__metadata__":
                continue
            begin, end = said["data_offsets"]
            file.seek(8 + length + begin)
            data = file.read(end - begin)
            if len(data) != end - begin:
                raise DataError(f"{path}: {name} ends behind the file; was it copied to its end?")
            tensors[name] = (said["dtype"], tuple(said["shape"]), data)
    return tensors


def _tensors_of_shards(index):
    try:
        places = json.loads(index.read_text())["weight_map"]
    except (ValueError, KeyError) as error:
        raise DataError(f"{index}: has no weight_map; expected the index of a sharded file") from error
    tensors = {}
    for shard in sorted(set(places.values())):
        path = index.with_name(shard)
        if not path.is_file():
            raise DataError(f"{path}: is not there; {index.name} says that it has tensors")
        for name, tensor in _tensors_of_safetensors(path).items():
            if places.get(name) != shard:
                raise DataError(f"{path}: has {name}, which {index.name} places in "
                                f"{places.get(name, 'no shard')}")
            tensors[name] = tensor
    if lacking := sorted(set(places) - set(tensors)):
        raise DataError(f"{index}: no shard has {lacking[0]}")
    return tensors


def prepare(place, out, say=print):
    """Writes the safetensors file `out`; its SHA-256."""
    place, out = pathlib.Path(place), pathlib.Path(out)
    if out.exists():
        raise DataError(f"{out}: is there already; remove it to prepare it again")
    if not place.is_file():
        raise DataError(f"{place}: is not there; expected a file of weights")
    if place.name.endswith(".index.json"):
        tensors = _tensors_of_shards(place)
    elif place.suffix == ".safetensors":
        tensors = _tensors_of_safetensors(place)
    else:
        tensors = _tensors_of_torch(place)
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
    with naming_full_disks(partial), open(partial, "wb") as file:
        for block in (len(text).to_bytes(8, "little"), text, *(tensors[n][2] for n in sorted(tensors))):
            digest.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    os.rename(partial, out)
    say(f"{out}: {len(tensors)} tensors, {offset / 1e6:,.1f} MB, SHA-256 {digest.hexdigest()}")
    return digest.hexdigest()
