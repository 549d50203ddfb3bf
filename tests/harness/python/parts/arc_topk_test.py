"""ARC-Top-K as a method: rows that all ranks share, both memories, and what it refuses."""

import unittest

import numpy as np

import sparfuse

ROWS, LENGTH, RANKS = 40, 6, 3
LAYOUT = [("w", (ROWS, LENGTH))]


def gradients(rng):
    return [rng.normal(size=(ROWS, LENGTH)).astype(np.float32) for _ in range(RANKS)]


class Steps(unittest.TestCase):
    def test_rows_are_shared_and_nothing_is_lost(self):
        rng = np.random.default_rng(1)
        m = sparfuse.Method("arc-topk", RANKS, LAYOUT, density=0.2, threads=1, verify=True)
        total, applied = np.zeros((ROWS, LENGTH)), np.zeros((ROWS, LENGTH))
        for _ in range(10):
            g = gradients(rng)
            total += np.sum(g, axis=0)
            average = m.step([{"w": each} for each in g])["w"]
            applied += RANKS * average
            sent = np.any(average != 0, axis=1)
            self.assertEqual(sent.sum(), 8)
            for rank in range(RANKS):
                np.testing.assert_array_equal(np.any(m.residual(rank, "w") != 0, axis=1), ~sent)
        left = sum(m.residual(rank, "w").astype(np.float64) for rank in range(RANKS))
        np.testing.assert_allclose(applied + left, total, atol=1e-4)

    def test_averages_are_told_by_their_differences(self):
        rng = np.random.default_rng(2)
        m = sparfuse.Method(
            "arc-topk", RANKS, LAYOUT, density=0.2, memory="ef21m", eta=0.25, threads=1
        )
        g = gradients(rng)
        average = m.step([{"w": each} for each in g])["w"]
        np.testing.assert_allclose(average, np.mean(g, axis=0), atol=1e-6)  # the first step is dense
        h = [each.astype(np.float64) for each in g]
        told, mean = [each.copy() for each in h], np.mean(h, axis=0)
        for _ in range(10):
            g, before = gradients(rng), average
            average = m.step([{"w": each} for each in g])["w"]
            rows = np.any(average != before, axis=1)
            self.assertEqual(rows.sum(), 8)
            for rank in range(RANKS):
                h[rank] = 0.75 * h[rank] + 0.25 * g[rank]
            mean[rows] += np.mean([h[r][rows] - told[r][rows] for r in range(RANKS)], axis=0)
            for rank in range(RANKS):
                told[rank][rows] = h[rank][rows]
            np.testing.assert_allclose(average, mean, atol=1e-5)

    def test_bytes(self):
        m = sparfuse.Method("arc-topk", 2, LAYOUT, density=0.2, sketch=2, threads=1)
        g = np.ones((ROWS, LENGTH), np.float32)
        m.step([{"w": g}, {"w": g}])
        # Two all-reduces by a ring of two ranks: 2 floats for each row, then 8 rows and two words of a hash.
        self.assertEqual(sum(m.bytes()["sent"]), 2 * 4 * (2 * ROWS + 8 * LENGTH + 2))


class Refusals(unittest.TestCase):
    def test_options(self):
        for words, options in [
            ("sketch = 33", {"sketch": 33}),
            ("eta = 2", {"eta": 2}),
            ("memory = ", {"memory": "other"}),
            ('"topk" only', {"sparsifier": "randomk"}),
            ('expected feedback "residual"', {"feedback": "none"}),
        ]:
            with self.assertRaisesRegex(sparfuse.ConfigError, words):
                sparfuse.Method("arc-topk", 2, LAYOUT, **options)


if __name__ == "__main__":
    unittest.main()
