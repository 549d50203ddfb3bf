"""Has torch, or None where it cannot be used: its optimizers and compiler import sympy only when
they are called, which fails where torch was installed without what it depends on."""

try:
    import sympy  # noqa: F401
    import torch
except ImportError:
    torch = None
