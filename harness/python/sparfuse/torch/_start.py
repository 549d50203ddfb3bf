"""Starts one rank of a method: compares the facts that ranks must share, then connects them."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from sparfuse import _core, _found
from sparfuse._method import Method, _method_file

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class _MethodOfRank(Method):
    """A Method with one rank in this process."""

    def __init__(self, place: dict[str, Any], *arguments: Any, **keywords: Any) -> None:
        self._place = place
        super().__init__(*arguments, **keywords)

    def _make(self, **settings: Any) -> Any:
        return _core._Rank(**self._place, **settings)


class _Planned(Method):
    """A Method that makes its plan alone, without ranks."""

    def _make(self, **settings: Any) -> Any:
        for key in ("threads", "deadline_seconds", "verify"):
            settings.pop(key)
        return _core._plan_of(**settings)


def refusal_of(name: str, parameter: torch.Tensor) -> str:
    """The reason why a parameter cannot be distributed; empty if it can."""
    if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
        return f'"{name}" has no shape yet; run one forward pass before sf.distribute'
    if type(parameter).__name__ == "DTensor" or hasattr(parameter, "device_mesh"):
        return (
            f'"{name}" is a DTensor, a shard of a parameter; sf.distribute takes whole ones: call '
            "it instead of fully_shard, not after it"
        )
    if parameter.device.type != "cpu":
        return (
            f'"{name}" is on {parameter.device}; sf.distribute serves models on the CPU so far: '
            "write model.cpu() before it, or keep DDP for this model"
        )
    if parameter.dtype not in _DTYPES:
        return (
            f'"{name}" is of {parameter.dtype}; expected float32, bfloat16 or float16: write '
            "model.float() before sf.distribute, or freeze it by requires_grad_(False)"
        )
    return ""


def refusal_of_model(model: Any) -> str:
    if not isinstance(model, torch.nn.Module):
        return f"model is a {type(model).__name__}; expected a torch.nn.Module"
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return (
            "the model is wrapped in DistributedDataParallel, which averages by itself; give "
            "sf.distribute the module inside, ddp.module, without DDP, or keep DDP and write "
            "ddp.register_comm_hook(*sf.comm_hook(method, ddp))"
        )
    if hasattr(model, "register_comm_hook") or type(model).__name__.startswith("Replicate"):
        return "the model averages by itself, through replicate(); call sf.distribute(model) instead of it"
    if type(model).__name__.startswith("FSDP") or hasattr(model, "set_all_reduce_hook"):
        return (
            "the model is sharded by FSDP, and a whole one is expected on each rank: leave fully_shard "
            "out, or write sf.compress_replicas(model, group) with the group between replicas"
        )
    return ""


def refusal_of_nonfinite(nonfinite: Any) -> str:
    if nonfinite in ("raise", "propagate"):
        return ""
    return f'nonfinite = "{nonfinite}": expected "raise" or "propagate"'


def trained(named: Any) -> list[tuple[str, torch.nn.Parameter]]:
    """The trained parameters, the last layer first: about the order of their gradients in backward."""
    return [(name, p) for name, p in named if p.requires_grad and has_elements(p)][::-1]


def has_elements(parameter: torch.Tensor) -> bool:
    lazy = isinstance(parameter, torch.nn.parameter.UninitializedParameter)
    return lazy or parameter.numel() > 0


def require_group(group: Any = None) -> None:
    known = group is None or group == dist.GroupMember.NON_GROUP_MEMBER
    if not known and not isinstance(group, dist.ProcessGroup):
        raise _core.ConfigError(
            f"group = {group!r}: expected a process group, such as torch.distributed.new_group(ranks)"
        )
    if not dist.is_available() or not dist.is_initialized():
        raise _core.ConfigError(
            "there is no process group: call torch.distributed.init_process_group first (also in "
            "one process alone)"
        )


def gather(mine: Any, group: Any) -> list[Any]:
    everybody: list[Any] = [None] * dist.get_world_size(group)
    try:
        dist.all_gather_object(everybody, mine, group=group)
    except RuntimeError as error:  # torch names no rank
        raise _core.Error(
            "ranks did not meet to compare their settings; expected the same call of sparfuse.torch on "
            f"all ranks, within the timeout of their process group ({error})"
        ) from error
    return everybody


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


_TABLES = {
    "file": "{} of the method's file",
    "options": "{}",
    "besides": "{}",
    "parts": "the content of {}",
    "untrained": "{}",
}
_COMPARED = ("sparfuse", "torch", "method", "file", "options", "besides", "parts", "layout", "plan", "untrained")


def _difference(mine: dict[str, Any], theirs: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The first difference between two ranks' settings: its name, and both values."""
    for key in _COMPARED:
        a, b = mine[key], theirs[key]
        if a == b:
            continue
        if key in _TABLES:
            for name in sorted({*a, *b}):
                if a.get(name) != b.get(name):
                    return _TABLES[key].format(name), a.get(name), b.get(name)
        if key == "layout":
            for place, (x, y) in enumerate(zip(a, b)):
                if x != y:
                    return f"tensor {place} of the layout", x, y
            return "tensors in the layout", len(a), len(b)
        return key if key in ("method", "plan") else f"version of {key}", a, b
    return None


def _refuse(text: str) -> NoReturn:
    # A process that ends at once is aborted by gloo, whose thread still holds tensors of the gather.
    time.sleep(0.02)
    raise _core.ConfigError(text)


def _agree(mine: dict[str, Any], group: Any) -> list[dict[str, Any]]:
    everybody = gather(mine, group)
    for rank, theirs in enumerate(everybody):
        if theirs["refusal"]:
            _refuse(f"rank {rank}: {theirs['refusal']}")
    for rank, theirs in enumerate(everybody):
        difference = _difference(everybody[0], theirs)
        if difference:
            what, first, other = difference
            _refuse(
                f"{what}: rank 0 has {_shown(first)}, rank {rank} {_shown(other)}; expected the "
                "same model, method, options and versions on all ranks"
            )
    return everybody


def _listener(hosts: list[str], own: str) -> Any:
    """A listener on the interface GLOO_SOCKET_IFNAME, else on the one that leads to MASTER_ADDR.

    If MASTER_ADDR is this machine's loopback or unknown, on the one that leads to another rank's host.
    """
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    toward = os.environ.get("MASTER_ADDR", "")
    others = [host for host in hosts if host != own]
    if others and not interface:
        try:
            local = socket.gethostbyname(toward or "localhost").startswith("127.")
        except OSError:
            local = True
        toward = others[0] if local else toward
    return _core._TcpListener(interface, toward)


def _one_by_one(value: Any) -> Any:
    """The value in a form that compares and prints alike on every rank."""
    if isinstance(value, Mapping):
        return {str(k): _one_by_one(v) for k, v in value.items()}
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def _written(file: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a method's file, in which parts in files have no folder: ranks may differ in it."""
    found = _one_by_one(file)
    for key, value in found.items():
        if isinstance(value, str) and value.startswith(_found.PREFIXES):
            prefix, _, rest = value.partition(":")
            found[key] = f"{prefix}:{os.path.basename(rest)}"
    return found


def _refusal_of_numbers(options: Mapping[str, Any]) -> str:
    threads, deadline = options.get("threads"), options.get("deadline_seconds", 60.0)
    if threads is not None and not (type(threads) is int and 1 <= threads <= 1024):
        return f"threads = {threads!r}: expected 1 to 1024"
    if isinstance(deadline, bool) or not isinstance(deadline, (int, float)) or not 0 < deadline <= 86400:
        return f"deadline_seconds = {deadline!r}: expected a number above 0, at most 86400"
    return ""


def _contents(*given: Any) -> dict[str, str]:
    """{part in a file: hash of the file} for the parts that a method and its options name.

    Of a Python file with the modules of its folder that it imports.
    """
    found: dict[str, str] = {}
    for value in given:
        if isinstance(value, Mapping):
            found.update(_contents(*_found.parts(value).values()))
        elif isinstance(value, str) and value.startswith(_found.PREFIXES):
            path, _, name = value.partition(":")[2].rpartition(":")
            try:
                with open(path, "rb") as file:
                    text = file.read()
            except OSError:
                continue  # the constructor of the method reports the missing file
            if value.startswith("python:"):
                text = _core._text_with_imports(path, text)
            digest = hashlib.sha256(text).hexdigest()[:12]
            found[f"{os.path.basename(path)}:{name}"] = digest
    return found


def start_rank(
    method: Any,
    layout: list[tuple[str, torch.nn.Parameter]],
    group: Any,
    options: dict[str, Any],
    refusal: str = "",
    besides: Mapping[str, Any] | None = None,
    model: torch.nn.Module | None = None,
) -> Method:
    """This process's rank of the method, connected to all others. If one rank raises, all do.

    besides: facts that ranks must share, in addition to the method's options.
    model: its tensors outside the layout, which rank 0 sends to all, must have the same sizes, too.
    """
    require_group(group)
    rank = dist.get_rank(group)
    if rank < 0:
        raise _core.ConfigError(
            "this process is not in `group`; expected a call on the ranks of the group alone"
        )
    world_size = dist.get_world_size(group)
    for name, parameter in layout:
        refusal = refusal or refusal_of(name, parameter)
    refusal = refusal or _refusal_of_numbers(options)
    if not layout:
        refusal = refusal or "the model has no parameter that requires a gradient"
    shapes = [] if refusal else [(name, tuple(p.shape)) for name, p in layout]
    parts: dict[str, str] = {}
    file: dict[str, Any] = {}
    plan = ""
    try:
        table = _method_file(method)
        parts = _contents(table, options)
        file = _written(_found.parts(table))
        if not refusal:
            plan = _Planned(method, world_size, shapes, **options)._ranks
    except Exception as raised:  # other ranks must not wait for this one
        kind = "" if isinstance(raised, _core.Error) else f"{type(raised).__name__}: "
        refusal = refusal or f"{kind}{raised}"
    own_host = socket.gethostname()
    everybody = _agree(
        {
            "refusal": refusal,
            "host": own_host,
            "sparfuse": _core.__version__,
            "torch": torch.__version__,
            "method": _one_by_one(method),
            "file": file,
            "options": _written({k: v for k, v in options.items() if k != "threads"}),
            "besides": _one_by_one(besides or {}),
            "parts": parts,
            "layout": [(name, shape, str(p.dtype)) for (name, shape), (_, p) in zip(shapes, layout)],
            "plan": plan,
            "untrained": _untrained(model, layout) if model is not None and not refusal else {},
        },
        group,
    )
    if options.get("threads") is None:
        options = {**options, "threads": torch.get_num_threads()}
    error: BaseException | None = None
    address = ""
    try:
        listener = _listener([other["host"] for other in everybody], own_host)
        address = listener.address
    except Exception as raised:
        error = raised
    said = gather((address, str(error or "")), group)
    if error:
        raise error
    for other, (_, text) in enumerate(said):
        if text:
            raise _core.ConfigError(f"rank {other}: {text}")
    place = {"listener": listener, "addresses": [where for where, _ in said], "rank": rank}
    return _MethodOfRank(place, method, world_size, shapes, **options)


def _untrained(model: torch.nn.Module, layout: list[tuple[str, torch.nn.Parameter]]) -> dict[str, str]:
    """{name: type and size} of frozen parameters, of buffers, and of parameters of other layouts."""
    trained_ones = {id(parameter) for _, parameter in layout}
    found = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if id(tensor) in trained_ones or _is_lazy(tensor):
            continue
        form = "" if tensor.layout is torch.strided else f", {tensor.layout}"
        found[f'"{name}"'] = f"{tensor.dtype} {list(tensor.shape)}{form}"
    return found


def _is_lazy(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)


def broadcast_state(model: torch.nn.Module, group: Any) -> None:
    """Gives parameters and buffers the values of rank 0."""
    if dist.get_world_size(group) == 1:
        return
    source = dist.get_global_rank(group, 0) if group is not None else 0
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if not _is_lazy(tensor) and tensor.numel() > 0:
                _broadcast(tensor, source, group)


def _broadcast(tensor: torch.Tensor, source: int, group: Any) -> None:
    if tensor.layout is not torch.strided:  # a graph's adjacency, for one; indices differ in number
        said = [tensor]
        dist.broadcast_object_list(said, src=source, group=group)
        tensor.copy_(said[0])
        return
    for place, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if size > 1 and stride == 0:  # of expand(): all these elements are one
            tensor = tensor.narrow(place, 0, 1)
    plain = tensor.detach().contiguous()
    if 0 in plain.stride():  # one element counts as contiguous, and its bytes cannot be viewed
        plain = plain.clone(memory_format=torch.contiguous_format)
    dist.broadcast(plain.reshape(-1).view(torch.uint8), src=source, group=group)
    if plain.data_ptr() != tensor.data_ptr():
        tensor.copy_(plain)
