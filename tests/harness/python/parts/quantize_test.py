"""Tests Quantizer, and ErrorFeedback with one, against NumPy; its errors."""

import unittest

import numpy as np
from common import Refusals, bits, gradient, lets_others_run
from usable_torch import installed as torch

import sparfuse

NAMES = [entry["name"] for entry in sparfuse.list_quantizers()]
SHAPES = [(1,), (33,), (50, 40), (8, 4, 3, 3), (70_001,)]


def norm2(x):
    return float((x.astype(np.float64) ** 2).sum())


class Quantize(unittest.TestCase):
    def test_fp16_is_numpy_s(self):
        g = np.concatenate([gradient(5000) * 10.0**e for e in range(-9, 6)]).astype(np.float32)
        q = sparfuse.Quantizer("fp16")
        half = np.clip(g, -65504, 65504).astype(np.float16)
        payload = q.encode(g)
        np.testing.assert_array_equal(payload.view(np.uint16), half.view(np.uint16))
        np.testing.assert_array_equal(q.decode(payload, g.shape), half)

    def test_sign_is_the_paper_s(self):
        for shape in SHAPES:
            g = gradient(*shape)
            q = sparfuse.Quantizer("sign")
            payload = q.encode(g)
            scale = payload[:4].view(np.float32)[0]
            self.assertAlmostEqual(scale / np.abs(g).mean(dtype=np.float64), 1, places=6)
            words = np.unpackbits(payload[4:], bitorder="little")[: g.size]
            np.testing.assert_array_equal(words, g.ravel() >= 0)
            expected = np.where(g >= 0, scale, -scale)
            np.testing.assert_array_equal(q.decode(payload, shape), expected)

    def test_qsgd_rounds_to_a_neighbouring_level_and_is_unbiased(self):
        g = gradient(4096)
        q = sparfuse.Quantizer("qsgd", seed=1, levels=7, bucket=64)
        norms = np.sqrt((g.astype(np.float64) ** 2).reshape(-1, 64).sum(axis=1))
        step = np.repeat(norms / 7, 64)
        decoded = [q.decode(q.encode(g), g.shape) for _ in range(400)]
        for x in decoded:
            levels = x / step
            np.testing.assert_allclose(levels, np.round(levels), atol=1e-4)
            self.assertTrue((np.abs(x - g) <= step * (1 + 1e-5)).all())
        # The mean of 400 deviates by at most 1/40 of a step (one standard deviation); 6 of these are
        # practically impossible among 4096 elements.
        self.assertLess((np.abs(np.mean(decoded, axis=0) - g) / step).max(), 6 / 40)

    def test_sizes_and_bounds_hold(self):
        for entry in sparfuse.list_quantizers():
            for shape in SHAPES:
                with self.subTest(entry["name"], shape=shape):
                    q = sparfuse.Quantizer(entry["name"], seed=3)
                    g = gradient(*shape, seed=2)
                    before = g.copy()
                    payload = q.encode(g, name="w")
                    self.assertEqual((payload.dtype, payload.ndim), (np.dtype("uint8"), 1))
                    self.assertEqual(payload.size, q.bytes(shape))
                    self.assertEqual(q.bytes(shape), q.bytes(g.size))
                    decoded = q.decode(payload, shape)
                    self.assertEqual((decoded.shape, decoded.dtype), (shape, np.dtype("float32")))
                    slack = 2 if entry["unbiased"] else 1 + 1e-6  # the bound is of the expectation
                    self.assertLessEqual(
                        norm2(g - decoded), slack * q.error_bound(shape) * norm2(g) + 1e-12
                    )
                    np.testing.assert_array_equal(bits(g), bits(before))

    def test_average_adds_in_the_order_given(self):
        for name in NAMES:
            for shape in SHAPES:
                payloads, total = [], np.zeros(shape, dtype=np.float32)
                for rank in range(3):
                    q = sparfuse.Quantizer(name, seed=1, rank=rank)
                    payloads.append(q.encode(gradient(*shape, seed=rank), name="w"))
                    total += q.decode(payloads[-1], shape)
                average = total * np.float32(1 / 3)
                out = np.empty(shape, dtype=np.float32)
                with self.subTest(name, shape=shape):
                    self.assertIs(q.average(payloads, shape, out=out), out)
                    np.testing.assert_array_equal(bits(out), bits(average))
                    again = q.average([payload.tobytes() for payload in payloads], shape)
                    np.testing.assert_array_equal(bits(again), bits(average))

    def test_random_numbers_follow_from_seed_rank_name_and_step(self):
        g = gradient(1000)
        make = lambda seed=1, rank=0: sparfuse.Quantizer("qsgd", seed=seed, rank=rank, levels=3)
        draw = lambda q, **given: q.encode(g, **{"name": "a", **given}).tobytes()
        q, same = make(), make()
        first = draw(q)
        self.assertNotIn(first, [draw(make(seed=2)), draw(make(rank=1)), draw(q, name="b")])
        second = draw(q)
        self.assertNotEqual(second, first)
        self.assertEqual(draw(same, step=1), second)
        self.assertEqual(draw(same, step=0), first)
        self.assertEqual(draw(same), second)

    def test_arrays_of_all_kinds(self):
        g = gradient(12, 10)
        q = sparfuse.Quantizer("fp16")
        given = {"transposed": g.T, "every other": g[::2, 1::3], "memoryview": memoryview(g)}
        if torch is not None:
            given["torch"] = torch.from_numpy(g.copy())
        for kind, argument in given.items():
            with self.subTest(kind):
                expected = np.ascontiguousarray(np.asarray(argument)).astype(np.float16)
                payload = q.encode(argument)
                np.testing.assert_array_equal(payload.view(np.float16), expected.ravel())
        payload = q.encode(g)
        shifted = np.empty(payload.size + 1, dtype=np.uint8)
        shifted[1:] = payload
        payloads = [shifted[1:], bytearray(payload), np.repeat(payload, 2)[::2]]
        if torch is not None:
            payloads.append(torch.from_numpy(payload))
            parameter = torch.zeros(12, 10)
            self.assertIs(q.decode(payload, parameter.shape, out=parameter), parameter)
            np.testing.assert_array_equal(parameter.numpy(), g.astype(np.float16))
        for kind in payloads:
            np.testing.assert_array_equal(q.decode(kind, g.shape), g.astype(np.float16))

    def test_what_an_object_says_of_itself(self):
        for entry in sparfuse.list_quantizers():
            q = sparfuse.Quantizer(entry["name"], seed=5, rank=2)
            self.assertEqual((q.name, q.seed, q.rank), (entry["name"], 5, 2))
            self.assertEqual((q.paper, q.deviations), (entry["paper"], entry["deviations"]))
            self.assertEqual(q.descriptor, entry)
            self.assertEqual(q.options, {o["name"]: o["default"] for o in entry["options"]})
            again = eval(repr(q), {"sparfuse": sparfuse})
            self.assertEqual(repr(again), repr(q))

    def test_the_gil_is_released(self):
        g = gradient(1_000_000)
        q = sparfuse.Quantizer("qsgd")
        self.assertTrue(lets_others_run(lambda: [q.encode(g) for _ in range(20)]))


class Feedback(unittest.TestCase):
    def test_what_is_lost_comes_with_the_next_gradient(self):
        for name in NAMES:
            q = sparfuse.Quantizer(name, seed=1)
            f = sparfuse.ErrorFeedback(q)
            self.assertIs(f.sparsifier, q)
            residual = np.zeros((60, 50), dtype=np.float32)
            for step in range(20):
                with self.subTest(name, step=step):
                    g = gradient(60, 50, seed=step)
                    x = g + residual
                    sent = q.decode(f.step("w", g), g.shape)
                    residual = f.residual("w")
                    np.testing.assert_allclose(sent + residual, x, rtol=0, atol=1e-6)
            self.assertLess(norm2(residual), 400 * norm2(g), name)

    def test_sign_needs_it_and_with_it_the_sum_is_right(self):
        g = np.array([10, 1, 1, -1], dtype=np.float32)
        q = sparfuse.Quantizer("sign")
        f = sparfuse.ErrorFeedback(q)
        steps = 400
        total = sum(q.decode(f.step("w", g), 4).astype(np.float64) for _ in range(steps))
        np.testing.assert_allclose(total / steps, g, atol=0.2)
        without = q.decode(q.encode(g), 4)
        self.assertGreater(np.abs(without - g).max(), 6)

    def test_clipping_and_kept_residuals(self):
        q = sparfuse.Quantizer("fp16")
        f = sparfuse.ErrorFeedback(q, clip=1.0)
        g = gradient(500)
        decoded = q.decode(f.step("w", g), 500)
        self.assertAlmostEqual(np.sqrt(norm2(decoded)), 1, places=3)
        kept = f.residual("w")
        bad = g.copy()
        bad[7] = np.inf
        with self.assertRaisesRegex(sparfuse.NumericError, '"w".*element 7 '):
            f.step("w", bad)
        np.testing.assert_array_equal(f.residual("w"), kept)

    def test_what_a_quantizer_does_not_take(self):
        q = sparfuse.Quantizer("fp16")
        for keywords, text in [
            ({"feedback": "momentum"}, "the momentum is left to the optimizer"),
            ({"values": "f16"}, "a Quantizer has a rounding of its own"),
            ({"momentum": 0.5}, 'need feedback = "momentum"'),
        ]:
            with self.assertRaisesRegex(sparfuse.ConfigError, text):
                sparfuse.ErrorFeedback(q, **keywords)
        with self.assertRaisesRegex(TypeError, "sparfuse.Quantizer"):
            sparfuse.ErrorFeedback(None)
        with self.assertRaisesRegex(sparfuse.ConfigError, "velocities"):
            sparfuse.ErrorFeedback(q).velocity("w")


class Errors(Refusals):
    def test_names_and_options(self):
        make = sparfuse.Quantizer
        self.expect(sparfuse.ConfigError, 'quantizer "fp6"; did you mean "fp16"', make, "fp6")
        self.expect(ValueError, 'qsgd: unknown option "level"; did you mean "levels"', make, "qsgd",
                    level=3)
        self.expect(ValueError, "fp16: unknown option .*takes none", make, "fp16", levels=1)
        self.expect(ValueError, "levels = 200", make, "qsgd", levels=200)
        self.expect(ValueError, "power of two", make, "qsgd", bucket=100)
        self.expect(ValueError, "rank = -1", make, "qsgd", rank=-1)

    def test_gradients(self):
        for name in NAMES:
            encode = sparfuse.Quantizer(name).encode
            self.expect(TypeError, "float64; expected float32.*astype", encode, np.zeros(3))
            self.expect(ValueError, r"empty.*\(0,\)", encode, np.zeros(0, dtype=np.float32))
            for bad in [np.nan, -np.inf]:
                g = gradient(100)
                g[17] = bad
                self.expect(sparfuse.NumericError, '"fc".*element 17', encode, g, name="fc")
            encode(gradient(2, 3), name="w")
            self.expect(ValueError, r'"w" has shape \(6,\), and had \(2, 3\)', encode, gradient(6),
                        name="w")

    def test_payloads(self):
        for name in NAMES:
            q = sparfuse.Quantizer(name)
            payload = q.encode(gradient(100))
            for wrong in [payload[:-4], payload[:-1], payload[:0], np.append(payload, payload)]:
                self.expect(sparfuse.ConfigError, "payload 0 is corrupt: .*bytes; expected",
                            q.decode, wrong, 100)
            self.expect(TypeError, r"payloads\[0\] has dtype float32; expected uint8", q.decode,
                        gradient(3), 100)
            corrupt = np.full(payload.size, 255, dtype=np.uint8)  # reads as NaNs
            self.expect(sparfuse.ConfigError, "payload 1 is corrupt", q.average,
                        [payload, corrupt], 100)
            self.expect(ValueError, "no payloads", q.average, [], 100)
            self.expect(ValueError, "no elements", q.decode, payload, (3, 0))
            self.expect(ValueError, "no elements", q.bytes, 0)
            self.expect(ValueError, r"out has shape \(10, 10\)", q.decode, payload, 100,
                        out=gradient(10, 10))

    def test_payloads_of_more_elements_in_as_many_bytes(self):
        for name in NAMES:
            q = sparfuse.Quantizer(name)
            payload = q.encode(np.ones(100, dtype=np.float32))
            fewer = [n for n in range(90, 100) if q.bytes(n) == q.bytes(100)]
            self.assertEqual(bool(fewer), name != "fp32")
            for n in fewer:
                self.expect(sparfuse.ConfigError, f"payload 0 is corrupt: {name}: it has more than {n} elements",
                            q.decode, payload, (n,))
            for n in [1, 3, 33, 99, 100, 101]:  # payloads of the right size have zeros after the elements
                np.testing.assert_array_equal(q.decode(q.encode(np.ones(n, dtype=np.float32)), n) > 0, True)


class SumsOfParts(unittest.TestCase):
    """All-reduces in blocks as a chain: ranks code parts, and owners code the sums again."""

    RANKS, N = 3, 1000

    def made(self, name="hipress", **options):
        if name == "hipress":
            options = {
                "density": 1,
                "compress_from": 1,
                "partitions": self.RANKS,
                "payload_dense": "int8-blocks",
                **options,
            }
        return sparfuse.Method(name, self.RANKS, [("w", (self.N,))], threads=1, verify=True, **options)

    def gradients(self, step):
        rng = np.random.default_rng(step)
        return [rng.normal(size=self.N).astype(np.float32) for _ in range(self.RANKS)]

    @staticmethod
    def coded(x):
        decoded = np.empty_like(x)
        for begin in range(0, x.size, 256):
            block = x[begin : begin + 256]
            scale = np.abs(block).max() / np.float32(127)
            decoded[begin : begin + 256] = np.rint(block / scale) * scale
        return decoded

    def reference(self, steps, local, server):
        kept = np.zeros((self.RANKS, self.N), np.float32)
        of_sums = np.zeros(self.N, np.float32)
        for step in range(steps):
            x = np.array(self.gradients(step)) + (kept if local else 0)
            average = np.empty(self.N, np.float32)
            for part in np.array_split(np.arange(self.N), self.RANKS):
                codes = [self.coded(own[part]) for own in x]
                kept[:, part] = x[:, part] - codes
                total = codes[0] + codes[1] + codes[2] + (of_sums[part] if server else 0)
                sums = self.coded(total)
                of_sums[part] = total - sums
                average[part] = sums * np.float32(1 / self.RANKS)
            yield average

    def test_each_residual_is_optional(self):
        for local in (False, True):
            for server in (False, True):
                with self.subTest(local=local, server=server):
                    m = self.made(local_ef=local, server_ef=server)
                    total = np.zeros(self.N)
                    for step, expected in enumerate(self.reference(30, local, server)):
                        average = m.step([{"w": g} for g in self.gradients(step)])["w"]
                        np.testing.assert_array_equal(average, expected)
                        total += self.RANKS * average.astype(np.float64)
                        total -= np.sum(self.gradients(step), axis=0, dtype=np.float64)
                    worst = np.abs(total).max()
                    if local and server:  # what is left is of one step: half a unit a coding
                        self.assertLess(worst, 3 * 0.5 * 4.5 / 127 + 0.5 * 8.5 / 127)
                    else:
                        self.assertGreater(worst, 0.08)

    def test_without_residuals_they_are_the_collective(self):
        parts = self.made(local_ef=False, server_ef=False)
        none = self.made(feedback="none")
        whole = self.made("dense", collective="int8-blocks")
        around = self.made("dense", collective="int8-blocks", gather="ring")
        for step in range(3):
            g = [{"w": each} for each in self.gradients(step)]
            expected = whole.step(g)["w"].copy()
            np.testing.assert_array_equal(parts.step(g)["w"], expected)
            np.testing.assert_array_equal(none.step(g)["w"], expected)
            np.testing.assert_array_equal(around.step(g)["w"], expected)
        self.assertEqual(parts.bytes()["sent"], whole.bytes()["sent"])
        self.assertEqual(around.bytes()["sent"], whole.bytes()["sent"])


if __name__ == "__main__":
    unittest.main()
