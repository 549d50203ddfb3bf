"""Describes a PyTorch module as a model table: the JSON file whose training is modelled where an
experiment says `workload = "table:FILE.json"`.

    python -m sparfuse.describe FACTORY -o FILE.json [--input-shape 3,224,224] [--measure 20]

FACTORY is "package.module:callable" or "file.py:callable". The callable takes nothing and returns a
torch.nn.Module, or (module, inputs), or (module, inputs, loss). In a program: describe and dumps.

It imports PyTorch, 2.1 or newer, where that is used, and needs nothing that is compiled: the file
also runs as a script.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import math
import platform
import re
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

if __package__:
    from sparfuse import _macs
else:  # a script, whose folder holds another package named torch
    import _macs  # type: ignore[no-redef]

    sys.path = [place for place in sys.path if Path(place).resolve() != Path(__file__).parent.resolve()]

__all__ = ["describe", "dumps"]

_WARM_UP = 3  # steps before the timed ones


def describe(
    module: Any,
    example_inputs: Any,
    *,
    name: str = "model",
    unit: str = "samples",
    units_per_sample: int = 1,
    batch_per_worker: int | None = None,
    family: str | None = None,
    source: str | None = None,
    loss: Callable[[Any], Any] | None = None,
    samples: int | None = None,
    sample_axis: int | None = None,
    measure: int = 0,
    note: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """The model table of a module, as a dict with the content of the JSON file.

    module            a torch.nn.Module, in the mode in which it is trained
    example_inputs    the inputs of the module: a tensor, a tuple of arguments or a dict of keywords
    name              the table's name, which is its file's name without ".json"
    unit, units_per_sample  the unit that throughput counts, and the number of units a sample has,
                      such as "tokens" and 1024
    batch_per_worker  the default batch of experiments, in samples; by default `samples`
    family            "resnet", "vgg", "vit", "bert", "gpt", "lstm", "transformer" or "ngram": the
                      family whose measured computation and whose overlap of selections stand for
                      the model's own
    source            the table's origin; by default the module's class and PyTorch's version
    loss              takes the module's output and returns a scalar; by default the output's own
                      `loss`, if it has one, else the sum of its floating tensors
    samples           the number of samples in the example; by default the size of its first tensor
                      along `sample_axis`
    sample_axis       the axis of samples of the example's first tensor; by default the first, if no
                      part of the module takes time first (batch_first=False)
    measure           the number of steps to time on the module's device (CPU or CUDA), after 3
                      others; 0: none. Adds medians in microseconds. Each tensor gets backward_us,
                      the time since the gradient before it (for the first one, since backward
                      began). The table gets the times of forward and of an update by SGD with
                      momentum.
    note              is called with a sentence for each thing that the table misses; by default
                      warnings.warn

    The tensors are the parameters that get a gradient, in ready order: the order of their
    accumulated gradients in one backward pass. A shared parameter is one tensor, at its last
    gradient. Shapes are those of the parameters; a scalar has [1].

    Multiply-accumulates (`macs`) count a sample's forward pass. A product with a parameter belongs
    to that parameter, in linear layers and matrices, convolutions, recurrent layers and attention's
    projections. Look-ups, norms and biases have none. A product of activations (attention's) is
    shared by parameters in proportion to their own counts: the parameters with which the innermost
    module around the product has multiplied before. In torch.nn.MultiheadAttention, each of the
    projections of queries and keys gets half of queries times keys, and the projection of values
    gets the mixing of values. Other computations (scripted modules, kernels of other libraries) are
    not counted; `note` names each parameter of two or more dimensions that is left without any. An
    element of a complex parameter is two floats, in a last dimension of its shape. A product of two
    complex numbers is four multiply-accumulates.

    `broadcast_bytes` counts the module's buffers (`named_buffers()`), such as running statistics of
    batch normalisation: what DistributedDataParallel sends from rank 0 before each forward pass
    (`broadcast_buffers=True`, its default). Buffers that it was told to ignore do not count. A
    module without buffers has no such key.

    The module runs forward and backward; its gradients and buffers are restored. Raises ValueError
    for an output or a loss without a gradient. Also raises it if samples may be on either of two
    axes and neither `samples` nor `sample_axis` is given.

    >>> import torch
    >>> from sparfuse.describe import describe
    >>> model = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(7200, 10, bias=False)
    ... )
    >>> table = describe(model, torch.randn(4, 3, 32, 32), unit="images")
    >>> [(tensor["name"], tensor["macs"]) for tensor in table["tensors"]]
    [('2.weight', 72000), ('0.weight', 194400), ('0.bias', 0)]
    """
    import torch

    note = note or (lambda sentence: warnings.warn(sentence, stacklevel=3))  # warns at the caller's line
    arguments, keywords = _arguments(example_inputs)
    if samples is None:
        samples = _samples(torch, module, arguments, keywords, sample_axis)
    parameters = {each: p for each, p in module.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError("no parameter of the module is trained: expected one with requires_grad")
    frozen = [p for p in module.parameters() if not p.requires_grad]
    if frozen:
        note(f"{len(frozen)} frozen parameters are left out, and their multiplications")

    def forward():
        output = module(*arguments, **keywords)
        return _scalar(torch, output, loss)

    with _put_back(torch, module):
        counted = _macs.Macs(parameters, frozen)
        with _macs.watching(module, counted):
            value = forward()
        order = _ready_order(parameters, value)
        times = _measure(torch, parameters, forward, measure) if measure > 0 else None
    missing = [each for each in parameters if each not in order]
    if missing:
        note(f"no gradient, therefore left out: {', '.join(missing)}")
    for sentence in counted.sentences(order):
        note(sentence)
    pairs = [each for each in order if parameters[each].is_complex()]
    if pairs:
        note(f"complex, an element is two floats: {', '.join(pairs)}")

    table = {
        "name": name,
        "unit": unit,
        "units_per_sample": units_per_sample,
        "batch_per_worker": samples if batch_per_worker is None else batch_per_worker,
        **({} if family is None else {"family": family}),
        "source": source or f"sparfuse.describe of {type(module).__name__}, {_version(torch)}",
    }
    if buffers := _buffer_bytes(module):
        table["broadcast_bytes"] = buffers
    macs = {each: _number(counted.macs[each] / samples) for each in order}
    tensors = [{"name": each, "shape": _shape(parameters[each]), "macs": macs[each]} for each in order]
    if times is not None:
        table["batch"] = samples
        table["measured_on"] = _hardware(torch, parameters, measure)
        table["forward_us"], table["update_us"], backward_us = times
        tensors = [{**tensor, "backward_us": backward_us[tensor["name"]]} for tensor in tensors]
    return {**table, "tensors": tensors}


def dumps(table: dict[str, Any]) -> str:
    """The text of a table's file, with a line for each tensor.

    >>> from sparfuse.describe import dumps
    >>> print(dumps({"name": "mine", "tensors": [{"name": "w", "shape": [2], "macs": 2}]}), end="")
    {
     "name": "mine",
     "tensors": [
      {"name": "w", "shape": [2], "macs": 2}
     ]
    }
    """
    head = [f" {json.dumps(k)}: {json.dumps(v)},\n" for k, v in table.items() if k != "tensors"]
    tensors = ",\n".join(f"  {json.dumps(tensor)}" for tensor in table["tensors"])
    return "{\n" + "".join(head) + ' "tensors": [\n' + tensors + "\n ]\n}\n"


def _shape(parameter):
    return [*parameter.shape, 2] if parameter.is_complex() else list(parameter.shape) or [1]


def _buffer_bytes(module):
    """The bytes of the buffers that DistributedDataParallel broadcasts."""
    ignored = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
    return sum(b.numel() * b.element_size() for n, b in module.named_buffers() if n not in ignored)


def _number(value):
    return int(value) if value == int(value) else round(value, 3)


def _version(torch):
    return f"torch {torch.__version__.split('+')[0]}"


# ---- running the module


def _arguments(example):
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example), {}) if isinstance(example, (tuple, list)) else ((example,), {})


def _samples(torch, module, arguments, keywords, axis):
    for value in (*arguments, *keywords.values()):
        if not isinstance(value, torch.Tensor) or value.ndim == 0:
            continue
        if axis is None:
            time_first = _takes_time_first(torch, module)
            if time_first and value.ndim > 1 and value.shape[0] != value.shape[1]:
                raise ValueError(
                    f"{time_first} takes time first (batch_first=False), and the first input is of "
                    f"shape {list(value.shape)}: expected --sample-axis 0 or 1 (sample_axis = ...), "
                    f"of {value.shape[0]} or {value.shape[1]} samples"
                )
            return value.shape[0]
        if not 0 <= axis < value.ndim:
            raise ValueError(
                f"--sample-axis {axis}: expected 0 to {value.ndim - 1}, an axis of the first input, "
                f"which is of shape {list(value.shape)}"
            )
        return value.shape[axis]
    raise ValueError("the example inputs have no tensor with a dimension: expected samples = ...")


def _takes_time_first(torch, module):
    """The name and the class of the first part whose first axis is time; "" if there is none."""
    kinds = (torch.nn.RNNBase, torch.nn.MultiheadAttention)
    for name, part in module.named_modules():
        if isinstance(part, kinds) and not part.batch_first:
            return f'"{name}", of {type(part).__name__},' if name else type(part).__name__
    return ""


def _tensors_in(torch, value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors_in(torch, each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors_in(torch, each)


def _scalar(torch, output, loss):
    """The scalar at which backward begins."""
    own = getattr(output, "loss", None)
    if loss is not None:
        value = loss(output)
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"the loss is of type {type(value).__name__}: expected a tensor")
    elif isinstance(own, torch.Tensor):
        value = own
    else:
        tensors = _tensors_in(torch, output)
        floats = [t for t in tensors if t.is_floating_point() and t.requires_grad]
        if not floats:
            raise ValueError("the output has no tensor with a gradient: expected a loss")
        value = sum(t.sum() for t in floats)
    if value.numel() != 1 or not value.requires_grad:
        without = "" if value.requires_grad else ", and no gradient comes from it"
        raise ValueError(f"the loss has {value.numel()} element(s){without}: expected a scalar")
    return value


@contextlib.contextmanager
def _put_back(torch, module):
    """Restores gradients and buffers, such as running means, at the end."""
    gradients = [(p, p.grad) for p in module.parameters()]
    buffers = [(b, b.detach().clone()) for b in module.buffers()]
    try:
        for p, _ in gradients:
            p.grad = None
        yield
    finally:
        for p, gradient in gradients:
            p.grad = gradient
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


@contextlib.contextmanager
def _each_gradient(parameters, ready):
    """Calls ready(name) as soon as a backward pass has accumulated a parameter's gradient."""
    handles = [
        p.register_post_accumulate_grad_hook(lambda _, name=name: ready(name))
        for name, p in parameters.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _ready_order(parameters, value):
    ready = []
    with _each_gradient(parameters, ready.append):
        value.backward()
    return list(dict.fromkeys(reversed(ready)))[::-1]  # the place of the last gradient, if a parameter has several


# ---- times


class _Clock:
    """Takes points in time of a device's work, and tells the microseconds between two of them."""

    def __init__(self, torch, device):
        if device not in ("cpu", "cuda"):
            raise ValueError(f"measure on {device!r}: expected a module on the CPU or on CUDA")
        self._cuda = torch.cuda if device == "cuda" else None

    def now(self):
        if self._cuda is None:
            return time.perf_counter()
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def finish(self):
        if self._cuda is not None:
            self._cuda.synchronize()

    def microseconds(self, begin, end):
        return (end - begin) * 1e6 if self._cuda is None else begin.elapsed_time(end) * 1e3


def _median(values):
    return round(statistics.median(values), 3)


def _measure(torch, parameters, forward, steps):
    """Medians in microseconds: of forward, of an update, and {parameter: of backward}."""
    clock = _Clock(torch, _device(parameters).type)
    clones = [p.detach().clone() for p in parameters.values()]  # the module's parameters stay unchanged
    optimizer = torch.optim.SGD(clones, lr=1e-6, momentum=0.9)
    forwards, updates, backwards, ready = [], [], {}, []
    for step in range(_WARM_UP + steps):
        for p in parameters.values():
            p.grad = None
        clock.finish()
        ready.clear()
        begin = clock.now()
        value = forward()
        middle = clock.now()
        with _each_gradient(parameters, lambda name: ready.append((name, clock.now()))):
            hooked = clock.now()
            value.backward()
        for clone, p in zip(clones, parameters.values()):
            clone.grad = p.grad
        clock.finish()
        updating = clock.now()
        optimizer.step()
        end = clock.now()
        clock.finish()
        if step < _WARM_UP:
            continue
        forwards.append(clock.microseconds(begin, middle))
        updates.append(clock.microseconds(updating, end))
        for name, at in ready:
            backwards.setdefault(name, []).append(clock.microseconds(hooked, at))
            hooked = at
    return _median(forwards), _median(updates), {n: _median(each) for n, each in backwards.items()}


def _device(parameters):
    return next(iter(parameters.values())).device


def _hardware(torch, parameters, steps):
    if _device(parameters).type == "cuda":
        what = torch.cuda.get_device_name(_device(parameters))
    else:
        what = f"{_processor()}, {torch.get_num_threads()} threads"
    kind = str(next(iter(parameters.values())).dtype).replace("torch.", "")
    how = f"medians of {steps} steps; the update is SGD with momentum"
    return f"{what}, {kind}, {_version(torch)}, {how}"


def _processor():
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


# ---- the command


@contextlib.contextmanager
def _own_arguments(factory):
    """Sets sys.argv to the factory's file alone, for code there that parses the command line."""
    ours, sys.argv = sys.argv, [factory.rpartition(":")[0]]
    try:
        yield
    except SystemExit as ended:
        raise ValueError(f'"{factory}" ended the program: exit {ended.code}') from ended
    finally:
        sys.argv = ours


def _raised(error):
    """The error of the user's code in one line, with its place; our own messages unchanged."""
    frames = traceback.extract_tb(error.__traceback__)
    own = Path(__file__).resolve().parent
    if isinstance(error, (ImportError, ValueError)) and Path(frames[-1].filename).parent == own:
        return str(error)
    lines = str(error).splitlines()
    said = type(error).__name__ + (f": {lines[0]}" if lines else "")
    theirs = [f for f in frames if not _is_of_a_library(Path(f.filename), own)]
    if isinstance(error, ImportError) and not theirs:
        return str(error)
    place = f"{theirs[-1].filename}:{theirs[-1].lineno}: " if theirs else ""
    return f"{place}{said} (--traceback shows the rest)"


def _is_of_a_library(file, own):
    is_frozen = str(file).startswith("<")
    is_installed = {"site-packages", "dist-packages"} & set(file.parts)
    return is_frozen or is_installed or file.parent == own or file == Path(importlib.__file__)


def _load(factory):
    where, colon, name = factory.rpartition(":")
    if not colon or not where or not name:
        raise ValueError(f'"{factory}": expected "package.module:callable" or "file.py:callable"')
    if where.endswith(".py"):
        if not Path(where).is_file():
            raise ValueError(f"{where} is not there: expected a Python file")
        sys.path.insert(0, str(Path(where).resolve().parent))
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        found = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = found
        spec.loader.exec_module(found)
    else:
        sys.path.insert(0, "")  # the folder where the command runs
        found = importlib.import_module(where)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f'"{factory}": {where} has no "{part}"')
        found = getattr(found, part)
    return found


def _example(torch, shapes, batch, axis, device):
    """Random tensors of [batch, *shape], or with the batch at `axis`: normal numbers, or integers
    from 0 to N - 1 for "SHAPE:N"."""
    inputs = []
    for given in shapes:
        if not re.fullmatch(r"\d+(,\d+)*(:\d+)?", given):
            raise ValueError(f"--input-shape {given}: expected 3,224,224; of integers 128:30522")
        sizes, _, below = given.partition(":")
        shape = [*map(int, sizes.split(","))]
        shape.insert(axis or 0, batch)
        if below:
            inputs.append(torch.randint(int(below), shape, device=device))
        else:
            inputs.append(torch.randn(shape, device=device))
    return tuple(inputs)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m sparfuse.describe",
        description="Describes a PyTorch module as a model table.",
    )
    add = parser.add_argument
    add(
        "factory",
        help="package.module:callable or file.py:callable, which returns a module, "
        "(module, inputs) or (module, inputs, loss)",
    )
    add("-o", "--output", required=True, metavar="NAME.json")
    add(
        "--input-shape",
        action="append",
        default=[],
        metavar="SHAPE",
        help="shape of a sample, for each input in order: 3,224,224; integers below 30522: 128:30522",
    )
    add("--batch", type=int, default=8, help="number of samples of these inputs (default: 8)")
    add(
        "--sample-axis",
        type=int,
        metavar="AXIS",
        help="axis of the samples in the first input, if not the first: 1 of [time, batch, features]",
    )
    add("--unit", default="samples", help="unit of throughput (default: samples)")
    add("--units-per-sample", type=int, default=1, help="units in a sample (default: 1)")
    add("--family", help="resnet, vgg, vit, bert, gpt, lstm, transformer or ngram")
    add("--source", help="source of the model")
    add("--measure", type=int, default=0, metavar="N", help="number of steps to time (default: none)")
    add("--traceback", action="store_true", help="show the traceback of an error in the model's own code")
    return parser


def _run(arguments):
    output = Path(arguments.output)
    if output.suffix != ".json" or not re.fullmatch(r"[\w.-]{1,100}", output.stem, re.ASCII):
        raise ValueError(f"-o {output}: expected NAME.json, of letters, digits, '-', '_' and '.'")
    import torch

    with _own_arguments(arguments.factory):
        made = _load(arguments.factory)()
    module, *rest = made if isinstance(made, (tuple, list)) else (made,)
    if not isinstance(module, torch.nn.Module) or len(rest) > 2:
        raise ValueError(
            f'"{arguments.factory}" returned {type(made).__name__}: expected a torch.nn.Module, '
            "(module, inputs) or (module, inputs, loss)"
        )
    if bool(rest) == bool(arguments.input_shape):
        raise ValueError(
            f'"{arguments.factory}" returned {"inputs" if rest else "no inputs"}: expected '
            f"{'no ' if rest else ''}--input-shape"
        )
    if len(rest) == 2 and not callable(rest[1]):
        raise ValueError(
            f'"{arguments.factory}" returned a loss of type {type(rest[1]).__name__}: expected a '
            "callable of the module's output"
        )
    device = next((p.device for p in module.parameters()), None)
    axis = arguments.sample_axis
    inputs = (
        rest[0] if rest else _example(torch, arguments.input_shape, arguments.batch, axis, device)
    )
    table = describe(
        module,
        inputs,
        name=output.stem,
        unit=arguments.unit,
        units_per_sample=arguments.units_per_sample,
        family=arguments.family,
        source=arguments.source or f"sparfuse.describe {arguments.factory}, {_version(torch)}",
        loss=rest[1] if len(rest) > 1 else None,
        sample_axis=axis,
        measure=arguments.measure,
        note=lambda sentence: print(f"note: {sentence}", file=sys.stderr),
    )
    output.write_text(dumps(table), encoding="utf-8")
    elements = sum(math.prod(tensor["shape"]) for tensor in table["tensors"])
    macs = sum(tensor["macs"] for tensor in table["tensors"])
    print(
        f"{output}: {len(table['tensors'])} tensors, {elements} parameters, {macs:.4g} "
        f'multiply-accumulates a sample; workload = "table:{output.name}"'
    )


def _main(arguments=None):
    parser = _parser()
    asked = parser.parse_args(arguments)
    try:
        _run(asked)
    except Exception as error:  # the model's own code may raise any
        if asked.traceback:
            traceback.print_exception(error)
        parser.exit(2, f"describe: {_raised(error)}\n")


if __name__ == "__main__":
    _main()
