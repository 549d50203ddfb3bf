"""DeMo as a method: its published step, histories against plain NumPy, and what it refuses."""

import unittest

import numpy as np
from usable_torch import torch

import sparfuse


def basis(n):
    k, i = np.arange(n)[:, None], np.arange(n)[None, :]
    rows = np.cos(np.pi * (2 * i + 1) * k / (2 * n)) * np.sqrt(2 / n)
    rows[0] = np.sqrt(1 / n)
    return rows


def cuts(extent, target, tiles):
    if tiles == "divisor":
        target = max(size for size in range(1, target + 1) if extent % size == 0)
    return [slice(b, min(b + target, extent)) for b in range(0, extent, target)]


def drawn(rng, shapes, ranks, mean=0):
    """The gradients of each rank, {name: array}."""
    draw = lambda shape: (rng.normal(size=shape) + mean).astype(np.float32)
    return [{name: draw(shape) for name, shape in shapes.items()} for _ in range(ranks)]


class Plain:
    """DeMo for one tensor in float64, written from the paper."""

    def __init__(self, shape, ranks, k, tile, tiles="short", combine="ranks", rate=0.1, decay=0.999):
        self.matrix = (1, int(np.prod(shape))) if len(shape) < 2 else (shape[0], -1)
        self.momenta = [np.zeros(shape) for _ in range(ranks)]
        self.rate, self.decay, self.k, self.combine = rate, decay, k, combine
        self.tile, self.tiles = tile, tiles

    def step(self, gradients):
        q = np.zeros(self.momenta[0].shape).reshape(self.matrix)
        for r, gradient in enumerate(gradients):
            self.momenta[r] = self.decay * self.momenta[r] + self.rate * gradient
        for down in cuts(q.shape[0], self.tile, self.tiles):
            for across in cuts(q.shape[1], self.tile, self.tiles):
                total, count = 0, 0
                for momentum in self.momenta:
                    part = momentum.reshape(self.matrix)[down, across]
                    d, a = basis(part.shape[0]), basis(part.shape[1])
                    c = (d @ part @ a.T).ravel()
                    kept = np.argsort(-np.abs(c), kind="stable")[: self.k]
                    sent = np.zeros_like(c)
                    sent[kept] = c[kept]
                    total, count = total + sent, count + np.isin(np.arange(c.size), kept)
                    part -= d.T @ sent.reshape(part.shape) @ a
                by = np.maximum(count, 1) if self.combine == "senders" else len(self.momenta)
                q[down, across] = d.T @ (total / by).reshape(part.shape) @ a
        return q.reshape(self.momenta[0].shape)


class Steps(unittest.TestCase):
    def test_a_step_of_the_paper(self):
        g = [np.array(x, np.float32) for x in [(1, 2, 3, 4), (4, -2, 0, 2)]]
        for combine, times in [("ranks", 0.5), ("senders", 1)]:
            m = sparfuse.Method("demo", 2, [("w", (4,))], k=1, rate=0.5, combine=combine, threads=1)
            q = m.step([{"w": each} for each in g])["w"]
            np.testing.assert_allclose(q, times * np.array([2.25, 0.25, 0.25, 2.25]), atol=1e-6)
            np.testing.assert_allclose(m.residual(0, "w"), (-0.75, -0.25, 0.25, 0.75), atol=1e-6)
            np.testing.assert_allclose(m.residual(1, "w"), (1, 0, 1, 0), atol=1e-6)

    def test_histories(self):
        rng = np.random.default_rng(3)
        for shape, options in [
            ((50,), {"k": 3, "tile": 16}),
            ((9, 20), {"k": 5, "tile": 8}),
            ((9, 20), {"k": 5, "tile": 8, "tiles": "divisor", "combine": "senders"}),
            ((6, 5, 7), {"k": 4, "tile": 64, "combine": "senders"}),
        ]:
            with self.subTest(shape=shape, **options):
                m = sparfuse.Method("demo", 3, [("w", shape)], rate=0.1, threads=1, **options)
                plain = Plain(shape, 3, **options)
                w = np.zeros(shape)
                for _ in range(12):
                    g = drawn(rng, {"w": shape}, 3, 0.3)
                    q = m.step(g)["w"]
                    expected = plain.step([each["w"].astype(np.float64) for each in g])
                    np.testing.assert_allclose(q, expected, atol=2e-5)
                    w = w * (1 - 0.01 * 0.1) - 0.01 * np.sign(q)
                for rank in range(3):
                    np.testing.assert_allclose(
                        m.residual(rank, "w"), plain.momenta[rank], atol=2e-5
                    )
                self.assertGreater(np.abs(w).max(), 0)

    def test_flexdemo_sums_within_nodes_and_exchanges_between_them(self):
        """FlexDeMo on nodes of two ranks: DeMo of the nodes' sums. A tensor's owner keeps its momentum."""
        rng = np.random.default_rng(4)
        shapes = {"a": (9, 20), "b": (50,), "c": (6, 7)}
        for ranks, combine in ((4, "ranks"), (6, "ranks"), (4, "senders")):
            with self.subTest(ranks=ranks, combine=combine):
                options = {"rate": 0.1, "k": 5, "tile": 8, "combine": combine}
                given = {**options, "ranks_per_node": 2, "threads": 1, "verify": True}
                m = sparfuse.Method("flexdemo", ranks, shapes, **given)
                plain = {name: Plain(shape, ranks // 2, **options) for name, shape in shapes.items()}
                for _ in range(8):
                    g = drawn(rng, shapes, ranks, 0.3)
                    q = m.step(g)
                    for name in shapes:
                        own = [each[name].astype(np.float64) for each in g]
                        sums = [one + other for one, other in zip(own[::2], own[1::2])]
                        # Averages are over all ranks, Plain's over nodes, of sums of two.
                        expected = plain[name].step(sums) / 2
                        np.testing.assert_allclose(q[name], expected, atol=2e-5)
                # "a" has 180 of 272 elements: it is the shard of the first rank of a node.
                for rank in range(ranks):
                    for name in shapes:
                        own = plain[name].momenta[rank // 2] if (name == "a") == (rank % 2 == 0) else 0
                        np.testing.assert_allclose(m.residual(rank, name), own, atol=5e-5)

    def test_nodes_lose_nothing_of_what_others_select(self):
        rng = np.random.default_rng(6)
        shapes = {"w": (40, 6), "b": (7,)}
        for strategy, collective, sparsifier in (
            ("node-tensors", "powersgd-factors", "none"),
            ("node-tensors", "arc-rows", "topk"),
            ("node-tensors", "moment-mask", "topk"),
            ("node-shards", "moment-mask", "topk"),
        ):
            with self.subTest(strategy=strategy, collective=collective):
                parts = {"strategy": strategy, "planner": "by-count", "planner_options": {"units": 1}}
                parts |= {"sparsifier": sparsifier, "feedback": "residual", "collective": collective}
                given = {"ranks_per_node": 3, "density": 0.2, "threads": 1, "verify": True}
                m = sparfuse.Method(parts, 6, shapes, **given)
                left = {name: np.zeros(shape) for name, shape in shapes.items()}
                for _ in range(10):
                    g = drawn(rng, shapes, 6)
                    averages = m.step(g)
                    for name in left:
                        left[name] += sum(each[name].astype(np.float64) for each in g)
                        left[name] -= 6 * averages[name].astype(np.float64)
                for name in left:
                    kept = sum(m.residual(rank, name).astype(np.float64) for rank in range(6))
                    np.testing.assert_allclose(kept, left[name], atol=1e-4)

    def test_flexdemo_on_one_rank_a_node_is_demo(self):
        rng = np.random.default_rng(5)
        methods = [
            sparfuse.Method(name, 3, [("w", (9, 20)), ("b", (30,))], k=4, tile=8, threads=1)
            for name in ("demo", "flexdemo")
        ]
        for _ in range(4):
            g = drawn(rng, {"w": (9, 20), "b": (30,)}, 3)
            np.testing.assert_equal(*(m.step(g) for m in methods))

    def test_bytes(self):
        m = sparfuse.Method("demo", 2, [("w", (64, 64)), ("b", (10,))], threads=1)
        g = {"w": np.ones((64, 64), np.float32), "b": np.ones(10, np.float32)}
        m.step([g, g])
        # 32 elements of the tile and all 10 of the smaller one: 42 x 12 bits, padded to 4 bytes, and floats.
        self.assertEqual(m.bytes()["sent"], [64 + 42 * 4] * 2)
        self.assertEqual(m.options["feedback"], "decoupled")


@unittest.skipIf(torch is None, "torch cannot be used")
class Updates(unittest.TestCase):
    def test_by_the_sign(self):
        import sparfuse.torch as sf

        p = torch.nn.Parameter(torch.tensor([1.0, 2.0, -4.0, 8.0]))
        still = torch.nn.Parameter(torch.ones(2))
        optimizer = sf.SignSGD([p, still], lr=0.5, weight_decay=0.25)
        p.grad = torch.tensor([0.5, -1e-30, 0.0, -0.0])
        for _ in range(2):
            optimizer.step()
        self.assertEqual(p.tolist(), [-0.171875, 2.46875, -3.0625, 6.125])
        self.assertEqual(still.tolist(), [1, 1])
        with self.assertRaisesRegex(ValueError, "lr = -1"):
            sf.SignSGD([p], lr=-1)

    def test_trains(self):
        torch.manual_seed(0)
        inputs = torch.randn(2 * 64, 20)
        targets = inputs @ torch.randn(20, 1)
        model = torch.nn.Linear(20, 1)
        import sparfuse.torch as sf

        optimizer = sf.SignSGD(model.parameters(), lr=0.01)
        layout = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
        m = sparfuse.Method("demo", 2, layout, order="forward", k=4, tile=8, threads=1)
        losses = []
        for step in range(300):
            optimizer.param_groups[0]["lr"] = 0.02 * (1 - step / 300)
            gradients = []
            for rank in range(2):
                model.zero_grad()
                rows = slice(64 * rank, 64 * rank + 64)
                loss = torch.nn.functional.mse_loss(model(inputs[rows]), targets[rows])
                loss.backward()
                gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})
            m.step(gradients, out={n: p.grad for n, p in model.named_parameters()})
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.05 * losses[0])


class Transforms(unittest.TestCase):
    def test_golden_numbers(self):
        x = np.array([1, 2, 3, 4], np.float32)
        np.testing.assert_allclose(sparfuse.dct(x), (5, -2.2304424974, 0, -0.1585126678), atol=1e-6)
        np.testing.assert_allclose(sparfuse.idct(sparfuse.dct(x), (4,)), x, atol=1e-6)

    def test_tiles_by_the_definition(self):
        x = np.random.default_rng(1).normal(size=(70, 9, 15)).astype(np.float32)
        for tiles in ["short", "divisor"]:
            got, expected = sparfuse.dct(x, 64, tiles), []
            for down in cuts(70, 64, tiles):
                for across in cuts(135, 64, tiles):
                    part = x.reshape(70, 135)[down, across].astype(np.float64)
                    d, a = basis(part.shape[0]), basis(part.shape[1])
                    expected.append((d @ part @ a.T).ravel())
            error = np.linalg.norm(got - np.concatenate(expected))
            self.assertLess(error, 2e-6 * np.linalg.norm(x))
            back = sparfuse.idct(got, x.shape, tiles=tiles)
            self.assertLess(np.linalg.norm(back - x), 2e-6 * np.linalg.norm(x))


class Refusals(unittest.TestCase):
    def expect(self, words, *args, **options):
        with self.assertRaisesRegex(sparfuse.ConfigError, words):
            sparfuse.Method(*args, **options)

    def test_options(self):
        layout = [("w", (4,))]
        self.expect("tile = 65", "demo", 2, layout, tile=65)
        self.expect("rate = -1", "demo", 2, layout, rate=-1)
        self.expect("decay = 1.5", "demo", 2, layout, decay=1.5)
        self.expect('"tiles"|tiles = ', "demo", 2, layout, tiles="long")
        self.expect("does not select from a momentum", "wfbp", 2, layout, feedback="decoupled")
        self.expect("payload_values", "demo", 2, layout, payload_values="f16")

    def test_arguments_of_transforms(self):
        x = np.ones(4, np.float32)
        for error, words, call in [
            (sparfuse.ConfigError, "tile = 65", lambda: sparfuse.dct(x, 65)),
            (sparfuse.ConfigError, 'tiles = "long"', lambda: sparfuse.dct(x, tiles="long")),
            (sparfuse.ConfigError, "has 4 elements", lambda: sparfuse.idct(x, (5,))),
            (sparfuse.NumericError, "element 1", lambda: sparfuse.dct(np.float32([1, np.inf]))),
            (TypeError, "float64", lambda: sparfuse.dct(np.ones(4))),
        ]:
            with self.assertRaisesRegex(error, words):
                call()


if __name__ == "__main__":
    unittest.main()
