# Declares the C++ bindings for type checkers and editors; a test compares it with the bindings. It is
# written by hand, since pybind11-stubgen loses types. That tool makes any array Any. It does not know
# which result type follows from `out`, from the argument of ErrorFeedback, or which keywords a planner
# takes.
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar, overload

import numpy
from numpy.typing import NDArray

__version__: str

class _DLPack(Protocol):
    """An array of another library, such as a torch.Tensor."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...

class _Selects(Protocol):
    """A sparsifier written in Python."""

    def select(self, g: NDArray[numpy.float32], k: int) -> Any: ...

_Array = NDArray[numpy.float32]
_Floats = _Array | _DLPack | memoryview
_Indices = NDArray[numpy.uint32 | numpy.int32 | numpy.int64] | _DLPack | memoryview
_Bytes = NDArray[numpy.uint8] | _DLPack | memoryview | bytes | bytearray
_Payload = tuple[NDArray[numpy.uint32], _Array]
_Shape = int | Sequence[int]
_Layout = Mapping[str, _Shape] | Sequence[tuple[str, _Shape]]
_Option = bool | int | float | str
_Out = TypeVar("_Out", bound=_Floats)

class Error(RuntimeError): ...
class ConfigError(Error, ValueError): ...
class NumericError(Error, ArithmeticError): ...
class UnsupportedError(Error): ...

class _Described:
    @property
    def name(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def options(self) -> dict[str, Any]: ...
    @property
    def paper(self) -> str: ...
    @property
    def deviations(self) -> str: ...
    @property
    def descriptor(self) -> dict[str, Any]: ...

class Sparsifier(_Described):
    density: float
    def __init__(
        self, name: str, density: float = 0.01, seed: int = 0, **options: _Option
    ) -> None: ...
    def select(
        self, g: _Floats, *, name: str | None = None, step: int | None = None
    ) -> _Payload: ...
    def count(self, shape: _Shape) -> int: ...

class Quantizer(_Described):
    def __init__(self, name: str, seed: int = 0, rank: int = 0, **options: _Option) -> None: ...
    def encode(
        self, g: _Floats, *, name: str | None = None, step: int | None = None
    ) -> NDArray[numpy.uint8]: ...
    @overload
    def decode(self, payload: _Bytes, shape: _Shape, *, out: None = None) -> _Array: ...
    @overload
    def decode(self, payload: _Bytes, shape: _Shape, *, out: _Out) -> _Out: ...
    @overload
    def average(self, payloads: Sequence[_Bytes], shape: _Shape, *, out: None = None) -> _Array: ...
    @overload
    def average(self, payloads: Sequence[_Bytes], shape: _Shape, *, out: _Out) -> _Out: ...
    def bytes(self, shape: _Shape) -> int: ...
    def error_bound(self, shape: _Shape) -> float: ...
    @property
    def rank(self) -> int: ...

_Made = TypeVar("_Made", Sparsifier, Quantizer)

class ErrorFeedback(Generic[_Made]):
    @overload
    def __init__(
        self: ErrorFeedback[Sparsifier],
        sparsifier: Sparsifier,
        feedback: Literal["residual", "momentum"] = "residual",
        *,
        momentum: float = 0.9,
        nesterov: bool = False,
        masking: bool = True,
        clip: float | None = None,
        values: Literal["f16", "f32"] = "f32",
    ) -> None: ...
    @overload
    def __init__(
        self: ErrorFeedback[Quantizer],
        sparsifier: Quantizer,
        feedback: Literal["residual"] = "residual",
        *,
        clip: float | None = None,
    ) -> None: ...
    @overload
    def step(
        self: ErrorFeedback[Sparsifier], name: str, g: _Floats, *, step: int | None = None
    ) -> _Payload: ...
    @overload
    def step(
        self: ErrorFeedback[Quantizer], name: str, g: _Floats, *, step: int | None = None
    ) -> NDArray[numpy.uint8]: ...
    def residual(self, name: str) -> _Array: ...
    def velocity(self, name: str) -> _Array: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
    @property
    def sparsifier(self) -> _Made: ...
    @property
    def feedback(self) -> Literal["residual", "momentum"]: ...

class PowerSGD:
    def __init__(self, rank: int = 4, seed: int = 0, workers: int = 1) -> None: ...
    def compresses(self, shape: _Shape) -> bool: ...
    @overload
    def average(
        self, gradients: Mapping[str, Sequence[_Floats]], *, out: None = None
    ) -> dict[str, _Array]: ...
    @overload
    def average(
        self, gradients: Mapping[str, Sequence[_Floats]], *, out: Mapping[str, _Out]
    ) -> dict[str, _Out]: ...
    def compute_p(self, name: str, g: _Floats) -> _Array: ...
    def compute_q(self, name: str, p: _Floats | None = None) -> _Array: ...
    @overload
    def reconstruct(self, name: str, q: _Floats | None = None, *, out: None = None) -> _Array: ...
    @overload
    def reconstruct(self, name: str, q: _Floats | None = None, *, out: _Out) -> _Out: ...
    def residual(self, name: str, worker: int = 0) -> _Array: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def paper(self) -> str: ...
    @property
    def deviations(self) -> str: ...

@overload
def decompress(
    payloads: Sequence[tuple[_Indices, _Floats]],
    shape: _Shape,
    average: bool = True,
    *,
    out: None = None,
) -> _Array: ...
@overload
def decompress(
    payloads: Sequence[tuple[_Indices, _Floats]], shape: _Shape, average: bool = True, *, out: _Out
) -> _Out: ...
def encode_payload(
    idx: _Indices,
    val: _Floats,
    n: int,
    values: Literal["f16", "f32", "fitted", "codes4"] = "f16",
    indices: Literal["delta", "u32", "bloom", "u12"] = "delta",
    *,
    residual: _Floats | None = None,
    policy: Literal["leftmost", "random", "p0"] = "leftmost",
    fpr: float = 0.0,
    chunk: int = 4096,
    density: float = 0.0,
    scope: Literal["tensor", "chunk"] = "tensor",
) -> NDArray[numpy.uint8]: ...
def decode_payload(
    payload: _Bytes,
    n: int,
    *,
    values: Literal["f16", "f32", "codes4"] | None = None,
    indices: Literal["u12"] | None = None,
    chunk: int = 4096,
    density: float = 0.0,
    scope: Literal["tensor", "chunk"] = "tensor",
) -> _Payload: ...
def encode_exponents(val: _Floats) -> NDArray[numpy.uint8]: ...
def decode_exponents(payload: _Bytes, n: int) -> _Array: ...
def dct(x: _Floats, tile: int = 64, tiles: Literal["short", "divisor"] = "short") -> _Array: ...
def idct(
    coefficients: _Floats,
    shape: _Shape,
    tile: int = 64,
    tiles: Literal["short", "divisor"] = "short",
) -> _Array: ...
def warmup_density(
    epoch: int,
    density: float,
    epochs: int,
    factor: float | None = None,
    schedule: Sequence[float] | None = None,
) -> float: ...
def list_quantizers() -> list[dict[str, Any]]: ...
def list_sparsifiers() -> list[dict[str, Any]]: ...
@overload
def plan(
    name: Literal["mg-wfbp", "omgs", "cupcake"],
    *,
    layout: _Layout,
    backward_seconds: Sequence[float],
    world_size: int | None = None,
    alpha: float,
    beta: float,
    **options: float,
) -> list[int]: ...
@overload
def plan(
    name: Literal["espresso"],
    *,
    layout: _Layout,
    backward_seconds: Sequence[float],
    world_size: int,
    alpha: float | None = None,
    beta: float | None = None,
    gpus_per_node: int,
    compressor: Literal["randomk", "dgc", "efsignsgd", "onebit"],
    density: float | None = None,
    nvlink: bool = False,
    cpu: bool = False,
    two_level: bool = False,
    mod1000: bool = False,
) -> list[int]: ...
@overload
def plan(
    name: Literal["hipress"],
    *,
    layout: _Layout,
    backward_seconds: Sequence[float] | None = None,
    world_size: Literal[4, 8, 16],
    alpha: float | None = None,
    beta: float | None = None,
    topology: Literal["PS", "RING"],
) -> list[tuple[Literal["y", "n"], int]]: ...
def register_sparsifier(name: str, sparsifier: type[_Selects] | _Selects) -> None: ...
def set_threads(threads: int) -> None: ...
def threads() -> int: ...

_Method: Any
_Rank: Any
_TcpListener: Any
_method_files: Callable[[], list[tuple[str, str]]]
_method_options: Callable[[str, str, str], dict[str, Any]]
_suggestion: Callable[[str, list[str]], str]
_text_with_imports: Callable[[str, bytes], bytes]
_watch_parts: Callable[[float], None]
