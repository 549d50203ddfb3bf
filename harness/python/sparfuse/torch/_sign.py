"""The update of DeMo: by the sign of the averaged gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


class SignSGD(torch.optim.Optimizer):
    """Moves parameters by the sign of their gradient, which is the update of method "demo".

    params        as for any optimizer of torch
    lr            learning rate; a step is p = (1 - lr * weight_decay) * p - lr * sign(p.grad)
    weight_decay  weight decay, decoupled from the gradient

    The optimizer has no state: the method keeps the momentum. Recipes of experiments call it "sign".

    >>> import torch, sparfuse.torch as sf
    >>> p = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> p.grad = torch.tensor([0.1, 0.0])
    >>> sf.SignSGD([p], lr=0.5, weight_decay=0.5).step()
    >>> p.tolist()
    [0.25, 1.5]
    """

    def __init__(self, params: Iterable[Any], lr: float, weight_decay: float = 0.0) -> None:
        for name, value in (("lr", lr), ("weight_decay", weight_decay)):
            if not value >= 0:
                raise ValueError(f"{name} = {value!r}: expected a number of at least 0")
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Updates all parameters that have a gradient; returns the closure's result, or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(p.grad.sign(), alpha=group["lr"])
        return loss
