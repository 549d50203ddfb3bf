"""Tests sparfuse.Method: whole methods against NumPy, and what a caller may get wrong."""

import copy
import functools
import os
import pickle
import time
import unittest

import numpy as np
from common import Refusals
from usable_torch import installed as torch

import sparfuse

WORKERS = 4
LAYOUT = [  # in ready order; one element, odd sizes, and sizes beyond a kernel's block
    ("head.bias", (10,)),
    ("head.weight", (10, 33)),
    ("scale", ()),
    ("conv.weight", (16, 8, 3, 3)),
    ("conv.bias", (16,)),
    ("embedding", (613, 15)),
]
# Methods whose step applies its own gradients; local_steps_test.py tests the others.
METHODS = {
    method["name"]: method
    for method in sparfuse.list_methods()
    if not method["strategy"].endswith("local-steps") and method["strategy"] != "delayed-units"
}
# Options that make several units of a small layout.
OPTIONS = {
    "safusion-inter": {"units": 2},
    "safusion-naive": {"buffer_fraction": 0.125},
    "ssfusion-naive": {"tensors_per_unit": 4},
    "ssfusion-o": {"tensors_per_unit": 4},
    "ssfusion-i": {"tensors_per_unit": 4, "partition": "all"},
    "ssfusion": {"tensors_per_unit": 4, "partition": "all"},
    "adtopk-p": {"tensors_per_unit": 4, "dense_below": 64},
    "adtopk-h": {"tensors_per_unit": 4, "dense_below": 64},
    "hipress": {"compress_from": 1, "partitions": 3},
    "hipress-ring": {"compress_from": 1},
    "espresso": {"option": 9},
    "demo": {"decay": 1.0},  # no decay, which would lose mass
    "flexdemo": {"decay": 1.0},
}


def integers(seed, layout=LAYOUT):
    """Gradients of small integers, whose sums are exact in any order."""
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-100, 101, shape).astype(np.float32) for name, shape in layout}


def all_ranks(step, workers=WORKERS, layout=LAYOUT):
    return [integers(1000 * step + rank, layout) for rank in range(workers)]


def make(name, workers=WORKERS, layout=LAYOUT, **keywords):
    keywords = {"density": 0.05, "verify": True, "threads": 1, **OPTIONS.get(name, {}), **keywords}
    return sparfuse.Method(name, workers, layout, **keywords)


def take_steps(method, workers, layout, steps):
    """Sums over steps of integers and their workers, by tensor: of gradients, and of what was applied."""
    inputs = {tensor: np.zeros(shape) for tensor, shape in layout}
    applied = {tensor: np.zeros(shape) for tensor, shape in layout}
    for step in range(steps):
        gradients = all_ranks(step, workers, layout)
        averaged = method.step(gradients)
        for tensor, shape in layout:
            assert averaged[tensor].shape == shape
            inputs[tensor] += sum(g[tensor].astype(np.float64) for g in gradients)
            applied[tensor] += workers * averaged[tensor].astype(np.float64)
    assert list(averaged) == list(inputs)
    return inputs, applied


class EveryMethod(unittest.TestCase):
    def loses_nothing(self, method, workers, layout, steps=3, **tolerances):
        """Without tolerances, residuals have all errors of rounding and fitting, too."""
        inputs, applied = take_steps(method, workers, layout, steps)
        for tensor in inputs:
            rest = sum(method.residual(rank, tensor) for rank in range(workers))
            np.testing.assert_allclose(
                rest + applied[tensor], inputs[tensor], **{"rtol": 0, **tolerances}, err_msg=tensor
            )

    def test_loses_nothing_and_leaves_replicas_equal(self):
        for name, workers in [(name, workers) for name in METHODS for workers in [1, 3, 4]]:
            with self.subTest(name, workers=workers):
                m = make(name, workers)  # with verify, it raises if replicas differ
                if METHODS[name]["feedback"] != "none":
                    self.loses_nothing(m, workers, LAYOUT, steps=4, atol=2e-3)
                    continue
                inputs, applied = take_steps(m, workers, LAYOUT, 4)
                with self.assertRaisesRegex(sparfuse.ConfigError, "feedback"):
                    m.residual(0, "scale")
                if name != "qsgd":  # qsgd loses its rounding
                    for tensor in inputs:
                        np.testing.assert_allclose(
                            applied[tensor], inputs[tensor], rtol=1e-6, atol=1e-4
                        )

    def test_loses_nothing_on_nodes_of_several_ranks(self):
        layout = [("fc2", (10, 64)), ("bias", (3,)), ("fc1", (64, 32))]
        names = ["hitopkcomm", "cupcake-hierarchical", "deepreduce", "hipress", "hipress-ring", "safusion-inter"]
        cases = [(name, {}) for name in names] + [("espresso", {"option": k}) for k in range(15)]
        for name, options in cases:
            for ranks_per_node in (1, 2, 4):
                with self.subTest(name, ranks_per_node=ranks_per_node, **options):
                    given = {"density": 0.1, "ranks_per_node": ranks_per_node, **options}
                    self.loses_nothing(make(name, 4, layout, **given), 4, layout)
        with self.assertRaisesRegex(
            sparfuse.ConfigError, "ranks_per_node = 3: expected a divisor of world_size = 4"
        ):
            sparfuse.Method("hitopkcomm", 4, layout, ranks_per_node=3)

    def test_espresso_loses_nothing_as_planned(self):
        """The layout is so large that the published planner compresses some of it."""
        layout = [("bias", (512,)), ("fc", (1100, 1000)), ("embedding", (1200, 1100))]
        for ranks_per_node in (1, 2):
            m = make("espresso", 4, layout, ranks_per_node=ranks_per_node, option=-1)
            self.assertGreater(len({unit["path"] for unit in m.plan}), 1)
            self.loses_nothing(m, 4, layout)

    def test_codes_selections_as_it_is_told_to(self):
        layout = [("bias", (7,)), ("weight", (60, 100))]
        sent = {}
        for options in [
            {},
            {"bloom_policy": "random"},
            {"bloom_policy": "p0", "bloom_fpr": 0.01},
            {"bloom_fpr": 1e-20},
            {"payload_values": "fitted"},
            {"payload_indices": "u32"},
        ]:
            with self.subTest(options):
                m = sparfuse.Method(
                    "deepreduce", 3, layout, density=0.05, verify=True, threads=1, **options
                )
                self.loses_nothing(m, 3, layout, atol=1e-3)
                sent[str(options)] = m.bytes()["payload"][0]
        # 300 of 6000 elements with 11 bits for each index; the bias is dense.
        self.assertEqual(sent["{}"], (8 + 8) + (8 + 4 * 300 + 8 + 4 * 104))
        self.assertEqual(sent["{'payload_indices': 'u32'}"], 8 + 8 * 300)
        with self.assertRaisesRegex(sparfuse.ConfigError, "bloom_fpr = 0.1 with payload_indices"):
            sparfuse.Method("deepreduce", 2, layout, payload_indices="u32", bloom_fpr=0.1)

    def test_sends_what_it_is_told_to(self):
        elements = sum(int(np.prod(shape)) for _, shape in LAYOUT)
        for name, entry in METHODS.items():
            with self.subTest(name):
                m = make(name)
                m.step(all_ranks(0))
                units = m.plan
                self.assertEqual(sum(unit["elements"] for unit in units), elements)
                self.assertEqual(
                    [tensor["name"] for unit in units for tensor in unit["tensors"]],
                    [tensor for tensor, _ in LAYOUT],
                )
                self.assertEqual(str(units).count("unit "), len(units))
                bytes_ = m.bytes()
                self.assertEqual({len(by_rank) for by_rank in bytes_.values()}, {WORKERS})
                if entry["sparsifier"] != "none":
                    self.assertLess(max(bytes_["payload"]), 4 * elements)
                self.assertEqual(sum(bytes_["sent"]), sum(bytes_["received"]))
                kinds = {span["kind"] for span in m.timeline()}
                self.assertLessEqual({"exchange", "decompress"}, kinds)
                for span in m.timeline():
                    self.assertLessEqual(span["begin_seconds"], span["end_seconds"])

    def test_is_deterministic(self):
        for name in METHODS:
            first, second = (
                [m.step(all_ranks(step)) for step in range(2)]
                for m in (make(name), make(name, threads=2))
            )
            np.testing.assert_equal(first, second, name)

    def test_a_step_with_a_nan_names_tensor_and_rank_and_has_not_been(self):
        for name in METHODS:
            with self.subTest(name):
                m, undisturbed = make(name), make(name)
                m.step(all_ranks(0))
                undisturbed.step(all_ranks(0))
                gradients = all_ranks(1)
                gradients[2]["conv.weight"][3, 1, 2, 0] = np.nan
                with self.assertRaisesRegex(sparfuse.NumericError, "^rank 2: .*conv.weight"):
                    m.step(gradients)
                self.assertEqual(m.steps, 1)
                np.testing.assert_equal(m.step(all_ranks(1)), undisturbed.step(all_ranks(1)))

    def test_stops_where_a_sum_overflows_and_names_tensor_and_rank(self):
        for name in METHODS:
            of = METHODS[name]
            if of["feedback"] != "residual" or of["strategy"] != "ahead" or of["sparsifier"] == "none":
                continue
            with self.subTest(name):
                m = make(name, deadline_seconds=30)
                gradients = all_ranks(0)
                gradients[2]["conv.weight"][:] = 3e38  # most of its elements stay in the residual
                m.step(gradients)
                begin = time.monotonic()
                with self.assertRaisesRegex(sparfuse.NumericError, "^rank 2: .*conv.weight"):
                    m.step(gradients)
                self.assertLess(time.monotonic() - begin, 20)  # no rank waited for the deadline
                with self.assertRaisesRegex(sparfuse.Error, "step 1 .* failed.*conv.weight"):
                    m.step(all_ranks(1))
                with self.assertRaisesRegex(sparfuse.Error, "step 1 .* failed"):
                    m.plan

    def test_cannot_be_copied_or_pickled(self):
        m = make("wfbp")
        for make_copy in [copy.copy, copy.deepcopy, pickle.dumps]:
            with self.assertRaisesRegex(TypeError, "cannot copy or pickle a sparfuse.Method"):
                make_copy(m)

    def test_sizes_beyond_reason_are_refused_with_the_number(self):
        layout = [("w", (4,))]
        for arguments, text in [
            ({"world_size": 10**9}, "world_size = 1000000000: expected 1 to 1024"),
            ({"world_size": 2, "threads": 10**9}, "threads = 1000000000: expected 1 to 1024"),
            ({"world_size": 2, "deadline_seconds": 1e300}, "at most 86400"),
            ({"world_size": 2, "link": {"gbps": 1e300}}, "gbps = .*0.001 to 100000"),
        ]:
            with self.assertRaisesRegex(sparfuse.ConfigError, text):
                sparfuse.Method("wfbp", layout=layout, **arguments)
        for shape in [(3, 6148914691236517207), (2**32, 2**32), (2**62, 4), (2**32,)]:
            with self.assertRaisesRegex(sparfuse.ConfigError, "elements|2\\^48"):
                sparfuse.Method("wfbp", world_size=1, layout=[("w", shape)])


# The reference in plain NumPy. It selects from x = g + residual in float32 the k = max(1, int(density * n))
# largest magnitudes, and breaks ties to the lower index. The average is the sum over ranks in rank order,
# in float32, times 1/P.
def top_k(x, density):
    k = max(1, int(density * x.size))
    return np.argsort(-np.abs(x), kind="stable")[:k]


class ErrorFeedback:
    def __init__(self, n):
        self.residual = np.zeros(n, np.float32)

    def send(self, g, density):
        x = self.residual + g
        sent = np.zeros_like(x)
        chosen = top_k(x, density)
        sent[chosen] = x[chosen]
        x[chosen] = 0
        self.residual = x
        return sent


class MomentumCorrection:
    def __init__(self, n, momentum, nesterov, masking):
        self.u = np.zeros(n, np.float32)
        self.v = np.zeros(n, np.float32)
        self.momentum, self.nesterov, self.masking = np.float32(momentum), nesterov, masking

    def send(self, g, density):
        if self.nesterov:
            self.u = self.momentum * (self.u + g)
            self.v = self.v + (self.u + g)
        else:
            self.u = self.momentum * self.u + g
            self.v = self.v + self.u
        sent = np.zeros_like(self.v)
        chosen = top_k(self.v, density)
        sent[chosen] = self.v[chosen]
        self.v[chosen] = 0
        if self.masking:
            self.u[chosen] = 0
        return sent


def average(sent_by_rank):
    total = np.zeros_like(sent_by_rank[0])
    for sent in sent_by_rank:
        total = total + sent
    return total * np.float32(1 / len(sent_by_rank))


class Network:
    """A perceptron of one hidden layer on a fixed regression problem; float32."""

    layout = [("2.bias", (1,)), ("2.weight", (1, 24)), ("0.bias", (24,)), ("0.weight", (24, 12))]

    def __init__(self):
        rng = np.random.default_rng(5)
        draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
        self.inputs, noise = draw(WORKERS, 32, 12), draw(WORKERS, 32)
        self.targets = np.sin(self.inputs[:, :, 0]) + self.inputs[:, :, 1] + np.float32(0.1) * noise
        self.parameters = {name: draw(*shape) * np.float32(0.3) for name, shape in self.layout}

    def forward(self, rank):
        p = self.parameters
        hidden = np.tanh(self.inputs[rank] @ p["0.weight"].T + p["0.bias"])
        return hidden, hidden @ p["2.weight"][0] + p["2.bias"][0] - self.targets[rank]

    def loss(self):
        return np.mean([np.mean(self.forward(rank)[1] ** 2) for rank in range(WORKERS)])

    def gradient(self, rank):
        hidden, error = self.forward(rank)
        error = error * np.float32(2 / error.size)
        back = error[:, None] * self.parameters["2.weight"] * (1 - hidden**2)
        return {
            "2.bias": error.sum(keepdims=True),
            "2.weight": (error @ hidden)[None],
            "0.bias": back.sum(0),
            "0.weight": back.T @ self.inputs[rank],
        }

    def update(self, averaged, lr):
        for name, g in averaged.items():
            self.parameters[name] = self.parameters[name] - np.float32(lr) * g


class Training(unittest.TestCase):
    def compare(self, make_worker, fused, lr=0.1, steps=50, density=0.1, **keywords):
        """Trains with Method and with the reference, each on parameters of its own, and compares them."""
        name = "syncea" if fused else "wfbp"
        m = sparfuse.Method(name, WORKERS, Network.layout, density=density, verify=True, **keywords)
        mine, reference = Network(), Network()
        before = mine.loss()
        flat = lambda tensors: np.concatenate([tensors[name].ravel() for name, _ in Network.layout])
        sizes = [int(np.prod(shape)) for _, shape in Network.layout]
        groups = [sum(sizes)] if fused else sizes
        workers = [[make_worker(n) for n in groups] for _ in range(WORKERS)]
        for step in range(steps):
            gradients = [mine.gradient(rank) for rank in range(WORKERS)]
            mine.update(m.step(gradients), lr)
            parts = []
            by_rank = [
                np.split(flat(reference.gradient(rank)), np.cumsum(groups)[:-1])
                for rank in range(WORKERS)
            ]
            for group in range(len(groups)):
                sent = [
                    workers[rank][group].send(by_rank[rank][group], density)
                    for rank in range(WORKERS)
                ]
                parts.append(average(sent))
            whole = np.split(np.concatenate(parts), np.cumsum(sizes)[:-1])
            averaged = {
                name: part.reshape(shape) for (name, shape), part in zip(Network.layout, whole)
            }
            reference.update(averaged, lr)
            got, expected = flat(mine.parameters), flat(reference.parameters)
            np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5, err_msg=f"at step {step}")
        self.assertEqual(m.steps, steps)
        self.assertLess(mine.loss(), 0.5 * before)
        return m, workers

    def residuals_equal(self, m, workers, attribute="residual", get="residual"):
        for rank in range(WORKERS):
            mine = [getattr(m, get)(rank, name).ravel() for name, _ in Network.layout]
            reference = np.concatenate([getattr(w, attribute) for w in workers[rank]])
            np.testing.assert_allclose(np.concatenate(mine), reference, rtol=0, atol=1e-5)

    def test_layer_wise_top_k_with_error_feedback(self):
        self.residuals_equal(*self.compare(ErrorFeedback, fused=False))

    def test_fused_top_k_with_error_feedback(self):
        self.residuals_equal(*self.compare(ErrorFeedback, fused=True))

    def test_momentum_correction(self):
        for fused in [False, True]:
            for nesterov, masking in [(False, True), (True, True), (False, False)]:
                with self.subTest(fused=fused, nesterov=nesterov, masking=masking):
                    corrected = self.compare(
                        lambda n: MomentumCorrection(n, 0.9, nesterov, masking),
                        fused,
                        lr=0.01,
                        feedback="momentum",
                        momentum=0.9,
                        nesterov=nesterov,
                        masking=masking,
                    )
                    self.residuals_equal(*corrected, attribute="v")
                    self.residuals_equal(*corrected, attribute="u", get="velocity")

    def test_density_warm_up(self):
        m = make("wfbp", layout=[("w", (1000,))], density=0.01, warmup_epochs=3, epoch_steps=2)
        for step in range(8):
            m.step(all_ranks(step, layout=[("w", (1000,))]))
            density = sparfuse.warmup_density(step // 2, 0.01, 3)
            self.assertAlmostEqual(m.bytes()["payload"][0] / 8, int(1000 * density), delta=1)

    def test_a_residual_may_decay(self):
        layout = [("w", (3,))]
        m = make("wfbp", 2, layout, decay=0.5, verify=True)
        gradients = [{"w": np.array([4, 2, 1], np.float32)}] * 2
        for _ in range(4):
            self.assertEqual(m.step(gradients)["w"].tolist(), [4, 0, 0])
        self.assertEqual(m.residual(1, "w").tolist(), [0, 3.75, 1.875])
        for wrong in [0, -0.5, 1.5, float("nan")]:
            with self.assertRaisesRegex(sparfuse.ConfigError, r"decay = .*expected .* \(0, 1\]"):
                make("wfbp", 2, layout, decay=wrong)

    def test_the_first_steps_may_be_dense(self):
        m = make("syncea", dense_warmup_steps=2)
        for step in range(4):
            gradients = all_ranks(step)
            averaged = m.step(gradients)
            mean = sum(gradient["embedding"] for gradient in gradients) / WORKERS
            self.assertEqual(np.array_equal(averaged["embedding"], mean), step < 2)
            self.assertEqual(m.plan[0]["sparsified"], "never" if step < 2 else "behind")


class Gradients(unittest.TestCase):
    def test_a_missing_one_is_zeros(self):
        for name in ["wfbp", "syncea", "safusion", "ssfusion", "dense", "horovod-fusion"]:
            with self.subTest(name):
                without, zeros = make(name), make(name)
                for step in range(3):
                    some, all_ = all_ranks(step), all_ranks(step)
                    for rank, tensor in [(0, "embedding"), (1, "head.bias"), (3, "embedding")]:
                        all_[rank][tensor][:] = 0
                        some[rank][tensor] = None
                    del some[3]["embedding"]
                    np.testing.assert_equal(without.step(some), zeros.step(all_))

    def test_are_read_where_they_lie_and_results_written_where_asked(self):
        seen = []

        class Looks:
            def select(self, g, k):
                seen.append(g.copy())
                return np.argsort(-np.abs(g), kind="stable")[:k]

        sparfuse.register_sparsifier("looks", Looks)
        layout = [("w", (6, 5)), ("b", (6,))]
        plain, python = (
            make("wfbp", 2, layout, density=0.2, sparsifier=s) for s in ["topk", "looks"]
        )
        for step in range(3):
            gradients = all_ranks(step, 2, layout)
            kept = [{name: g.copy() for name, g in rank.items()} for rank in gradients]
            transposed = [{**rank, "w": np.asfortranarray(rank["w"])} for rank in gradients]
            expected = plain.step(gradients)
            mine = python.step(transposed, out=gradients[0])
            np.testing.assert_equal([mine, gradients[1]], [expected, kept[1]])
            for name in expected:
                self.assertIs(mine[name], gradients[0][name])
        self.assertEqual(len(seen), 3 * 2 * 2)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_take_torch(self):
        m, n = make("wfbp", 2), make("wfbp", 2)
        gradients = all_ranks(0, 2)
        as_torch = [{k: torch.from_numpy(v) for k, v in rank.items()} for rank in gradients]
        expected = n.step(gradients)
        out = {name: torch.empty(shape) for name, shape in LAYOUT}
        averaged = m.step(as_torch, out=out)
        for name in expected:
            self.assertIs(averaged[name], out[name])
            np.testing.assert_array_equal(out[name].numpy(), expected[name])

    def test_past_two_to_the_24(self):
        n = 2**24 + 5
        for name in ["syncea", "wfbp"]:
            m = sparfuse.Method(name, 2, [("w", (n,))], density=2.5 / n, verify=True)
            gradients = [np.zeros(n, np.float32) for _ in range(2)]
            gradients[0][[7, 2**24 + 1, 2**24 + 3]] = [1, 3, -5]
            gradients[1][[2**24 + 1, 2**24 + 4]] = [2, 4]
            averaged = m.step([{"w": g} for g in gradients])["w"]
            where = np.flatnonzero(averaged)
            self.assertEqual(where.tolist(), [2**24 + 1, 2**24 + 3, 2**24 + 4])
            self.assertEqual(averaged[where].tolist(), [2.5, -2.5, 2])
            self.assertEqual(np.flatnonzero(m.residual(0, "w")).tolist(), [7])


class Arguments(Refusals):
    def refuses(self, text, kind=sparfuse.ConfigError, name="wfbp", **keywords):
        keywords = {"world_size": 2, "layout": LAYOUT, **keywords}
        self.expect(kind, text, sparfuse.Method, name, **keywords)

    def test_of_the_constructor(self):
        self.refuses('unknown method "safusio"; did you mean "safusion"', name="safusio")
        self.refuses("world_size = 0", world_size=0)
        self.refuses("threads = 0", threads=0)
        self.refuses("deadline_seconds = 0", deadline_seconds=0)
        self.refuses("order = .backward.: expected", order="backward")
        self.refuses("backward_seconds has 1 numbers; .* 6", backward_seconds=[1.0])
        self.refuses("link has 'gpbs'", link={"gpbs": 1})
        self.refuses("gbps = 0", link={"gbps": 0.0})

    def test_of_the_layout(self):
        self.refuses("layout is empty", layout=[])
        many = [(str(tensor), 1) for tensor in range(100_001)]
        self.refuses("layout has 100001 tensors: expected at most 100000", layout=many)
        self.refuses('layout has "w" twice', layout=[("w", 3), ("w", 3)])
        self.refuses(r'"w" has shape \(0,\)', layout=[("w", 0)])
        self.refuses("expected .name, shape.", TypeError, layout=["w"])
        self.refuses("conv.weigth.*conv.weight", dense_tensors=["conv.weigth"])
        self.refuses("expected a list", TypeError, dense_tensors="conv")
        self.refuses("max_dim", dense_tensors={"max_dim": 1})
        self.refuses("fused buffers", name="syncea", no_feedback_tensors=["bias"])

    def test_of_the_parts(self):
        inter = {"name": "safusion-inter"}
        self.refuses('"unitz"; did you mean "units".*; known: .*units', unitz=3, **inter)
        self.refuses("units = 0: expected", units=0, **inter)
        self.refuses('did you mean "sparsifier"', sparsifer="topk")
        self.refuses("density = 2", density=2.0)
        self.refuses('unknown sparsifier "topkk"', sparsifier="topkk")
        options = {"x": 1}
        self.refuses('dgc: unknown option "x"', sparsifier="dgc", sparsifier_options=options)
        made = sparfuse.Sparsifier("topk")
        self.refuses("density = 0.5 beside a Sparsifier", sparsifier=made, density=0.5)
        self.refuses('unknown feedback "momentun"', feedback="momentun")
        self.refuses('feedback residual: unknown option "momentum"', momentum=0.5)
        self.refuses("momentum = 1", feedback="momentum", momentum=1.5)
        self.refuses("replan_every: gradients come", name="safusion", replan_every=5)
        self.refuses("adds equal positions", collective="ring-allreduce")
        native = {"name": "dense", "collective": "native-allreduce"}
        self.refuses("MPI", sparfuse.UnsupportedError, **native)
        self.refuses("a strategy that sends payloads", name="dense", payload_values="f16")
        written = {"strategy": "ahead", "planner": "layer-wise", "sparsifier": "topk"}
        written |= {"feedback": "residual", "collective": "sparse-allgather"}
        self.refuses("'plannr'.*did you mean \"planner\"", name={**written, "plannr": "x"})
        self.refuses("as arguments", name={**written, "sparsifier_options": {}})
        self.refuses("feedback = 3: expected a string", name={**written, "feedback": 3})

    def test_of_step_leave_the_object_as_it_was(self):
        m, n = make("wfbp", 2), make("wfbp", 2)
        good = all_ranks(0, 2)
        one = lambda name, value: [good[0], {**good[1], name: value}]
        expect = functools.partial(self.expect, sparfuse.ConfigError)
        expect("has 1 entries; expected .* world_size = 2", m.step, good[:1])
        self.expect(TypeError, "expected a list of dicts", m.step, good[0])
        self.expect(TypeError, r"gradients\[1\] is a int", m.step, [good[0], 5])
        strange = one("scales", good[0]["scale"])
        expect(r'gradients\[1\] has "scales".*did you mean "scale"', m.step, strange)
        bias = r'gradients\[1\]\["head.bias"\] has '
        short = one("head.bias", np.zeros(9, np.float32))
        expect(bias + r"shape \(9,\); expected .*\(10,\)", m.step, short)
        self.expect(TypeError, bias + "dtype float64", m.step, one("head.bias", np.zeros(10)))
        self.expect(TypeError, r'gradients\[1\]\["scale"\] is a list', m.step, one("scale", [1.0]))
        out = {"head.bias": good[0]["head.bias"]}
        expect(r'out\["head.weight"\] is missing', m.step, good, out=out)
        expect('"scales" is not in the layout', m.residual, 0, "scales")
        expect("rank = 2: expected 0 to 1", m.residual, 2, "scale")
        expect("momentum", m.velocity, 0, "scale")
        self.assertEqual(m.steps, 0)
        np.testing.assert_equal(m.step(good), n.step(good))

    def test_what_is_treated_apart(self):
        m = make("wfbp", dense_tensors=["bias$"], no_feedback_tensors=["conv.weight"])
        gradients = all_ranks(0)
        averaged = m.step(gradients)
        for name in ["head.bias", "conv.bias"]:
            np.testing.assert_allclose(averaged[name], sum(g[name] for g in gradients) / WORKERS)
        self.assertFalse(m.residual(0, "conv.weight").any())
        self.assertTrue(m.residual(0, "embedding").any())
        by_ndim = make("wfbp", dense_tensors={"max_ndim": 1})
        tensors = [tensor for unit in by_ndim.plan for tensor in unit["tensors"]]
        dense = [tensor["name"] for tensor in tensors if tensor["density"] == 1]
        self.assertEqual(dense, ["head.bias", "scale", "conv.bias"])

    def test_forward_order_is_reversed(self):
        times = [1e-3 * t for t in range(len(LAYOUT))]
        ready = make("safusion", backward_seconds=times)
        forward = make(
            "safusion", layout=dict(LAYOUT[::-1]), order="forward", backward_seconds=times[::-1]
        )
        self.assertEqual(ready.plan, forward.plan)
        a, b = ready.step(all_ranks(0)), forward.step(all_ranks(0))
        self.assertEqual(list(a), list(b)[::-1])
        np.testing.assert_equal(a, b)

    def test_a_plan_may_be_given(self):
        names = [name for name, _ in LAYOUT]
        units = lambda m: [[tensor["name"] for tensor in unit["tensors"]] for unit in m.plan]
        plan = [[names[4], names[5]], [0], [names[2], 1, np.int64(3)]]  # units may be in any order
        for name in ["dense", "wfbp", "safusion", "syncea", "mg-wfbp"]:
            m = make(name, plan=plan)
            self.assertEqual(units(m), [names[:1], names[1:4], names[4:]], name)
            m.step(all_ranks(0))
        forward = make("wfbp", layout=LAYOUT[::-1], order="forward", plan=[[5, 4], [3, 2, 1], [0]])
        self.assertEqual(units(forward), [names[:2], names[2:5], names[5:]])

    def test_plans_that_fit_no_layout_are_refused_with_the_tensor(self):
        names = [name for name, _ in LAYOUT]
        refuses = lambda text, plan, *kind, **given: self.refuses(text, *kind, plan=plan, **given)
        refuses('plan lacks "embedding"', [names[:5]])
        refuses('"scale" in unit 0 and in unit 1', [names[:3], names[2:]])
        refuses('"scale" in unit 0 and in unit 0', [[*names, 2]])
        refuses('plan.1. has "convweight".*did you mean "conv.weight"', [names[:3], ["convweight"]])
        refuses("position 6; expected 0 to 5", [[0, 6]])
        refuses("position -1; expected 0 to 5", [[-1]])
        refuses('"scale" in unit 0, and tensors of another unit', [[0, 2], [1], [3, 4, 5]])
        refuses("plan.0. = 'head.bias'; expected a list", names, TypeError)
        refuses(r"plan.0. = \[\]; expected a list of at least one", [[], names], TypeError)
        refuses("plan.0. has 1.5; expected a name or a position", [[1.5]], TypeError)
        refuses("units = 2 beside a plan", [names], name="safusion-inter", units=2)

    def test_plans_say_what_is_reduced_and_on_the_host(self):
        # A small tensor beside a large one is dense; its all-reduce needs no indices.
        layout = [("w", (9195,)), ("b", (1,))]
        m = make("ssfusion", WORKERS, layout, density=0.9, partition="all")
        how = {tensor["name"]: tensor for unit in m.plan for tensor in unit["tensors"]}
        self.assertEqual(how["b"]["density"], 1)
        self.assertEqual({name: how[name]["reduced"] for name in how}, {"w": False, "b": True})
        self.assertIn("dense by all-reduce: b", str(m.plan))
        # If backward takes a second for each tensor, a host as fast as this thread has time to select.
        options = {"host_factor": 1.0, "backward_seconds": [1.0] * 4, "tensors_per_unit": 2}
        layout = [(f"w{t}", (5000,)) for t in range(4)]
        m = make("ssfusion-o", WORKERS, layout, **options)
        tensors = [tensor for unit in m.plan for tensor in unit["tensors"]]
        self.assertTrue(any(tensor["offloaded"] for tensor in tensors), m.plan)
        m.step(all_ranks(0, layout=layout))
        hosts = [span["label"] for span in m.timeline() if span["lane"] == "host"]
        self.assertEqual(set(hosts), {t["name"] for t in tensors if t["offloaded"]})

    def test_planners_go_by_declared_times(self):
        layout = [(f"w{t}", (1000,)) for t in range(20)]
        units = lambda **keywords: len(make("safusion", layout=layout, **keywords).plan)
        self.assertEqual(units(), units())
        # If a message costs a second, there is one; if backward takes long, it hides many.
        self.assertEqual(units(link={"alpha_us": 1e6}), 1)
        self.assertGreater(units(backward_seconds=[1.0] * 20), 1)

    def test_sparsifiers_of_all_kinds(self):
        class Largest:
            def __init__(self, sign=1, seed=0):
                self.sign = sign

            def select(self, g, k):
                return np.argsort(-np.abs(self.sign * g), kind="stable")[:k]

        sparfuse.register_sparsifier("method_largest", Largest)
        expected = make("safusion", density=0.02).step(all_ranks(0))
        for keywords in [
            {"sparsifier": "method_largest", "sparsifier_options": {"sign": -1}, "density": 0.02},
            {"sparsifier": sparfuse.Sparsifier("method_largest", 0.02, sign=-1), "density": None},
            {"sparsifier": sparfuse.Sparsifier("topk", 0.02), "density": None},
        ]:
            m = make("safusion", **keywords)
            self.assertEqual(m.options["density"], 0.02)
            np.testing.assert_equal(m.step(all_ranks(0)), expected)
        for entry in sparfuse.list_sparsifiers():
            if entry["language"] == "C++":
                make("safusion", sparsifier=entry["name"], density=0.02).step(all_ranks(0))

    def test_listed_options_are_taken(self):
        for name, entry in METHODS.items():
            given = {option["name"]: option["default"] for option in entry["options"]}
            self.assertTrue(all(option["meaning"] for option in entry["options"]))
            m = sparfuse.Method(name, 2, LAYOUT, **given)
            self.assertEqual({key: m.options[key] for key in given}, given)
            again = sparfuse.Method(name, 2, LAYOUT, **m.options)
            self.assertEqual(again.options, m.options)
            self.assertTrue(entry["title"] and entry["paper"] and entry["summary"])


class Ranks(unittest.TestCase):
    def fails_on_a_rank(self, select, kind, text, **keywords):
        made = []

        class Fails:
            def __init__(self):
                self.mine = len(made)
                made.append(self)

            def select(self, g, k):
                if self is made[-1]:
                    select()
                return range(k)

        sparfuse.register_sparsifier("fails", Fails)
        m = make("wfbp", sparsifier="fails", **keywords)
        begin = time.monotonic()
        with self.assertRaisesRegex(kind, text):
            m.step(all_ranks(0))
        with self.assertRaisesRegex(sparfuse.Error, "failed"):
            m.residual(0, "scale")
        return time.monotonic() - begin

    def test_an_exception_on_one_ends_the_step_on_all(self):
        def fail():
            raise KeyError("mine")

        self.assertLess(self.fails_on_a_rank(fail, KeyError, "mine", deadline_seconds=60), 30)

    def test_a_silent_one_is_named_at_the_deadline(self):
        seconds = self.fails_on_a_rank(
            lambda: time.sleep(10), sparfuse.Error, "rank 3", deadline_seconds=3
        )
        self.assertLess(seconds, 30)

    def test_a_sparsifier_may_not_call_its_caller(self):
        holder = []
        sparfuse.register_sparsifier(
            "calls", type("Calls", (), {"select": lambda self, g, k: holder[0].plan})()
        )
        holder.append(make("wfbp", sparsifier="calls"))
        with self.assertRaisesRegex(sparfuse.ConfigError, "is running"):
            holder[0].step(all_ranks(0))

    def test_hundreds_share_the_processors(self):
        layout = [("bias", (7,)), ("weight", (30, 50))]
        for name in ("wfbp", "dense", "oktopk", "zen"):
            with self.subTest(name):
                m = sparfuse.Method(name, 200, layout, density=0.01, verify=True)
                gradients = all_ranks(0, 200, layout)
                averaged = m.step(gradients)
                if name == "dense":
                    for tensor, _ in layout:
                        sums = sum(each[tensor].astype(np.float64) for each in gradients)
                        np.testing.assert_allclose(averaged[tensor], sums / 200, rtol=1e-6)
                self.assertEqual(len(m.bytes()["sent"]), 200)

    def test_stay_behind_in_a_fork(self):
        m = make("wfbp")
        m.step(all_ranks(0))
        child = os.fork()
        if child == 0:
            try:
                m.step(all_ranks(1))
            except sparfuse.Error as error:
                del m
                os._exit(0 if "forked" in str(error) else 1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        m.step(all_ranks(1))


class Overflow(unittest.TestCase):
    def test_an_average_that_float32_does_not_hold_is_an_error_of_every_method(self):
        big = np.full(64, 3e38, dtype=np.float32)
        for name in ["dense", "horovod-fusion", "wfbp", "ps", "safusion", "signsgd", "qsgd"]:
            method = sparfuse.Method(name, 2, [("w", 64)])
            with self.subTest(name):
                with self.assertRaisesRegex(sparfuse.NumericError, f'"{name}".*tensor "w".*inf'):
                    method.step([{"w": big}, {"w": big}])


if __name__ == "__main__":
    unittest.main()
