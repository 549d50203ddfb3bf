"""Defines Method and list_methods: describes methods in Python, whose work is in C++."""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

try:
    import tomllib
except ImportError:  # before Python 3.11
    import tomli as tomllib  # type: ignore[no-redef]

from sparfuse import _core, _found

if TYPE_CHECKING:
    from sparfuse._core import Sparsifier, _Array, _Floats, _Layout, _Option, _Out


@functools.cache
def _method_files():
    files = [tomllib.loads(text) for _, text in _core._method_files()]
    return {file["name"]: file for file in files}


def _method_file(name):
    """The content of a method's file, from the method's name, a path NAME.toml or a dict of its keys."""
    if not isinstance(name, (str, Mapping)):
        raise TypeError(f"method = {name!r}: expected a name, the path of a NAME.toml, or a dict of its keys")
    if isinstance(name, Mapping) or name.endswith(".toml"):
        return _written_method(name)
    files = _method_files()
    found = _found.method(name)
    if found is not None:
        if name in files:
            raise _core.ConfigError(
                f'method "{name}" is in sparfuse itself and in {found}; expected one of each name'
            )
        return _written_method(found)
    if name not in files:
        raise _core.ConfigError(f'unknown method "{name}"{_core._suggestion(name, list(files))}')
    return files[name]


_PARTS_WITH_OPTIONS = ("strategy", "planner", "collective")


def _known_keys():
    """The keys that a method's file may have: those of our own files, and options of parts and payload."""
    of_files = [key for file in _method_files().values() for key in file]
    of_parts = _core._method_options("ahead", "layer-wise", "sparse-allgather")
    options = [f"{part}_options" for part in _PARTS_WITH_OPTIONS]
    return list(dict.fromkeys([*of_files, *options, *(option["name"] for option in of_parts["payload"])]))


def _written_method(given):
    what = "method" if isinstance(given, Mapping) else given
    if not isinstance(given, Mapping):
        try:
            with open(given, "rb") as file:
                given = tomllib.load(file)
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise _core.ConfigError(f"{what}: {error}; expected the file of a method") from None
    for key in ("strategy", "planner", "sparsifier", "collective"):
        if key not in given:
            raise _core.ConfigError(f'{what} has no "{key}"; expected a name')
    for key in ("name", "strategy", "planner", "sparsifier", "feedback", "collective"):
        if not isinstance(given.get(key, ""), str):
            raise _core.ConfigError(f"{what}: {key} = {given[key]!r}: expected a string")
    known = _known_keys()
    for key in given:
        if key not in known:
            beside = key in ("sparsifier_options", "feedback_options")
            hint = "; expected them as arguments, beside the method" if beside else ""
            raise _core.ConfigError(f"{what} has {key!r}{hint or _core._suggestion(key, known)}")
    return _with_folder({"name": "given", **given}, what)


def _with_folder(file, of):
    """Makes the paths of parts absolute; a method's file gives them relative to its folder."""
    folder = os.getcwd() if of == "method" else os.path.dirname(os.path.abspath(of))
    for key in _found.KINDS:
        name = file.get(key)
        if isinstance(name, str) and name.startswith(_found.PREFIXES):
            prefix, _, rest = name.partition(":")
            file[key] = f"{prefix}:{os.path.join(folder, rest)}"
    return file


def list_methods() -> list[dict[str, Any]]:
    """Every registered method, as a list of dicts:

    name                         the name that Method takes
    title, paper, summary        the method's title, source and summary
    deviations                   differences from the paper or its code; "" if none is known
    strategy, planner, sparsifier, feedback, collective
                                 the names of the method's parts
    options                      further keywords of Method: dicts of name, default, range (None, or
                                 the least and the largest value), choices, meaning, and part. The
                                 part that has the option is the strategy, the planner, the
                                 collective or the payload.

    >>> import sparfuse
    >>> methods = {method["name"]: method for method in sparfuse.list_methods()}
    >>> methods["safusion-inter"]["paper"], methods["safusion-inter"]["sparsifier"]
    ('SAFusion, HPDC 2025, section 3.2', 'topk')
    >>> [option["name"] for option in methods["safusion-inter"]["options"]][:2]
    ['units', 'tensors_per_unit']
    """
    return [_describe(file) for file in _method_files().values()]


def _describe(file):
    keys = ["name", "title", "paper", "summary", "deviations", "strategy", "planner", "sparsifier"]
    entry = {key: file.get(key, "") for key in keys + ["collective"]}
    entry["feedback"] = file.get("feedback", "none")
    given = dict(file)
    for part in _PARTS_WITH_OPTIONS:
        given.update(file.get(part + "_options", {}))
    entry["options"] = []
    parts = _core._method_options(file["strategy"], file["planner"], file["collective"])
    for part, options in parts.items():
        for option in options:
            if option["name"] == "replan_every":
                continue  # Method runs no backward pass that could be timed
            option["default"] = given.get(option["name"], option["default"])
            entry["options"].append({**option, "part": part})
    return entry


class _Plan(list):
    """Units in the order in which they are sent; prints as a table."""

    def __repr__(self):
        return "\n".join(self._line(number, unit) for number, unit in enumerate(self))

    __str__ = __repr__

    @staticmethod
    def _line(number, unit):
        tensors = unit["tensors"]
        count = f"{len(tensors)} tensor{'' if len(tensors) == 1 else 's'}"
        line = f"unit {number}: {count}, {unit['elements']} elements, "
        if unit["sparsified"] != "ahead":
            how = "dense" if unit["sparsified"] == "never" else f"density {unit['density']:.4g}, behind"
            return f"{line}{how}: {', '.join(tensor['name'] for tensor in tensors)}"
        groups = {}
        for tensor in tensors:
            how = f"density {tensor['density']:.4g}" if tensor["density"] < 1 else "dense"
            how += " on the host" if tensor["offloaded"] else ""
            how += " by all-reduce" if tensor["reduced"] else ""
            groups.setdefault(how, []).append(tensor["name"])
        return line + "; ".join(f"{how}: {', '.join(names)}" for how, names in groups.items())


class Method:
    """Runs a whole method on the real engine; its ranks are threads of this process.

    name            the method's name (list_methods() lists them), the path of a method's NAME.toml,
                    or a dict of that file's keys
    world_size      the number of ranks
    layout          (name, shape) of each tensor, or a dict of them, in ready order. This is the
                    order in which backward produces gradients, the last layer first. A tied weight
                    is one entry, at the place where its gradient is final.
    order           "ready", or "forward" for a layout in the order of named_parameters()
    ranks_per_node  the number of ranks that share a node, by default 1; a divisor of world_size.
                    Methods that sum within nodes first use it. All ranks are threads of one process.
    density         fraction of the elements to keep, by default 0.01
    sparsifier      a name (also one of register_sparsifier), or a Sparsifier, whose density, seed
                    and options then apply; by default the method's own
    sparsifier_options  dict of the sparsifier's options
    planner         name of the planner that replaces the method's own
    feedback        "none", "residual", "momentum" or "decoupled"; by default the method's own.
                    "momentum" takes momentum, nesterov, masking and clip. "residual" takes decay in
                    (0, 1], the factor of a residual before the next gradient is added; below 1,
                    mass is not conserved. Both take warmup_epochs and epoch_steps: in so many
                    epochs of so many steps the density is higher (DGC's density warm-up).
                    "decoupled", DeMo's feedback, takes decay, and rate, the factor of gradients
                    before they are added.
    dense_tensors   tensors that are never sparsified: names or regular expressions (RE2's), or a
                    dict of "names" and "max_ndim" (tensors of at most so many dimensions)
    no_feedback_tensors  names or regular expressions of tensors without feedback: their elements
                    that are not sent are lost
    seed            seed of random numbers, equal on all ranks
    threads         number of threads of each rank; by default the ranks share threads()
    deadline_seconds  the longest time that a rank waits for another one. A call of a part in Python
                    that takes twice this and 5 s is ended, with the process if need be
    verify          checks in each step that selections lose nothing and that all ranks have the
                    same result, bit for bit
    link, backward_seconds  the times for planners that weigh times. They are declared, and so the
                    same in every run. link is {"gbps": 1.0, "alpha_us": 100.0}: 10^9 bit/s, and the
                    start-up time of a message. backward_seconds has the backward time of each
                    tensor of the layout, by default 1 ns an element. Local work takes 1 us and 1 ns
                    an element.
    fragments       for methods with local steps: the number of parts of the model that are
                    synchronised at dates of their own, or a list of lists of tensors' names, in the
                    order of the dates
    plan            the units to send, in place of the method's planner: a list of units, each a
                    list of tensors by name or by position in the layout. Each tensor is in one
                    unit, and a unit is a run of tensors in ready order.
    options         options of the method's strategy, planner, payload and collective: see
                    list_methods(). The first dense_warmup_steps steps send everything.

    A part may also be a class of a Python file, "python:FILE.py:Class": sparsifier, planner,
    feedback, collective and payload_dense (a quantizer). In a method's file or dict, the strategy
    may be one, too.

    Methods that send whole dense gradients ignore density, sparsifier and feedback, so that a loop
    over methods may treat all methods alike.

    One thread at a time may use an object. Its ranks' threads live as long as the object does.

    >>> import numpy, sparfuse
    >>> layout = [("fc2.weight", (10, 64)), ("fc1.bias", (64,)), ("fc1.weight", (64, 32))]
    >>> m = sparfuse.Method("safusion-inter", world_size=4, layout=layout, density=0.01, units=2)
    >>> draw = numpy.random.default_rng(0).standard_normal
    >>> gradients = [
    ...     {name: draw(shape, dtype=numpy.float32) for name, shape in layout} for rank in range(4)
    ... ]
    >>> averaged = m.step(gradients)
    >>> averaged["fc1.weight"].shape
    (64, 32)
    >>> rest = sum(m.residual(rank, "fc1.weight") for rank in range(4))
    >>> whole = sum(gradient["fc1.weight"] for gradient in gradients)
    >>> bool(numpy.allclose(rest + 4 * averaged["fc1.weight"], whole, atol=1e-5))  # nothing is lost
    True
    """

    _make = _core._Method  # makes the ranks; sparfuse.torch has another one

    def __init__(
        self,
        name: str | Mapping[str, Any],
        world_size: int,
        layout: _Layout,
        *,
        ranks_per_node: int = 1,
        density: float | None = None,
        sparsifier: str | Sparsifier | None = None,
        sparsifier_options: Mapping[str, _Option] | None = None,
        planner: str | None = None,
        feedback: Literal["none", "residual", "momentum", "decoupled"] | str | None = None,
        momentum: float | None = None,
        nesterov: bool | None = None,
        masking: bool | None = None,
        clip: float | str | None = None,
        warmup_epochs: int | None = None,
        epoch_steps: int | None = None,
        decay: float | None = None,
        rate: float | None = None,
        dense_tensors: Sequence[str] | Mapping[str, Any] = (),
        no_feedback_tensors: Sequence[str] = (),
        order: Literal["ready", "forward"] = "ready",
        seed: int | None = None,
        threads: int | None = None,
        deadline_seconds: float = 60.0,
        verify: bool = False,
        link: Mapping[str, float] | None = None,
        backward_seconds: Sequence[float] | None = None,
        plan: Sequence[Sequence[str | int]] | None = None,
        fragments: int | Sequence[Sequence[str]] | None = None,
        **options: _Option,
    ) -> None:
        if not isinstance(name, (str, Mapping)):
            raise TypeError(f"name = {name!r}: expected a string")
        file = _method_file(name)
        if order not in ("ready", "forward"):
            raise _core.ConfigError(f'order = {order!r}: expected "ready" or "forward"')
        forward = order == "forward"
        self._name = name = file["name"]
        self._names, ready = _read_layout(layout, forward)
        if planner is not None:
            if plan is not None:
                raise _core.ConfigError(f"planner = {planner!r} beside a plan; expected one")
            file = {**file, "planner": planner, "planner_options": {}}
        file, options = _found.parts(file), _found.parts(options)
        if feedback is not None:
            feedback = _found.part("feedback", feedback)
        if isinstance(sparsifier, str):
            sparsifier = _found.part("sparsifier", sparsifier)
        if plan is not None:
            for key in ("units", "bytes"):
                if key in options:
                    raise _core.ConfigError(f"{key} = {options[key]!r} beside a plan; expected one")
            sizes = _read_plan(plan, self._names, forward)
            file = {**file, "planner": "given", "planner_options": {"units": sizes}}
        if fragments is not None and file["planner"] != "fragments":
            raise _core.ConfigError(
                f"fragments = {fragments!r}: method {name} sends units of a plan in every step; "
                "expected a method with local steps, and no plan beside"
            )
        if fragments is not None and not isinstance(fragments, Sequence):
            options["fragments"] = fragments
        elif fragments is not None:
            options["fragments"] = len(fragments)
            options["runs"] = _read_fragments(fragments, self._names, forward)
        if backward_seconds is not None:
            backward_seconds = [float(seconds) for seconds in backward_seconds]
            backward_seconds = backward_seconds[::-1] if forward else backward_seconds
        if isinstance(sparsifier, _core.Sparsifier):
            for key, value in [("density", density), ("sparsifier_options", sparsifier_options)]:
                if value is not None:
                    raise _core.ConfigError(
                        f"{key} = {value!r} beside a Sparsifier, which has its own; expected one"
                    )
            density, sparsifier_options = sparsifier.density, sparsifier.options
            seed = sparsifier.seed if seed is None else seed
            sparsifier = sparsifier.name
        if isinstance(clip, str):  # of a method with local steps, whose feedback has no clip
            options["clip"] = clip
            clip = None
        if not isinstance(dense_tensors, Mapping):
            dense_tensors = {"names": dense_tensors}
        _require_keys("dense_tensors", dense_tensors, ["names", "max_ndim"])
        link = {"gbps": 1.0, "alpha_us": 100.0, **_require_keys("link", link, ["gbps", "alpha_us"])}
        feedback_options = {
            "momentum": momentum,
            "nesterov": nesterov,
            "masking": masking,
            "clip": clip,
            "warmup_epochs": warmup_epochs,
            "epoch_steps": epoch_steps,
            "decay": decay,
            "rate": rate,
        }
        _core._watch_parts(deadline_seconds)
        self._ranks = self._make(
            name=name,
            file=file,
            world_size=world_size,
            ranks_per_node=ranks_per_node,
            layout=ready,
            density=0.01 if density is None else density,
            sparsifier=file["sparsifier"] if sparsifier is None else sparsifier,
            sparsifier_options=dict(sparsifier_options or {}),
            feedback=file.get("feedback", "none") if feedback is None else feedback,
            feedback_options={k: v for k, v in feedback_options.items() if v is not None},
            dense_max_ndim=dense_tensors.get("max_ndim", 0),
            dense_tensors=_read_names("dense_tensors", dense_tensors.get("names", ())),
            no_feedback_tensors=_read_names("no_feedback_tensors", no_feedback_tensors),
            seed=0 if seed is None else seed,
            threads=threads,
            deadline_seconds=deadline_seconds,
            gbps=link["gbps"],
            alpha_us=link["alpha_us"],
            backward_seconds=backward_seconds,
            verify=verify,
            options=options,
            keywords=_KEYWORDS,
        )

    @overload
    def step(
        self, gradients: Sequence[Mapping[str, _Floats | None]], *, out: None = None
    ) -> dict[str, _Array]: ...
    @overload
    def step(
        self, gradients: Sequence[Mapping[str, _Floats | None]], *, out: Mapping[str, _Out]
    ) -> dict[str, _Out]: ...
    def step(self, gradients: Sequence[Mapping[str, Any]], *, out: Any = None) -> dict[str, Any]:
        """Makes one step: takes the ranks' gradients and returns the method's average of them.

        gradients  a dict for each rank, of names and float32 arrays in the layout's shapes (NumPy,
                   torch and others by DLPack, the buffer protocol). Arrays that are contiguous in
                   row-major order are read without a copy. A tensor whose name is missing, or whose
                   array is None, has no gradient in this step and counts as zeros.
        out        a dict of arrays to write the averages to, one for each tensor of the layout;
                   they may be gradients. By default new ones are made.

        Returns a dict of the averages, which every rank applies.

        Names, shapes, dtypes and values are checked first; errors of these checks leave the object
        unchanged. A NaN or an infinity in a gradient raises NumericError, which names rank and
        tensor. A later failure on any rank raises an error that begins with the rank's number, such
        as NumericError for a sum that overflows. After that residuals are lost, and further steps
        raise Error.

        >>> import numpy, sparfuse
        >>> m = sparfuse.Method("wfbp", world_size=2, layout=[("w", (4,))], density=0.25)
        >>> one, two = (numpy.array(g, dtype=numpy.float32) for g in ([1, 5, 2, 0], [3, 0, 0, 8]))
        >>> m.step([{"w": one}, {"w": two}])["w"].tolist()
        [0.0, 2.5, 0.0, 4.0]
        >>> m.step([{}, {}], out={"w": one})["w"].tolist()    # the residuals alone
        [1.5, 0.0, 1.0, 0.0]
        """
        averaged = self._ranks.step(gradients, out)
        return {name: averaged[name] for name in self._names}

    def begin(self, parameters: Sequence[Mapping[str, _Out]]) -> None:
        """Sets the first parameters of a method with local steps, before the first local_step.

        parameters  a dict for each rank, of all tensors of the layout: float32 arrays in its shapes,
                    equal on all ranks. They become the anchor.

        >>> import numpy, sparfuse
        >>> m = sparfuse.Method("local-sgd", world_size=2, layout=[("w", (2,))])
        >>> m.begin([{"w": numpy.ones(2, dtype=numpy.float32)} for rank in range(2)])
        >>> m.anchor("w").tolist()
        [1.0, 1.0]
        """
        self._ranks.begin(parameters)

    def local_step(self, parameters: Sequence[Mapping[str, _Out]]) -> dict[str, list[int]]:
        """Makes one step of a method with local steps, after each rank's update of its parameters.

        parameters  a dict for each rank, of all tensors of the layout: float32 arrays in its shapes,
                    contiguous in row-major order, each in memory of its own. If an exchange is due,
                    they are changed in place.

        Returns the numbers of the fragments sent and of the fragments received in this step.

        >>> import numpy, sparfuse
        >>> m = sparfuse.Method("local-sgd", world_size=2, layout=[("w", (2,))], every=2)
        >>> w = [{"w": numpy.zeros(2, dtype=numpy.float32)} for rank in range(2)]
        >>> m.begin(w)
        >>> for step in range(2):
        ...     for rank in range(2):
        ...         w[rank]["w"] += 1 + rank    # its optimizer
        ...     print(m.local_step(w), w[0]["w"].tolist())
        {'sent': [], 'received': []} [1.0, 1.0]
        {'sent': [0], 'received': [0]} [3.0, 3.0]
        """
        return self._ranks.local_step(parameters)

    def finish(self, parameters: Sequence[Mapping[str, _Out]]) -> None:
        """Receives the fragments still under way after the last local_step, into `parameters`.

        >>> import numpy, sparfuse
        >>> m = sparfuse.Method("shadowsync", world_size=2, layout=[("w", (1,))], every=2, mix=0)
        >>> w = [{"w": numpy.zeros(1, dtype=numpy.float32)} for rank in range(2)]
        >>> m.begin(w)
        >>> w[0]["w"] += 1
        >>> m.local_step(w)
        {'sent': [0], 'received': []}
        >>> m.finish(w)
        >>> w[0]["w"].tolist(), w[1]["w"].tolist()
        ([0.5], [0.5])
        """
        self._ranks.finish(parameters)

    def anchor(self, name: str) -> _Array:
        """A copy of a tensor's anchor, the values that all ranks share, with local steps.

        >>> import numpy, sparfuse
        >>> m = sparfuse.Method("diloco", 1, [("w", (1,))], every=1, outer_rate=1, outer_momentum=0.5)
        >>> w = [{"w": numpy.ones(1, dtype=numpy.float32)}]
        >>> m.begin(w)
        >>> w[0]["w"] -= 0.5
        >>> done = m.local_step(w)
        >>> m.anchor("w").tolist(), m.outer_state("w").tolist()
        ([0.25], [0.5])
        """
        return self._ranks.anchor(name)

    def outer_state(self, name: str) -> _Array:
        """A copy of the outer optimizer's momentum of a tensor, with local steps.

        >>> import numpy, sparfuse
        >>> m = sparfuse.Method("diloco", 1, [("w", (2,))])
        >>> m.begin([{"w": numpy.ones(2, dtype=numpy.float32)}])
        >>> m.outer_state("w").tolist()
        [0.0, 0.0]
        """
        return self._ranks.outer_state(name)

    @property
    def plan(self) -> list[dict[str, Any]]:
        """The units in which gradients are sent, a list of dicts; it prints a line for each unit.

        sparsified  "never", "ahead" (tensor by tensor, before fusion) or "behind" (after fusion)
        density     density of the unit
        lane        the lane of a selection behind fusion: "compute", or "side" (beside "compute")
        elements    number of elements of all tensors in the unit
        tensors     dicts of name, elements, density (1: all elements), offloaded (selected by
                    another thread), reduced (dense, in an all-reduce of its own)

        >>> import sparfuse
        >>> layout = [("fc2.weight", (10, 64)), ("fc1.bias", (64,)), ("fc1.weight", (64, 32))]
        >>> m = sparfuse.Method("safusion-inter", 4, layout, units=2, dense_tensors=["bias"])
        >>> print(m.plan)
        unit 0: 2 tensors, 704 elements, density 0.01: fc2.weight; dense: fc1.bias
        unit 1: 1 tensor, 2048 elements, density 0.01: fc1.weight
        >>> m.plan[0]["tensors"][1]["density"]
        1.0
        """
        return _Plan(self._ranks.plan())

    def residual(self, rank: int, name: str) -> _Array:
        """A copy of a rank's residual of a tensor, not sent yet: v, with momentum correction.

        >>> import numpy, sparfuse
        >>> m = sparfuse.Method("wfbp", world_size=1, layout=[("w", (4,))], density=0.25)
        >>> averaged = m.step([{"w": numpy.array([1, 5, 2, 0], dtype=numpy.float32)}])
        >>> m.residual(0, "w").tolist()
        [1.0, 0.0, 2.0, 0.0]
        """
        return self._ranks.residual(rank, name)

    def velocity(self, rank: int, name: str) -> _Array:
        """A copy of a rank's velocity of a tensor: u in momentum correction.

        >>> import numpy, sparfuse
        >>> m = sparfuse.Method("wfbp", 1, [("w", (4,))], density=0.25, feedback="momentum")
        >>> averaged = m.step([{"w": numpy.array([1, 5, 2, 0], dtype=numpy.float32)}])
        >>> m.velocity(0, "w").tolist()    # masked where it was sent
        [1.0, 0.0, 2.0, 0.0]
        """
        return self._ranks.velocity(rank, name)

    def timeline(self) -> list[dict[str, Any]]:
        """The spans of the ranks' work in the last step: a list of dicts, rank by rank.

        rank           the rank that the span belongs to
        kind           "pack", "sparsify", "exchange", "negotiate", "decompress", "outer" or "wait"
        lane           "compute", "side" or "host", or a channel: "control", "data", ...
        label          label of the tensor or the unit
        begin_seconds, end_seconds  time since this rank's step began
        bytes          bytes of the payload

        >>> import numpy, sparfuse
        >>> m = sparfuse.Method("wfbp", world_size=2, layout=[("w", (4,))], density=0.25)
        >>> averaged = m.step([{"w": numpy.ones(4, dtype=numpy.float32)}] * 2)
        >>> sorted({span["kind"] for span in m.timeline() if span["kind"] != "wait"})
        ['decompress', 'exchange', 'sparsify']
        """
        return self._ranks.timeline()

    def bytes(self) -> dict[str, list[int]]:
        """The bytes of the last step, as lists by rank: payload, sent and received.

        payload  the rank's own contribution: 8 bytes an element with an index, unless it is coded
        sent, received  bytes that the rank sends to and receives from others, forwards included

        >>> import numpy, sparfuse
        >>> m = sparfuse.Method("wfbp", world_size=2, layout=[("w", (100,))], density=0.01)
        >>> averaged = m.step([{"w": numpy.ones(100, dtype=numpy.float32)}] * 2)
        >>> m.bytes()
        {'payload': [8, 8], 'sent': [8, 8], 'received': [8, 8]}
        """
        return self._ranks.bytes()

    @property
    def name(self) -> str:
        """The method's name.

        >>> import sparfuse
        >>> sparfuse.Method("wfbp", world_size=2, layout=[("w", (4,))]).name
        'wfbp'
        """
        return self._name

    @property
    def steps(self) -> int:
        """The number of steps made.

        >>> import sparfuse
        >>> sparfuse.Method("wfbp", world_size=2, layout=[("w", (4,))]).steps
        0
        """
        return self._ranks.steps

    @property
    def options(self) -> dict[str, Any]:
        """The method's parts and options: keywords of Method, defaults included.

        >>> import sparfuse
        >>> m = sparfuse.Method("safusion-inter", world_size=2, layout=[("w", (4,))])
        >>> m.options["units"], m.options["sparsifier"], m.options["density"], m.options["feedback"]
        (20, 'topk', 0.01, 'residual')
        """
        return self._ranks.options()

    def __reduce__(self):  # copy and pickle call it; a copy would share the ranks
        raise TypeError("cannot copy or pickle a sparfuse.Method: its ranks are threads; make one")

    def __repr__(self):
        return f"sparfuse.Method({self._name!r}, {self.options}, {len(self._names)} tensors)"


_KEYWORDS = [
    parameter.name
    for parameter in inspect.signature(Method.__init__).parameters.values()
    if parameter.kind is parameter.KEYWORD_ONLY
]


def _read_layout(layout, forward):
    entries = list(layout.items() if isinstance(layout, Mapping) else layout)
    for entry in entries:
        if not (isinstance(entry, (tuple, list)) and len(entry) == 2 and isinstance(entry[0], str)):
            raise TypeError(f"layout has {entry!r}; expected (name, shape)")
    names = [name for name, _ in entries]
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise _core.ConfigError(
                f"layout has the name {name!r}: expected a string that UTF-8 holds"
            ) from None
    return names, entries[::-1] if forward else entries


def _read_plan(plan, names, forward):
    """The number of tensors of each unit, in ready order, in the format of the planner "given"."""
    unit_of = {}
    for number, unit in enumerate(plan):
        if isinstance(unit, (str, bytes)) or not isinstance(unit, Sequence) or not unit:
            raise TypeError(
                f"plan[{number}] = {unit!r}; expected a list of at least one tensor, each a name or "
                "a position in the layout"
            )
        for tensor in unit:
            name = _tensor_of_plan(number, tensor, names)
            if name in unit_of:
                raise _core.ConfigError(
                    f'plan has "{name}" in unit {unit_of[name]} and in unit {number}; expected each '
                    "tensor of the layout once"
                )
            unit_of[name] = number
    sizes = {}
    for number, run in itertools.groupby(names[::-1] if forward else names, unit_of.get):
        run = list(run)
        if number is None:
            raise _core.ConfigError(f'plan lacks "{run[0]}"; expected each tensor of the layout once')
        if number in sizes:
            raise _core.ConfigError(
                f'plan has "{run[0]}" in unit {number}, and tensors of another unit are ready between it '
                "and the others of its own; expected units that are runs of tensors in ready order"
            )
        sizes[number] = len(run)
    return ",".join(map(str, sizes.values()))


def fragment_of_each(
    fragments: Sequence[Sequence[str]], names: list[str], whole: str
) -> dict[str, int]:
    """The number of each name's fragment. `whole` has the names: "the layout".

    Throws ConfigError if a fragment is no list of names, or if `fragments` do not have each of `names`
    exactly once.
    """
    fragment_of: dict[str, int] = {}
    for number, fragment in enumerate(fragments):
        if isinstance(fragment, (str, bytes)) or not isinstance(fragment, Sequence) or not fragment:
            raise _core.ConfigError(
                f"fragments[{number}] = {fragment!r}; expected a list of at least one name of {whole}"
            )
        for name in fragment:
            if name not in names:
                near = _core._suggestion(str(name), names)
                raise _core.ConfigError(
                    f"fragments[{number}] has {name!r}, which is not in {whole}{near}"
                )
            if name in fragment_of:
                raise _core.ConfigError(
                    f"fragments has {name!r} in {fragment_of[name]} and in {number}; expected each "
                    f"name of {whole} once"
                )
            fragment_of[name] = number
    for name in names:
        if name not in fragment_of:
            raise _core.ConfigError(f"fragments lacks {name!r}; expected each name of {whole} once")
    return fragment_of


def _read_fragments(fragments, names, forward):
    """Runs of tensors in ready order, "COUNT:FRAGMENT,...", in the format of planner "fragments"."""
    fragment_of = fragment_of_each(fragments, names, "the layout")
    runs = itertools.groupby(names[::-1] if forward else names, fragment_of.get)
    return ",".join(f"{len(list(run))}:{fragment}" for fragment, run in runs)


def _tensor_of_plan(number, tensor, names):
    if isinstance(tensor, str):
        if tensor not in names:
            near = _core._suggestion(tensor, names)
            raise _core.ConfigError(f'plan[{number}] has "{tensor}", which is not in the layout{near}')
        return tensor
    try:
        position = operator.index(tensor)
    except TypeError:
        raise TypeError(
            f"plan[{number}] has {tensor!r}; expected a name or a position in the layout"
        ) from None
    if not 0 <= position < len(names):
        raise _core.ConfigError(
            f"plan[{number}] has position {position}; expected 0 to {len(names) - 1}, tensors of "
            "the layout"
        )
    return names[position]


def _read_names(key, names):
    if isinstance(names, str):
        raise TypeError(f"{key} = {names!r}; expected a list of names or regular expressions")
    return [str(name) for name in names]


def _require_keys(key, table, known):
    table = {} if table is None else dict(table)
    for name in table:
        if name not in known:
            expected = " and ".join(known)
            raise _core.ConfigError(f"{key} has {name!r}; expected {expected}")
    return table
