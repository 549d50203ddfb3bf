"""Tests that an object goes on from a checkpoint, or as a copy, bit for bit as it would have."""

import copy
import pickle
import unittest

import numpy as np

import sparfuse


def gradient(step, shape=(40, 50)):
    return np.random.default_rng(step).standard_normal(shape, dtype=np.float32)


class Derived(sparfuse.ErrorFeedback):
    pass


class Remembers:
    """A sparsifier that selects by what it has seen of a tensor, and by random numbers of its own."""

    def __init__(self, decay=0.5):
        self.decay = decay
        self.seen = {}
        self.random = np.random.default_rng(7)

    def select(self, g, k, *, name):
        seen = abs(g) + np.float32(self.decay) * self.seen.get(name, 0)
        self.seen[name] = seen
        return np.argsort(seen * self.random.random(g.size, dtype=np.float32))[-k:]

    def state_dict(self):
        return {"seen": self.seen, "random": self.random.bit_generator.state}

    def load_state_dict(self, state):
        self.seen = state["seen"]
        self.random.bit_generator.state = state["random"]


class Forgets(Remembers):
    state_dict = load_state_dict = None


sparfuse.register_sparsifier("remembers", Remembers)
sparfuse.register_sparsifier("forgets", Forgets)


def feedback(sparsifier, **arguments):
    return lambda: sparfuse.ErrorFeedback(sparsifier, **arguments)


# {name: (function that makes an object, kind of its step)}.
CASES = {
    "topk": (feedback(sparfuse.Sparsifier("topk", density=0.05)), "step"),
    "random": (feedback(sparfuse.Sparsifier("randomk", density=0.05, seed=3), values="f16"),
               "step"),
    "dgc": (feedback(sparfuse.Sparsifier("dgc", density=0.05, sample_ratio=0.1), clip=1.5),
            "step"),
    "momentum": (feedback(sparfuse.Sparsifier("topk", density=0.05), feedback="momentum",
                          momentum=0.8), "step"),
    "nesterov": (feedback(sparfuse.Sparsifier("topk", density=0.05), feedback="momentum",
                          nesterov=True, masking=False), "step"),
    "quantizer": (feedback(sparfuse.Quantizer("qsgd", seed=2, rank=1, levels=15)), "step"),
    "derived": (lambda: Derived(sparfuse.Sparsifier("topk", density=0.1)), "step"),
    "low rank": (lambda: sparfuse.PowerSGD(rank=2, seed=5, workers=2), "average"),
    "sparsifier": (lambda: sparfuse.Sparsifier("randomk", density=0.05, seed=9), "select"),
    "stages": (feedback(sparfuse.Sparsifier("sidco", density=0.05)), "step"),
    "stages alone": (lambda: sparfuse.Sparsifier("sidco", density=0.05), "select"),
    "phases": (feedback(sparfuse.Sparsifier("adtopk-i", density=0.05)), "step"),
    "memory in Python": (lambda: sparfuse.ErrorFeedback(
        sparfuse.Sparsifier("remembers", density=0.05, decay=0.25)), "step"),
    "memory in Python alone": (lambda: sparfuse.Sparsifier("remembers", density=0.05), "select"),
    "quantizer alone": (lambda: sparfuse.Quantizer("qsgd", seed=9, rank=2), "encode"),
}


def act(made, how, step):
    """Makes a step; returns its payload, and the state it leaves, as arrays."""
    if how == "average":
        both = [gradient(step), gradient(step + 1000)]
        averaged = made.average({"w": both, "b": [g[0] for g in both]})
        return [averaged["w"], averaged["b"], made.residual("w", 0), made.residual("w", 1)]
    if how == "step":
        sent = made.step("w", gradient(step))
        made.step("v", gradient(step, (7,)))
        kept = [made.residual("w"), made.residual("v")]
        if made.feedback == "momentum":
            kept.append(made.velocity("w"))
    else:
        sent, kept = getattr(made, how)(gradient(step), name="w"), []
    return [*(sent if isinstance(sent, tuple) else [sent]), *kept]


class Resumed(unittest.TestCase):
    def expect_to_go_on(self, make_other):
        for what, (make, how) in CASES.items():
            with self.subTest(what):
                made = make()
                for step in range(4):
                    act(made, how, step)
                other = make_other(made, make)
                if other is None:
                    continue
                self.assertIs(type(other), type(made))
                for step in range(4, 9):
                    for a, b in zip(act(made, how, step), act(other, how, step), strict=True):
                        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))

    def test_pickle(self):
        self.expect_to_go_on(lambda made, make: pickle.loads(pickle.dumps(made)))

    def test_copy(self):
        self.expect_to_go_on(lambda made, make: copy.deepcopy(made))

    def test_state_dict(self):
        def other(made, make):
            if not hasattr(made, "state_dict"):
                return None
            state = pickle.loads(pickle.dumps(made.state_dict()))
            fresh = make()
            fresh.load_state_dict(state)
            return fresh

        self.expect_to_go_on(other)

    def test_a_state_is_a_copy(self):
        made = CASES["topk"][0]()
        act(made, "step", 0)
        state = made.state_dict()
        before = state["residuals"]["w"].copy()
        act(made, "step", 1)
        np.testing.assert_array_equal(state["residuals"]["w"], before)

    def test_arguments_and_attributes_travel(self):
        made = sparfuse.Sparsifier("dgc", density=0.25, seed=7, sample_ratio=0.1)
        self.assertEqual(repr(pickle.loads(pickle.dumps(made))), repr(made))
        derived = CASES["derived"][0]()
        derived.note = "mine"
        self.assertEqual(pickle.loads(pickle.dumps(derived)).note, "mine")


class Refused(unittest.TestCase):
    def test_states_of_others(self):
        residual, momentum = CASES["topk"][0](), CASES["momentum"][0]()
        for made in [residual, momentum]:
            act(made, "step", 0)
        state = residual.state_dict()
        before = residual.residual("w")
        for error, text, given in [
            (sparfuse.ConfigError, 'feedback = "momentum".*"residual"', momentum.state_dict()),
            (sparfuse.ConfigError, 'no "feedback"', {}),
            (TypeError, "a list; expected", []),
            (sparfuse.ConfigError, r'"w".*shape \(3,\)',
             {**state, "residuals": {"w": np.zeros(3, np.float32)}}),
            (TypeError, "float64", {**state, "residuals": {"w": np.zeros((40, 50))}}),
            (sparfuse.ConfigError, 'steps.*no "', {**state, "steps": {}}),
            (TypeError, "next step", {**state, "steps": {"w": 3}}),
        ]:
            with self.subTest(text), self.assertRaisesRegex(error, text):
                residual.load_state_dict(given)
        np.testing.assert_array_equal(residual.residual("w"), before)

    def test_a_low_rank_step_that_is_under_way(self):
        f = sparfuse.PowerSGD(rank=2)
        f.compute_p("w", gradient(0))
        with self.assertRaisesRegex(sparfuse.ConfigError, '"w".*expected compute_q'):
            f.state_dict()
        with self.assertRaisesRegex(sparfuse.ConfigError, "rank, seed, workers"):
            f.load_state_dict(sparfuse.PowerSGD(rank=3).state_dict())

    def test_numbers_of_another_sparsifier(self):
        f = sparfuse.ErrorFeedback(sparfuse.Sparsifier("sidco", density=0.05))
        act(f, "step", 0)
        state = f.state_dict()
        topk = CASES["topk"][0]()
        with self.assertRaisesRegex(sparfuse.ConfigError, '"v".*another sparsifier remembers'):
            topk.load_state_dict(state)
        shape, step, numbers = state["steps"]["w"]
        for wrong in (numbers[:-1], [*numbers, 0.0]):
            state["steps"]["w"] = (shape, step, wrong)
            with self.assertRaisesRegex(sparfuse.ConfigError, "a kept state has .* numbers"):
                f.load_state_dict(state)

    def test_memories_in_python(self):
        make = CASES["memory in Python"][0]
        made, other = make(), make()
        act(made, "step", 0)
        state = made.state_dict()
        self.assertEqual(set(state["parts"]["sparsifier"]["seen"]), {"v", "w"})
        before = state["parts"]["sparsifier"]["seen"]["w"].copy()
        act(made, "step", 1)
        np.testing.assert_array_equal(state["parts"]["sparsifier"]["seen"]["w"], before)
        other.load_state_dict(state)
        act(other, "step", 1)
        np.testing.assert_array_equal(state["parts"]["sparsifier"]["seen"]["w"], before)
        forgets = sparfuse.ErrorFeedback(sparfuse.Sparsifier("forgets", density=0.05))
        act(forgets, "step", 0)
        self.assertEqual(forgets.state_dict()["parts"], {})
        for text, of, given in [
            ('"forgets".*the class has no load_state_dict', forgets, state),
            ('"remembers".*the state has nothing that it', other, {**state, "parts": {}}),
            ("what a sparsifier in Python remembered", CASES["topk"][0](), state),
            ("what a planner in Python remembered", other,
             {**state, "parts": {**state["parts"], "planner": {}}}),
            (r"load_state_dict\(state\) raised KeyError: 'random' \(.*resumed_test.py, line", other,
             {**state, "parts": {"sparsifier": {"seen": {}}}}),
        ]:
            with self.subTest(text), self.assertRaisesRegex(sparfuse.ConfigError, text):
                of.load_state_dict(given)

    def test_memories_of_wrong_classes(self):
        class Half(Remembers):
            load_state_dict = None

        with self.assertRaisesRegex(sparfuse.ConfigError, "half.*state_dict alone; expected both"):
            sparfuse.register_sparsifier("half", Half)

        class Listed(Remembers):
            def state_dict(self):
                return [self.seen]

        class Raises(Remembers):
            def state_dict(self):
                raise RuntimeError("not now")

        for kind, text in [(Listed, r"state_dict\(\) returned a list; expected a dict"),
                           (Raises, r"state_dict\(\) raised RuntimeError: not now")]:
            sparfuse.register_sparsifier("wrong", kind)
            f = sparfuse.ErrorFeedback(sparfuse.Sparsifier("wrong", density=0.05))
            act(f, "step", 0)
            with self.assertRaisesRegex(sparfuse.ConfigError, 'sparsifier "wrong": ' + text):
                f.state_dict()


if __name__ == "__main__":
    unittest.main()
