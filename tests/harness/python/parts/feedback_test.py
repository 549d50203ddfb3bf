"""Tests ErrorFeedback against NumPy, bit for bit; decompress; the warm-up."""

import unittest

import numpy as np
from common import bits, gradient
from usable_torch import installed as torch

import sparfuse


class Feedback(unittest.TestCase):
    def expect_bits(self, a, b):
        np.testing.assert_array_equal(bits(a), bits(b))

    def check_payload(self, x, idx, val):
        """Checks that val is x at idx; returns x with these entries set to 0."""
        self.expect_bits(val, x.ravel()[idx])
        left = x.copy()
        left.ravel()[idx] = 0
        return left

    def test_a_method_that_it_would_pass_over_is_refused(self):
        for kind, name, own in [(sparfuse.Sparsifier, "topk", "select"),
                                (sparfuse.Quantizer, "sign", "encode")]:
            derived = type("Derived", (kind,), {own: lambda self, g: None})
            with self.assertRaisesRegex(sparfuse.ConfigError,
                                        f"Derived has a method {own} of its own.*register"):
                sparfuse.ErrorFeedback(derived(name))
            sparfuse.ErrorFeedback(type("Derived", (kind,), {})(name))

    def test_residual_conserves_mass(self):
        for entry in sparfuse.list_sparsifiers():
            f = sparfuse.ErrorFeedback(sparfuse.Sparsifier(entry["name"], density=0.02, seed=1))
            residual = np.zeros((60, 50), dtype=np.float32)
            for step in range(20):
                with self.subTest(entry["name"], step=step):
                    g = gradient(60, 50, seed=step)
                    before = g.copy()
                    idx, val = f.step("conv1.weight", g)
                    residual = self.check_payload(g + residual, idx, val)
                    self.expect_bits(f.residual("conv1.weight"), residual)
                    self.expect_bits(g, before)

    def test_momentum_is_dgc_s(self):
        m = np.float32(0.9)
        for nesterov in [False, True]:
            for masking in [False, True]:
                f = sparfuse.ErrorFeedback(
                    sparfuse.Sparsifier("topk", density=0.02),
                    feedback="momentum",
                    momentum=0.9,
                    nesterov=nesterov,
                    masking=masking,
                )
                u, v = np.zeros((2, 3000), dtype=np.float32)
                for step in range(20):
                    g = gradient(3000, seed=step)
                    idx, val = f.step("w", g)
                    if nesterov:
                        u = m * (u + g)
                        v = v + (u + g)
                    else:
                        u = m * u + g
                        v = v + u
                    v = self.check_payload(v, idx, val)
                    if masking:
                        u[idx] = 0
                    self.expect_bits(f.residual("w"), v)
                    self.expect_bits(f.velocity("w"), u)

    def test_clipping_comes_first(self):
        g = gradient(500)
        norm = np.sqrt((g.astype(np.float64) ** 2).sum())
        for feedback in ["residual", "momentum"]:
            for clip in [norm / 3, norm * 2]:
                factor = np.float32(min(1, clip / (norm + 1e-6)))
                f = sparfuse.ErrorFeedback(
                    sparfuse.Sparsifier("topk", density=0.1), feedback, clip=clip
                )
                idx, val = f.step("w", g)
                x = factor * g
                np.testing.assert_allclose(val, x[idx], rtol=1e-6)
                x[idx] = 0
                np.testing.assert_allclose(f.residual("w"), x, rtol=1e-6)

    def test_workers_that_share_a_sparsifier_are_apart(self):
        s = sparfuse.Sparsifier("topk", density=0.1)
        a, b = sparfuse.ErrorFeedback(s), sparfuse.ErrorFeedback(s)
        a.step("w", gradient(100, seed=1))
        b.step("w", gradient(50, seed=2))
        self.assertEqual((a.residual("w").size, b.residual("w").size), (100, 50))
        s.density = 0.5
        self.assertEqual(a.step("w", gradient(100))[0].size, 50)
        self.assertIs(a.sparsifier, s)

    def test_a_step_with_a_nan_has_not_been(self):
        sparsifier = sparfuse.Sparsifier("topk", density=0.1)
        for of, feedback in [
            (sparsifier, "residual"), (sparsifier, "momentum"), (sparfuse.Quantizer("sign"), "residual"),
        ]:
            with self.subTest(of.name, feedback=feedback):
                f, undisturbed = (sparfuse.ErrorFeedback(of, feedback=feedback) for _ in range(2))
                for bad in [np.nan, np.inf, -np.inf]:
                    g = gradient(100)
                    f.step("w", g)
                    undisturbed.step("w", g)
                    kept = f.residual("w")
                    self.assertGreater(np.abs(kept).max(), 0)
                    wrong = g.copy()
                    wrong[3] = bad
                    with self.assertRaisesRegex(sparfuse.NumericError, '"w".*element 3 '):
                        f.step("w", wrong)
                    self.expect_bits(f.residual("w"), kept)
                    for again, new in zip(f.step("w", g), undisturbed.step("w", g)):
                        np.testing.assert_array_equal(again, new)
        with self.assertRaises(sparfuse.NumericError):
            f.step("first", np.array([np.nan], dtype=np.float32))
        with self.assertRaises(sparfuse.ConfigError):
            f.residual("first")  # the failed step left no residual

    def test_a_sum_that_overflows_loses_the_tensor_s_residual_alone(self):
        f = sparfuse.ErrorFeedback(sparfuse.Sparsifier("topk", density=0.1))
        g = np.full(100, 3e38, dtype=np.float32)
        f.step("a", gradient(100))
        f.step("b", g)
        kept = f.residual("a")
        with self.assertRaisesRegex(sparfuse.NumericError, '"b"'):
            f.step("b", g)
        self.expect_bits(f.residual("a"), kept)
        with self.assertRaises(sparfuse.ConfigError):
            f.residual("b")
        f.step("b", g)

    def test_errors(self):
        s = sparfuse.Sparsifier("topk", density=0.1)
        for keywords, text in [
            ({"feedback": "momentun"}, 'did you mean "momentum"'),
            ({"momentum": 0.5}, 'need feedback = "momentum"'),
            ({"feedback": "momentum", "momentum": 1.0}, r"\[0, 1\)"),
            ({"clip": 0}, "above 0"),
        ]:
            with self.assertRaisesRegex(sparfuse.ConfigError, text):
                sparfuse.ErrorFeedback(s, **keywords)
        with self.assertRaisesRegex(TypeError, "sparfuse.Sparsifier"):
            sparfuse.ErrorFeedback("topk")
        f = sparfuse.ErrorFeedback(s)
        f.step("layer1.weight", gradient(10))
        with self.assertRaisesRegex(sparfuse.ConfigError, 'did you mean "layer1.weight"'):
            f.residual("layer1.weigth")
        with self.assertRaisesRegex(sparfuse.ConfigError, "had \\(10,\\)"):
            f.step("layer1.weight", gradient(11))
        with self.assertRaisesRegex(sparfuse.ConfigError, "velocities"):
            f.velocity("layer1.weight")


class Decompress(unittest.TestCase):
    def payloads(self, n, ranks):
        rng = np.random.default_rng(n)
        made = []
        for rank in range(ranks):
            idx = np.sort(rng.choice(n, rng.integers(0, n // 2 + 1), replace=False))
            made.append((idx.astype(np.uint32), gradient(idx.size, seed=rank)))
        return made

    def test_adds_in_rank_order(self):
        for n, ranks in [(1, 1), (20, 4), (10_000, 3), (300_000, 2), (50, 70)]:
            payloads = self.payloads(n, ranks)
            total = np.zeros(n, dtype=np.float32)
            for idx, val in payloads:
                total[idx] += val
            with self.subTest(n=n, ranks=ranks):
                out = sparfuse.decompress(payloads, n, average=False)
                np.testing.assert_array_equal(bits(out), bits(total))
                out = sparfuse.decompress(payloads, (n,), average=True)
                np.testing.assert_array_equal(bits(out), bits(total * np.float32(1 / ranks)))

    def test_shapes_and_index_types(self):
        payload = self.payloads(24, 1)[0]
        flat = sparfuse.decompress([payload], 24)
        for shape in [(24,), (2, 3, 4), [4, 6], np.int64(24)]:
            out = sparfuse.decompress([payload], shape)
            self.assertEqual(out.shape, tuple(np.atleast_1d(shape)))
            np.testing.assert_array_equal(out.ravel(), flat)
        for dtype in [np.int32, np.int64]:
            out = sparfuse.decompress([(payload[0].astype(dtype), payload[1])], 24)
            np.testing.assert_array_equal(out, flat)
        one = np.array([0], dtype=np.uint32), np.array([3], dtype=np.float32)
        self.assertEqual(sparfuse.decompress([one], ()), 3)

    def test_reuses_memory(self):
        payloads = self.payloads(24, 2)
        expected = sparfuse.decompress(payloads, (4, 6))
        out = np.full((4, 6), np.nan, dtype=np.float32)
        self.assertIs(sparfuse.decompress(payloads, (4, 6), out=out), out)
        np.testing.assert_array_equal(out, expected)
        if torch is not None:
            tensor = torch.full((4, 6), torch.nan)
            result = sparfuse.decompress(payloads, tensor.shape, out=tensor)
            self.assertIs(result, tensor)
            np.testing.assert_array_equal(tensor.numpy(), expected)
        for bad, kind in [
            (np.zeros((6, 4), dtype=np.float32), sparfuse.ConfigError),
            (np.zeros((6, 4), dtype=np.float32).T, sparfuse.ConfigError),
            (np.broadcast_to(np.float32(0), (4, 6)), sparfuse.ConfigError),
            (np.zeros((4, 6)), TypeError),
        ]:
            with self.assertRaisesRegex(kind, "out"):
                sparfuse.decompress(payloads, (4, 6), out=bad)

    def test_refuses_what_is_no_payload(self):
        good = np.array([1, 5], dtype=np.uint32), np.array([1, 2], dtype=np.float32)
        value = np.array([1, 2], dtype=np.float32)
        index = lambda *at: (np.array(at, dtype=np.uint32), value)
        for bad, text in [
            (index(5, 1), r"payloads\[1\]\[0\]\[1\] = 1 after 5: expected increasing"),
            (index(5, 5), r"payloads\[1\]\[0\]\[1\] = 5 after 5: expected increasing"),
            (index(5, 8), r"payloads\[1\]\[0\]\[1\] = 8: expected indices in \[0, 8\)"),
            (index(9, 1), r"payloads\[1\]\[0\]\[0\] = 9: expected indices in \[0, 8\)"),
            ((np.array([-1, 2]), value), r"payloads\[1\]\[0\]\[0\] = -1: expected"),
            ((good[0], value[:1]), r"payloads\[1\] has 2 indices and 1 values"),
        ]:
            out = np.full(8, 7, dtype=np.float32)
            with self.assertRaisesRegex(sparfuse.ConfigError, text):
                sparfuse.decompress([good, bad], 8, out=out)
            self.assertTrue((out == 7).all())
        for payloads, text in [
            ([(good[0].astype(np.float32), value)], r"payloads\[0\]\[0\] has dtype float32"),
            ([(good[0], value.astype(np.float64))], r"payloads\[0\]\[1\] has dtype float64"),
            ([value[:1]], r"payloads\[0\] is a numpy.ndarray"),
            ([good[0:1]], r"expected \(indices, values\)"),
        ]:
            with self.assertRaisesRegex(TypeError, text):
                sparfuse.decompress(payloads, 8)
        with self.assertRaisesRegex(sparfuse.ConfigError, "at least one"):
            sparfuse.decompress([], 8)
        with self.assertRaisesRegex(TypeError, "expected an integer"):
            sparfuse.decompress([good], "8")


class Warmup(unittest.TestCase):
    def test_follows_the_formula(self):
        for epoch in range(8):
            expected = max(0.3 ** (epoch + 1), 0.01) if epoch < 5 else 0.01
            self.assertAlmostEqual(sparfuse.warmup_density(epoch, 0.01, 5, 0.3), expected, 15)
            expected = 0.01 ** min(1, (epoch + 1) / 4) if epoch < 3 else 0.01
            self.assertAlmostEqual(sparfuse.warmup_density(epoch, 0.01, 3), expected, 15)
        self.assertEqual(sparfuse.warmup_density(1, 0.01, 2, schedule=[0.2, 0.1]), 0.1)
        with self.assertRaisesRegex(sparfuse.ConfigError, "one for each of 3 epochs"):
            sparfuse.warmup_density(0, 0.01, 3, schedule=[0.2, 0.1])


if __name__ == "__main__":
    unittest.main()
