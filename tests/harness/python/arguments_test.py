"""Tests that an argument of a wrong type or range is named, with its value and what was expected."""

import unittest

import numpy as np

import sparfuse

NO_UTF8 = "\udc80x"
G = np.ones(100, dtype=np.float32)
INDICES = np.arange(3, dtype=np.uint32)
LAYOUT = [("w", (4,))]


def topk():
    return sparfuse.Sparsifier("topk", density=0.5)


def feedback(**keywords):
    return sparfuse.ErrorFeedback(topk(), **keywords)


def method(*arguments, **keywords):
    return sparfuse.Method("wfbp", *(arguments or (2,)), **{"layout": LAYOUT, **keywords})


# (call, expected words on the wrong argument).
WRONG = [
    (lambda: feedback().step(G), "step: got (ndarray); expected (name: "),
    (lambda: sparfuse.ErrorFeedback("topk", density=0.1),
     "ErrorFeedback: got ('topk', density=0.1); expected (sparsifier: "),
    (lambda: sparfuse.decompress(), "decompress: got (); expected ("),
    (lambda: sparfuse.set_threads(threads=2, count=3), "set_threads: got (threads=2, count=3); expected (threads: "),
    (lambda: sparfuse.Sparsifier(3), "name = 3: expected a string"),
    (lambda: sparfuse.Sparsifier(NO_UTF8), r"name = '\udc80x': expected a string that UTF-8"),
    (lambda: sparfuse.Sparsifier("topk", density="0.5"), "density = '0.5': expected a number"),
    (lambda: sparfuse.Sparsifier("topk", density=None), "density = None: expected a number"),
    (lambda: sparfuse.Sparsifier("topk", seed=-1), "seed = -1: expected 0 to"),
    (lambda: setattr(topk(), "density", "x"), "density = 'x': expected a number"),
    (lambda: topk().select(G, name=NO_UTF8), r"name = '\udc80x': expected a string"),
    (lambda: topk().select(G, step=-1), "step = -1: expected an integer from 0 to"),
    (lambda: topk().select(G, step=1.5), "step = 1.5: expected an integer from 0 to"),
    (lambda: sparfuse.register_sparsifier(NO_UTF8, object), "name = "),
    (lambda: feedback(clip="1"), "clip = '1': expected a number, or None"),
    (lambda: feedback(feedback=NO_UTF8), "feedback = "),
    (lambda: feedback(feedback="momentum", momentum="m"), "momentum = 'm': expected a number"),
    (lambda: feedback(nesterov="no"), "nesterov = 'no': expected True or False"),
    (lambda: feedback().step(3, G), "name = 3: expected a string"),
    (lambda: feedback().step("w", G, step="1"), "step = '1': expected an integer"),
    (lambda: feedback().residual(NO_UTF8), "name = "),
    (lambda: sparfuse.warmup_density(1, "x", 4), "density = 'x'"),
    (lambda: sparfuse.warmup_density(1, 0.1, 4, schedule=["x"]), "schedule = ['x']: expected a list"),
    (lambda: sparfuse.Quantizer(NO_UTF8), "name = "),
    (lambda: sparfuse.Quantizer("fp16").encode(G, name=3), "name = 3"),
    (lambda: sparfuse.Quantizer("fp16").average(3, 4), "payloads = 3: expected a list"),
    (lambda: sparfuse.PowerSGD(rank="4"), "rank = '4': expected an integer"),
    (lambda: sparfuse.PowerSGD().residual("w", "0"), "worker = '0': expected an integer"),
    (lambda: sparfuse.PowerSGD().compute_p(NO_UTF8, G.reshape(10, 10)), "name = "),
    (lambda: sparfuse.PowerSGD().average({NO_UTF8: [G]}), "gradients: a name = "),
    (lambda: sparfuse.set_threads("2"), "threads = '2': expected an integer"),
    (lambda: sparfuse.set_threads(2**40), "threads = 1099511627776: expected an integer from"),
    (lambda: sparfuse.encode_payload(INDICES, G[:3], -1), "n = -1: expected an integer from 0"),
    (lambda: sparfuse.encode_payload(INDICES, G[:3], 9, values=3), "values = 3: expected a string"),
    (lambda: sparfuse.encode_payload(INDICES, G[:3], 9, fpr="x"), "fpr = 'x': expected a number"),
    (lambda: sparfuse.decode_payload(b"x", 2**70), "n = 1180591620717411303424: expected an integer"),
    (lambda: sparfuse.decompress(3, 4), "payloads = 3: expected a list of (indices, values)"),
    (lambda: sparfuse.plan(3), "name = 3: expected a string"),
    (lambda: sparfuse.Method(3, 2, LAYOUT), "name = 3: expected a string"),
    (lambda: method(2**31), "world_size = 2147483648: expected 1 to"),
    (lambda: method(1e3), "world_size = 1000.0: expected an integer"),
    (lambda: method("4"), "world_size = '4': expected an integer"),
    (lambda: method(threads=1e3), "threads = 1000.0: expected an integer"),
    (lambda: method(threads=2**40), "threads = 1099511627776: expected an integer"),
    (lambda: method(deadline_seconds="x"), "deadline_seconds = 'x': expected a number"),
    (lambda: method(density="x"), "density = 'x': expected a number"),
    (lambda: method(verify="x"), "verify = 'x': expected True or False"),
    (lambda: method(layout=[(NO_UTF8, 4)]), r"layout has the name '\udc80x': expected"),
    (lambda: method(sparsifier=3), "sparsifier = 3: expected a string"),
    (lambda: method(feedback=3), "feedback = 3: expected a string"),
    (lambda: method(link={"gbps": "x"}), "link: gbps = 'x': expected a number"),
    (lambda: method(dense_tensors={"max_ndim": -1}), "dense_tensors: max_ndim = -1: expected an integer"),
    (lambda: method(dense_tensors=[NO_UTF8]), "dense_tensors = "),
    (lambda: method().residual("0", "w"), "rank = '0': expected an integer"),
    (lambda: method().residual(0, NO_UTF8), "name = "),
    (lambda: method().step([{NO_UTF8: G}, {}]), "gradients[0]: a name = "),
]


class Arguments(unittest.TestCase):
    def test_errors_name_them(self):
        for call, said in WRONG:
            with self.subTest(said):
                with self.assertRaises((TypeError, sparfuse.ConfigError)) as caught:
                    call()
                text = str(caught.exception)
                self.assertIn(said, text)
                self.assertLess(len(text), 300)

    def test_integers_and_text_beyond_what_fits_are_of_the_right_type(self):
        for call, kind in (
            (lambda: topk().select(G, step=-1), sparfuse.ConfigError),
            (lambda: topk().select(G, step=1.5), TypeError),
            (lambda: topk().select(G, name=NO_UTF8), sparfuse.ConfigError),
            (lambda: topk().select(G, name=3), TypeError),
            (lambda: sparfuse.Sparsifier("topk", density=2), sparfuse.ConfigError),
        ):
            self.assertRaises(kind, call)

    def test_numbers_of_numpy_fit(self):
        selected = sparfuse.Sparsifier("topk", density=np.float64(0.5)).select(G, step=np.int64(3))
        self.assertEqual(len(selected[0]), 50)
        self.assertEqual(sparfuse.Sparsifier("topk", density=1).density, 1.0)


if __name__ == "__main__":
    unittest.main()
