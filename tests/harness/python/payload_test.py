"""Tests encode_payload, decode_payload, and ErrorFeedback that rounds to halves."""

import struct
import unittest

import numpy as np

import sparfuse


def bits(x):
    return np.ascontiguousarray(x).view(np.uint32)


def gradient(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def selection(count, n, seed=0):
    rng = np.random.default_rng(seed)
    idx = np.sort(rng.choice(n, count, replace=False)).astype(np.uint32)
    return idx, gradient(count, seed=seed)


def halves(x):
    return np.clip(x, -65504, 65504).astype(np.float16)


def encoded(idx, val, values, indices):
    """The format as core/quantize/coding/payload_coding.hpp says it."""
    flags = (values == "f16") + 2 * (indices == "delta")
    made = b"SP\x01" + bytes([flags]) + struct.pack("<I", idx.size)
    made += (halves(val) if values == "f16" else val).tobytes()
    made += b"\0" * (-len(made) % 4)
    if indices == "u32":
        return made + idx.tobytes()
    for gap in np.diff(idx.astype(np.int64), prepend=0):
        made += struct.pack("<H", gap) if gap < 65535 else struct.pack("<HI", 65535, gap)
    return made


class Payloads(unittest.TestCase):
    def test_every_coding_is_the_format_s(self):
        cases = [(*selection(count, n), n)
                 for count, n in [(0, 5), (1, 1), (3, 70_000), (999, 10_000), (40, 30_000_000)]]
        cases.append((np.array([2**32 - 1], dtype=np.uint32), gradient(1), 2**32))
        for idx, val, n in cases:
            for values in ["f16", "f32"]:
                for indices in ["delta", "u32"]:
                    with self.subTest(count=idx.size, n=n, values=values, indices=indices):
                        payload = sparfuse.encode_payload(idx, val, n, values, indices)
                        self.assertEqual((payload.dtype, payload.ndim), (np.dtype("uint8"), 1))
                        self.assertEqual(payload.tobytes(), encoded(idx, val, values, indices))
                        for form in [payload, payload.tobytes()]:
                            decoded = sparfuse.decode_payload(form, n)
                            np.testing.assert_array_equal(decoded[0], idx)
                            sent = halves(val).astype(np.float32) if values == "f16" else val
                            np.testing.assert_array_equal(bits(decoded[1]), bits(sent))
                            self.assertEqual(decoded[0].dtype, np.dtype("uint32"))

    def test_half_of_the_bytes_by_default(self):
        idx, val = selection(10_000, 1_000_000)
        self.assertLess(sparfuse.encode_payload(idx, val, 1_000_000).nbytes, 0.51 * 8 * idx.size)

    def test_rounding_goes_into_the_residual_in_place(self):
        for scale in [1, 1e-9, 1e6]:  # normal, below and above the range of a half
            g = gradient(50, 40) * np.float32(scale)
            idx, val = sparfuse.Sparsifier("topk", density=0.1).select(g)
            residual = g.copy()
            residual.ravel()[idx] = 0
            before = val.copy()
            payload = sparfuse.encode_payload(idx, val, g.size, residual=residual)
            sent = sparfuse.decompress([sparfuse.decode_payload(payload, g.size)], g.shape)
            np.testing.assert_array_equal(bits(sent + residual), bits(g))
            np.testing.assert_array_equal(bits(val), bits(before))
            kept = residual.copy()
            sparfuse.encode_payload(idx, val, g.size, values="f32", residual=residual)
            np.testing.assert_array_equal(residual, kept)

    def test_feedback_keeps_what_halves_lose(self):
        for entry in sparfuse.list_sparsifiers():
            f = sparfuse.ErrorFeedback(
                sparfuse.Sparsifier(entry["name"], density=0.02, seed=1), values="f16"
            )
            residual = np.zeros((60, 50), dtype=np.float32)
            for step in range(10):
                with self.subTest(entry["name"], step=step):
                    x = gradient(60, 50, seed=step) + residual
                    idx, val = f.step("w", gradient(60, 50, seed=step))
                    payload = sparfuse.encode_payload(idx, val, x.size)
                    received = sparfuse.decode_payload(payload, x.size)
                    np.testing.assert_array_equal(bits(received[1]), bits(val))
                    np.testing.assert_array_equal(val, halves(x.ravel()[idx]))
                    residual = f.residual("w")
                    whole = sparfuse.decompress([received], x.shape) + residual
                    np.testing.assert_array_equal(bits(whole), bits(x))

    def test_with_momentum_too(self):
        make = lambda values: sparfuse.ErrorFeedback(
            sparfuse.Sparsifier("topk", density=0.1), feedback="momentum", values=values
        )
        rounded, plain = make("f16"), make("f32")
        g = gradient(500)
        idx, val = rounded.step("w", g)
        expected_idx, expected_val = plain.step("w", g)
        np.testing.assert_array_equal(idx, expected_idx)
        np.testing.assert_array_equal(val, halves(expected_val))
        np.testing.assert_array_equal(rounded.residual("w")[idx], expected_val - val)
        np.testing.assert_array_equal(rounded.velocity("w"), plain.velocity("w"))


class Errors(unittest.TestCase):
    def expect(self, kind, text, call, *arguments, **keywords):
        with self.assertRaisesRegex(kind, text):
            call(*arguments, **keywords)

    def test_arguments(self):
        encode = sparfuse.encode_payload
        idx, val = selection(5, 20)
        self.expect(sparfuse.ConfigError, 'values = "fp16": .*"f16"', encode, idx, val, 20, "fp16")
        self.expect(ValueError, 'indices = "gap"', encode, idx, val, 20, indices="gap")
        self.expect(ValueError, "idx has 5 elements and val 4", encode, idx, val[1:], 20)
        self.expect(ValueError, r"idx\[1\] = .*increasing", encode, idx[::-1], val, 20)
        last = int(idx[4])
        self.expect(ValueError, rf"idx\[4\] = {last}: expected indices in", encode, idx, val, last)
        self.expect(ValueError, "n = 0", encode, idx, val, 0)
        self.expect(TypeError, "val has dtype float64", encode, idx, val.astype(float), 20)
        self.expect(TypeError, "idx has dtype float32", encode, val, val, 20)
        bad = val.copy()
        bad[2] = np.nan
        self.expect(sparfuse.NumericError, r"val\[2\] = nan", encode, idx, bad, 20)
        residual = np.zeros(20, dtype=np.float32)
        self.expect(ValueError, "residual has 19 elements; expected n = 20", encode, idx, val, 20,
                    residual=residual[1:])
        residual.flags.writeable = False
        self.expect(ValueError, "residual is read-only", encode, idx, val, 20, residual=residual)
        self.expect(ValueError, 'values = "f8"', sparfuse.ErrorFeedback,
                    sparfuse.Sparsifier("topk"), values="f8")

    def test_bytes_that_nobody_encoded(self):
        decode = sparfuse.decode_payload
        idx, val = selection(5, 20)
        payload = sparfuse.encode_payload(idx, val, 20)
        self.expect(sparfuse.ConfigError, "header", decode, payload[:7], 20)
        self.expect(sparfuse.ConfigError, "expected at", decode, payload[:-2], 20)
        self.expect(sparfuse.ConfigError, "malformed", decode, np.append(payload, payload), 20)
        last = int(idx[4])
        self.expect(sparfuse.ConfigError, f"below {last}", decode, payload, last)
        self.expect(ValueError, "n = 0", decode, payload, 0)
        self.expect(TypeError, "int32; expected uint8", decode, np.zeros(3, dtype=np.int32), 20)
        huge = payload.copy()
        huge[4:8] = 255  # says 2^32 - 1 elements
        self.expect(sparfuse.ConfigError, "4294967295 elements; expected at most", decode, huge,
                    2**32)
        rng = np.random.default_rng(1)
        for _ in range(2000):
            mutated = payload.copy()
            mutated[rng.integers(0, payload.size, 2)] = rng.integers(0, 256, 2)
            try:
                again = decode(mutated[: rng.integers(0, payload.size + 1)], 20)
            except sparfuse.ConfigError:
                continue
            self.assertTrue((np.diff(again[0].astype(np.int64)) > 0).all())
            self.assertTrue((again[0] < 20).all())


if __name__ == "__main__":
    unittest.main()
