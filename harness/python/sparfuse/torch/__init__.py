"""Trains a PyTorch model with any method of sparfuse: three lines in a script that torchrun starts.

    import sparfuse.torch as sf

    torch.distributed.init_process_group("gloo")
    sf.distribute(model, method="safusion", density=0.01)

From then on every backward() leaves averages over all ranks in p.grad, as DistributedDataParallel
would; here the method makes them. With a GradScaler: sf.wrap(optimizer, scaler=scaler).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError(
        "sparfuse.torch needs PyTorch 2.11 or newer: pip install torch, or \"sparfuse[torch]\""
    ) from error

from sparfuse import _core
from sparfuse.torch import _replicas, _start, _state
from sparfuse.torch._advise import Advice, advise_for
from sparfuse.torch._hook import HookState, comm_hook
from sparfuse.torch._local import Round, local_steps
from sparfuse.torch._model import DistributedModel, is_average
from sparfuse.torch._report import Report, report_of, trace_of
from sparfuse.torch._sign import SignSGD

__all__ = [
    "Advice", "Report", "SignSGD", "advise", "comm_hook", "compress_replicas", "detach",
    "distribute", "load_state_dict", "local_steps", "no_sync", "report", "state_dict", "trace",
    "wrap",
]

_models: list[DistributedModel] = []


def distribute(
    model: torch.nn.Module,
    method: Any = "safusion",
    *,
    density: float | None = None,
    sparsifier: Any = None,
    feedback: str | None = None,
    group: Any = None,
    dense_tensors: Any = (),
    nonfinite: str = "raise",
    deadline_seconds: float = 60.0,
    threads: int | None = None,
    seed: int = 0,
    undo: bool = True,
    **options: Any,
) -> torch.nn.Module:
    """Averages the model's gradients over all ranks, from the next backward() on.

    method     a name of `sparfuse list methods`, the path of a method.toml, or a dict of its keys
    density, sparsifier, feedback, dense_tensors, seed, and options of the method
               as in sparfuse.Method
    group      a process group; by default all ranks
    nonfinite  the effect of a NaN or an infinity in a gradient of any rank: "raise" raises
               NumericError on all ranks, "propagate" makes all averages NaN
    deadline_seconds  the longest time that a rank waits for another one. A call of a part in Python
               that takes twice this and 5 s is ended, with the process if need be
    threads    the number of threads of the method; by default torch.get_num_threads()
    undo       keeps the residuals of the step before, to restore them after a step that does not
               count: one with a NaN, or whose backward() raised. Costs memory of the gradient's size,
               and time only for sparsifiers that change the residual in place.

    All ranks call it with the same arguments, after init_process_group. Parameters and buffers take
    the values of rank 0; later, buffers are each rank's own. Returns the same model, with a new
    method no_sync(); the names in its state_dict() stay the same.

    >>> import tempfile, torch, sparfuse.torch as sf
    >>> store = torch.distributed.FileStore(tempfile.mktemp(), 1)
    >>> torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    >>> model = sf.distribute(torch.nn.Linear(4, 2, bias=False), method="wfbp", density=0.25)
    >>> model(torch.ones(1, 4)).sum().backward()
    >>> int(model.weight.grad.count_nonzero())      # 2 of 8 elements; the others come later
    2
    >>> sf.report(model)["payload_bytes"]
    16
    >>> sf.detach(model)
    >>> torch.distributed.destroy_process_group()
    """
    _close_models_that_are_gone()
    refusal = _refusal_of(model, nonfinite, undo)
    layout = [] if refusal else _start.trained(model.named_parameters())
    given = {
        "density": density,
        "sparsifier": sparsifier,
        "feedback": feedback,
        "dense_tensors": dense_tensors,
        "deadline_seconds": deadline_seconds,
        "threads": threads,
        "seed": seed,
        **options,
    }
    besides = {"nonfinite": nonfinite, "undo": undo}
    made = _start.start_rank(method, layout, group, given, refusal, besides, model)
    _start.broadcast_state(model, group)
    distributed = DistributedModel(model, made, layout, nonfinite, undo)
    distributed.attach()
    _models.append(distributed)
    model._sparfuse = distributed  # type: ignore[assignment]
    model.no_sync = functools.partial(_no_sync_of, distributed)  # type: ignore[assignment]
    return model


def _refusal_of(model: Any, nonfinite: Any, undo: Any) -> str:
    if not isinstance(undo, bool):
        return f"undo = {undo!r}: expected True or False"
    refusal = _start.refusal_of_nonfinite(nonfinite) or _start.refusal_of_model(model)
    if refusal:
        return refusal
    if getattr(model, "_sparfuse", None) is not None:
        return "the model is distributed already; call sf.detach(model) first"
    if _rounds_of(model) is not None:
        return "the model is in sf.local_steps, which exchanges by itself; expected one of both"
    for name, parameter in model.named_parameters():
        if any(id(parameter) in other.ids for other in _models):
            return (
                f'"{name}" belongs to a distributed model already, which averages it; expected one '
                "sf.distribute of the module that has all its parameters"
            )
    return ""


def _no_sync_of(distributed: DistributedModel | None) -> Any:
    return contextlib.nullcontext() if distributed is None else distributed.no_sync()


def _close_models_that_are_gone() -> None:
    """Nobody can detach a model that no longer exists; its threads and connections stay until here."""
    for distributed in [m for m in _models if m.module() is None]:
        _models.remove(distributed)
        distributed.detach()


def _of(model: torch.nn.Module | None, what: str) -> DistributedModel:
    if model is None:
        _close_models_that_are_gone()
        if len(_models) != 1:
            names = [type(m.module()).__name__ for m in _models]
            raise _core.ConfigError(
                f"{what}: {len(_models)} models are distributed ({', '.join(names) or 'none'}); "
                "expected the model as an argument"
            )
        return _models[0]
    found = getattr(model, "_sparfuse", None)
    if _rounds_of(model) or _replicas.replicas_of(model):
        raise _core.ConfigError(
            f"{what} does not serve models after compress_replicas or in sf.local_steps; expected a "
            "model of sf.distribute, or the state of sf.comm_hook"
        )
    if found is None:
        raise _core.ConfigError(
            f"{what}: this {type(model).__name__} is not distributed (copies of a distributed model "
            "are not); call sf.distribute(model) first"
        )
    return found


def _rounds_of(model: Any) -> Round | None:
    """Of a model within local_steps."""
    return getattr(model, "_sparfuse_rounds", None)


def no_sync(model: torch.nn.Module | None = None) -> Any:
    """A context in which backward() adds up this rank's gradients and sends nothing.

    The first backward() after the context sends the sum. Divide the loss by the number of
    micro-batches, as with DistributedDataParallel.
    """
    return _of(model, "no_sync").no_sync()


def wrap(optimizer: torch.optim.Optimizer, *, scaler: Any = None) -> torch.optim.Optimizer:
    """Makes the optimizer refuse steps on gradients that are not averages; supports loss scaling.

    scaler  the GradScaler of the loop. Gradients are divided by its scale before the residual is
            added, and multiplied with it after. If one gradient is not finite on any rank, all are
            NaN on all ranks. Then the scaler skips the step and halves its scale everywhere, and
            residuals stay unchanged, bit for bit.

    Returns the same optimizer.
    """
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    models = [m for m in _models if any(id(p) in own for p in m.parameters)]
    if not models:
        raise _core.ConfigError(
            "wrap: no parameter of the optimizer belongs to a distributed model; call "
            "sf.distribute(model) before it"
        )
    if scaler is not None:
        for model in models:
            model.scaler = scaler

    seen: dict[DistributedModel, int] = {}  # the averages at this optimizer's last step

    def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        averaged, old = set(), set()
        for model in models:
            if model not in _models:
                continue  # the model is detached
            refusal = model.refusal_of_step()
            if refusal:
                raise _core.Error(f"optimizer.step: {refusal}")
            averaged |= model.ids
            if seen.get(model, 0) == model.averages:
                old |= model.ids
            seen[model] = model.averages
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and id(parameter) not in averaged:
                    raise _core.Error(
                        f"optimizer.step: a parameter of shape {tuple(parameter.shape)} has a "
                        "gradient but is of no distributed model, so that the gradient is this rank's "
                        "alone; call sf.distribute(model) after the model has all its parameters"
                    )
                if parameter.grad is not None and id(parameter) in old:
                    if not is_average(parameter.grad):
                        raise _core.Error(
                            f"optimizer.step: a parameter of shape {tuple(parameter.shape)} has a "
                            "gradient, but no backward() made averages since the last step, so that "
                            "the gradient is this rank's alone; call loss.backward() for gradients"
                        )

    optimizer.register_step_pre_hook(look)
    return optimizer


def detach(model: torch.nn.Module | HookState) -> None:
    """Removes the hooks, threads and connections that distribute made; the model stays.

    model  a distributed model, one after compress_replicas, or the state that comm_hook returned
    """
    if isinstance(model, HookState):
        model.close()
        return
    if _replicas.detach(model):
        return
    distributed = _of(model, "detach")
    model.__dict__.pop("_sparfuse", None)
    model.__dict__.pop("no_sync", None)
    _models.remove(distributed)
    distributed.detach()


def report(model: torch.nn.Module | HookState | None = None) -> Report:
    """The bytes and the times of the last step and of all steps; a dict that prints as a table.

    model  a distributed model, one after compress_replicas or in local_steps, or the state that
           comm_hook returned

    sent_bytes, received_bytes  bytes that the transport sent and received, forwards included
    payload_bytes               bytes of this rank's own payload
    density                     the fraction of the elements that this rank sent
    exposed_seconds             time that backward() waited for other ranks
    python_seconds              time in parts of the method that are written in Python
    residual_norm               norm of the residual, which is not sent yet
    steps, plan, method         number of steps, tensors of each unit, and the method's name
    total                       a dict of bytes and seconds, summed over all steps
    """
    rounds, replicas = _rounds_of(model), _replicas.replicas_of(model)
    if rounds:
        return report_of(rounds.fragments)
    return report_of(replicas.started("report") if replicas else [_keeper_of(model, "report")])


@contextlib.contextmanager
def trace(
    path: Any, *, model: torch.nn.Module | HookState | None = None, ranks: Sequence[int] = (0,), steps: int = 1
) -> Iterator[None]:
    """Writes the spans of the next steps to a file for Perfetto or chrome://tracing.

    ranks  the ranks, within the model's group, that write a file; the file has the rank in its name
           if there are several
    steps  the number of steps to write
    """
    with trace_of(_keeper_of(model, "trace"), path, ranks, steps):
        yield


def compress_replicas(
    model: torch.nn.Module, group: Any, method: Any = "wfbp", **options: Any
) -> torch.nn.Module:
    """Averages the gradients of a model's shards over its replicas, by any method.

    model   a model after fully_shard on a mesh of one dimension: the ranks that share one replica
    group   the process group of the ranks that have the same shard of other replicas

    Each parameter group is exchanged as a unit of its own when torch has reduced it over shards;
    backward waits for the exchange. All ranks of `group` call it with the same arguments.
    """
    return _replicas.compress(model, group, method, options)


def advise(
    model: torch.nn.Module,
    example_inputs: Any,
    *,
    link: str,
    world_size: int,
    loss: Any = None,
    methods: Sequence[Any] | None = None,
    density: float = 0.01,
    repeats: int = 5,
) -> Advice:
    """Estimates before a training which methods would make its steps short; needs no process group.

    Times forward, backward and selections on this machine. Then models a step of each method with
    world_size ranks on the link, such as "1Gbit/s:100us" (speed, and start-up time of a message).

    example_inputs  the model's input, or a tuple of several
    loss            takes the model's output; by default the mean square of its first tensor
    methods         names, or dicts of parts; by default all methods that can be modelled

    Returns an Advice, which prints as a table with bands. Its `rows` are dicts, the fastest method
    first; its `best` is the name of that method.

    >>> import torch, sparfuse.torch as sf
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    >>> advice = sf.advise(
    ...     model, torch.randn(8, 64), link="0.01Gbit/s:100us", world_size=8, methods=["dense", "wfbp"]
    ... )
    >>> advice.best          # on so slow a link
    'wfbp'
    """
    return advise_for(model, example_inputs, link, world_size, loss, methods, density, repeats)


def _keeper_of(model: Any, what: str) -> Any:
    """The object with the rank of a distributed model, or of a hook."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise _core.ConfigError(
            f"{what}: the model is in DistributedDataParallel, whose hook has the state; expected the "
            "first result of sf.comm_hook: state, hook = sf.comm_hook(method, ddp)"
        )
    if not isinstance(model, HookState):
        return _of(model, what)
    model.require_start()
    return model


def state_dict(model: torch.nn.Module | HookState | None = None) -> dict[str, Any]:
    """The state that this rank keeps between steps, such as residuals: tensors and numbers only.

    model  a distributed model, one after compress_replicas, or the state that comm_hook returned

    Save each rank's state with the model and the optimizer; torch.load(weights_only=True) reads it.
    """
    rounds = _rounds_of(model) or _replicas.replicas_of(model)
    return rounds.state() if rounds else _state.state_of(_keeper_of(model, "state_dict"))


def load_state_dict(
    model: torch.nn.Module | HookState | None,
    state: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    change: str = "mean",
) -> None:
    """Restores the state that state_dict returned: this rank's, or a list of all ranks' states.

    After compress_replicas: of all ranks of the group between replicas.

    change  the rule if the number of ranks has changed, which needs the list. "mean" gives every
            rank the mean of the residuals, which keeps the mean that is still to be applied;
            "reset" drops them. Within local_steps the number of ranks may not change.
    """
    rounds, replicas = _rounds_of(model), _replicas.replicas_of(model)
    if rounds:
        rounds.load(state)
    elif replicas:
        replicas.load(state, change)
    else:
        _state.load_state(_keeper_of(model, "load_state_dict"), state, change)


@atexit.register
def _end() -> None:
    for distributed in _models:
        distributed.detach()
    _models.clear()
