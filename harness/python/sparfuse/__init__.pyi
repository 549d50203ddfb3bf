from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, Optional, Protocol, TypeVar, Union, overload

import numpy
from numpy.typing import NDArray

__all__ = [
    "ConfigError",
    "Error",
    "ErrorFeedback",
    "Method",
    "NumericError",
    "PowerSGD",
    "Quantizer",
    "Sparsifier",
    "UnsupportedError",
    "__version__",
    "decode_payload",
    "decompress",
    "encode_payload",
    "list_methods",
    "list_quantizers",
    "list_sparsifiers",
    "plan",
    "register_sparsifier",
    "set_threads",
    "threads",
    "warmup_density",
]

__version__: str

class _DLPack(Protocol):
    """Another library's array, say a torch.Tensor."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...

class _Selects(Protocol):
    """A sparsifier written in Python."""

    def select(self, g: NDArray[numpy.float32], k: int) -> Any: ...

_Floats = Union[NDArray[numpy.float32], _DLPack, memoryview]
_Indices = Union[
    NDArray[numpy.uint32], NDArray[numpy.int32], NDArray[numpy.int64], _DLPack, memoryview
]
_Payload = tuple[NDArray[numpy.uint32], NDArray[numpy.float32]]
_Bytes = Union[NDArray[numpy.uint8], _DLPack, memoryview, bytes, bytearray]
_Shape = Union[int, Sequence[int]]
_Option = Union[bool, int, float, str]
_Out = TypeVar("_Out", bound=_Floats)

class Error(RuntimeError): ...
class ConfigError(Error, ValueError): ...
class NumericError(Error, ArithmeticError): ...
class UnsupportedError(Error): ...

class Sparsifier:
    density: float
    def __init__(
        self,
        name: str,
        density: float = 0.01,
        seed: int = 0,
        **options: _Option,
    ) -> None: ...
    def select(
        self, g: _Floats, *, name: Optional[str] = None, step: Optional[int] = None
    ) -> _Payload: ...
    def count(self, shape: _Shape) -> int: ...
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

class Quantizer:
    def __init__(self, name: str, seed: int = 0, rank: int = 0, **options: _Option) -> None: ...
    def encode(
        self, g: _Floats, *, name: Optional[str] = None, step: Optional[int] = None
    ) -> NDArray[numpy.uint8]: ...
    @overload
    def decode(
        self, payload: _Bytes, shape: _Shape, *, out: None = None
    ) -> NDArray[numpy.float32]: ...
    @overload
    def decode(self, payload: _Bytes, shape: _Shape, *, out: _Out) -> _Out: ...
    @overload
    def average(
        self, payloads: Sequence[_Bytes], shape: _Shape, *, out: None = None
    ) -> NDArray[numpy.float32]: ...
    @overload
    def average(self, payloads: Sequence[_Bytes], shape: _Shape, *, out: _Out) -> _Out: ...
    def bytes(self, shape: _Shape) -> int: ...
    def error_bound(self, shape: _Shape) -> float: ...
    @property
    def name(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def options(self) -> dict[str, Any]: ...
    @property
    def paper(self) -> str: ...
    @property
    def deviations(self) -> str: ...
    @property
    def descriptor(self) -> dict[str, Any]: ...

# What ErrorFeedback.step returns follows from what the object was made with.
_Made = TypeVar("_Made", Sparsifier, Quantizer)

class ErrorFeedback(Generic[_Made]):
    @overload
    def __init__(
        self: "ErrorFeedback[Sparsifier]",
        sparsifier: Sparsifier,
        feedback: Literal["residual", "momentum"] = "residual",
        *,
        momentum: float = 0.9,
        nesterov: bool = False,
        masking: bool = True,
        clip: Optional[float] = None,
        values: Literal["f16", "f32"] = "f32",
    ) -> None: ...
    @overload
    def __init__(
        self: "ErrorFeedback[Quantizer]",
        sparsifier: Quantizer,
        feedback: Literal["residual"] = "residual",
        *,
        clip: Optional[float] = None,
    ) -> None: ...
    @overload
    def step(
        self: "ErrorFeedback[Sparsifier]", name: str, g: _Floats, *, step: Optional[int] = None
    ) -> _Payload: ...
    @overload
    def step(
        self: "ErrorFeedback[Quantizer]", name: str, g: _Floats, *, step: Optional[int] = None
    ) -> NDArray[numpy.uint8]: ...
    def residual(self, name: str) -> NDArray[numpy.float32]: ...
    def velocity(self, name: str) -> NDArray[numpy.float32]: ...
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
    ) -> dict[str, NDArray[numpy.float32]]: ...
    @overload
    def average(
        self, gradients: Mapping[str, Sequence[_Floats]], *, out: Mapping[str, _Out]
    ) -> dict[str, _Out]: ...
    def compute_p(self, name: str, g: _Floats) -> NDArray[numpy.float32]: ...
    def compute_q(self, name: str, p: Optional[_Floats] = None) -> NDArray[numpy.float32]: ...
    @overload
    def reconstruct(
        self, name: str, q: Optional[_Floats] = None, *, out: None = None
    ) -> NDArray[numpy.float32]: ...
    @overload
    def reconstruct(self, name: str, q: Optional[_Floats] = None, *, out: _Out) -> _Out: ...
    def residual(self, name: str, worker: int = 0) -> NDArray[numpy.float32]: ...
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

_Layout = Union[Mapping[str, _Shape], Sequence[tuple[str, _Shape]]]

class Method:
    def __init__(
        self,
        name: str,
        world_size: int,
        layout: _Layout,
        *,
        ranks_per_node: int = 1,
        density: Optional[float] = None,
        sparsifier: Union[str, Sparsifier, None] = None,
        sparsifier_options: Optional[Mapping[str, _Option]] = None,
        feedback: Optional[Literal["none", "residual", "momentum"]] = None,
        momentum: Optional[float] = None,
        nesterov: Optional[bool] = None,
        masking: Optional[bool] = None,
        clip: Optional[float] = None,
        warmup_epochs: Optional[int] = None,
        epoch_steps: Optional[int] = None,
        decay: Optional[float] = None,
        dense_tensors: Union[Sequence[str], Mapping[str, Any]] = (),
        no_feedback_tensors: Sequence[str] = (),
        order: Literal["ready", "forward"] = "ready",
        seed: Optional[int] = None,
        threads: Optional[int] = None,
        deadline_seconds: float = 60.0,
        verify: bool = False,
        link: Optional[Mapping[str, float]] = None,
        backward_seconds: Optional[Sequence[float]] = None,
        **options: _Option,
    ) -> None: ...
    @overload
    def step(
        self, gradients: Sequence[Mapping[str, Optional[_Floats]]], *, out: None = None
    ) -> dict[str, NDArray[numpy.float32]]: ...
    @overload
    def step(
        self, gradients: Sequence[Mapping[str, Optional[_Floats]]], *, out: Mapping[str, _Out]
    ) -> dict[str, _Out]: ...
    @property
    def plan(self) -> list[dict[str, Any]]: ...
    def residual(self, rank: int, name: str) -> NDArray[numpy.float32]: ...
    def velocity(self, rank: int, name: str) -> NDArray[numpy.float32]: ...
    def timeline(self) -> list[dict[str, Any]]: ...
    def bytes(self) -> dict[str, list[int]]: ...
    @property
    def name(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def options(self) -> dict[str, Any]: ...

@overload
def decompress(
    payloads: Sequence[tuple[_Indices, _Floats]],
    shape: _Shape,
    average: bool = True,
    *,
    out: None = None,
) -> NDArray[numpy.float32]: ...
@overload
def decompress(
    payloads: Sequence[tuple[_Indices, _Floats]],
    shape: _Shape,
    average: bool = True,
    *,
    out: _Out,
) -> _Out: ...
def encode_payload(
    idx: _Indices,
    val: _Floats,
    n: int,
    values: Literal["f16", "f32", "fitted"] = "f16",
    indices: Literal["delta", "u32", "bloom"] = "delta",
    *,
    residual: Optional[_Floats] = None,
    policy: Literal["leftmost", "random", "p0"] = "leftmost",
    fpr: float = 0.0,
) -> NDArray[numpy.uint8]: ...
def decode_payload(payload: _Bytes, n: int) -> _Payload: ...
def warmup_density(
    epoch: int,
    density: float,
    epochs: int,
    factor: Optional[float] = None,
    schedule: Optional[Sequence[float]] = None,
) -> float: ...
def list_methods() -> list[dict[str, Any]]: ...
def list_quantizers() -> list[dict[str, Any]]: ...
def list_sparsifiers() -> list[dict[str, Any]]: ...
@overload
def plan(
    name: Literal["mg-wfbp", "omgs", "cupcake"],
    *,
    layout: _Layout,
    backward_seconds: Sequence[float],
    world_size: Optional[int] = None,
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
    alpha: Optional[float] = None,
    beta: Optional[float] = None,
    gpus_per_node: int,
    compressor: Literal["randomk", "dgc", "efsignsgd", "onebit"],
    density: Optional[float] = None,
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
    backward_seconds: Optional[Sequence[float]] = None,
    world_size: Literal[4, 8, 16],
    alpha: Optional[float] = None,
    beta: Optional[float] = None,
    topology: Literal["PS", "RING"],
) -> list[tuple[Literal["y", "n"], int]]: ...
def register_sparsifier(name: str, sparsifier: Union[type[_Selects], _Selects]) -> None: ...
def set_threads(threads: int) -> None: ...
def threads() -> int: ...
