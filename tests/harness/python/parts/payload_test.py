"""Tests encode_payload, decode_payload, and ErrorFeedback that rounds to halves."""

import math
import struct
import unittest

import numpy as np
from common import Refusals, bits, gradient

import sparfuse


def selection(count, n, seed=0):
    rng = np.random.default_rng(seed)
    idx = np.sort(rng.choice(n, count, replace=False)).astype(np.uint32)
    return idx, gradient(count, seed=seed)


def halves(x):
    return np.clip(x, -65504, 65504).astype(np.float16)


def encoded(idx, val, values, indices):
    """A payload in the format of core/coding/payload_coding.hpp."""
    flags = (values == "f16") + 2 * (indices == "delta")
    made = b"SP\x01" + bytes([flags]) + struct.pack("<I", idx.size)
    made += (halves(val) if values == "f16" else val).tobytes()
    made += b"\0" * (-len(made) % 4)
    if indices == "u32":
        return made + idx.tobytes()
    for gap in np.diff(idx.astype(np.int64), prepend=0):
        made += struct.pack("<H", gap) if gap < 65535 else struct.pack("<HI", 65535, gap)
    return made


def bloom_positives(words, bits, hashes, n):
    """The indices below n whose bits a filter has all, with the hashes of bloom_filter.hpp."""

    def place(seed):
        z = np.uint64(seed) + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        for shift, factor in [(30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)]:
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
        z ^= z >> np.uint64(31)
        return ((z >> np.uint64(32)) * np.uint64(bits)) >> np.uint64(32)

    at, by = place(0x243F6A8885A308D3), place(0x13198A2E03707344)
    has = np.unpackbits(np.frombuffer(words, dtype=np.uint8), bitorder="little")
    every = np.ones(n, dtype=bool)
    for j in range(hashes):
        every &= has[(at + np.uint64(j) * by + np.uint64((j**3 - j) // 6)) % np.uint64(bits)] == 1
    return np.flatnonzero(every)


def largest(x, k):
    idx = np.sort(np.argsort(-np.abs(x), kind="stable")[:k]).astype(np.uint32)
    residual = x.copy()
    residual[idx] = 0
    return idx, x[idx], residual


class Selections(unittest.TestCase):
    """Tests DeepReduce's coding against NumPy."""

    def test_a_sum_that_float32_does_not_hold_is_an_error(self):
        one = (np.array([1], dtype=np.uint32), np.array([3e38], dtype=np.float32))
        with self.assertRaisesRegex(sparfuse.NumericError, "decompress: element 1 of the sum is inf"):
            sparfuse.decompress([one, one], 4)
        self.assertTrue(np.isfinite(sparfuse.decompress([one], 4)).all())

    def test_filters_are_the_form_s(self):
        for n, k, policy, fpr in [
            (5000, 50, "leftmost", 0.0),
            (5000, 50, "leftmost", 0.1),
            (20_000, 200, "p0", 0.0),
            (3000, 3000, "leftmost", 0.0),
            (1001, 0, "leftmost", 0.0),
            (5000, 50, "leftmost", 1e-20),  # the same as 2^-64: decoders take at most 64 hashes
        ]:
            with self.subTest(n=n, k=k, policy=policy, fpr=fpr):
                x = gradient(n)
                idx, val, residual = largest(x, k)
                payload = sparfuse.encode_payload(
                    idx, val, n, "f32", "bloom", residual=residual, policy=policy, fpr=fpr
                )
                raw = payload.tobytes()
                self.assertEqual(raw[:4], b"SP\x01\x08")
                count = int.from_bytes(raw[4:8], "little")
                sent, values = sparfuse.decode_payload(payload, n)
                self.assertEqual(count, sent.size)
                np.testing.assert_array_equal(values, x[sent])
                kept = x.copy()
                kept[sent] = 0
                np.testing.assert_array_equal(residual, kept)
                if k == 0:
                    self.assertEqual(len(raw), 8)
                    continue
                rate = max(fpr or 0.1 * k / n, 2.0**-64)
                at = 8 + 4 * count
                hashes, bits_ = np.frombuffer(raw[at : at + 8], dtype="<u4")
                self.assertEqual(hashes, math.ceil(-math.log2(rate)))
                self.assertEqual(bits_, math.ceil(-math.log2(rate) * k / math.log(2)))
                self.assertEqual(len(raw), at + 8 + (int(bits_) + 31) // 32 * 4)
                positives = bloom_positives(raw[at + 8 :], int(bits_), int(hashes), n)
                self.assertTrue(np.isin(idx, positives).all())
                expected = positives if policy == "p0" else positives[:k]
                np.testing.assert_array_equal(sent, expected)

    def test_a_permutation_chooses_the_same_for_all(self):
        x = gradient(5000)
        idx, val, residual = largest(x, 50)
        payload = sparfuse.encode_payload(
            idx, val, 5000, "f16", "bloom", residual=residual, policy="random", fpr=0.1
        )
        sent, values = sparfuse.decode_payload(payload.tobytes(), 5000)
        self.assertEqual(sent.size, 50)
        self.assertGreater(sent[-1], 4000)  # not the leftmost ones of about 550
        np.testing.assert_allclose(values.astype(np.float64) + residual[sent], x[sent], rtol=1e-7)

    def test_values_are_fitted(self):
        for indices in ["u32", "bloom"]:
            with self.subTest(indices):
                x = gradient(50_000)
                idx, val, residual = largest(x, 500)
                payload = sparfuse.encode_payload(
                    idx, val, x.size, "fitted", indices, residual=residual
                )
                sent, values = sparfuse.decode_payload(payload, x.size)
                np.testing.assert_allclose(values + residual[sent], x[sent], rtol=1e-6)
                error = np.linalg.norm(residual[sent]) / np.linalg.norm(x[sent])
                self.assertLess(error, 0.05)

    def test_refusals(self):
        x = gradient(2000)
        idx, val, residual = largest(x, 20)
        encode = sparfuse.encode_payload
        for says, keywords in [
            ("expected residual", {"indices": "bloom"}),
            ("expected residual", {"values": "fitted", "indices": "u32"}),
            ('values = "fitted" with indices', {"values": "fitted", "residual": residual}),
            ("fpr = 0.6", {"indices": "bloom", "fpr": 0.6, "residual": residual}),
            ('policy = "p1"', {"indices": "bloom", "policy": "p1", "residual": residual}),
            ("policy and fpr need", {"fpr": 0.1}),
        ]:
            with self.subTest(keywords), self.assertRaisesRegex(sparfuse.ConfigError, says):
                encode(idx, val, x.size, **keywords)
        payload = encode(idx, val, x.size, "f32", "bloom", residual=residual)
        for damaged in [payload.tobytes() + b"\0", payload.tobytes()[:-1]]:
            with self.assertRaisesRegex(sparfuse.ConfigError, "malformed sparse payload"):
                sparfuse.decode_payload(damaged, x.size)


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
        for scale in [1, 1e-9, 1e6]:  # within, below and above the range of a half
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


class Exponents(Refusals):
    def test_golden_bytes(self):
        for values, expected in [
            ([1, -1.5, 0.25, 3], "80020100 000000 0000c0 000000 000040 35 7d 0000"),
            ([1, 1, 1, 1], "7f000000" + "00" * 12),
            ([1e-30, 1, 2, 0], "80020200 604222 000000 000000 000000 c7 1b00 00"),
        ]:
            payload = sparfuse.encode_exponents(np.array(values, dtype=np.float32))
            self.assertEqual(payload.tobytes(), bytes.fromhex(expected))

    def test_every_bit_pattern_comes_back(self):
        rng = np.random.default_rng(5)
        patterns = rng.integers(0, 2**32, size=3000, dtype=np.uint32)
        patterns[:6] = [0x7F800001, 0xFFC12345, 0x80000000, 0x7F800000, 0xFF800000, 1]
        for n in [0, 1, 1023, 1024, 1025, 3000]:
            payload = sparfuse.encode_exponents(patterns[:n].view(np.float32))
            back = sparfuse.decode_exponents(payload, n)
            np.testing.assert_array_equal(back.view(np.uint32), patterns[:n])
        normal = rng.standard_normal(100_000).astype(np.float32)
        self.assertLess(sparfuse.encode_exponents(normal).nbytes * 8 / normal.size, 27.3)

    def test_bytes_that_nobody_encoded(self):
        payload = sparfuse.encode_exponents(np.ones(5, dtype=np.float32))
        self.expect(sparfuse.ConfigError, "n = 99", sparfuse.decode_exponents, payload, 99)
        self.expect(sparfuse.ConfigError, "payload", sparfuse.decode_exponents, payload[:-4], 5)
        self.expect(sparfuse.ConfigError, "payload", sparfuse.decode_exponents, payload, 3)


class Errors(Refusals):
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
        huge[4:8] = 255  # claims 2^32 - 1 elements
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
