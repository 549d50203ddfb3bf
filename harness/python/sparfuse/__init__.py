"""Sparsifies gradients: exactly, at memory speed, in any float32 array.

A step of data-parallel training that sends 1 % of the gradient, seen from one worker:

>>> import numpy, sparfuse
>>> s = sparfuse.Sparsifier("dgc", density=0.01, seed=1)
>>> f = sparfuse.ErrorFeedback(s)
>>> g = numpy.random.default_rng(0).standard_normal((64, 32), dtype=numpy.float32)
>>> idx, val = f.step("layer1.weight", g)             # what to send
>>> payloads = [(idx, val)]                           # with those of the other workers
>>> average = sparfuse.decompress(payloads, g.shape)  # what every worker applies
>>> average.shape, bool((average.ravel()[idx] == val).all())
((64, 32), True)

Sparsifier selects, ErrorFeedback adds what was left out to the next gradient, decompress averages
the payloads of all workers. list_sparsifiers() lists the sparsifiers with their papers;
register_sparsifier adds one that is written in Python. encode_payload halves a payload's bytes.

Whole methods, all their ranks in this process, on the engine that sparfuse measures them with:
Method; list_methods() has them. Units of published planners, by given times: plan.

Whole gradients in fewer bits: Quantizer encodes, decodes and averages, ErrorFeedback takes one too;
list_quantizers() has them. Matrices as products of thin ones: PowerSGD. Floats in fewer bytes without
loss: encode_exponents. Cosine transforms of tiles: dct.
"""

from sparfuse._core import (
    ConfigError,
    Error,
    ErrorFeedback,
    NumericError,
    PowerSGD,
    Quantizer,
    Sparsifier,
    UnsupportedError,
    __version__,
    dct,
    decode_exponents,
    decode_payload,
    decompress,
    encode_exponents,
    encode_payload,
    idct,
    list_quantizers,
    list_sparsifiers,
    plan,
    register_sparsifier,
    set_threads,
    threads,
    warmup_density,
)
from sparfuse._method import Method, list_methods
from sparfuse._trace import trace

__all__ = [
    "ConfigError", "Error", "ErrorFeedback", "Method", "NumericError", "PowerSGD", "Quantizer",
    "Sparsifier", "UnsupportedError", "__version__", "dct", "decode_exponents", "decode_payload",
    "decompress", "encode_exponents", "encode_payload", "idct", "list_methods", "list_quantizers",
    "list_sparsifiers", "plan", "register_sparsifier", "set_threads", "threads", "trace",
    "warmup_density",
]


def _resumed(kind, arguments, keywords, state, attributes):
    """The object that pickle and copy make: it continues from another object's state."""
    made = kind(*arguments, **keywords)
    (made.load_state_dict if hasattr(made, "load_state_dict") else made._load_steps)(state)
    if attributes:
        vars(made).update(attributes)
    return made


Method.__module__ = list_methods.__module__ = "sparfuse"  # where users find them
