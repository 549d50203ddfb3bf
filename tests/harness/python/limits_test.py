"""Tests what would end the interpreter or write wrong numbers: objects without __init__, sizes
beyond reason, memory that is read and written at once."""

import subprocess
import sys
import unittest

import numpy as np

import sparfuse
from sparfuse import _core


class WithoutInit(unittest.TestCase):
    def test_every_attribute_raises(self):
        classes = [sparfuse.Sparsifier, sparfuse.Quantizer, sparfuse.ErrorFeedback,
                   sparfuse.PowerSGD, _core._Method]
        for of in classes:
            for name in dir(of):
                if name.startswith("__"):
                    continue
                made = of.__new__(of)
                with self.subTest(of.__name__, attribute=name):
                    with self.assertRaises(TypeError):
                        found = getattr(made, name)  # a property raises here, a method in its call
                        found(*arguments_of(name))
                del made

    def test_its_words_raise_too(self):
        for of in [sparfuse.Sparsifier, sparfuse.Quantizer, sparfuse.PowerSGD]:
            self.assertRaises(TypeError, repr, of.__new__(of))

    def test_another_object_does_not_take_it(self):
        with self.assertRaisesRegex(TypeError, "without its __init__"):
            sparfuse.ErrorFeedback(sparfuse.Sparsifier.__new__(sparfuse.Sparsifier))
        with self.assertRaisesRegex(TypeError, "without its __init__"):
            sparfuse.ErrorFeedback(sparfuse.Quantizer.__new__(sparfuse.Quantizer))

    def test_init_may_come_later_and_again_after_an_error(self):
        s = sparfuse.Sparsifier.__new__(sparfuse.Sparsifier)
        with self.assertRaises(sparfuse.ConfigError):
            s.__init__("topkk")
        with self.assertRaisesRegex(TypeError, "without its __init__"):
            s.density
        s.__init__("topk", density=0.5)
        self.assertEqual(s.count(10), 5)


def arguments_of(name):
    g = np.ones((8, 8), dtype=np.float32)
    return {
        "select": (g,), "count": (8,), "encode": (g,), "decode": (b"", 8), "average": ([b""], 8),
        "bytes": (8,), "error_bound": (8,), "compute_p": ("w", g), "compute_q": ("w",),
        "reconstruct": ("w",), "compresses": ((8, 8),), "residual": ("w",), "velocity": ("w",),
        "step": ("w", g),
    }.get(name, ())


class Threads(unittest.TestCase):
    def test_sizes_beyond_reason_are_refused_with_the_number(self):
        for threads in [0, -1, 1025, 10**9]:
            with self.assertRaisesRegex(sparfuse.ConfigError, rf"\({threads}\): expected 1 to 1024"):
                sparfuse.set_threads(threads)
        self.assertRaisesRegex(sparfuse.ConfigError, r"threads = 10{30}\b", sparfuse.set_threads, 10**30)
        with self.assertRaisesRegex(sparfuse.ConfigError, "workers = 1000000000: expected 1 to"):
            sparfuse.PowerSGD(workers=10**9)

    def test_integers_are_refused_with_name_value_and_range(self):
        layout = [("w", 4)]
        for key, make, wrong in [
            ("world_size", lambda n: sparfuse.Method("dense", n, layout), [2**31, 1e3, "4", -1, 0]),
            ("seed", lambda n: sparfuse.Method("dense", 2, layout, seed=n), [-1, 2**64, 1.0]),
            ("seed", lambda n: sparfuse.Sparsifier("topk", seed=n), [-1, 2**64, "1"]),
            ("seed", lambda n: sparfuse.Quantizer("qsgd", seed=n), [-1, None]),
            ("rank", lambda n: sparfuse.Quantizer("qsgd", rank=n), [-1, 2**31, 0.5]),
            ("seed", lambda n: sparfuse.PowerSGD(seed=n), [-1, "0"]),
            ("workers", lambda n: sparfuse.PowerSGD(workers=n), [-1, 2**40, "4"]),
            ("epoch", lambda n: sparfuse.warmup_density(n, 0.001, epochs=4), [-1, 2.5]),
            ("epochs", lambda n: sparfuse.warmup_density(0, 0.001, epochs=n), [-1, "4"]),
        ]:
            for value in wrong:
                error = sparfuse.ConfigError if isinstance(value, int) else TypeError
                with self.subTest(key, value=value), self.assertRaisesRegex(
                        error, rf"^{key} = {value!r}: expected (an integer from )?[01] to \d+"):
                    make(value)

    def test_threads_that_cannot_be_started_are_an_error(self):
        run = subprocess.run([sys.executable, "-c", FEW_THREADS], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)


# A program with memory for the stacks of few threads.
FEW_THREADS = """
import resource, sys
import numpy, sparfuse
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (100 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
s = sparfuse.Sparsifier("topk", density=0.5)
g = numpy.ones(8, dtype=numpy.float32)
sparfuse.set_threads(500)
try:
    s.select(g)
except sparfuse.UnsupportedError as error:
    assert "a pool of 500 threads" in str(error), error
else:
    sys.exit("500 threads were started")
sparfuse.set_threads(2)
s.select(g)
"""


class SharedMemory(unittest.TestCase):
    def test_out_may_not_be_a_payload(self):
        idx = np.arange(4, dtype=np.uint32)
        val = np.arange(4, dtype=np.float32)
        before = val.copy()
        with self.assertRaisesRegex(
            sparfuse.ConfigError, r"out shares memory with payloads\[1\]\[1\]"
        ):
            sparfuse.decompress([(idx, before), (idx, val)], 4, out=val)
        np.testing.assert_array_equal(val, before)
        with self.assertRaisesRegex(sparfuse.ConfigError, r"payloads\[0\]\[0\]"):
            sparfuse.decompress([(idx, before)], 4, out=idx.view(np.float32))
        half = np.zeros(8, dtype=np.float32)
        half[2:6] = before
        with self.assertRaisesRegex(sparfuse.ConfigError, "shares memory"):
            sparfuse.decompress([(idx, half[2:6])], 4, out=half[:4])
        both = np.zeros(8, dtype=np.float32)  # neighbours in one array share no memory
        both[:4] = before
        np.testing.assert_array_equal(
            sparfuse.decompress([(idx, both[:4])], 4, out=both[4:]), before
        )

    def test_out_of_a_quantizer_may_not_be_its_payload(self):
        q = sparfuse.Quantizer("fp16")
        memory = np.zeros(16, dtype=np.float32)
        payload = q.encode(np.ones(4, dtype=np.float32))
        view = memory.view(np.uint8)[: payload.size]
        view[:] = payload
        with self.assertRaisesRegex(sparfuse.ConfigError, r"out shares memory with payloads\[0\]"):
            q.decode(view, 4, out=memory[:4])

    def test_residual_may_not_be_what_is_encoded(self):
        idx = np.arange(4, dtype=np.uint32)
        val = np.arange(4, dtype=np.float32)
        with self.assertRaisesRegex(sparfuse.ConfigError, "residual shares memory with val"):
            sparfuse.encode_payload(idx, val, 4, residual=val)


class Shapes(unittest.TestCase):
    def test_products_that_wrap_are_refused(self):
        for shape in [(2**32, 2**32), (2**62, 4), (3, 6148914691236517207)]:
            for use in [
                lambda: sparfuse.Sparsifier("topk").count(shape),
                lambda: sparfuse.Quantizer("sign").bytes(shape),
                lambda: sparfuse.decompress([([], [])], shape),
            ]:
                with self.assertRaisesRegex(sparfuse.ConfigError, "more than 2\\^48 elements"):
                    use()


if __name__ == "__main__":
    unittest.main()
