"""Options of local steps and of their codings, against a NumPy implementation of their equations."""

import unittest

import numpy as np

import sparfuse

F = np.float32
CHUNK, KEPT, ELEMENTS = 4, 2, (8, 6)
LAYOUT = [("late", (8,)), ("early", (6,))]


def problem(ranks):
    """Gradients a (w - c) of each rank, and where parameters start."""
    rng = np.random.default_rng(7)
    a = rng.uniform(0.25, 2, (ranks, sum(ELEMENTS))).astype(F)
    c = rng.normal(0, 2, (ranks, sum(ELEMENTS))).astype(F)
    c[-1] *= 10  # one rank has much larger differences than the others
    return a, c, rng.normal(0, 1, sum(ELEMENTS)).astype(F)


def parts(flat):
    """[tensors] views."""
    return [flat[: ELEMENTS[0]], flat[ELEMENTS[0] :]]


def descend(w, a, c):
    """A step of each rank by itself."""
    for rank, own in enumerate(w):
        own -= F(0.1) * (a[rank] * (own - c[rank]))


def whole(get):
    """The elements of all tensors, one after another. get: makes those of a name."""
    return np.concatenate([get(name) for name, _ in LAYOUT])


def near(got, expected, rtol=2e-6, atol=8e-6):
    for one, own in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, own, rtol=rtol, atol=atol)


def largest(x):
    """x where its KEPT largest magnitudes of each chunk are, else 0."""
    kept = np.zeros_like(x)
    for begin in range(0, len(x), CHUNK):
        chunk = x[begin : begin + CHUNK]
        count = max(1, int(0.5 * len(chunk)))
        index = sorted(range(len(chunk)), key=lambda i: (-abs(chunk[i]), i))[:count]
        kept[begin + np.array(index)] = chunk[index]
    return kept


def codes4(values):
    """The values that two bits and four levels stand for."""
    mean = values.astype(np.float64).mean()
    scale = 6 * values.astype(np.float64).std(ddof=1) / 4 if len(values) > 1 else 1.0
    scale = scale if scale > 0 else 1.0
    codes = np.clip(np.rint((values - mean) / scale) + 2, 0, 3)
    levels = {code: F(values[codes == code].astype(np.float64).mean()) for code in set(codes)}
    return np.array([levels[code] for code in codes], F)


def coded(x, scope):
    """x with its elements that are not 0 coded, with levels of the tensor or of each chunk."""
    out, step = x.copy(), CHUNK if scope == "chunk" else len(x)
    for begin in range(0, len(x), step):
        of = slice(begin, begin + step)
        sent = x[of] != 0
        out[of][sent] = codes4(x[of][sent])
    return out


def combined(sent, combine, clip):
    """The D of one tensor, from what each rank sent."""
    sent = [s.copy() for s in sent]
    if clip == "median":
        norms = [np.sqrt((s.astype(np.float64) ** 2).sum()) for s in sent]
        median = sorted(norms)[(len(norms) - 1) // 2]
        sent = [s * F(median / n) if n > median else s for s, n in zip(sent, norms)]
    total = sum(sent[1:], sent[0])
    if combine == "ranks":
        return total * F(1 / len(sent))
    senders = sum((s != 0).astype(F) for s in sent)
    return total / np.maximum(senders, 1)


def sparseloco(ranks, steps, combine="ranks", clip="none", scope=None, penalty=1):
    """[ranks] parameters, anchor and residuals after so many steps, of windows of 2."""
    a, c, start = problem(ranks)
    w = [start.copy() for _ in range(ranks)]
    anchor, residual = start.copy(), [np.zeros_like(start) for _ in range(ranks)]
    for step in range(steps):
        descend(w, a, c)
        if step % 2 == 0:
            continue
        for t in range(2):
            sent = []
            for rank in range(ranks):
                e = parts(residual[rank])[t]
                e *= F(0.95)
                e += parts(anchor)[t] - parts(w[rank])[t]
                s = largest(e)
                s = s if scope is None else coded(s, scope)
                e -= s
                sent.append(s)
            parts(anchor)[t][:] -= combined(sent, combine, clip) / F(penalty)
        w = [anchor.copy() for _ in range(ranks)]
    return w, anchor, residual


def run(name, ranks, steps, layout=None, **options):
    """The method on the same problem; also the last step's bytes."""
    a, c, start = problem(ranks)
    layout = layout or LAYOUT
    method = sparfuse.Method(name, ranks, layout, every=2, threads=1, verify=True, **options)
    w = [start.copy() for _ in range(ranks)]
    parameters = [{n: p for (n, _), p in zip(layout, parts(each))} for each in w]
    method.begin(parameters)
    for _ in range(steps):
        descend(w, a, c)
        method.local_step(parameters)
    return method, w


SPARSE = {"density": 0.5, "decay": 0.95, "sparsifier_options": {"chunk": CHUNK}}
FLOATS = {**SPARSE, "payload_values": "f32"}
MOMENTUM = {"outer": "momentum", "outer_momentum": 0.5}


class Selections(unittest.TestCase):
    def expect(self, method, w, expected):
        parameters, anchor, residual = expected
        near(w, parameters)
        near([whole(method.anchor)], [anchor])
        near([whole(lambda n: method.residual(rank, n)) for rank in range(len(w))], residual)

    def test_sums_are_divided_by_all_ranks_or_by_senders(self):
        for ranks in (1, 2, 3, 5):
            found = []
            for combine in ("ranks", "senders"):
                method, w = run("sparseloco", ranks, 6, **FLOATS, combine=combine)
                self.expect(method, w, sparseloco(ranks, 6, combine))
                self.assertEqual(method.options["combine"], combine)
                found.append(w[0])
            self.assertEqual(np.array_equal(*found), ranks == 1)

    def test_ranks_are_scaled_down_to_the_median_norm(self):
        for ranks in (2, 3, 4):
            for combine in ("ranks", "senders"):
                method, w = run("sparseloco", ranks, 4, **FLOATS, clip="median", combine=combine)
                expected = sparseloco(ranks, 4, combine, "median")
                self.expect(method, w, expected)
                self.assertFalse(np.allclose(w[0], sparseloco(ranks, 4, combine)[0][0], atol=1e-2))

    def test_they_hold_for_other_payloads(self):
        expected = sparseloco(3, 4, "senders", "median")
        for options in (
            {"payload_indices": "u32"},
            {"payload_indices": "delta"},
            {"fragments": 2, "delay": 0},
        ):
            given = {**FLOATS, "clip": "median", "combine": "senders", **options}
            method, w = run("sparseloco", 3, 4, **given)
            if "fragments" not in options:  # whose dates are others
                self.expect(method, w, expected)

    def test_levels_are_of_a_tensor_or_of_each_chunk(self):
        for scope, levels in (("tensor", 1 + 1), ("chunk", 2 + 2)):
            method, w = run("sparseloco", 2, 6, **SPARSE, scope=scope)
            self.expect(method, w, sparseloco(2, 6, scope=scope))
            # 4 and 3 indices of 12 bits, their codes, and levels of 16 bytes, each padded to words
            self.assertEqual(method.bytes()["sent"], [8 + 8 + 16 * levels] * 2)

    def test_what_has_no_meaning_is_refused(self):
        def refuses(text, name="sparseloco", **options):
            with self.assertRaisesRegex(sparfuse.ConfigError, text):
                sparfuse.Method(name, 2, LAYOUT, every=2, **options)

        refuses("has no levels", payload_values="f32", scope="chunk")
        refuses('combine = "all"; known: ranks, senders', combine="all")
        refuses('clip = "mean"; did you mean "median"', clip="mean")
        for inner in ("reset", "average"):
            refuses("sees parameters, not your optimizer's state.*local_steps", "diloco", inner_state=inner)
        with self.assertRaisesRegex(sparfuse.ConfigError, 'unknown option "clip"'):
            sparfuse.Method("wfbp", 2, LAYOUT, clip="median")
        refuses('unknown option "combine"|has no option "combine"|combine', "diloco", combine="senders")
        refuses(
            "adds payloads on the way", collective="zen", combine="senders",
            payload_values="f32", payload_indices="u32", sparsifier="topk",
        )
        refuses("no average of differences", "local-sgd", penalty=2)
        refuses("is not the outer momentum alone", "diloco", outer_clip=1)
        refuses(r"expected .*1", "diloco", penalty=0.5)


class Chunks(unittest.TestCase):
    def test_codes_have_levels_for_each_chunk(self):
        idx = np.array([0, 2, 3, 4, 7, 9], np.uint32)
        val = np.array([4, -3, 2.5, -1, 0.5, -0.25], F)
        payload = sparfuse.encode_payload(idx, val, 14, "codes4", "u12", chunk=4, scope="chunk")
        # four counts, six indices of 12 bits, twelve bits of codes, four levels for each chunk
        self.assertEqual(len(payload), -(-(8 + 9 + 2 + 4 * 16) // 4) * 4)
        levels = np.frombuffer(payload[19 : 19 + 64].tobytes(), F).reshape(4, 4)
        given = {"indices": "u12", "chunk": 4, "scope": "chunk"}
        indices, decoded = sparfuse.decode_payload(payload, 14, **given)
        np.testing.assert_array_equal(indices, idx)
        expected = np.concatenate([codes4(val[:3]), codes4(val[3:5]), codes4(val[5:])])
        np.testing.assert_array_equal(decoded, expected)
        self.assertTrue(set(codes4(val[:3])) <= set(levels[0]))
        np.testing.assert_array_equal(levels[3], np.zeros(4))
        wrong = payload.copy()
        wrong[19 + 3 * 16 : 19 + 3 * 16 + 4] = np.frombuffer(F(1).tobytes(), np.uint8)
        with self.assertRaisesRegex(sparfuse.ConfigError, "level 12 is of no element"):
            sparfuse.decode_payload(wrong, 14, **given)
        with self.assertRaisesRegex(sparfuse.ConfigError, "expected at least"):
            sparfuse.decode_payload(payload[:60], 14, **given)
        with self.assertRaisesRegex(sparfuse.ConfigError, 'expected "codes4"'):
            sparfuse.encode_payload(idx, val, 14, "f32", "u12", chunk=4, scope="chunk")


class LateAverages(unittest.TestCase):
    """CO2: averages that come a window late are made smaller, and the outer momentum is clipped."""

    def reference(self, ranks, steps, delay, penalty, clip, momentum=0.5, rate=1.0):
        a, c, start = problem(ranks)
        w = [start.copy() for _ in range(ranks)]
        anchor, outer, sent = start.copy(), np.zeros_like(start), None
        for step in range(steps):
            descend(w, a, c)
            if step % 2 == 0:
                continue
            d = [anchor - each for each in w]
            mean = sum(d[1:], d[0]) * F(1 / ranks)
            mean, sent = (sent, mean) if delay else (mean, None)
            if mean is not None:
                outer = F(momentum) * outer + mean / F(penalty)
                norm = np.sqrt((outer.astype(np.float64) ** 2).sum())
                if clip and norm > clip:
                    outer = outer * F(clip / norm)
                anchor = anchor - F(rate) * outer
            w = [anchor.copy() for _ in range(ranks)]
        return w, anchor, outer

    def test_penalty_and_clip(self):
        for ranks in (1, 2, 3):
            for delay in (0, 2):
                for penalty, clip in ((1, 0), (4, 0), (1, 0.75), (2.5, 0.25), (1, 1e6)):
                    with self.subTest(ranks=ranks, delay=delay, penalty=penalty, clip=clip):
                        given = {**MOMENTUM, "penalty": penalty, "outer_clip": clip}
                        method, w = run("local-sgd", ranks, 8, delay=delay, **given)
                        expected, anchor, outer = self.reference(ranks, 8, delay, penalty, clip)
                        state = whole(method.outer_state)
                        near([*w, state], [*expected, outer], rtol=4e-6, atol=1e-5)
                        if clip == 0.75:
                            self.assertAlmostEqual(float(np.linalg.norm(state)), clip, places=5)

    def test_units_that_arrive_together_are_clipped_together(self):
        one, _ = run("local-sgd", 2, 6, **MOMENTUM, outer_clip=0.5)
        striped, _ = run("local-sgd", 2, 6, **MOMENTUM, outer_clip=0.5, stripes=2)
        self.assertGreater(len(striped.plan), 1)
        near([whole(one.outer_state)], [whole(striped.outer_state)], rtol=1e-6, atol=1e-7)

    def test_a_penalty_divides_what_any_rule_gets(self):
        method, w = run("sparseloco", 3, 4, **FLOATS, penalty=2)
        near(w, sparseloco(3, 4, penalty=2)[0])
        self.assertEqual(method.options["penalty"], 2)


class IdleTrigger(unittest.TestCase):
    """The steps that receive depend on times. What they do is compared with the equations."""

    def train(self, ranks, steps, fragments, mix):
        a, c, start = problem(ranks)
        given = {"every": 4, "delay": 1, "mix": mix, "trigger": "idle", "fragments": fragments}
        method = sparfuse.Method("shadowsync", ranks, LAYOUT, threads=1, verify=True, **given)
        w = [start.copy() for _ in range(ranks)]
        parameters = [{n: p for (n, _), p in zip(LAYOUT, parts(each))} for each in w]
        method.begin(parameters)
        expected = [start.copy() for _ in range(ranks)]
        names, means, sent = [name for name, _ in LAYOUT], {}, None

        def receive():
            for t in [sent[0]] if fragments == 2 else [0, 1]:
                snapshots = [parts(each)[t] for each in sent[1]]
                mean = sum(snapshots[1:], snapshots[0]) * F(1 / ranks)
                means[names[t]] = mean
                for each in expected:
                    mine = parts(each)[t]
                    mine[:] = mean + F(mix) * (mine - mean)

        received = []
        for step in range(1, steps + 1):
            descend(w, a, c)
            descend(expected, a, c)
            done = method.local_step(parameters)
            if done["received"]:
                self.assertEqual(done["received"], [sent[0]])
                received.append(step)
                receive()
            if done["sent"]:
                sent = done["sent"][0], [each.copy() for each in expected]
            near(w, expected, rtol=1e-5, atol=1e-5)
            self.assertEqual(bool(done["sent"]), step == 1 or bool(done["received"]))
        method.finish(parameters)
        receive()
        near(w, expected, rtol=1e-5, atol=1e-5)
        for name, mean in means.items():
            np.testing.assert_allclose(method.anchor(name), mean, rtol=1e-5, atol=1e-5)
        done = method.local_step(parameters)  # goes on after the end
        self.assertEqual((len(done["sent"]), done["received"]), (1, []))
        return received

    def test_what_is_received_is_mixed_in_and_the_next_exchange_begins(self):
        for ranks, fragments, mix in ((2, 1, 0.5), (3, 2, 0.25), (2, 2, 0.0), (1, 1, 0.5)):
            with self.subTest(ranks=ranks, fragments=fragments, mix=mix):
                self.assertTrue(self.train(ranks, 60, fragments, mix))

    def test_what_has_no_meaning_is_refused(self):
        def refused(text, **options):
            with self.assertRaisesRegex(sparfuse.ConfigError, text):
                sparfuse.Method("shadowsync", 2, LAYOUT, **options)

        refused("delay = 0 with trigger = idle", trigger="idle", delay=0)
        refused("which has no dates", trigger="idle", first="long")
        refused("known: steps, idle", trigger="soon")
        # Numbers of fragments that divide no window are fine without dates.
        sparfuse.Method("shadowsync", 2, LAYOUT, trigger="idle", every=3, fragments=2)


class StochasticRounding(unittest.TestCase):
    FORMS = {"int8-blocks": 127, "int4-blocks": 7, "fp8-blocks": 448}

    def test_values_become_neighbours_with_the_right_expectation(self):
        g = np.random.default_rng(3).normal(0, 1, 96).astype(F)
        for name, top in self.FORMS.items():
            q = sparfuse.Quantizer(name, seed=5, block=32, rounding="stochastic")
            near = sparfuse.Quantizer(name, block=32)
            scale = np.abs(g.reshape(3, 32)).max(axis=1).repeat(32) / top
            width = scale if top < 448 else np.maximum(np.abs(g) / 8, scale * 2**-9) * 1.0001
            found = []
            for step in range(4000):
                decoded = q.decode(q.encode(g, name="w", step=step), g.shape)
                self.assertTrue((np.abs(decoded - g) <= width * (1 + 1e-5)).all(), name)
                found.append(decoded)
            found = np.array(found)
            self.assertTrue((np.ptp(found, axis=0) <= width * 2.001).all())
            # six deviations of the mean of 4000 draws between neighbours
            error = np.abs(found.mean(axis=0) - g)
            self.assertTrue((error <= 6 * width / 2 / np.sqrt(4000) + 1e-6).all(), name)
            biased = np.abs(near.decode(near.encode(g), g.shape) - g)
            self.assertGreater(biased.mean(), 4 * error.mean())
            self.assertEqual(q.bytes(g.shape), near.bytes(g.shape))

    def test_draws_follow_from_seed_rank_name_and_step(self):
        g = np.random.default_rng(4).normal(0, 1, 300).astype(F)

        def encoded(seed=0, rank=0, name="w", step=0):
            q = sparfuse.Quantizer("int4-blocks", seed=seed, rank=rank, rounding="stochastic")
            return q.encode(g, name=name, step=step).tobytes()

        first = encoded()
        self.assertEqual(first, encoded())
        others = {encoded(seed=1), encoded(rank=1), encoded(name="v"), encoded(step=1), first}
        self.assertEqual(len(others), 5)

    def test_sums_are_right_in_expectation_and_equal_on_all_ranks(self):
        rng = np.random.default_rng(6)
        gradients = [rng.normal(0, 1, 70).astype(F) for _ in range(4)]
        exact = np.mean(gradients, axis=0)
        for name in self.FORMS:
            for levels, per_node in ((1, 1), (2, 2)):

                def averages(steps, rounding="stochastic", name=name, levels=levels, per_node=per_node):
                    m = sparfuse.Method(
                        "dense", 4, [("w", (70,))], ranks_per_node=per_node, collective=name,
                        block=32, levels=levels, rounding=rounding, threads=1, verify=True,
                    )
                    found = [m.step([{"w": g} for g in gradients])["w"].copy() for _ in range(steps)]
                    return np.array(found), m.bytes()["sent"]

                found, sent = averages(400)
                again, _ = averages(3)
                np.testing.assert_array_equal(found[:3], again)
                self.assertFalse(np.array_equal(found[0], found[1]))
                nearest, as_many = averages(1, "nearest")
                self.assertEqual(sent, as_many)
                error = np.abs(found.mean(axis=0) - exact)
                spread = found.std(axis=0)
                self.assertTrue((error <= 6 * spread / 20 + 1e-6).all(), (name, levels))
                self.assertLess(error.mean(), np.abs(nearest[0] - exact).mean())


if __name__ == "__main__":
    unittest.main()
