"""Tests parts of methods that are written in Python, in sparfuse.Method: copies of built-in ones, which give the same
plans, bytes and averages, bit for bit; and bad ones, each of which is an error that names file and class."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

import numpy

import sparfuse

LAYOUT = [("head", (10, 64)), ("bias", (64,)), ("body", (64, 64)), ("first", (64, 33)), ("one", (1,))]

COPIES = """
import numpy

class LayerWise:
    kind = "planner"
    def plan(self, layout, given):
        assert given.workers == 3 and given.sparsified in ("never", "ahead", "behind")
        return [1 for tensor in layout]

class Whole:
    def plan(self, layout, given):
        return [{"tensors": len(layout), "density": given.density, "lane": "compute"}]

class Timed:
    needs_profile = True
    def plan(self, layout, given):
        assert len(given.backward_seconds) == len(layout)
        assert 0 < given.exchange_seconds(10) < given.exchange_seconds(10**6)
        assert given.select_seconds(10) > 0
        return [2, len(layout) - 2]

class Ahead:
    sparsified, sends_units = "ahead", True
    def step(self, e):
        self.missing = [unit.last - unit.first for unit in e.plan]
        self.local, self.next = {}, 0
    def ready(self, e, tensor):
        self.local[tensor] = e.sparsify(tensor)
        unit = next(u for u, unit in enumerate(e.plan) if unit.first <= tensor < unit.last)
        self.missing[unit] -= 1
        while self.next < len(self.missing) and self.missing[self.next] == 0:
            unit = e.plan[self.next]
            chosen = [self.local[t] for t in range(unit.first, unit.last)]
            e.apply(e.exchange(chosen, label=f"unit {self.next}"))
            self.next += 1

class DenseUnits:
    sparsified, sends_units = "never", True
    def step(self, e):
        self.exchanges, self.packed = [], {}
    def ready(self, e, tensor):
        self.packed[tensor] = e.pack(tensor)
        for number, unit in enumerate(e.plan):
            if unit.last - 1 == tensor:
                of = [self.packed[t] for t in range(unit.first, unit.last)]
                self.exchanges.append(e.exchange(of, label=f"unit {number}"))
    def end(self, e):
        for exchange in self.exchanges:
            e.apply(exchange)

class Gather:
    payload = "sparse"
    def run(self, comm, mine):
        parts = [mine] * comm.size
        give = mine
        for step in range(1, comm.size):
            sent = comm.send((comm.rank + 1) % comm.size, give)
            give = yield comm.receive((comm.rank - 1) % comm.size)
            parts[(comm.rank - step) % comm.size] = give
            yield sent
        return parts

class SumOfAll:
    payload = "dense"
    def run(self, comm, mine):
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        sends = [comm.send(rank, mine) for rank in others]
        came = yield [comm.receive(rank) for rank in others]
        yield sends
        by_rank = dict(zip(others, came))
        total = numpy.zeros_like(mine)
        for rank in range(comm.size):
            total += mine if rank == comm.rank else by_rank[rank].view(numpy.float32)
            comm.work("add", mine.size)
        return total

class RingSum:
    payload = "dense"
    def run(self, comm, mine):
        ranks, total = comm.size, mine.copy()
        edges = numpy.cumsum([0] + [len(part) for part in numpy.array_split(mine, ranks)])
        part = lambda number: slice(edges[number % ranks], edges[number % ranks + 1])
        for half in range(2):
            for step in range(ranks - 1):
                chunk = comm.rank + half - step + 2 * ranks
                to, start = part(chunk - 1), part(chunk)
                waits = [comm.receive((comm.rank - 1) % ranks)] if total[to].size else []
                waits += [comm.send((comm.rank + 1) % ranks, total[start])] if total[start].size else []
                came = yield waits
                if total[to].size and half == 0:
                    total[to] += came[0].view(numpy.float32)
                    comm.work("add", total[to].size)
                elif total[to].size:
                    total[to] = came[0].view(numpy.float32)
        return total

class SparseSum:
    payload, sums = "sparse", True
    def run(self, comm, mine):
        parts = yield from Gather().run(comm, mine)
        total = numpy.zeros(comm.elements, numpy.float32)
        for part in parts:
            indices, values = comm.decode(part)
            total[indices] += values
        return total

class Residual:
    def compensate(self, name, g, r):
        return g + r
    def keep(self, name, x, indices, r):
        r[:] = x
        r[indices] = 0

class Halves:
    needs_feedback = False
    def encoded_bytes(self, n):
        return (2 * n + 3) // 4 * 4
    def encode(self, x, random):
        limit = numpy.float32(65504)
        halves = numpy.clip(x, -limit, limit).astype(numpy.float16)
        return numpy.frombuffer(halves.tobytes().ljust(self.encoded_bytes(x.size), b"\\0"), numpy.uint8)
    def decode(self, b, n):
        return numpy.frombuffer(b[: 2 * n], numpy.float16).astype(numpy.float32)

class First:
    def select(self, g, k):
        return numpy.argsort(-numpy.abs(g), kind="stable")[:k]
"""


def gradients(seed, ranks):
    draw = numpy.random.default_rng(seed).standard_normal
    return [{name: draw(shape, dtype=numpy.float32) for name, shape in LAYOUT} for _ in range(ranks)]


class WithFile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sparfuse-parts-")
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "mine.py"

    def write(self, text):
        self.file.write_text("import numpy\n" + textwrap.dedent(text))

    def part(self, name):
        return f"python:{self.file}:{name}"


class Modelled(sparfuse.Method):
    """A Method whose step is modelled, as in sparfuse.torch.advise."""

    def _make(self, **settings):
        for key in ("threads", "deadline_seconds", "verify"):
            settings.pop(key)
        return sparfuse._core._model_step(forward_seconds=1e-3, selection=[], **settings)


class PartsTest(WithFile):
    def setUp(self):
        super().setUp()
        self.file.write_text(COPIES)

    def run_of(self, method, ranks=3, steps=4, **options):
        made = sparfuse.Method(method, ranks, LAYOUT, threads=1, verify=True, **options)
        averages = [made.step(gradients(step, ranks)) for step in range(steps)]
        residuals = []
        if "residual" in str(made.options.get("feedback")) or "python" in str(made.options.get("feedback")):
            residuals = [made.residual(rank, name) for rank in range(ranks) for name, _ in LAYOUT]
        spans = sorted((span["rank"], span["kind"], span["label"], span["bytes"]) for span in made.timeline())
        plan = [[t["name"] for t in unit["tensors"]] for unit in made.plan]
        return plan, made.bytes(), averages, residuals, spans

    def modelled(self, method, ranks=3):
        times = [1e-4 * (place + 1) for place in range(len(LAYOUT))]
        return Modelled(method, ranks, LAYOUT, density=0.05, backward_seconds=times)._ranks

    def assert_equal_runs(self, one, other):
        self.assertEqual(one[0], other[0])
        self.assertEqual(one[1], other[1])
        for a, b in zip(one[2], other[2]):
            for name, _ in LAYOUT:
                self.assertEqual(a[name].tobytes(), b[name].tobytes(), name)
        for a, b in zip(one[3], other[3]):
            self.assertEqual(a.tobytes(), b.tobytes())

    def parts(self, **other):
        return {"strategy": "ahead", "planner": "layer-wise", "sparsifier": "topk", "feedback": "residual",
                "collective": "sparse-allgather", **other}

    def test_copies_equal_what_they_copy_bit_for_bit(self):
        dense = {"strategy": "dense-units", "planner": "whole-model", "sparsifier": "none", "collective": "ring-allreduce"}
        for original, copied in (
            (self.parts(), self.parts(planner=self.part("LayerWise"))),
            (self.parts(strategy="behind", planner="whole-model"),
             self.parts(strategy="behind", planner=self.part("Whole"))),
            (self.parts(), self.parts(strategy=self.part("Ahead"))),
            (self.parts(planner="by-count", planner_options={"units": 2}),
             self.parts(planner="by-count", planner_options={"units": 2}, strategy=self.part("Ahead"))),
            (dense, {**dense, "strategy": self.part("DenseUnits")}),
            (self.parts(), self.parts(collective=self.part("Gather"))),
            (self.parts(), self.parts(feedback=self.part("Residual"))),
            (self.parts(), self.parts(sparsifier=self.part("First"))),
            (self.parts(sparsifier="none", payload_dense="fp16"),
             self.parts(sparsifier="none", payload_dense=self.part("Halves"))),
        ):
            with self.subTest(copied=copied):
                self.assert_equal_runs(self.run_of(original, density=0.05), self.run_of(copied, density=0.05))
                self.assertEqual(self.modelled(original), self.modelled(copied))
                self.assertGreater(self.modelled(copied)["step_seconds"], 2.5e-3)

    def test_a_copy_of_the_ring_equals_it_bit_for_bit(self):
        dense = {"strategy": "dense-units", "planner": "layer-wise", "sparsifier": "none", "collective": "ring-allreduce"}
        copied = {**dense, "collective": self.part("RingSum")}
        for ranks in (2, 4):
            self.assert_equal_runs(self.run_of(dense, ranks), self.run_of(copied, ranks))
        for ranks in (2, 4, 7):
            self.assertEqual(self.modelled(dense, ranks), self.modelled(copied, ranks))

    def test_all_at_once_and_from_the_file_of_a_method(self):
        file = self.file.with_name("mine-all.toml")
        parts = {"strategy": "Ahead", "planner": "LayerWise", "sparsifier": "First", "feedback": "Residual",
                 "collective": "Gather"}
        file.write_text('name = "mine-all"\n' + "".join(f'{k} = "python:mine.py:{v}"\n' for k, v in parts.items()))
        self.assert_equal_runs(self.run_of(self.parts(), density=0.05), self.run_of(str(file), density=0.05))

    def test_sums_are_sums(self):
        for name, ranks in (("SumOfAll", 2), ("SumOfAll", 3), ("SumOfAll", 1)):
            method = {"strategy": "dense-units", "planner": "layer-wise", "sparsifier": "none",
                      "collective": self.part(name)}
            made = sparfuse.Method(method, ranks, LAYOUT, verify=True)
            averaged, given = made.step(gradients(0, ranks)), gradients(0, ranks)
            for tensor, _ in LAYOUT:
                expected = sum(g[tensor] for g in given) / ranks
                numpy.testing.assert_allclose(averaged[tensor], expected, rtol=1e-5, atol=1e-6)
        one = self.run_of(self.parts(), density=0.05)
        other = self.run_of(self.parts(collective=self.part("SparseSum")), density=0.05)
        for a, b in zip(one[2], other[2]):
            for tensor, _ in LAYOUT:
                numpy.testing.assert_allclose(a[tensor], b[tensor], rtol=1e-5, atol=1e-6)

    def test_a_planner_by_keyword_and_by_times(self):
        made = sparfuse.Method("wfbp", 2, LAYOUT, planner=self.part("Timed"))
        self.assertEqual([len(unit["tensors"]) for unit in made.plan], [2, 3])

    def test_parts_and_methods_of_other_folders_and_packages(self):
        folder = self.file.parent
        (folder / "each.toml").write_text('part = "python:mine.py:LayerWise"\n')
        (folder / "topk.toml").write_text('part = "python:mine.py:First"\n')
        (folder / "own.toml").write_text('name = "own"\nstrategy = "ahead"\nplanner = "each"\nsparsifier = "topk"\n'
                                         'feedback = "residual"\ncollective = "packaged"\n')
        info = folder / "packaged-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text("[sparfuse.parts]\npackaged = mine:Gather\n")
        script = (
            "import sparfuse\n"
            "def refused(name):\n"
            "    try: sparfuse.Method(name, 3, [('w', (40,))])\n"
            "    except sparfuse.ConfigError as error: print(error)\n"
            "refused('own')\n"
            "import os; os.remove('topk.toml')\n"
            "m = sparfuse.Method('own', 3, [('w', (40,)), ('v', (9,))])\n"
            "print([len(unit['tensors']) for unit in m.plan], m.name)\n"
            "os.mkdir('b'); open('b/each.toml', 'w').write('part = \"python:../mine.py:Whole\"')\n"
            "os.environ['SPARFUSE_PATH'] += ':' + os.path.abspath('b')\n"
            "refused('own')\n"
        )
        environment = {**os.environ, "SPARFUSE_PATH": str(folder),
                       "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
        done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        first, second, third = done.stdout.splitlines()
        self.assertRegex(first, 'sparsifier "topk" is in sparfuse itself and in .*topk.toml; expected one of each')
        self.assertEqual(second, "[1, 1] own")
        self.assertRegex(third, 'planner "each" is in .*each.toml and in .*b/each.toml; expected one')

    def test_a_part_gets_the_modules_of_its_own_folder_as_they_are_now(self):
        def units(folder):
            method = {"strategy": "ahead", "planner": f"python:{folder}/mine.py:Mine", "sparsifier": "topk"}
            method |= {"feedback": "residual", "collective": "sparse-allgather"}
            return sum(1 for _ in sparfuse.Method(method, 1, LAYOUT).plan)

        text = "import splitting\nclass Mine:\n    def plan(self, layout, given): return splitting.of(layout)\n"
        one, each = "def of(layout): return [len(layout)]\n", "def of(layout): return [1 for _ in layout]\n"
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            for folder, split in ((first, one), (second, each)):
                (pathlib.Path(folder) / "mine.py").write_text(text)
                (pathlib.Path(folder) / "splitting.py").write_text(split)
            self.assertEqual([units(first), units(second), units(first)], [1, len(LAYOUT), 1])
            (pathlib.Path(first) / "splitting.py").write_text(each + "# another length\n")
            self.assertEqual(units(first), len(LAYOUT))
            late = "class Mine:\n    def plan(self, layout, given):\n        import splitting\n        return [1]\n"
            (pathlib.Path(second) / "mine.py").write_text(late)
            with self.assertRaisesRegex(sparfuse.ConfigError, "import at the top of the file"):
                units(second)

    def test_options_are_keywords_of_the_constructor(self):
        self.write("""
            class Some:
                def __init__(self, each=1): self.each = each
                def plan(self, layout, given):
                    return [self.each] * (len(layout) // self.each) + [len(layout) % self.each] * (len(layout) % self.each > 0)
            """)
        made = sparfuse.Method("wfbp", 2, LAYOUT, planner=self.part("Some"), each=2)
        self.assertEqual([len(unit["tensors"]) for unit in made.plan], [2, 2, 1])
        with self.assertRaisesRegex(sparfuse.ConfigError, 'each = x: expected an integer'):
            sparfuse.Method("wfbp", 2, LAYOUT, planner=self.part("Some"), each="x")


class BadPartsTest(WithFile):
    """Tests that each error names the file, the class and what was expected."""

    def refused(self, text, expected, **where):
        self.write(text)
        options = {key: self.part("Bad") for key, there in where.items() if there == "Bad"}
        rest = {key: value for key, value in where.items() if value != "Bad"}
        parts = {"strategy": "ahead", "planner": "layer-wise", "sparsifier": "topk", "feedback": "residual",
                 "collective": "sparse-allgather", **options, **rest}
        with self.assertRaises(sparfuse.Error) as raised:
            made = sparfuse.Method(parts, 3, LAYOUT, density=0.05, deadline_seconds=5)
            for step in range(3):
                made.step(gradients(step, 3))
        said = str(raised.exception)
        self.assertIn(f"python:{self.file}:Bad", said)
        self.assertRegex(said, expected)
        self.assertIsInstance(raised.exception, sparfuse.ConfigError, said)

    def test_files_and_classes_that_are_no_parts(self):
        for text, expected in (
            ("class Good: pass", 'mine.py defines no class "Bad"'),
            ("class Bad: pass", r"the class has no method plan\(layout, given\)"),
            ("class Bad:\n  kind = 'strategy'\n  def plan(self, l, g): pass", 'kind = "strategy"; expected "planner"'),
            ("class Bad:\n  kind = 3\n  def plan(self, l, g): pass", "kind is a int; expected a str"),
            ("class Bad(:", r"running the file raised SyntaxError"),
            ("1 / 0\nclass Bad: pass", r"ZeroDivisionError: division by zero \(.*mine.py, line 2\)"),
            ("class Bad:\n  def __init__(self, units): pass\n  def plan(self, l, g): pass",
             '"units" has no default that is a bool, int, float or str'),
            ("class Bad:\n  def __init__(self): self.x\n  def plan(self, l, g): pass",
             r"making a Bad raised AttributeError: .*line 3\)"),
        ):
            with self.subTest(expected):
                self.refused(text, expected, planner="Bad")
        with self.assertRaisesRegex(sparfuse.ConfigError, "absent.py is not there; expected a Python file"):
            sparfuse.Method("wfbp", 2, LAYOUT, planner="python:absent.py:Bad")
        with self.assertRaisesRegex(sparfuse.ConfigError, 'expected "python:FILE.py:ClassName"'):
            sparfuse.Method("wfbp", 2, LAYOUT, planner="python:absent.py")

    def test_planners(self):
        for returns, expected in (
            ("None", "returned a NoneType; expected a list of numbers of tensors"),
            ("[1, 2]", "units of 3 tensors together; expected all 5"),
            ("[5, 1]", "units of 6 tensors together; expected all 5"),
            ("[0, 5]", "unit 0 with a number of tensors = 0; expected 1 to 5"),
            ("[5.0]", "that is a float; expected an integer"),
            ("[True] * 5", "that is a bool; expected an integer"),
            ("[float('nan')]", "that is a float; expected an integer"),
            ("[{'density': 1}]", 'unit 0 without "tensors"'),
            ("[{'tensors': 5, 'density': 2}]", r"density = 2.0+; expected a number in \(0, 1\]"),
            ("[{'tensors': 5, 'density': float('nan')}]", r"density = nan; expected"),
            ("[{'tensors': 5, 'lane': 'slow'}]", 'lane = "slow"; expected "compute"'),
            ("[{'tensors': 5, 'size': 1}]", 'the key "size"; expected tensors'),
            ("1 / 0", r"plan\(layout, given\) raised ZeroDivisionError: .*mine.py, line 4\)"),
            ("[[5], [1, 4]][self.n()]", "returned two plans for the same layout"),
        ):
            with self.subTest(returns):
                self.refused(f"""class Bad:
                    def plan(self, layout, given): return (
                        {returns})
                    def n(self): self.calls = getattr(self, "calls", -1) + 1; return self.calls % 2
                    """.replace("                    ", "  "), expected.replace("line 4", r"line \d"), planner="Bad")

    def test_a_quantizer_may_return_views(self):
        self.write("""
            class Same:
                def encoded_bytes(self, n): return 4 * n
                def encode(self, x, random): return x.view(numpy.uint8)
                def decode(self, b, n): return b.view(numpy.float32)
            """)
        made = sparfuse.Method("qsgd", 2, LAYOUT, payload_dense=self.part("Same"))
        one, two = given = gradients(0, 2)
        for name, average in made.step(given).items():
            numpy.testing.assert_array_equal(average, (one[name] + two[name]) * numpy.float32(0.5))

    def test_quantizers(self):
        good = {"encoded_bytes": "4 * n", "encode": "numpy.frombuffer(x.tobytes(), numpy.uint8)",
                "decode": "numpy.frombuffer(b, numpy.float32)"}
        for name, bad, expected in (
            ("encoded_bytes", "n + 1", "returned 641; expected a multiple of 4"),
            ("encoded_bytes", "n", "returned 2560 bytes; expected the 640 that encoded_bytes says"),
            ("encoded_bytes", "'4'", "a str; expected an integer"),
            ("encoded_bytes", "10**12", "expected a multiple of 4, from 4 to"),
            ("encode", "numpy.zeros(4, numpy.uint8)", "returned 4 bytes; expected the 2560 that encoded_bytes says"),
            ("encode", "x", r"dtype float32; expected uint8 in one dimension"),
            ("encode", "None", r"dtype object; expected uint8"),
            ("encode", "1 / 0", r'encode\(x, random\) of tensor "head", step 0 raised ZeroDivisionError'),
            ("encode", "setattr(self, 'x', x) or numpy.frombuffer(x.tobytes(), numpy.uint8)", r"keep x.copy\(\)"),
            ("decode", "numpy.zeros(n + 1, numpy.float32)", r"shape \(641,?\), dtype float32; expected 640 float32"),
            ("decode", "numpy.zeros(n)", "dtype float64; expected 640 float32"),
            ("decode", "numpy.full(n, numpy.nan, numpy.float32)", "element 0 = nan; expected finite"),
        ):
            with self.subTest(name=name, bad=bad):
                body = {**good, name: bad}
                self.refused(f"""
                    class Bad:
                        def encoded_bytes(self, n): return {body["encoded_bytes"]}
                        def encode(self, x, random): return {body["encode"]}
                        def decode(self, b, n): return {body["decode"]}
                    """, expected, sparsifier="none", payload_dense="Bad")

    def test_strategies(self):
        for ready, expected in (
            ("1 / 0", r'ready\(e, tensor\) of "head" raised ZeroDivisionError'),
            ("e.exchange([])", "exchange of nothing; expected handles"),
            ("e.exchange([77])", "exchange has handle 77; expected numbers that calls of e returned in this step"),
            ("e.exchange([e.timer(0, print)])", r"exchange of a timer; expected numbers that e.sparsify or e.pack"),
            ("e.apply(77)", "apply has handle 77; expected numbers that calls of e returned in this step"),
            ("e.merge(0)", "merge has handle 0; expected numbers that calls of e returned in this step"),
            ("e.apply(e.sparsify(tensor))", "apply of a selection; expected a number that e.exchange returned"),
            ("e.sparsify(tensor, after=[77])", "after of sparsify has handle 77; expected numbers"),
            ("e.negotiate([1], print, after=[77])", "after of negotiate has handle 77; expected numbers"),
            ("e.payload_bytes(77)", "payload_bytes has handle 77"),
            ("x = e.exchange([e.sparsify(tensor)]); e.apply(x); e.apply(x)", "for the second time in this step"),
            ("e.timer(float('nan'), print)", "timer of nan seconds; expected 0 or more"),
            ("e.sparsify(99)", "tensor 99 was asked for; expected one below 5"),
            ("e.sparsify(tensor, density=0)", r"density = 0.0+; expected a number in \(0, 1\]"),
            ("e.sparsify(tensor, lane='fast')", 'lane = "fast"; expected'),
            ("e.apply(e.exchange([e.sparsify(tensor), e.pack(tensor)]))", "1 selections and 1 packed"),
            ("e.apply(e.exchange([e.sparsify(tensor)], channel='dat'))", 'channel = "dat"; did you mean "data"'),
            ("e.sparsify(tensor, then=3)", "then is a int; expected a function"),
            ("e.sparsify(tensor, then=lambda: 1 / 0)", "then of sparsify raised ZeroDivisionError"),
        ):
            with self.subTest(ready):
                self.refused(f"""
                    class Bad:
                        sparsified = "ahead"
                        def ready(self, e, tensor): {ready}
                    """, expected, strategy="Bad")
        self.refused("class Bad:\n  def ready(self, e, t): pass", 'sparsified = ""; expected "never"', strategy="Bad")

    def stopped(self, text, expected):
        """Runs a strategy that an engine stops, which does not know its class."""
        self.write(text)
        parts = {"strategy": self.part("Bad"), "planner": "layer-wise", "sparsifier": "topk", "feedback": "residual",
                 "collective": "sparse-allgather"}
        with self.assertRaisesRegex(sparfuse.Error, expected):
            sparfuse.Method(parts, 2, [("a", (8, 8)), ("b", (8, 8))], deadline_seconds=1).step(
                [{name: numpy.ones((8, 8), numpy.float32) for name in "ab"}] * 2)

    def test_a_strategy_that_leaves_a_tensor_out_fails_at_once(self):
        self.stopped("""
            class Bad:
                sparsified = "ahead"
                def ready(self, e, tensor):
                    if tensor == 0: e.apply(e.exchange([e.sparsify(tensor)]))
            """, 'nothing under way, but 64 of 128 elements are applied, "b" is not; expected each one once')

    def test_ranks_that_ask_in_another_order_add_no_tensor_to_another_one(self):
        self.stopped("""
            class Bad:
                sparsified = "ahead"
                def end(self, e):
                    for tensor in (0, 1) if e.rank == 0 else (1, 0):
                        e.apply(e.exchange([e.sparsify(tensor)]))
                def ready(self, e, tensor): pass
            """, "no progress for 1... ms: rank . answers but did not send")

    def test_feedback(self):
        for compensate, keep, expected in (
            ("g[:1]", "pass", r"shape \(1,?\), dtype float32; expected 640 float32"),
            ("g.astype('f8')", "pass", "dtype float64; expected 640"),
            ("g * numpy.float32('nan')", "pass", "element 0 = nan; expected finite numbers"),
            ("g + r", "return r", "returned a numpy.ndarray; expected None, and a write to r"),
            ("g + r", "r[:] = numpy.inf", "element 0 = inf"),
            ("g + r", "x[:] = 0", "raised ValueError: assignment destination is read-only"),
            ("g + r", "self.r = r", r"keep r.copy\(\)"),
        ):
            with self.subTest(compensate=compensate, keep=keep):
                self.refused(f"""
                    class Bad:
                        def compensate(self, name, g, r): return {compensate}
                        def keep(self, name, x, indices, r): {keep}
                    """, expected, feedback="Bad")

    def test_collectives(self):
        for run, expected in (
            ("return [mine]", r"a list; expected a generator"),
            ("yield comm.receive((comm.rank + 1) % comm.size); return []",
             "on 3 ranks waits for ever: rank 0 for rank 1, rank 1 for rank 2, rank 2 for rank 0"),
            ("yield comm.send((comm.rank + 1) % comm.size, mine); return [mine] * comm.size",
             "1 messages from rank 0 to rank 1 were never received"),
            ("comm.receive((comm.rank + 1) % comm.size); yield comm.send((comm.rank - 1) % comm.size, mine)",
             "before it had waited for its receive"),
            ("yield comm.send(comm.rank, mine)", "comm.send with rank 0 on rank 0; expected another rank below 3"),
            ("yield comm.receive(7)", "comm.receive with rank 7"),
            ("yield None", "yielded a NoneType; expected a result of comm.send or comm.receive"),
            ("yield comm.send((comm.rank + 1) % comm.size, object())", "."),
            ("comm.work('sing', 3); yield comm.receive(1)", r'comm.work\("sing"\); expected add'),
            ("1 / 0; yield", r"run\(comm, mine\) on rank 0 raised ZeroDivisionError"),
            ("s = comm.send((comm.rank + 1) % comm.size, mine); yield comm.receive((comm.rank - 1) % comm.size)\n"
             "                            yield s; return [mine]", "a list of 1; expected a list of 3 payloads"),
            ("s = comm.send((comm.rank + 1) % comm.size, mine); g = yield comm.receive((comm.rank - 1) % comm.size)\n"
             "                            yield s; return [g] * comm.size", "place 0 is not the payload of that rank"),
            ("return [mine] * comm.size; yield", "on rank 0 returned a list whose place 1 is not the payload"),
        ):
            with self.subTest(run):
                self.refused(f"""
                    class Bad:
                        payload = "sparse"
                        def run(self, comm, mine):
                            {run}
                    """, expected, collective="Bad")
        self.refused("""
            class Bad:
                payload, sums = "sparse", True
                def run(self, comm, mine):
                    return numpy.full(comm.elements, numpy.nan, numpy.float32)
                    yield
            """, r"on rank \d returned element 0 = nan; expected finite numbers", collective="Bad")


class PageTest(unittest.TestCase):
    def test_the_page_runs_as_it_is_written(self):
        page = (pathlib.Path(__file__).resolve().parents[3] / "docs" / "python-parts.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        classes, script = blocks[:-1], blocks[-1]
        for text in classes:
            self.assertLessEqual(len(text.splitlines()), 25, text)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "mine.py").write_text("import numpy\n\n\n" + "\n\n".join(classes))
            (path / "mine.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
            done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("unit 0: 2 tensors", done.stdout)


if __name__ == "__main__":
    unittest.main()
