"""Tests Sparsifier: against top-k in NumPy, the arrays that it takes, its errors, threads."""

import array
import os
import threading
import unittest

import numpy as np
from common import Refusals, bits, gradient, lets_others_run
from usable_torch import installed as torch

import sparfuse


def top_k(g, k):
    """(indices, values) of the k largest magnitudes of the flattened g, ties to the lower index; sorted by
    index."""
    flat = np.ascontiguousarray(g).ravel()
    order = np.lexsort((np.arange(flat.size), -np.abs(flat)))[:k]
    idx = np.sort(order).astype(np.uint32)
    return idx, flat[idx]


class Selection(unittest.TestCase):
    def expect_top_k(self, g, given=None, density=0.1):
        s = sparfuse.Sparsifier("topk", density=density)
        idx, val = s.select(g if given is None else given)
        expected_idx, expected_val = top_k(g, max(1, int(np.size(g) * density)))
        np.testing.assert_array_equal(idx, expected_idx)
        np.testing.assert_array_equal(bits(val), bits(expected_val))
        self.assertEqual((idx.dtype, val.dtype), (np.dtype("uint32"), np.dtype("float32")))

    def test_equals_top_k_in_any_shape(self):
        for shape in [(), (1,), (7,), (1000,), (30, 40), (2, 3, 5, 7), (300_000,)]:
            with self.subTest(shape):
                self.expect_top_k(gradient(*shape) if shape else np.array(-2.5, dtype=np.float32))

    def test_ties_go_to_the_lower_index(self):
        rng = np.random.default_rng(1)
        for levels in [1, 2, 5]:
            self.expect_top_k(rng.integers(-levels, levels + 1, 5000).astype(np.float32))

    def test_density_one_keeps_all_in_order(self):
        self.expect_top_k(gradient(100), density=1.0)

    def test_every_sparsifier_keeps_bits_and_order(self):
        for entry in sparfuse.list_sparsifiers():
            for shape in [(1,), (50, 40), (8, 4, 3, 3)]:
                with self.subTest(entry["name"], shape=shape):
                    g = gradient(*shape, seed=2)
                    s = sparfuse.Sparsifier(entry["name"], density=0.05, seed=3)
                    idx, val = s.select(g)
                    self.assertGreaterEqual(idx.size, 1)
                    if entry["exact_count"]:
                        self.assertEqual(idx.size, s.count(shape))
                    self.assertTrue((np.diff(idx.astype(np.int64)) > 0).all())
                    np.testing.assert_array_equal(bits(val), bits(g.ravel()[idx]))

    def test_arrays_of_all_kinds(self):
        g = gradient(12, 10)
        read_only = g.copy()
        read_only.flags.writeable = False
        shifted = np.frombuffer(b"x" + g.tobytes(), dtype=np.float32, offset=1)
        self.assertFalse(shifted.flags.aligned)
        given = {
            "transposed": (g.T, g.T),
            "every other": (g[::2, 1::3], g[::2, 1::3]),
            "reversed": (g[::-1], g[::-1]),
            "fortran": (g, np.asfortranarray(g)),
            "broadcast": (np.broadcast_to(g[0], (5, 10)),) * 2,
            "read-only": (g, read_only),
            "unaligned": (g, shifted.reshape(g.shape)),
            "memoryview": (g, memoryview(g)),
            "array.array": (g, array.array("f", g.ravel())),
        }
        if torch is not None:
            tensor = torch.from_numpy(g.copy())
            given["torch"] = (g, tensor)
            given["torch, transposed"] = (g.T, tensor.T)
            given["torch, gradient"] = (g, torch.nn.Parameter(tensor).detach())
        for kind, (as_numpy, argument) in given.items():
            with self.subTest(kind):
                self.expect_top_k(as_numpy, argument)

    def test_results_own_their_memory(self):
        s = sparfuse.Sparsifier("topk", density=0.5)
        g = gradient(100)
        idx, val = s.select(g)
        before = idx.copy(), val.copy()
        s.select(gradient(100, seed=5))
        del s
        g[:] = 0
        np.testing.assert_array_equal(idx, before[0])
        np.testing.assert_array_equal(val, before[1])
        val[0] = 7  # results are writeable

    def test_names_keep_steps_apart(self):
        draw = lambda s, **given: s.select(g, **given)[0].tolist()
        g = gradient(1000)
        s, same = (sparfuse.Sparsifier("randomk", density=0.02, seed=1) for _ in range(2))
        first = draw(s, name="a")
        self.assertNotEqual(draw(s, name="b"), first)
        second = draw(s, name="a")
        self.assertNotEqual(second, first)
        # Workers agree in any order of their tensors; steps can be given.
        self.assertEqual(draw(same, name="a", step=1), second)
        self.assertEqual(draw(same, name="a", step=0), first)
        self.assertEqual(draw(same, name="a"), second)
        self.assertNotEqual(draw(sparfuse.Sparsifier("randomk", 0.02, 2), name="a"), first)

    def test_density_can_be_set(self):
        s = sparfuse.Sparsifier("topk", density=0.5)
        s.density = 0.1
        self.assertEqual(s.select(gradient(100))[0].size, 10)
        with self.assertRaises(sparfuse.ConfigError):
            s.density = 0


class Errors(Refusals):
    def test_classes(self):
        self.assertTrue(issubclass(sparfuse.Error, RuntimeError))
        for kind, also in [
            (sparfuse.ConfigError, ValueError),
            (sparfuse.NumericError, ArithmeticError),
            (sparfuse.UnsupportedError, RuntimeError),
        ]:
            self.assertTrue(issubclass(kind, sparfuse.Error) and issubclass(kind, also))

    def test_names_and_options(self):
        make = sparfuse.Sparsifier
        self.expect(sparfuse.ConfigError, 'did you mean "topk"', make, "topkk")
        self.expect(sparfuse.ConfigError, "known: .*dgc", make, "something else entirely")
        self.expect(
            ValueError,
            'unknown option "sample_rate"; did you mean "sample_ratio".*known: .*upper_bound',
            make,
            "dgc",
            sample_rate=0.1,
        )
        self.expect(ValueError, "topk: unknown option .*takes none", make, "topk", ratio=1)
        self.expect(ValueError, "sample_ratio = 7", make, "dgc", sample_ratio=7)
        self.expect(ValueError, "resample = 3: expected true or false", make, "dgc", resample=3)
        self.expect(ValueError, "resample is a list", make, "dgc", resample=[])
        for density in [0, -1, 1.5, float("nan")]:
            self.expect(ValueError, r"density = .*\(0, 1\]", make, "topk", density=density)

    def test_options_of_numpy(self):
        s = sparfuse.Sparsifier("dgc", sample_ratio=np.float32(0.5), resample=np.bool_(False),
                                max_iterations=np.int64(3))
        self.assertEqual(s.options["sample_ratio"], 0.5)
        self.assertIs(s.options["resample"], False)
        self.assertEqual(s.options["max_iterations"], 3)

    def test_wrong_arrays(self):
        select = sparfuse.Sparsifier("topk").select
        self.expect(TypeError, r"float64; expected float32.*astype", select, np.zeros(3))
        self.expect(TypeError, "int32", select, np.zeros(3, dtype=np.int32))
        self.expect(TypeError, ">f4", select, np.zeros(3, dtype=">f4"))
        self.expect(TypeError, "list.*numpy.asarray", select, [1.0, 2.0])
        self.expect(TypeError, "NoneType", select, None)
        self.expect(ValueError, r"empty.*\(0,\)", select, np.zeros(0, dtype=np.float32), name="w")
        select(np.ones((2, 3), dtype=np.float32), name="w")
        self.expect(ValueError, r'"w" has shape \(6,\), and had \(2, 3\)', select,
                    np.ones(6, dtype=np.float32), name="w")

    def test_memory_on_a_device(self):
        class OnGpu:
            device = "cuda:1"

            def __dlpack__(self, **keywords):
                raise AssertionError("not to be asked for")

            def __dlpack_device__(self):
                return (2, 1)

        select = sparfuse.Sparsifier("topk").select
        self.expect(sparfuse.UnsupportedError, "g is on device cuda:1.*CPU", select, OnGpu())

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_refuses_tensors_that_are_negated_when_read(self):
        negated = torch.complex(torch.zeros(4), torch.ones(4)).conj().imag
        s = sparfuse.Sparsifier("topk", density=0.5)
        words = r"is a tensor with the negative bit.*pass {}\.resolve_neg\(\)"
        for call in [s.select, lambda g: sparfuse.ErrorFeedback(s).step("w", g),
                     sparfuse.Quantizer("sign").encode]:
            self.expect(TypeError, "g " + words.format("g"), call, negated)
        self.expect(TypeError, "conjugate bit.*resolve_conj", s.select,
                    torch.zeros(4, dtype=torch.complex64).conj())
        idx, val = s.select(negated.resolve_neg())
        self.assertEqual(val.tolist(), [-1, -1])
        out = torch.zeros(4)
        with self.assertRaisesRegex(TypeError, "out " + words.format("out")):
            sparfuse.decompress([(idx, val)], 4, out=torch._neg_view(out))
        self.assertEqual(out.tolist(), [0, 0, 0, 0])

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_wrong_tensors(self):
        select = sparfuse.Sparsifier("topk").select
        self.expect(TypeError, r"float64.*g\.float\(\)", select, torch.zeros(3).double())
        for dtype in [torch.bfloat16, torch.float8_e4m3fn]:
            self.expect(TypeError, rf"{dtype}.*expected float32: pass g\.float\(\)$", select,
                        torch.zeros(3).to(dtype))
        self.expect(TypeError, r"complex64.*pass torch\.view_as_real\(g\)\.float\(\)$", select,
                    torch.zeros(3, dtype=torch.complex64))
        self.expect(TypeError, "detach", select, torch.zeros(3, requires_grad=True))
        self.expect(TypeError, "meta", select, torch.zeros(3, device="meta"))

    def test_what_is_not_finite(self):
        for entry in sparfuse.list_sparsifiers():
            for bad in [np.nan, np.inf, -np.inf]:
                g = gradient(100)
                g[17] = bad
                with self.subTest(entry["name"], bad=bad):
                    # without the option, randomk checks only the elements that it sends
                    options = {"check_unsent": True} if entry["name"] == "randomk" else {}
                    select = sparfuse.Sparsifier(entry["name"], **options).select
                    self.expect(sparfuse.NumericError, 'fc.bias.*element 17', select, g,
                                name="fc.bias")


class Threads(unittest.TestCase):
    def setUp(self):
        self.addCleanup(sparfuse.set_threads, sparfuse.threads())

    def test_results_do_not_depend_on_their_number(self):
        g = gradient(500_000)
        results = []
        for threads in [1, 2, 3]:
            sparfuse.set_threads(threads)
            self.assertEqual(sparfuse.threads(), threads)
            results.append(sparfuse.Sparsifier("topk", density=0.01).select(g))
        for idx, val in results[1:]:
            np.testing.assert_array_equal(idx, results[0][0])
            np.testing.assert_array_equal(bits(val), bits(results[0][1]))
        for threads in [0, -1]:
            self.assertRaises(sparfuse.ConfigError, sparfuse.set_threads, threads)

    def test_the_gil_is_released(self):
        g = gradient(8_000_000)
        s = sparfuse.Sparsifier("topk", density=0.05)
        self.assertTrue(lets_others_run(lambda: [s.select(g) for _ in range(20)]))

    def test_one_object_serves_several_threads(self):
        s = sparfuse.Sparsifier("topk", density=0.01)
        arrays = [gradient(50_000, seed=i) for i in range(4)]
        wrong = []

        def work(i):
            for _ in range(20):
                idx, val = s.select(arrays[i], name=str(i))
                expected = top_k(arrays[i], 500)
                if not (np.array_equal(idx, expected[0]) and np.array_equal(val, expected[1])):
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_a_forked_child_selects_too(self):
        sparfuse.set_threads(2)
        g = gradient(500_000)
        s = sparfuse.Sparsifier("topk", density=0.01)
        expected = s.select(g)[0]
        child = os.fork()
        if child == 0:
            same = False
            try:
                same = np.array_equal(s.select(g)[0], expected)
                sparfuse.set_threads(3)
                same = same and np.array_equal(s.select(g)[0], expected)
            finally:
                os._exit(0 if same else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


if __name__ == "__main__":
    unittest.main()
