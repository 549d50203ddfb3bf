"""Has what the tests of the module share: gradients, bits, errors, and work without the GIL."""

import sys
import threading
import unittest

import numpy as np


def bits(x):
    return np.ascontiguousarray(x).view(np.uint32)


def gradient(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


class Refusals(unittest.TestCase):
    def expect(self, kind, text, call, *arguments, **keywords):
        with self.assertRaisesRegex(kind, text):
            call(*arguments, **keywords)


def lets_others_run(work):
    """Whether another thread runs during `work`. The interpreter does not take the GIL away for 1000 s,
    and so the thread runs only if the work releases the GIL."""
    gate, ran = threading.Lock(), []
    gate.acquire()

    def wait():
        with gate:
            ran.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        gate.release()
        before = list(ran)
        work()
        return before == [] and ran == [True]
    finally:
        sys.setswitchinterval(interval)
        thread.join()
