"""SCAPE as a method: masks from the moments of averages, against NumPy, and what it refuses."""

import unittest

import numpy as np

import sparfuse

N, RANKS = 400, 3
LAYOUT = [("w", (20, 20))]


def gradients(rng):
    return [rng.normal(size=(20, 20)).astype(np.float32) for _ in range(RANKS)]


class Steps(unittest.TestCase):
    def history(self, beta, steps=12, **options):
        """Yields the average and the residuals of each step, and what NumPy has of them."""
        rng = np.random.default_rng(1)
        m = sparfuse.Method(
            "scape", RANKS, LAYOUT, density=0.1, beta=beta, threads=1, verify=True, **options
        )
        residual = np.zeros((RANKS, N))
        moment = np.zeros(N)
        for step in range(steps):
            g = gradients(rng)
            x = residual + np.reshape(g, (RANKS, N))
            mask = np.ones(N, bool)
            if step > 0:
                mask[np.argsort(-np.abs(moment), kind="stable")[N // 10 :]] = False
            average = m.step([{"w": each} for each in g])["w"].ravel()
            yield average, mask, x
            np.testing.assert_allclose(average[mask], x.mean(axis=0)[mask], atol=1e-5)
            moment = beta * moment + (1 - beta) * average
            residual = np.where(mask, 0, x)
            for rank in range(RANKS):
                np.testing.assert_allclose(
                    m.residual(rank, "w").ravel(), residual[rank], atol=1e-5
                )

    def test_as_numpy(self):
        for beta in (0.0, 0.5, 0.9):
            for average, mask, _ in self.history(beta, random=0):
                np.testing.assert_array_equal(average != 0, mask)

    def test_nothing_is_lost_and_a_tenth_is_drawn(self):
        rng = np.random.default_rng(2)
        m = sparfuse.Method("scape", RANKS, LAYOUT, density=0.1, threads=1, verify=True)
        total, applied, seen = np.zeros((20, 20)), np.zeros((20, 20)), np.zeros((20, 20), bool)
        for step in range(200):
            g = gradients(rng)
            total += np.sum(g, axis=0)
            average = m.step([{"w": each} for each in g])["w"]
            applied += RANKS * average
            self.assertEqual((average != 0).sum(), N if step == 0 else N // 10)
            if step > 0:
                seen |= average != 0
        left = sum(m.residual(rank, "w").astype(np.float64) for rank in range(RANKS))
        np.testing.assert_allclose(applied + left, total, atol=1e-3)
        self.assertGreater(seen.sum(), 0.75 * N)  # 4 a step are drawn: 1 - exp(-2) of all at least

    def test_bytes_and_repetition(self):
        averages = []
        for _ in range(2):
            m = sparfuse.Method("scape", 2, LAYOUT, density=0.1, threads=1)
            rng = np.random.default_rng(3)
            for _ in range(5):
                averages.append(m.step([{"w": each} for each in gradients(rng)[:2]])["w"])
        # A ring of two ranks: 40 values and two words of a hash.
        self.assertEqual(sum(m.bytes()["sent"]), 2 * 4 * (40 + 2))
        for a, b in zip(averages[:5], averages[5:]):
            np.testing.assert_array_equal(a, b)


class Refusals(unittest.TestCase):
    def test_options(self):
        for words, options in [
            ("beta = 1", {"beta": 1}),
            ("random = 2", {"random": 2}),
            ("seed = -1", {"seed": -1}),
            ('"topk" only', {"sparsifier": "randomk"}),
            ('selects from a residual: expected feedback "residual"', {"feedback": "none"}),
            ("adds payloads on the way", {"payload_values": "f16"}),
        ]:
            with self.assertRaisesRegex(sparfuse.ConfigError, words):
                sparfuse.Method("scape", 2, LAYOUT, **options)


if __name__ == "__main__":
    unittest.main()
