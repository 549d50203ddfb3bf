"""Has torch, or None where it cannot be used: its optimizers and compiler import sympy only when
they are called, which fails where torch was installed without what it depends on. For what needs neither,
`installed` is torch wherever it is installed."""

try:
    import torch as installed
except ImportError:
    installed = None
try:
    import sympy  # noqa: F401

    torch = installed
except ImportError:
    torch = None
