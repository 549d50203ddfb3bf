from collections.abc import Callable
from typing import Any, Optional

__all__ = ["describe", "dumps"]

# Modules, tensors and losses are PyTorch's, which the package does not need.
def describe(
    module: Any,
    example_inputs: Any,
    *,
    name: str = "model",
    unit: str = "samples",
    units_per_sample: int = 1,
    batch_per_worker: Optional[int] = None,
    family: Optional[str] = None,
    source: Optional[str] = None,
    loss: Optional[Callable[[Any], Any]] = None,
    samples: Optional[int] = None,
    measure: int = 0,
    note: Optional[Callable[[str], object]] = None,
) -> dict[str, Any]: ...
def dumps(table: dict[str, Any]) -> str: ...
