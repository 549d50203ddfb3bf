"""sparfuse.plan: golden plans of published planners, all boundaries, and what a caller may get wrong."""

import math
import random
import re
import threading
import time
import unittest

import numpy as np

import sparfuse

# Elements and seconds of the l-th of 200 tensors of a forward pass, reversed into the layout's order.
SIZES = [64 * (1 + ((37 * l) % 101) ** 2) for l in range(200)][::-1]
SECONDS = [5e-5 * (1 + l % 7) for l in range(200)][::-1]
VGG16 = [  # (elements, microseconds since the gradient before), in ready order
    (1000, 0), (4096000, 69), (4096, 266), (16777216, 227), (4096, 1161), (102760448, 1505),
    (512, 1621), (2359296, 573), (512, 100), (2359296, 1911), (512, 97), (2359296, 1869),
    (512, 635), (2359296, 5385), (512, 241), (2359296, 5341), (512, 298), (1179648, 2966),
    (256, 1191), (589824, 6284), (256, 507), (589824, 6277), (256, 499), (294912, 3677),
    (128, 2308), (147456, 10394), (128, 1012), (73728, 6359), (64, 4555), (36864, 14434),
    (64, 2004), (1728, 1544),
]  # fmt: skip
TOPK_SECONDS = 2.18896957e-10


def layout(sizes):
    return [(f"t{i}", (size,)) for i, size in enumerate(sizes)]


def plan(name, sizes=SIZES, seconds=SECONDS, **keywords):
    return sparfuse.plan(name, layout=layout(sizes), backward_seconds=seconds, **keywords)


class Golden(unittest.TestCase):
    def test_keywords_that_it_does_not_look_at_are_checked(self):
        for wrong, text in [({"alpha": float("nan")}, "alpha = nan"), ({"beta": -1}, "beta = -1"),
                            ({"backward_seconds": []}, "backward_seconds has 0 numbers")]:
            with self.assertRaisesRegex(sparfuse.ConfigError, "plan hipress: " + text):
                sparfuse.plan("hipress", layout=[("w", 4)], topology="PS", world_size=4, **wrong)

    def test_mg_wfbp(self):
        slow = {"alpha": 9.080981007148093e-4, "beta": 7.395651186836712e-10}
        self.assertEqual(plan("mg-wfbp", **slow), [200])
        infiniband = {"alpha": 2.3583677659915685e-4, "beta": 4.0594787739537565e-10}
        self.assertEqual(plan("mg-wfbp", **infiniband), [4, 14, 28, 50, 90, 14])
        many = plan("mg-wfbp", alpha=5e-5, beta=2e-10)
        self.assertEqual((len(many), sum(many)), (93, 200))
        self.assertEqual(many[:10], [1, 3, 2, 1, 2, 3, 3, 3, 1, 1])
        sizes, microseconds = zip(*VGG16)
        self.assertEqual(plan("mg-wfbp", sizes, [1e-6 * t for t in microseconds], **slow), [4, 24, 4])

    def test_omgs(self):
        keys = ("world_size", "density", "alpha", "beta")
        for *values, units in [
            (8, 0.01, 4.0e-3, 1.5e-8, 1),
            (16, 0.001, 1.1e-2, 1.7e-8, 1),
            (8, 0.01, 8.5e-5, 1.4e-10, 155),
            (8, 0.01, 2e-5, 1.4e-9, 193),
        ]:
            made = plan("omgs", topk_seconds=TOPK_SECONDS, **dict(zip(keys, values)))
            self.assertEqual((len(made), sum(made)), (units, 200))
            if units == 155:
                self.assertEqual(made[:10], [1, 2, 1, 1, 1, 1, 1, 1, 2, 1])

    def test_espresso(self):
        sizes, microseconds = zip(*VGG16)
        seconds = [1e-6 * t for t in microseconds]
        published = {"world_size": 32, "gpus_per_node": 8, "compressor": "randomk", "density": 0.01,
                     "cpu": True, "two_level": True}  # fmt: skip
        options = plan("espresso", sizes, seconds, mod1000=True, **published)
        golden = "0 5 0 9 0 9 0 5 0 5 0 5 0 4 0 4 0 4 0 1 0 1 0 1 0 1 0 0 0 0 0 0"
        self.assertEqual(options, [int(option) for option in golden.split()])
        real_gaps = "0 4 0 5 0 9 0 1 0 1 0 1 0 5 0 4 0 1 0 1 0 1 0 1 0 1 0 0 0 0 0 0"
        self.assertEqual(
            plan("espresso", sizes, seconds, **published), [int(option) for option in real_gaps.split()]
        )
        # The first gap does not count, since no gradient comes before it.
        seconds[0] = 0.5
        self.assertEqual(plan("espresso", sizes, seconds, mod1000=True, **published), options)

    def test_hipress(self):
        sizes = [4096, 589824, 1179648, 2359296, 4096000, 16777216, 102760448]
        n, y = "n", "y"
        decided = {
            ("PS", 4): [(n, 4), (n, 4), (y, 2), (y, 4), (y, 4), (y, 4), (y, 4)],
            ("PS", 8): [(n, 8), (n, 8), (n, 8), (y, 3), (y, 4), (y, 8), (y, 8)],
            ("PS", 16): [(n, 16), (n, 16), (n, 16), (n, 16), (y, 6), (y, 12), (y, 16)],
            ("RING", 4): [(n, 4), (n, 4), (y, 4), (y, 4), (y, 4), (y, 4), (y, 4)],
            ("RING", 8): [(n, 8), (n, 8), (y, 8), (y, 8), (y, 8), (y, 8), (y, 8)],
            ("RING", 16): [(n, 16), (n, 16), (n, 16), (y, 16), (y, 16), (y, 16), (y, 16)],
        }
        for (topology, world_size), expected in decided.items():
            given = {"topology": topology, "world_size": world_size}
            self.assertEqual(sparfuse.plan("hipress", layout=layout(sizes), **given), expected)
        # Below 3,892 (8 nodes) and 9,922 elements (16 nodes), a broadcast has a constant cost.
        small = [1, 64, 1000, 1728, 3891, 3892, 3893, 9922, 9923, 31138, 31139]
        for world_size in (8, 16):
            given = {"topology": "PS", "world_size": world_size}
            made = sparfuse.plan("hipress", layout=layout(small), **given)
            self.assertEqual(made, [(n, world_size)] * len(small))

    def test_cupcake_has_the_best_boundary(self):
        rng = random.Random(1)
        lengths = set()
        for _ in range(200):
            sizes = [rng.randint(1, 1000) for _ in range(rng.randint(1, 40))]
            seconds = [rng.random() for _ in sizes]
            a, b, ca, cb = rng.random(), rng.random() * 1e-3, rng.random(), rng.random() * 1e-4

            def end(units):
                ready = selected = sent = first = 0
                for length in units:
                    elements = sum(sizes[first : first + length])
                    ready += sum(seconds[first : first + length])
                    selected = max(selected, ready) + ca + cb * elements
                    sent = max(sent, selected) + a + b * elements
                    first += length
                return max(sent, ready)

            times = {"alpha": a, "beta": b, "compress_alpha": ca, "compress_beta": cb}
            made = plan("cupcake", sizes, seconds, **times)
            self.assertEqual(sum(made), len(sizes))
            least = min([end([len(sizes)])] + [end([i, len(sizes) - i]) for i in range(1, len(sizes))])
            self.assertTrue(math.isclose(end(made), least, rel_tol=1e-9))
            lengths.add(len(made))
        self.assertEqual(lengths, {1, 2})


class Threads(unittest.TestCase):
    def test_others_go_on_while_it_plans(self):
        """The planner looks at 2^18 choices of the tensors that go to processors."""
        sizes = [(2 << 20) + i for i in range(20)]
        running = threading.Event()

        def work():
            running.set()
            plan("espresso", sizes, [0.0] * 20, world_size=32, gpus_per_node=8, compressor="randomk",
                 density=0.01, cpu=True)  # fmt: skip

        thread = threading.Thread(target=work)
        thread.start()
        running.wait()
        beats = 0
        while thread.is_alive():
            beats += 1
            time.sleep(0.001)
        thread.join()
        self.assertGreater(beats, 1)


class Arguments(unittest.TestCase):
    times = {"alpha": 1e-4, "beta": 1e-9}
    omgs = {"world_size": 4, "density": 0.01, "topk_seconds": 1e-10, **times}
    cupcake = {"compress_alpha": 1e-5, "compress_beta": 1e-10, **times}

    def test_take_any_order_of_shapes_and_numbers(self):
        shapes = {"w": (10, 20, 3), "b": 20, "scale": ()}
        given = {"layout": shapes, "backward_seconds": np.array([0.1, 0.2, 0.3])}
        self.assertEqual(sparfuse.plan("mg-wfbp", alpha=np.float64(0), beta=0, **given), [1, 1, 1])
        listed = {**given, "layout": [list(item) for item in shapes.items()]}
        self.assertEqual(sparfuse.plan("mg-wfbp", alpha=1, beta=0, **listed), [3])
        self.assertEqual(sparfuse.plan("cupcake", **self.cupcake, **given), [2, 1])

    def test_not_looked_at_may_be_given_or_left_out(self):
        one = plan("mg-wfbp", **self.times)
        self.assertEqual(plan("mg-wfbp", world_size=8, **self.times), one)
        self.assertEqual(plan("mg-wfbp", world_size=None, **self.times), one)

    def refuses(self, text, name="mg-wfbp", kind=sparfuse.ConfigError, **keywords):
        given = {"layout": layout([3, 4]), "backward_seconds": [1, 1], **keywords}
        given = {key: value for key, value in given.items() if value is not Ellipsis}
        with self.assertRaisesRegex(kind, text):
            sparfuse.plan(name, **given)

    def test_names_and_keywords(self):
        with self.assertRaisesRegex(TypeError, "3 arguments without a keyword: expected the name alone, and layout="):
            sparfuse.plan("mg-wfbp", [("a", 4)], [1.0])
        self.refuses('unknown planner "mg-wfbpp"; did you mean "mg-wfbp"', name="mg-wfbpp")
        self.refuses('unknown planner "zzzzzzzz"; known: mg-wfbp, omgs, cupcake', name="zzzzzzzz")
        self.refuses('plan mg-wfbp: unknown option "alhpa"; did you mean "alpha"', alhpa=1)
        self.refuses('plan mg-wfbp: unknown option "density"', density=0.1, **self.times)
        for name, keywords in [("mg-wfbp", self.times), ("omgs", self.omgs), ("cupcake", self.cupcake)]:
            for key in [*keywords, "layout", "backward_seconds"]:
                missing = f"plan {name}: {key} is missing; expected "
                self.refuses(missing, name=name, **{**keywords, key: ...})
                self.refuses(missing, name=name, **{**keywords, key: None})

    def test_those_of_espresso_and_hipress(self):
        common = {"world_size": 8, "gpus_per_node": 4, "compressor": "dgc", "density": 0.1}
        for wrong, error in [
            ({"gpus_per_node": 3}, "world_size = 8: expected a multiple of gpus_per_node = 3"),
            ({"gpus_per_node": 0}, "gpus_per_node = 0: expected an integer of at least 1"),
            ({"compressor": "topk"}, 'compressor = topk: expected one of "randomk", "dgc"'),
            ({"density": 0}, "density = 0: expected a number in (0, 1]"),
            ({"density": None}, "density is missing"),
            ({"topology": "PS"}, 'unknown option "topology"'),
        ]:
            with self.subTest(wrong), self.assertRaisesRegex(sparfuse.ConfigError, re.escape(error)):
                plan("espresso", [10], [0.1], **{**common, **wrong})
        with self.assertRaises(TypeError):
            plan("espresso", [10], [0.1], **common, nvlink=1)
        self.assertEqual(plan("espresso", [10], [0.1], **common, alpha=1, beta=0), [0])
        # Neither planner uses alpha and beta; hipress uses no times at all.
        given = {"layout": layout([10]), "topology": "PS", "world_size": 4}
        for more in [{}, {"backward_seconds": [0.1], "alpha": 1e-4, "beta": 1e-9}, {"alpha": None}]:
            self.assertEqual(sparfuse.plan("hipress", **given, **more), [("n", 4)])
        for wrong, error in [
            ({"world_size": 5}, "world_size = 5: expected 4, 8 or 16"),
            ({"topology": "ring"}, 'topology = ring: expected one of "PS", "RING"'),
        ]:
            with self.subTest(wrong), self.assertRaisesRegex(sparfuse.ConfigError, error):
                sparfuse.plan("hipress", **{**given, **wrong})

    def test_numbers(self):
        for name, keywords in [("mg-wfbp", self.times), ("omgs", self.omgs), ("cupcake", self.cupcake)]:
            for key in keywords:
                for bad in [-1, float("nan")] if key != "world_size" else [-1, 0]:
                    self.refuses(
                        f"plan {name}: {key} = {bad}: expected ", name=name, **{**keywords, key: bad}
                    )
                self.refuses(f"{key} = x: expected", name, TypeError, **{**keywords, key: "x"})
        self.refuses("density = 1.5: expected a number in .0, 1.", "omgs", **{**self.omgs, "density": 1.5})
        self.refuses("density = 0: ", "omgs", **{**self.omgs, "density": 0})
        self.refuses("world_size = 2.5: .*integer", "omgs", TypeError, **{**self.omgs, "world_size": 2.5})
        self.refuses("alpha = inf: expected", alpha=float("inf"), beta=0)

    def test_layout_and_seconds(self):
        for name, keywords in [("mg-wfbp", self.times), ("omgs", self.omgs), ("cupcake", self.cupcake)]:
            at = f"plan {name}: "
            self.refuses(at + "layout is empty", name, **keywords, layout=[], backward_seconds=[])
            self.refuses(at + r'layout: "t0" has shape \(0,\)', name, **keywords, layout=layout([0, 1]))
            self.refuses(at + r'layout: "w": shape = \(-3,\)', name, **keywords, layout=[("w", (-3,))])
            self.refuses(at + 'layout has "w" twice', name, **keywords, layout=[("w", 3), ("w", 3)])
            self.refuses(at + "layout = .*expected .name, shape", name, TypeError, **keywords, layout=[3])
            self.refuses(at + "layout = 3: expected", name, TypeError, **keywords, layout=3)
            few = "backward_seconds has 1 numbers; expected a number of seconds for each of the 2 tensors"
            self.refuses(at + few, name, **keywords, backward_seconds=[1])
            negative = r"backward_seconds\[1\] = -0.5: expected a finite number of at least 0"
            self.refuses(at + negative, name, **keywords, backward_seconds=[1, -0.5])
            self.refuses(r"backward_seconds\[0\] = x", name, TypeError, **keywords, backward_seconds=["x", 1])
            self.refuses("backward_seconds = 3", name, TypeError, **keywords, backward_seconds=3)


if __name__ == "__main__":
    unittest.main()
