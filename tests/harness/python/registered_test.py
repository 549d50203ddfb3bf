"""Tests that sparsifiers of Python behave as built-in ones, and what they return is checked."""

import threading
import unittest

import numpy as np
from common import gradient

import sparfuse


class Largest:
    """Top-k; remembers address, flags and shape of the last g."""

    paper = "none"

    def select(self, g, k):
        self.address, self.writeable, self.shape = g.ctypes.data, g.flags.writeable, g.shape
        return np.argsort(-np.abs(g), kind="stable")[:k]


class Registered(unittest.TestCase):
    def returning(self, result, density=0.5, n=10, **attributes):
        """Selects from n elements by a sparsifier that returns `result`."""
        select = lambda self, g, k: result(g, k) if callable(result) else result
        kind = type("Returns", (), {"select": select, **attributes})
        sparfuse.register_sparsifier("returns", kind)
        return sparfuse.Sparsifier("returns", density).select(gradient(n), name="w")

    def test_equals_the_built_in_one(self):
        sparfuse.register_sparsifier("largest", Largest)
        mine, built_in = (
            sparfuse.ErrorFeedback(sparfuse.Sparsifier(name, density=0.03))
            for name in ["largest", "topk"]
        )
        for step in range(10):
            g = gradient(40, 50, seed=step)
            for a, b in zip(mine.step("w", g), built_in.step("w", g)):
                np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(mine.residual("w"), built_in.residual("w"))
        with self.assertRaisesRegex(sparfuse.NumericError, "w"):
            mine.step("w", np.full((40, 50), np.inf, dtype=np.float32))

    def test_sees_a_flat_copy_that_it_may_not_write(self):
        largest = Largest()
        sparfuse.register_sparsifier("an object", largest)
        g = gradient(40, 50)
        for given in (g, g.T):
            sparfuse.Sparsifier("an object").select(given)
            self.assertNotEqual(largest.address, given.ctypes.data)
            self.assertEqual((largest.writeable, largest.shape), (False, (2000,)))

    def test_is_told_name_and_step_if_it_takes_them(self):
        told = []

        class Both(Largest):
            def select(self, g, k, *, step, name):
                told.append((name, step))
                return super().select(g, k)

        class Step(Largest):
            def select(self, g, k, step=None):
                told.append(step)
                return super().select(g, k)

        class Any(Largest):
            def select(self, g, k, **keywords):
                told.append(keywords)
                return super().select(g, k)

        class Positional(Largest):
            def select(self, g, k, name="mine", /):
                told.append(name)
                return super().select(g, k)

        def told_by(kind, use):
            told.clear()
            sparfuse.register_sparsifier("told", kind)
            use()
            return list(told)

        def feedback():
            f = sparfuse.ErrorFeedback(sparfuse.Sparsifier("told", density=0.5))
            f.step("w", gradient(10))
            f.step("w", gradient(10), step=7)
            f.step("b", gradient(4))

        self.assertEqual(told_by(Both, feedback), [("w", 0), ("w", 7), ("b", 0)])
        self.assertEqual(told_by(Step, feedback), [0, 7, 0])
        self.assertEqual(told_by(Any, feedback)[1], {"name": "w", "step": 7})
        self.assertEqual(told_by(Positional, feedback), ["mine"] * 3)
        self.assertEqual(told_by(Largest, feedback), [])

        def method(name):
            layout = [("a", (10,)), ("b", (10,))]
            m = sparfuse.Method(name, 1, layout, density=0.5, sparsifier="told", plan=[["a", "b"]])
            for _ in range(2):
                m.step([{n: gradient(*shape) for n, shape in layout}])

        self.assertEqual(told_by(Both, lambda: method("wfbp")), [("a", 0), ("b", 0), ("a", 1), ("b", 1)])
        self.assertEqual(told_by(Both, lambda: method("syncea"))[1], ("the unit that begins with a", 1))

    def test_is_listed_with_its_options(self):
        class Scaled(Largest):
            deviations = "all of it"
            exact_count = False

            def __init__(self, scale=2.0, seed=0):
                self.scale, self.seed = scale, seed

            def select(self, g, k):
                return np.full(1, int(self.scale) + self.seed)

        sparfuse.register_sparsifier("scaled", Scaled)
        entry = {e["name"]: e for e in sparfuse.list_sparsifiers()}["scaled"]
        self.assertEqual((entry["paper"], entry["deviations"]), ("none", "all of it"))
        self.assertEqual((entry["language"], entry["exact_count"]), ("Python", False))
        self.assertEqual(entry["options"][0]["name"], "scale")
        s = sparfuse.Sparsifier("scaled", density=0.1, seed=4, scale=1.0)
        self.assertEqual((s.name, s.options), ("scaled", {"scale": 1.0}))
        self.assertEqual(s.select(gradient(100))[0].tolist(), [5])
        with self.assertRaisesRegex(sparfuse.ConfigError, 'did you mean "scale".*known: scale'):
            sparfuse.Sparsifier("scaled", scales=1)
        with self.assertRaisesRegex(sparfuse.ConfigError, 'did you mean "scaled"'):
            sparfuse.Sparsifier("scaledd")

    def test_every_built_in_entry_is_complete(self):
        entries = sparfuse.list_sparsifiers()
        self.assertIn("topk", [entry["name"] for entry in entries])
        for entry in entries:
            if entry["language"] != "C++":
                continue
            self.assertTrue(entry["paper"] and entry["revision"] >= 1)
            made = sparfuse.Sparsifier(entry["name"])
            self.assertEqual(made.descriptor, entry)
            defaults = {option["name"]: option["default"] for option in entry["options"]}
            self.assertEqual(made.options, defaults)
            for option in entry["options"]:
                self.assertTrue(option["meaning"])
            for alias in entry["aliases"]:
                self.assertEqual(sparfuse.Sparsifier(alias).name, entry["name"])

    def test_what_it_returns_is_checked(self):
        ok = [3, 1, 0, 9, 5]
        for result in [ok, np.array(ok), np.array(ok, dtype=np.uint8), tuple(ok)]:
            self.assertEqual(self.returning(result)[0].tolist(), sorted(ok))
        for result, text in [
            ([0, 1, 2], r"3 indices; expected 5 .*exact_count = False"),
            ([0, 1, 2, 3, 10], r"index 10; expected indices in \[0, 10\)"),
            ([0, 1, 2, 3, -1], "index -1"),
            (np.array([0, 1, 2, 3, 2**63 + 1], dtype=np.uint64), "index -"),
            ([0, 1, 2, 3, 3], "index 3 more than once"),
            ([0.0, 1.0, 2.0, 3.0, 4.0], "dtype float64"),
            ([[0, 1, 2, 3, 4]], "2 dimensions"),
            (None, "a NoneType; expected an array of integers"),
            ([[0], [1, 2]], "list"),
        ]:
            with self.subTest(result):
                with self.assertRaisesRegex(sparfuse.ConfigError, "Returns.select.*" + text):
                    self.returning(result)
        with self.assertRaisesRegex(sparfuse.ConfigError, "0 indices; expected 1 to 10"):
            self.returning([], exact_count=False)
        self.assertEqual(self.returning([7], exact_count=False)[0].tolist(), [7])

    def test_what_it_keeps_of_g_is_refused(self):
        kept = []
        for what, keep in {"itself": lambda g: g, "a view": lambda g: g[3:],
                           "a buffer": memoryview, "in a list": lambda g: [g]}.items():
            with self.subTest(what):
                with self.assertRaisesRegex(
                        sparfuse.ConfigError,
                        r'"returns": .*Returns\.select.*keeps g.*tensor "w", step 0.*g\.copy\(\)'):
                    self.returning(lambda g, k: kept.append(keep(g)) or range(k))
        self.returning(lambda g, k: kept.append(g.copy()) or range(k))

    def test_a_cycle_that_python_collects_keeps_nothing(self):
        def select(g, k):
            try:
                raise KeyError
            except KeyError as error:
                cycle = [error]  # its traceback holds this frame, and the frame holds g
                cycle.append(cycle)
            return range(k)

        self.assertEqual(self.returning(select)[0].size, 5)

    def test_a_g_kept_by_error_feedback_is_refused(self):
        class Keeps:
            def select(self, g, k):
                self.last = g
                return range(k)

        sparfuse.register_sparsifier("keeps", Keeps)
        feedback = sparfuse.ErrorFeedback(sparfuse.Sparsifier("keeps", density=0.5))
        with self.assertRaisesRegex(sparfuse.ConfigError, r"Keeps.select\(g, k\) keeps g"):
            feedback.step("w", gradient(10))

    def test_what_an_error_holds_of_g_stays_as_it_was(self):
        """An error holds g in its arguments, and in the variables that its traceback shows."""
        class Fails:
            def select(self, g, k):
                if g[0] > 1:
                    raise ValueError(g[2:])
                return range(k)

        sparfuse.register_sparsifier("fails", Fails)
        ones = np.ones(3_000_000, dtype=np.float32)
        feedback = sparfuse.ErrorFeedback(sparfuse.Sparsifier("fails", density=0.5))
        with self.assertRaises(ValueError) as raised:
            feedback.step("w", 2 * ones)
        del feedback
        others = [np.full_like(ones, 9) for _ in range(4)]  # where its memory may have been
        self.assertTrue((raised.exception.args[0] == 2).all())
        self.assertEqual(len(others), 4)

    def test_its_exceptions_arrive(self):
        def fail(g, k):
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            self.returning(fail)

    def test_refuses_names_and_objects(self):
        for name, what, text in [
            ("topk", Largest, "built-in"),
            ("", Largest, "empty"),
            ("x", object(), r"no method select\(g, k\)"),
            ("x", type("X", (), {}), r"no method select\(g, k\)"),
        ]:
            with self.assertRaisesRegex(sparfuse.ConfigError, text):
                sparfuse.register_sparsifier(name, what)

    def test_may_use_other_sparsifiers_but_not_its_own_caller(self):
        inner = sparfuse.Sparsifier("topk", density=0.5)
        self.assertEqual(self.returning(lambda g, k: inner.select(g)[0])[0].size, 5)
        sparfuse.register_sparsifier("itself", type("Itself", (), {
            "select": lambda self, g, k: outer.select(g)[0]}))
        outer = sparfuse.Sparsifier("itself", density=0.5)
        with self.assertRaisesRegex(sparfuse.ConfigError, "another"):
            outer.select(gradient(10))

    def test_serves_threads_that_wait_for_one_another(self):
        entered = threading.Event()

        class Slow:
            def select(self, g, k):
                if not entered.is_set():
                    entered.set()
                    other.join(0.2)  # the other thread waits for this object, without the GIL
                return range(k)

        sparfuse.register_sparsifier("slow", Slow)
        s = sparfuse.Sparsifier("slow", density=0.5)

        def second():
            entered.wait()
            s.select(gradient(10))

        other = threading.Thread(target=second)
        other.start()
        self.assertEqual(s.select(gradient(10))[0].tolist(), [0, 1, 2, 3, 4])
        other.join(30)
        self.assertFalse(other.is_alive())


if __name__ == "__main__":
    unittest.main()
