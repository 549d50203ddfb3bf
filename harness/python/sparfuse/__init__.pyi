from collections.abc import Sequence
from typing import Any, Literal, Optional, Protocol, TypeVar, Union, overload

import numpy
from numpy.typing import NDArray

__all__ = [
    "ConfigError",
    "Error",
    "ErrorFeedback",
    "NumericError",
    "Sparsifier",
    "UnsupportedError",
    "__version__",
    "decompress",
    "list_sparsifiers",
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
        **options: Union[bool, int, float, str],
    ) -> None: ...
    def select(
        self, g: _Floats, *, name: Optional[str] = None, step: Optional[int] = None
    ) -> _Payload: ...
    def count(self, shape: Union[int, Sequence[int]]) -> int: ...
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

class ErrorFeedback:
    def __init__(
        self,
        sparsifier: Sparsifier,
        feedback: Literal["residual", "momentum"] = "residual",
        *,
        momentum: float = 0.9,
        nesterov: bool = False,
        masking: bool = True,
        clip: Optional[float] = None,
    ) -> None: ...
    def step(self, name: str, g: _Floats, *, step: Optional[int] = None) -> _Payload: ...
    def residual(self, name: str) -> NDArray[numpy.float32]: ...
    def velocity(self, name: str) -> NDArray[numpy.float32]: ...
    @property
    def sparsifier(self) -> Sparsifier: ...
    @property
    def feedback(self) -> Literal["residual", "momentum"]: ...

@overload
def decompress(
    payloads: Sequence[tuple[_Indices, _Floats]],
    shape: Union[int, Sequence[int]],
    average: bool = True,
    *,
    out: None = None,
) -> NDArray[numpy.float32]: ...
@overload
def decompress(
    payloads: Sequence[tuple[_Indices, _Floats]],
    shape: Union[int, Sequence[int]],
    average: bool = True,
    *,
    out: _Out,
) -> _Out: ...
def warmup_density(
    epoch: int,
    density: float,
    epochs: int,
    factor: Optional[float] = None,
    schedule: Optional[Sequence[float]] = None,
) -> float: ...
def list_sparsifiers() -> list[dict[str, Any]]: ...
def register_sparsifier(name: str, sparsifier: Union[type[_Selects], _Selects]) -> None: ...
def set_threads(threads: int) -> None: ...
def threads() -> int: ...
