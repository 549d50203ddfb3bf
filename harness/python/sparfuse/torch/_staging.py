"""Moves gradients of any dtype and strides to a rank, and averages back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

_abandoned: list[Any] = []


def keep_if_abandoned(rank: Any, *gradients: Any) -> None:
    """Keeps what threads still use that wait for a call of a part in Python, which may never return."""
    if rank.abandoned:
        _abandoned.append((rank, *map(tuple, gradients)))


def plain(gradient: torch.Tensor) -> torch.Tensor:
    """The gradient as float32 in row-major order; the same memory if it has that form already."""
    return gradient.detach().to(torch.float32).contiguous()


def write_averages(rank: Any, gradients: Iterable[tuple[int, torch.Tensor]]) -> None:
    """Writes each tensor's average into it; each comes with its place in the layout."""
    pointers, others = [], []
    for place, gradient in gradients:
        to = gradient
        if gradient.dtype is not torch.float32 or not gradient.is_contiguous():
            to = torch.empty(gradient.shape, dtype=torch.float32)
            others.append((gradient, to))
        pointers.append((place, to.data_ptr()))
    rank.copy_averages(pointers)
    with torch.no_grad():
        for gradient, staged in others:
            gradient.copy_(staged)
