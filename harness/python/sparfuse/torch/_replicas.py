"""Exchanges gradients that fully_shard has reduced between replicas of the shards."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from sparfuse import _core
from sparfuse.torch import _staging, _start, _state
from sparfuse.torch._model import NotCopied
from sparfuse.torch._report import Counts


class _Group:
    """Averages the flat gradient of one parameter group over replicas, before any other use."""

    def __init__(self, name: str, method: Any, group: Any, options: dict[str, Any]) -> None:
        self.names = [name]
        self.given = method
        self.group = group
        self.options = options
        self.method: Any = None
        self.rank: Any = None
        self.counts = Counts()
        self.elements = 0
        self._end: Any = None
        self.loaded: tuple[list[Any], str] | None = None  # states for a rank that is not there yet

    @torch.no_grad()
    def __call__(self, gradient: torch.Tensor) -> None:
        if self.rank is None:  # only the first step shows the size
            self._start(gradient)
        plain = _staging.plain(gradient)
        try:
            self.rank.begin(1.0, self.rank.keeps_something)
            self.rank.announce(0, plain.data_ptr(), plain.numel())
            self.rank.end_backward("")
            kind, rank, text = self.rank.finish()
        finally:
            _staging.keep_if_abandoned(self.rank, [plain])
        self.counts.add(self.rank)
        if kind != "fine":
            raise _core.NumericError(f"replica {rank}: {text}")
        _staging.write_averages(self.rank, [(0, gradient)])

    def _start(self, gradient: torch.Tensor) -> None:
        layout: Any = [(self.names[0], gradient)]
        self.method = _start.start_rank(self.given, layout, self.group, self.options)
        self.rank = self.method._ranks
        self.elements = gradient.numel()
        self._end = weakref.finalize(self, self.rank.close)  # when it is dropped, or at exit
        if self.loaded is not None:
            _state.load_state(self, *self.loaded)
            self.loaded = None

    def load(self, states: list[Any], change: str) -> None:
        if self.rank is None:
            self.loaded = (states, change)
        else:
            _state.load_state(self, states, change)

    def close(self) -> None:
        if self._end is not None:
            self._end()


class Replicas(NotCopied):
    """The parameter groups of a model after fully_shard, each with a rank of its own. A copy of the model
    has no hooks."""

    def __init__(self) -> None:
        self.groups: list[_Group] = []

    def started(self, what: str) -> list[_Group]:
        found = [group for group in self.groups if group.rank is not None]
        if not found:
            raise _core.ConfigError(
                f"{what}: no gradient has come yet, whose size the first backward() shows; call it after"
            )
        return found

    def state(self) -> dict[str, Any]:
        return {"groups": {group.names[0]: _state.state_of(group) for group in self.started("state_dict")}}

    def load(self, state: Any, change: str) -> None:
        states = [state] if isinstance(state, Mapping) else list(state)
        for one in states:
            if not isinstance(one, Mapping) or "groups" not in one:
                raise _core.ConfigError(
                    'state has no "groups"; expected a result of state_dict() of a model after '
                    "compress_replicas"
                )
        known = [group.names[0] for group in self.groups]
        for name in {name for one in states for name in one["groups"]}:
            if name not in known:
                raise _core.ConfigError(
                    f'state has "{name}"; expected modules to which fully_shard was applied'
                    f"{_core._suggestion(name, known)}"
                )
        for group in self.groups:
            own = [one["groups"][group.names[0]] for one in states if group.names[0] in one["groups"]]
            if own:
                group.load(own, change)

    def close(self) -> None:
        for group in self.groups:
            group.close()


def _refusal(model: torch.nn.Module, group: Any) -> str:
    write = (
        "write mesh = init_device_mesh(device, (replicas, shards), mesh_dim_names=(\"replica\", "
        "\"shard\")), fully_shard(model, mesh=mesh[\"shard\"]) and sf.compress_replicas(model, "
        "mesh[\"replica\"].get_group())"
    )
    if not hasattr(model, "set_all_reduce_hook"):
        return f"the model is not sharded by fully_shard; {write}, or sf.distribute(model) for a whole one"
    if type(model).__name__.startswith("Replicate"):
        return f"replicate() averages before its hook, so that nothing can be compressed; {write}"
    if not isinstance(group, dist.ProcessGroup):
        given = "None" if group is None else f"a {type(group).__name__}"
        return f"group is {given}; expected the group between replicas: {write}"
    for name, parameter in model.named_parameters():
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None and mesh.ndim != 1:
            return f'"{name}" lies on a mesh of {mesh.ndim} dimensions, over which torch averages by itself; {write}'
        if mesh is not None and dist.get_world_size(group) > 1:
            own = set(mesh.mesh.flatten().tolist()) - {dist.get_rank()}
            if own & set(dist.get_process_group_ranks(group)):
                return f'"{name}" is sharded over ranks of `group`; expected the group between replicas: {write}'
    return ""


def compress(model: torch.nn.Module, group: Any, method: Any, options: dict[str, Any]) -> torch.nn.Module:
    _start.require_group()
    refusal = _refusal(model, group)
    if refusal:
        raise _core.ConfigError(f"compress_replicas: {refusal}")
    detach(model)
    replicas = Replicas()
    for name, module in model.named_modules():
        if hasattr(module, "set_all_reduce_hook"):
            replicas.groups.append(_Group(name or "the root's", method, group, options))
            module.set_all_reduce_hook(replicas.groups[-1])
    object.__setattr__(model, "_sparfuse_replicas", replicas)
    return model


def replicas_of(model: Any) -> Replicas | None:
    return getattr(model, "_sparfuse_replicas", None)


def detach(model: torch.nn.Module) -> bool:
    """Ends what compress_replicas began; whether it had begun anything."""
    replicas = replicas_of(model)
    if replicas is None:
        return False
    module: Any
    for module in model.modules():
        if hasattr(module, "set_all_reduce_hook"):
            module.set_all_reduce_hook(None)
    object.__delattr__(model, "_sparfuse_replicas")
    replicas.close()
    return True
