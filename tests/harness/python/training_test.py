"""Tests training in PyTorch with four simulated workers: sparse steps learn as dense ones do."""

import unittest

import numpy as np
from usable_torch import torch

import sparfuse

WORKERS = 4


def train(feedback, density, lr=0.02, steps=300):
    """(loss before, loss after) a training. feedback(density) makes a worker's ErrorFeedback, or None for
    dense steps."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    inputs = torch.randn(WORKERS * 64, 20)
    targets = torch.sin(inputs[:, :1] * 2) + inputs[:, 1:2]
    loss_of = lambda rows: torch.nn.functional.mse_loss(model(inputs[rows]), targets[rows])
    everything = slice(None)
    workers = [feedback(density) for _ in range(WORKERS)]
    with torch.no_grad():
        before = loss_of(everything).item()
    # With momentum correction, the workers keep the momentum.
    in_worker = workers[0] is not None and workers[0].feedback == "momentum"
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0 if in_worker else 0.9)
    for _ in range(steps):
        payloads = {name: [] for name, _ in model.named_parameters()}
        for rank, worker in enumerate(workers):
            model.zero_grad()
            loss_of(slice(rank * 64, (rank + 1) * 64)).backward()
            for name, parameter in model.named_parameters():
                if worker is None:
                    flat = parameter.grad.numpy().ravel().copy()
                    payloads[name].append((np.arange(flat.size, dtype=np.uint32), flat))
                else:
                    payloads[name].append(worker.step(name, parameter.grad))
        for name, parameter in model.named_parameters():
            sparfuse.decompress(payloads[name], parameter.shape, out=parameter.grad)
        optimizer.step()
    with torch.no_grad():
        return before, loss_of(everything).item()


@unittest.skipIf(torch is None, "torch cannot be used")
class Training(unittest.TestCase):
    def setUp(self):
        threads = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, threads)
        torch.set_num_threads(1)

    def test_sparse_steps_with_feedback_learn(self):
        before, dense = train(lambda density: None, None)
        self.assertLess(dense, 0.01 * before)
        for name in ["topk", "dgc"]:
            make = lambda density: sparfuse.ErrorFeedback(sparfuse.Sparsifier(name, density))
            self.assertLess(train(make, 0.1)[1], 2 * dense, name)
        corrected = lambda density: sparfuse.ErrorFeedback(
            sparfuse.Sparsifier("dgc", density), feedback="momentum", momentum=0.9, clip=5.0
        )
        self.assertLess(train(corrected, 0.05, lr=0.05)[1], 0.05 * before)

    def test_density_one_is_dense_bit_for_bit(self):
        make = lambda density: sparfuse.ErrorFeedback(sparfuse.Sparsifier("topk", density))
        self.assertEqual(train(make, 1.0, steps=20), train(lambda density: None, None, steps=20))


if __name__ == "__main__":
    unittest.main()
