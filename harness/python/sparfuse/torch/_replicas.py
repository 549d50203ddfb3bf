"""Exchanges gradients that fully_shard has reduced between replicas of the shards."""

from __future__ import annotations

import atexit
from typing import Any

import torch
import torch.distributed as dist

from sparfuse import _core
from sparfuse.torch import _staging, _start


class _Group:
    """Averages the flat gradient of one parameter group over replicas, before any other use."""

    def __init__(self, name: str, method: Any, group: Any, options: dict[str, Any]) -> None:
        self.name = name
        self.method = method
        self.group = group
        self.options = options
        self.rank: Any = None

    @torch.no_grad()
    def __call__(self, gradient: torch.Tensor) -> None:
        if self.rank is None:  # only the first step shows the size
            layout: Any = [(self.name, gradient)]
            self.rank = _start.start_rank(self.method, layout, self.group, self.options)._ranks
            atexit.register(self.close)
        plain = _staging.plain(gradient)
        self.rank.begin(1.0, self.rank.keeps_something)
        self.rank.announce(0, plain.data_ptr(), plain.numel())
        self.rank.end_backward("")
        kind, rank, text = self.rank.finish()
        if kind != "fine":
            raise _core.NumericError(f"replica {rank}: {text}")
        _staging.write_averages(self.rank, [(0, gradient)])

    def close(self) -> None:
        if self.rank is not None:
            self.rank.close()
        atexit.unregister(self.close)


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
    if group is None:
        return f"group is None; expected the group between replicas: {write}"
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
    for name, module in model.named_modules():
        if hasattr(module, "set_all_reduce_hook"):
            module.set_all_reduce_hook(_Group(name or "the root's", method, group, options))
    return model
