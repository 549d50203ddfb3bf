"""Hooks a model's parameters, and averages their gradients while backward passes run."""

from __future__ import annotations

import contextlib
import itertools
import weakref
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from sparfuse import _core
from sparfuse.torch import _autograd, _staging
from sparfuse.torch._report import Counts
from sparfuse.torch._start import has_elements

_numbers = itertools.count()
_open: dict[int, list[DistributedModel]] = {}  # {backward pass: models that it gave gradients}

_IN_SEGMENTS = (
    "a checkpointed segment runs its backward pass within another one that has not reached a "
    "parameter yet, so that the end of backward cannot be seen; write "
    "torch.utils.checkpoint.checkpoint(..., use_reentrant=False)"
)


_FROZEN = (
    "other parameters are frozen than on rank 0, so that replicas would differ from now on; write "
    "requires_grad_(False) for the same parameters on all ranks"
)
_NO_SYNC = (
    "the last backward pass was within no_sync, and gradients are this rank's alone; leave no_sync "
    "before the last micro-batch"
)
_FAILED = (
    "the last backward pass ended with an error, and gradients are this rank's alone; call "
    "zero_grad(), and backward() again"
)
_CLEARED = -2  # what a tensor has in place of its averages' version: of no tensor
_PROBES = 16  # parameters, of as many parts of a model, that are looked at before accumulation


def is_average(grad: torch.Tensor) -> bool:
    """Whether the tensor had averages written into it, which may have been clipped since, or cleared."""
    return hasattr(grad, "_sparfuse_version")


class _Look:
    """A module's hook before forward. In copies of the module it has no model."""

    def __init__(self, model: DistributedModel | None) -> None:
        self._model = model

    def __call__(self, *_: Any) -> None:
        if torch.compiler.is_compiling() or self._model is None or not torch.is_grad_enabled():
            return
        self._model._look_before_forward()


class _End:
    """The callback at the end of a backward pass; a pass that fails drops it instead."""

    def __init__(self, model: DistributedModel, task: int) -> None:
        self._model = model
        self._task = task

    def __call__(self) -> None:
        self._model._backward_ended(self._task)


def nothing() -> None:
    """Makes the None that a copied or pickled model has instead of its hooks."""


class NotCopied:
    """What a model has beside its parameters: copies and pickles of it are None."""

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def __reduce__(self) -> Any:
        return (nothing, ())


class DistributedModel(NotCopied):
    """The hooks on a module's parameters, and the rank that gets their gradients.

    A copy of the module is not distributed.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        method: Any,
        layout: list[tuple[str, torch.nn.Parameter]],
        nonfinite: str,
        undo: bool,
    ) -> None:
        self.number = next(_numbers)
        self.module = weakref.ref(module)
        self.method = method
        self.rank = method._ranks
        self.names = [name for name, _ in layout]
        self.parameters = [parameter for _, parameter in layout]
        self.scaler: Any = None
        self.nonfinite = nonfinite
        self.counts = Counts()
        self.local = ""  # the reason why gradients are sums of this rank alone, if they are
        self.ids = frozenset(map(id, self.parameters))
        self._note_structure(module)
        self._dtypes = [parameter.dtype for parameter in self.parameters]
        self._keep = undo and self.rank.keeps_something
        self._no_sync = 0
        self._task = -1
        self._end: Any = None  # weak reference to the _End of the current backward pass
        self._sync = False
        self._grads: dict[int, torch.Tensor] = {}
        self._staged: list[torch.Tensor] = []
        self._unsent: set[int] = set()  # what passes within no_sync gave gradients
        self._refusal = ""
        self.averages = 0  # how many backward passes made averages
        self._not_cleared = False
        self._uncleared_in = -1  # the pass that saw old averages; torch.autograd.grad's accumulates nothing
        self._handles: list[Any] = []

    # --- Hooks ---

    def attach(self) -> None:
        for index, parameter in enumerate(self.parameters):
            self._handles.append(parameter.register_post_accumulate_grad_hook(self._hook_of(index)))
        module = self.module()
        assert module is not None
        self._handles.append(module.register_forward_pre_hook(_Look(self)))
        smallest: dict[str, int] = {}  # {part of the model: its smallest parameter}
        for index in sorted(range(len(self.names)), key=lambda i: self.parameters[i].numel()):
            smallest.setdefault(self.names[index].partition(".")[0], index)
        for index in list(smallest.values())[:_PROBES]:
            self._handles.append(self.parameters[index].register_hook(self._look_of(index)))

    def _hook_of(self, index: int) -> Any:
        def hook(parameter: torch.Tensor) -> None:
            self._ready(index, parameter)

        return hook

    def _look_of(self, index: int) -> Any:
        def look(_gradient: torch.Tensor) -> None:
            """Notes, before a gradient is accumulated, whether grad still holds the last averages."""
            grad = self.parameters[index].grad
            if grad is None or getattr(grad, "_sparfuse_version", _CLEARED) == _CLEARED:
                return
            if grad._version == grad._sparfuse_version or bool(grad.any()):  # type: ignore[attr-defined]
                self._uncleared_in = _autograd.current_task()
            else:  # later passes within no_sync add to sums of this rank
                grad._sparfuse_version = _CLEARED  # type: ignore[attr-defined]

        return look

    def _look_before_forward(self) -> None:
        """Refuses changes that no hook would see: replaced parameters, and averages that DDP replaces."""
        if self._no_sync or _autograd.current_task() != -1 or not self.rank.usable:
            return  # current_task: a checkpoint's second forward
        refusal = self._refusal_of_ddp()
        if not refusal:
            others = [of.get(name) for of, name, now in self._places if of.get(name) is not now]
            # torch.func.functional_call lends tensors, whose gradients are its caller's.
            lent = all(type(other) is torch.Tensor for other in others)
            refusal = "" if lent else self._refusal_of_structure()
        if not refusal:
            return
        self._give_up()
        self.rank.begin(1.0, self._keep)
        self._refusal = refusal
        self.rank.end_backward(refusal)
        self._finish()

    def _refusal_of_ddp(self) -> str:
        around = _autograd.ddp_around()
        if around is None or not any(id(p) in self.ids for p in around.parameters()):
            return ""
        return (
            "DistributedDataParallel wraps the model since sf.distribute, and its averages replace the "
            "method's; call sf.detach(model), and write "
            "ddp.register_comm_hook(*sf.comm_hook(method, ddp))"
        )

    def _ready(self, index: int, parameter: torch.Tensor) -> None:
        if self._end is None or self._end() is None:
            self._begin()
        elif _autograd.current_task() != self._task and _autograd.nesting() < 2:
            raise _core.Error(
                "two backward passes of one model at once, in two threads; expected one after the "
                "other"
            )
        grad = parameter.grad
        if grad is not None and getattr(grad, "_sparfuse_version", _CLEARED) == grad._version - 1:
            self._not_cleared = True  # all that came behind the averages is this gradient
        if not self._sync:
            self._unsent.add(index)
            return
        if self._refusal:
            return
        if grad is None:
            self._refusal = (
                f'the gradient of "{self.names[index]}" is gone when it is final (by an optimizer that '
                "steps within backward?); step after backward(), when averages are there"
            )
            return
        self._announce(index, parameter, grad)

    def _announce(self, index: int, parameter: torch.Tensor, grad: torch.Tensor) -> None:
        self._grads[index] = grad
        plain = type(grad) is torch.Tensor and grad.dtype is torch.float32
        if plain and grad.is_contiguous() and not grad.requires_grad:
            self.rank.announce(index, grad.data_ptr(), grad.numel())
        else:
            self._announce_otherwise(index, parameter, grad)

    def _announce_otherwise(self, index: int, parameter: torch.Tensor, grad: torch.Tensor) -> None:
        self._refusal = self._refusal_of(index, parameter, grad)
        if self._refusal:
            return
        plain = _staging.plain(grad)
        self._staged.append(plain)
        self.rank.announce(index, plain.data_ptr(), plain.numel())

    def _refusal_of(self, index: int, parameter: torch.Tensor, grad: torch.Tensor) -> str:
        name = self.names[index]
        if grad.device.type == "cpu" and grad.layout is torch.strided and grad.data_ptr() == 0:
            return (
                f'the gradient of "{name}" is a {type(grad).__name__}, which has no memory of its own; '
                "expected a plain tensor: write gradient.full_tensor() where it is made"
            )
        if grad.layout is not torch.strided:
            return (
                f'the gradient of "{name}" is sparse ({grad.layout}); write '
                "Embedding(..., sparse=False)"
            )
        if grad.requires_grad:
            return (
                f'the gradient of "{name}" needs a gradient itself (create_graph=True); compute the '
                "penalty within sf.no_sync, or by torch.autograd.grad, and call backward once"
            )
        if grad.device.type != "cpu" or parameter.dtype != self._dtypes[index]:
            return (
                f'"{name}" is of {parameter.dtype} on {grad.device} now and was of '
                f"{self._dtypes[index]} on cpu; move and cast the model before sf.distribute"
            )
        return ""

    def _give_up(self) -> None:
        """Ends a pass that failed midway."""
        if self._task not in _open and not self.rank.in_step:
            return
        _open.pop(self._task, None)
        try:
            if self.rank.in_step:
                self.rank.give_up(
                    "backward() ended with an error midway, so that there are no averages"
                )
        finally:
            self._drop()  # the rank uses the gradients' memory until then

    def _begin(self) -> None:
        self._give_up()
        if _autograd.is_compiled():
            raise _core.UnsupportedError(
                "compiled autograd does not report the end of backward, and 0 bytes were sent; "
                "compile the module alone: torch.compile(model), without compiled autograd"
            )
        if _autograd.nesting() > 1:
            raise _core.UnsupportedError(_IN_SEGMENTS)
        self._task = _autograd.current_task()
        end = _End(self, self._task)
        self._sync = self._no_sync == 0
        if self._sync:
            self.rank.begin(self._scale(), self._keep)
            _open.setdefault(self._task, []).append(self)
        else:
            self.local = _NO_SYNC
        _autograd.at_end_of_backward(end)
        self._end = weakref.ref(end)

    def _scales_loss(self) -> bool:
        return self.scaler is not None and self.scaler.is_enabled()

    def _scale(self) -> float:
        return float(self.scaler.get_scale()) if self._scales_loss() else 1.0

    def _drop(self) -> None:
        _staging.keep_if_abandoned(self.rank, self._grads.values(), self._staged)
        self._grads.clear()
        self._staged.clear()
        self._refusal = ""

    # --- The end of a backward pass ---

    def _backward_ended(self, task: int) -> None:
        if self._end is None:
            return  # another model's end of this pass has announced this model
        self._accumulated()
        self._end = None  # even if an error's traceback keeps the object alive
        models = _open.pop(task, [])
        # Announces all models before it waits for any, in one order: ranks may end passes in another.
        models.sort(key=lambda model: model.number)
        errors = []
        for step in (DistributedModel._announce_rest, DistributedModel._finish):
            for model in models:
                try:
                    step(model)
                except BaseException as error:  # noqa: BLE001  (the other models must not hang)
                    errors.append(error)
        if errors:
            raise errors[0]

    def _accumulated(self) -> None:
        self._not_cleared = self._not_cleared or self._uncleared_in == self._task
        self._uncleared_in = -1

    def _announce_rest(self) -> None:
        self._accumulated()
        self._end = None
        for index in sorted(self._unsent - self._grads.keys()):
            parameter = self.parameters[index]
            if parameter.grad is not None and not self._refusal:
                self._announce(index, parameter, parameter.grad)
        self._unsent.clear()
        refusal = self._refusal or self._refusal_at_end()
        self._refusal = refusal
        self.rank.end_backward(refusal, self._frozen())

    def _frozen(self) -> int:
        """A number of the parameters that were frozen after distribute; 0 if none was."""
        frozen = [index for index, p in enumerate(self.parameters) if not p.requires_grad]
        return zlib.crc32(repr(frozen).encode()) if frozen else 0

    def _refusal_at_end(self) -> str:
        not_cleared, self._not_cleared = self._not_cleared, False
        if not_cleared and self.rank.sparsified:
            return (
                "gradients were added to the averages of the step before; call "
                "optimizer.zero_grad() before backward(), or accumulate within model.no_sync()"
            )
        for index, grad in self._grads.items():
            now = self.parameters[index].grad
            if now is grad:
                continue
            name = self.names[index]
            if now is None:
                return (
                    f'the gradient of "{name}" is gone at the end of backward (an optimizer that '
                    "steps within backward?); step after backward(), when averages are there"
                )
            return (
                f'the gradient of "{name}" was replaced after it was final (by a hook that came '
                "after sf.distribute?); register it before, or change gradients after backward()"
            )
        return self._refusal_of_structure()

    def _refusal_of_structure(self) -> str:
        module = self.module()
        if module is None:
            return "the model that was distributed is gone; keep a reference to it"
        if self._is_as_noted():
            return ""
        known = {id(parameter) for parameter in self._all}
        names = dict(zip(self.names, self.parameters))
        again = "; call sf.detach(model) and sf.distribute(model) again"
        for name, parameter in module.named_parameters():
            if id(parameter) in self.ids or not parameter.requires_grad:
                continue
            if not has_elements(parameter):
                continue
            if id(parameter) in known:
                return f'"{name}" was frozen at sf.distribute and requires a gradient now{again}'
            if name in names:
                return f'"{name}" was replaced by another parameter after sf.distribute{again}'
            return f'"{name}" came after sf.distribute{again}'
        self._note_structure(module)  # only untrained parameters were added or removed
        return ""

    def _note_structure(self, module: torch.nn.Module) -> None:
        """Notes the place of each parameter and submodule: a look at all of them is fast."""
        self._all = list(module.parameters())
        tables = [t for m in module.modules() for t in (m._parameters, m._modules)]
        self._sizes = [(table, len(table)) for table in tables]
        self._places = [(table, name, at) for table in tables for name, at in table.items()]
        self._untrained = [
            p for p in self._all if id(p) not in self.ids and has_elements(p)
        ]

    def _is_as_noted(self) -> bool:
        return (
            all(table.get(name) is at for table, name, at in self._places)
            and all(len(table) == size for table, size in self._sizes)
            and not any(parameter.requires_grad for parameter in self._untrained)
        )

    def _finish(self) -> None:
        refusal = self._refusal
        try:
            kind, rank, text = self.rank.finish()
            self.counts.add(self.rank)
            self.local = _FAILED
            if kind == "fine":
                self._write()
            elif kind == "refused":
                raise _core.ConfigError(refusal or f"rank {rank}: {text or _FROZEN}")
            elif self.nonfinite == "raise" and not self._scales_loss():
                raise _core.NumericError(f"rank {rank}: {text}")
            else:
                self._write_nan()
            self.local = ""
        finally:
            self._drop()

    def _targets(self) -> Iterator[tuple[int, torch.Tensor]]:
        for index, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                if not parameter.requires_grad:
                    continue
                parameter.grad = torch.empty_like(parameter)
            yield index, parameter.grad

    def _write(self) -> None:
        targets = list(self._targets())
        _staging.write_averages(self.rank, targets)
        self._wrote(targets)

    def _wrote(self, targets: Iterable[tuple[int, torch.Tensor]]) -> None:
        self.averages += 1
        for _, grad in targets:
            grad._sparfuse_version = grad._version  # type: ignore[attr-defined]

    def _write_nan(self) -> None:
        targets = list(self._targets())
        with torch.no_grad():
            for _, grad in targets:
                grad.fill_(float("nan"))
        self._wrote(targets)

    # --- What users call ---

    @property
    def elements(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        self._no_sync += 1
        try:
            yield
        finally:
            self._no_sync -= 1

    def refusal_of_step(self) -> str:
        """The reason why the gradients are not averages now; empty if they are."""
        if not self.rank.usable:
            return "a step of its method failed, and gradients are this rank's alone"
        if self.rank.in_step:
            return (
                "the last backward pass did not reach its end, and 0 bytes of it are averages: it "
                "ended with an error, or ran under compiled autograd; call backward() again"
            )
        return self.local

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for task in [task for task, models in _open.items() if self in models]:
            del _open[task]
        self.rank.close()
        self._drop()  # the rank uses the gradients' memory until then
