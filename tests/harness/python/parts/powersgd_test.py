"""Tests PowerSGD against the algorithm in NumPy; workers in one process and in several."""

import threading
import unittest

import numpy as np
from common import Refusals, bits, gradient
from usable_torch import torch

import sparfuse


class PowerSgd(unittest.TestCase):
    def test_one_worker_is_the_paper_s_algorithm(self):
        for shape, rank in [((64, 32), 4), ((16, 3, 5, 5), 2), ((300, 7), 1)]:
            f = sparfuse.PowerSGD(rank=rank, seed=1)
            residual = np.zeros(shape)
            q = None
            for step in range(6):
                with self.subTest(shape=shape, step=step):
                    g = gradient(*shape, seed=step)
                    before = g.copy()
                    matrix = (g + residual).reshape(shape[0], -1)
                    p = f.compute_p("w", g)
                    self.assertEqual(p.shape, (rank, shape[0]))
                    if q is not None:  # the first q is drawn at random
                        np.testing.assert_allclose(p.T, matrix @ q.T, rtol=1e-4, atol=1e-4)
                    basis = np.linalg.qr(p.T.astype(np.float64))[0]
                    q = f.compute_q("w").copy()
                    # The basis is orthonormal up to signs, on which the product does not depend.
                    expected = basis @ (basis.T @ matrix)
                    out = f.reconstruct("w")
                    self.assertEqual((out.shape, out.dtype), (shape, np.dtype("float32")))
                    np.testing.assert_allclose(out.reshape(matrix.shape), expected, atol=1e-4)
                    residual = f.residual("w")
                    np.testing.assert_allclose(out + residual, matrix.reshape(shape), atol=1e-5)
                    np.testing.assert_array_equal(bits(g), bits(before))

    def test_a_matrix_of_the_rank_comes_back_at_once(self):
        a, b = gradient(40, 3, seed=1), gradient(3, 50, seed=2)
        f = sparfuse.PowerSGD(rank=3, workers=2)
        average = f.average({"w": [a @ b, 3 * (a @ b)]})["w"]
        np.testing.assert_allclose(average, 2 * (a @ b), atol=1e-4)

    def test_sums_of_steps_are_the_gradients(self):
        f = sparfuse.PowerSGD(rank=2, workers=3)
        total = np.zeros((30, 20))
        sent = np.zeros((30, 20))
        for step in range(20):
            gradients = [gradient(30, 20, seed=10 * step + w) for w in range(3)]
            total += np.sum(gradients, axis=0)
            sent += 3.0 * f.average({"w": gradients})["w"]
        left = sum(f.residual("w", worker=w).astype(np.float64) for w in range(3))
        np.testing.assert_allclose(sent + left, total, atol=1e-3)
        self.assertRaises(AssertionError, np.testing.assert_allclose, sent, total, atol=1e-1)

    def several(self, workers, gradients, in_place):
        """Makes a step of several objects, as separate processes would; returns the output of each."""
        name = "w"

        def mean(arrays):
            total = arrays[0].copy()
            for array in arrays[1:]:
                total += array
            total *= np.float32(1 / len(arrays))
            for array in arrays:
                if in_place:
                    array[:] = total
            return None if in_place else total

        p = mean([f.compute_p(name, g) for f, g in zip(workers, gradients)])
        q = mean([f.compute_q(name, p) for f in workers])
        return [f.reconstruct(name, q) for f in workers]

    def test_several_objects_agree_with_one(self):
        for in_place in [True, False]:
            workers = [sparfuse.PowerSGD(rank=3, seed=4) for _ in range(3)]
            together = sparfuse.PowerSGD(rank=3, seed=4, workers=3)
            for step in range(5):
                gradients = [gradient(48, 5, 6, seed=10 * step + w) for w in range(3)]
                expected = together.average({"w": gradients})["w"]
                for w, out in enumerate(self.several(workers, gradients, in_place)):
                    np.testing.assert_array_equal(bits(out), bits(expected))
                    np.testing.assert_array_equal(
                        bits(workers[w].residual("w")), bits(together.residual("w", worker=w))
                    )

    def test_what_is_not_compressed_is_averaged_as_it_is(self):
        f = sparfuse.PowerSGD(rank=4, workers=3)
        shapes = {"bias": (100,), "small": (5, 5), "scalar": (), "weight": (50, 40)}
        gradients = {
            name: [np.asarray(gradient(*shape, seed=w)) for w in range(3)]
            for name, shape in shapes.items()
        }
        averages = f.average(gradients)
        self.assertEqual(list(averages), list(shapes))
        for name, shape in shapes.items():
            self.assertEqual(averages[name].shape, shape)
            mean = sum(gradients[name][1:], gradients[name][0]) * np.float32(1 / 3)
            self.assertEqual(f.compresses(shape), name == "weight")
            if name != "weight":
                np.testing.assert_array_equal(averages[name], mean)

    def test_out_may_be_a_gradient(self):
        make = lambda: {
            "w": [gradient(30, 20, seed=w) for w in range(2)],
            "b": [gradient(30, seed=w) for w in range(2)],
        }
        expected = sparfuse.PowerSGD(rank=2, workers=2).average(make())
        gradients = make()
        out = {name: each[1] for name, each in gradients.items()}
        averages = sparfuse.PowerSGD(rank=2, workers=2).average(gradients, out=out)
        for name in out:
            self.assertIs(averages[name], out[name])
            np.testing.assert_array_equal(bits(out[name]), bits(expected[name]))

    def test_factors_live_as_long_as_they_are_held(self):
        p = sparfuse.PowerSGD(rank=2).compute_p("w", gradient(500, 400))
        expected = p.copy()
        for _ in range(20):
            sparfuse.PowerSGD(rank=2).compute_p("w", gradient(500, 400, seed=1))
        np.testing.assert_array_equal(p, expected)

    def test_threads_and_objects(self):
        self.addCleanup(sparfuse.set_threads, sparfuse.threads())
        g = gradient(600, 500)
        results = []
        for threads in [1, 3]:
            sparfuse.set_threads(threads)
            f = sparfuse.PowerSGD(rank=4, workers=1)
            results.append(f.average({"w": [g]})["w"])
        np.testing.assert_array_equal(bits(results[0]), bits(results[1]))

        f, made = sparfuse.PowerSGD(rank=4), {}

        def work(name):
            for _ in range(5):
                f.compute_p(name, g)
                f.compute_q(name)
                made[name] = f.reconstruct(name)

        threads = [threading.Thread(target=work, args=(str(i),)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        alone = sparfuse.PowerSGD(rank=4)
        for _ in range(5):
            expected = alone.average({"2": [g]})["2"]
        np.testing.assert_array_equal(bits(made["2"]), bits(expected))

    @unittest.skipIf(torch is None, "torch cannot be used")
    def test_trains(self):
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(20, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
        )
        inputs = torch.randn(4 * 64, 20)
        targets = torch.sin(2 * inputs[:, :1])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        f = sparfuse.PowerSGD(rank=2, workers=4)
        losses = []
        for _ in range(200):
            gradients = {name: [] for name, _ in model.named_parameters()}
            loss_sum = 0.0
            for rank in range(4):
                rows = slice(rank * 64, (rank + 1) * 64)
                model.zero_grad()
                loss = torch.nn.functional.mse_loss(model(inputs[rows]), targets[rows])
                loss.backward()
                loss_sum += loss.item()
                for name, parameter in model.named_parameters():
                    gradients[name].append(parameter.grad.clone())
            f.average(gradients, out={name: p.grad for name, p in model.named_parameters()})
            optimizer.step()
            losses.append(loss_sum / 4)
        self.assertLess(losses[-1], 0.1 * losses[0])


class Errors(Refusals):
    def test_arguments(self):
        for rank in [0, 33]:
            self.expect(sparfuse.ConfigError, f"rank = {rank}", sparfuse.PowerSGD, rank=rank)
        self.expect(ValueError, "workers = 0", sparfuse.PowerSGD, workers=0)
        f = sparfuse.PowerSGD(rank=2)
        self.expect(ValueError, r'"b" of shape \(9,\).*average it as it is', f.compute_p, "b",
                    gradient(9))
        self.expect(TypeError, "float64", f.compute_p, "w", np.zeros((30, 20)))
        self.expect(ValueError, "no step", f.residual, "w")
        f.compute_p("w", gradient(30, 20))
        self.expect(ValueError, r"p has shape \(30, 2\); expected \(2, 30\)", f.compute_q, "w",
                    gradient(30, 2))
        f.compute_q("w")
        self.expect(ValueError, r"out has shape \(20, 30\)", f.reconstruct, "w",
                    out=gradient(20, 30))
        f.reconstruct("w")
        self.expect(ValueError, r'"w" has shape \(20, 30\), and had', f.compute_p, "w",
                    gradient(20, 30))
        self.expect(ValueError, "worker = 1: expected 0 to 0", f.residual, "w", worker=1)

    def test_the_order_of_calls(self):
        f = sparfuse.PowerSGD(rank=2)
        g = gradient(30, 20)
        self.expect(ValueError, "no step", f.compute_q, "w")
        f.compute_p("w", g)
        self.expect(ValueError, "compute_p was called; expected compute_q", f.compute_p, "w", g)
        self.expect(ValueError, "reconstruct was called; expected compute_q", f.reconstruct, "w")
        f.compute_q("w")
        self.expect(ValueError, "compute_q was called; expected reconstruct", f.compute_q, "w")
        f.reconstruct("w")
        self.expect(ValueError, "reconstruct was called; expected compute_p", f.reconstruct, "w")

    def test_average_checks_before_it_begins(self):
        f = sparfuse.PowerSGD(rank=2, workers=2)
        g = gradient(30, 20)
        self.expect(ValueError, "workers = 2: call average", f.compute_p, "w", g)
        self.expect(ValueError, r'gradients\["b"\] has 1 gradients; expected workers = 2',
                    f.average, {"w": [g, g], "b": [g]})
        self.expect(ValueError, '"b" has shape', f.average, {"w": [g, g], "b": [g, g.T]})
        self.expect(TypeError, r'gradients\["b"\] is a ', f.average, {"w": [g, g], "b": 3})
        self.expect(ValueError, r'out\["w"\] has shape', f.average, {"w": [g, g]},
                    out={"w": gradient(3)})
        self.expect(KeyError, "w", f.average, {"w": [g, g]}, out={})
        self.expect(ValueError, "no step", f.residual, "w")

    def test_a_step_with_a_nan_has_not_been_and_the_next_one_goes_on(self):
        g = gradient(30, 20)
        bad = g.copy()
        bad[0, 5] = np.nan
        f = sparfuse.PowerSGD(rank=2, workers=2)
        f.average({"w": [g, g]})
        kept = f.residual("w")
        self.assertGreater(np.abs(kept).max(), 0)
        self.expect(sparfuse.NumericError, '"w".*element 5 ', f.average, {"w": [g, bad]})
        for worker in range(2):
            np.testing.assert_array_equal(f.residual("w", worker), kept)
        average = f.average({"w": [g, g]})["w"]
        np.testing.assert_allclose(average + f.residual("w"), g + kept, atol=1e-5)
        one = sparfuse.PowerSGD(rank=2)
        for factor in ["compute_q", "reconstruct"]:
            one.compute_p("w", g)
            if factor == "reconstruct":
                one.compute_q("w")
            shape = (2, 30) if factor == "compute_q" else (2, 20)
            self.expect(sparfuse.NumericError, '"w": the averaged factor . is not finite',
                        getattr(one, factor), "w", np.full(shape, np.inf, dtype=np.float32))
            average = one.average({"w": [g]})["w"]
            self.assertGreater(np.abs(average).max(), 0)
            np.testing.assert_allclose(average + one.residual("w"), g, atol=1e-5)
        infinite = np.array([0, np.inf], dtype=np.float32)
        self.expect(sparfuse.NumericError, '"b".*element 1 of 2', f.average, {"b": [infinite] * 2})


if __name__ == "__main__":
    unittest.main()
