"""Methods with local steps: histories of parameters, dates, and what they refuse."""

import unittest

import numpy as np

import sparfuse

A = np.array([(1, 2, 0.5, 1), (2, 1, 1, 0.5)], dtype=np.float32)
C = np.array([(1, -1, 2, 0), (3, 1, -2, 1)], dtype=np.float32)
START = np.array([0.5, 0.25, -0.5, 1], dtype=np.float32)


def train(steps, name="local-sgd", layout=(("w", (4,)),), finish=False, **options):
    """Trains two ranks with gradients A (w - C) and SGD of rate 0.1; returns the method and histories
    by rank."""
    method = sparfuse.Method(name, 2, list(layout), threads=1, verify=True, **options)
    flat = [START.copy() for _ in range(2)]
    parameters = [split(w, layout) for w in flat]
    method.begin(parameters)
    history, done = [], []
    for _ in range(steps):
        for rank in range(2):
            flat[rank] -= np.float32(0.1) * (A[rank] * (flat[rank] - C[rank]))
        done.append(method.local_step(parameters))
        history.append([w.copy() for w in flat])
    if finish:
        method.finish(parameters)
    return method, history, done


def split(flat, layout):
    """{name: view of `flat`}, one view for each tensor."""
    parts, begin = {}, 0
    for name, shape in layout:
        size = int(np.prod(shape))
        parts[name] = flat[begin : begin + size].reshape(shape)
        begin += size
    return parts


class Histories(unittest.TestCase):
    def near(self, got, expected):
        np.testing.assert_allclose(got, expected, rtol=0, atol=4e-6)

    def test_local_sgd(self):
        _, history, done = train(8, every=4)
        self.near(history[2][0], (0.6355, -0.36, -0.1434375, 0.729))
        self.near(history[7][0], (1.7630300787, -0.1179414819, -0.5452182035, 0.7016146277))
        np.testing.assert_array_equal(history[7][0], history[7][1])
        nothing, all_of_it = {"sent": [], "received": []}, {"sent": [0], "received": [0]}
        self.assertEqual(done, [nothing, nothing, nothing, all_of_it] * 2)

    def test_diloco(self):
        method, history, _ = train(8, "diloco", every=4)
        self.near(history[7][1], (2.4780824763, -0.3262480323, -0.571887712, 0.5256281749))
        self.near(
            method.outer_state("w"), (-1.0536090047, 0.3069336709, 0.0403362731, 0.2661705452)
        )
        np.testing.assert_array_equal(method.anchor("w"), history[7][0])

    def test_streaming_diloco(self):
        layout = (("late", (2,)), ("early", (2,)))
        for fragments in (2, [["late"], ["early"]]):
            given = {"every": 4, "fragments": fragments}
            method, history, done = train(8, "streaming-diloco", layout, **given)
            self.near(history[7][0], (1.0307871928, -0.5463592192, -0.1941920216, 0.6296154482))
            self.near(history[7][1], (2.2023884032, 0.4104266932, -0.8622736528, 0.8538954768))
            self.near(method.anchor("late"), (1.30434056, 0.01140664))
            self.near(method.outer_state("early"), (0.0306053347, 0.2579869994))
            self.assertEqual(done[0], {"sent": [0], "received": []})
            self.assertEqual(done[1], {"sent": [], "received": [0]})
            self.assertEqual(done[2], {"sent": [1], "received": []})
            self.assertEqual(done[3], {"sent": [], "received": [1]})
        other, history, _ = train(
            2, "streaming-diloco", layout, every=4, fragments=[["early"], ["late"]]
        )
        self.assertEqual([unit["fragment"] for unit in other.plan], [1, 0])

    def test_shadowsync(self):
        _, history, _ = train(8, "shadowsync", every=2)
        self.near(history[7][0], (1.319191945, -0.2815112063, -0.316605422, 0.6860230773))
        _, history, _ = train(
            8, "shadowsync", every=2, delay=0, mix=0, outer="elastic", outer_rate=0.25
        )
        self.near(history[7][1], (1.9784896605, 0.4049839902, -0.9791678957, 0.9403636155))

    def test_what_is_under_way_is_received_at_the_end(self):
        method, _, done = train(7, "shadowsync", every=4, delay=2, finish=True)
        self.assertEqual(done[5]["sent"], [0])
        self.assertFalse(np.array_equal(method.anchor("w"), START))

    def test_what_was_received_at_the_end_is_not_received_again(self):
        method = sparfuse.Method("shadowsync", 2, [("w", (4,))], every=2, delay=1, mix=0)
        own = [{"w": START.copy()} for _ in range(2)]
        method.begin(own)
        own[0]["w"] += 2
        self.assertEqual(method.local_step(own), {"sent": [0], "received": []})
        method.finish(own)
        np.testing.assert_array_equal(method.anchor("w"), START + 1)
        own[0]["w"] += 2
        self.assertEqual(method.local_step(own), {"sent": [], "received": []})
        np.testing.assert_array_equal(method.anchor("w"), START + 1)
        self.assertEqual(method.local_step(own), {"sent": [0], "received": []})
        self.assertEqual(method.local_step(own), {"sent": [], "received": [0]})
        np.testing.assert_array_equal(own[1]["w"], START + 2)

    def sparseloco(self, values):
        a = np.array(
            [(1, 2, 0.5, 1, 0.25, 1.5, 1, 0.75), (2, 1, 1, 0.5, 1, 0.5, 2, 1.25)], np.float32
        )
        c = np.array([(1, -1, 2, 0, 0.5, -2, 3, 1), (3, 1, -2, 1, -0.5, 2, 1, -1)], np.float32)
        start = np.array((0.5, 0.25, -0.5, 1, 0, 0.125, -0.25, 2), np.float32)
        given = {"density": 0.5, "decay": 0.95, "sparsifier_options": {"chunk": 4}}
        given |= {"every": 2, "payload_values": values, "threads": 1, "verify": True}
        method = sparfuse.Method("sparseloco", 2, [("w", (8,))], **given)
        w = [start.copy(), start.copy()]
        method.begin([{"w": each} for each in w])
        for step in range(6):
            for rank in range(2):
                w[rank] -= np.float32(0.1) * (a[rank] * (w[rank] - c[rank]))
            method.local_step([{"w": each} for each in w])
            if step == 1:
                second = w[0].copy()
        return method, second, w[1]

    def test_sparseloco(self):
        method, second, last = self.sparseloco("f32")
        self.near(second, (0.95, 0.025, -0.520625, 1, 0, -0.16984375, 0.28375, 1.6484375))
        self.near(last[:4], (1.62158, -0.17933375, -0.5550623047, 0.81475))
        self.near(last[4:], (0, -0.4765883667, 0.9802792188, 1.0640807152))
        residual = (-0.0341525, 0, 0, 0.1548025, -0.0704210937, 0, 0, 0.2680450882)
        self.near(method.residual(0, "w"), residual)

    def test_sparseloco_in_two_bits(self):
        method, second, last = self.sparseloco("codes4")
        self.near(second, (0.95, 0.1984375, -0.5103125, 1, 0, -0.16984375, 0.1, 1.6484375))
        self.near(last[:4], (1.5931112449, -0.0746830675, -0.5422141113, 0.7290125))
        self.near(last[4:], (0, -0.3164141222, 0.9438325557, 1.0642728393))
        # Four indices of 12 bits, four codes and four levels, padded to a multiple of four bytes.
        self.assertEqual(method.bytes()["sent"], [24] * 2)


class DelayedGradients(unittest.TestCase):
    def test_are_applied_a_step_later(self):
        method = sparfuse.Method("delayed-gradients", 2, [("w", (4,))], threads=1)
        w = START.copy()
        expected = {
            1: START,
            2: (0.775, 0.1625, -0.5125, 0.95),
            4: (1.28375, 0.000625, -0.5365625, 0.85375),
        }
        for step in range(1, 5):
            average = method.step([{"w": A[rank] * (w - C[rank])} for rank in range(2)])["w"]
            w = w - np.float32(0.1) * average
            if step in expected:
                np.testing.assert_allclose(w, expected[step], atol=4e-6)
        self.assertEqual(method.bytes()["sent"], [2 * 2 * 4] * 2)

    def test_have_no_first_average_for_an_optimizer(self):
        with self.assertRaisesRegex(sparfuse.ConfigError, "native-allreduce.*beside training"):
            sparfuse.Method("delayed-gradients", 2, [("w", (4,))], collective="native-allreduce")


class Blocks(unittest.TestCase):
    def test_carry_differences(self):
        _, plain, _ = train(8, "diloco", every=4)
        for collective, atol in (("int8-blocks", 0.05), ("fp8-blocks", 0.2), ("int4-blocks", 0.6)):
            method, history, _ = train(8, "diloco", every=4, collective=collective)
            np.testing.assert_array_equal(history[7][0], history[7][1])
            np.testing.assert_allclose(history[7][0], plain[7][0], atol=atol)
            self.assertFalse(np.array_equal(history[7][0], plain[7][0]))
            # A shard of two elements is a scale and a word of codes; it is sent in the scatter and the gather.
            self.assertEqual(method.bytes()["sent"], [2 * 8] * 2)

    def test_are_quantizers(self):
        x = np.array([0.1, -1, 3, 0.004], np.float32)
        for name, expected in (
            ("int8-blocks", (0.0944881886, -0.992125988, 3, 0)),
            ("int4-blocks", (0, -0.857142866, 3, 0)),
            ("fp8-blocks", (0.100446433, -0.964285731, 3, 0.00418526772)),
        ):
            quantizer = sparfuse.Quantizer(name)
            np.testing.assert_allclose(
                quantizer.decode(quantizer.encode(x), 4), expected, rtol=1e-6
            )
        self.assertEqual(sparfuse.Quantizer("int4-blocks", block=32).bytes(64), 8 + 32)


class Refused(unittest.TestCase):
    def refused(self, pattern, call):
        with self.assertRaisesRegex(sparfuse.ConfigError, pattern):
            call()

    def test_what_does_not_fit(self):
        one, two = [("w", (4,))], [("a", (2,)), ("b", (2,))]
        make = sparfuse.Method
        self.refused(
            "every = 3 with 2 fragments", lambda: make("diloco", 2, two, every=3, fragments=2)
        )
        self.refused("delay = 2", lambda: make("diloco", 2, two, every=4, fragments=2, delay=2))
        self.refused("fragments = 2", lambda: make("diloco", 2, one, every=4, fragments=2))
        self.refused("1 / workers", lambda: make("shadowsync", 4, one, mix=0, outer="elastic"))
        self.refused("fragments", lambda: make("dense", 2, one, fragments=2))
        self.refused("fragments lacks", lambda: make("diloco", 2, two, fragments=[["a"]]))
        self.refused("momentum", lambda: make("sparseloco", 2, one, feedback="momentum"))
        self.refused("average", lambda: make("sparseloco", 2, one, outer="average"))

    def test_calls_out_of_order(self):
        gradients = [{"w": START}] * 2
        method = sparfuse.Method("local-sgd", 2, [("w", (4,))], every=2)
        own = [{"w": START.copy()} for _ in range(2)]
        self.refused("begin", lambda: method.step(gradients))
        self.refused("begin", lambda: method.local_step(own))
        self.refused("begin", lambda: method.anchor("w"))
        self.refused("outer_state", lambda: method.outer_state("w"))
        self.refused("shares memory", lambda: method.begin(gradients))
        self.refused("differs", lambda: method.begin([{"w": START.copy()}, {"w": START + 1}]))
        self.refused("missing", lambda: method.begin([{}, {}]))
        method.begin(own)
        method.local_step(own)
        self.refused("1 steps", lambda: method.begin(own))
        dense = sparfuse.Method("dense", 2, [("w", (4,))])
        self.refused("local steps", lambda: dense.local_step(own))

    def test_what_is_not_finite(self):
        method = sparfuse.Method("local-sgd", 2, [("w", (4,))], every=1)
        own = [{"w": START.copy()} for _ in range(2)]
        method.begin(own)
        own[1]["w"][2] = np.nan
        with self.assertRaisesRegex(
            sparfuse.NumericError, 'rank 1.*"w", step 0 in window 0: element 2 of 4 is nan'
        ):
            method.local_step(own)
        own[1]["w"][2] = 0
        method.local_step(own)  # the method goes on


if __name__ == "__main__":
    unittest.main()
