"""Tests the types that type checkers and editors see, against the module and with mypy."""

import ast
import importlib.util
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

import sparfuse
import sparfuse._method

PACKAGE = pathlib.Path(sparfuse.__file__).parent

USE = """
    import numpy
    from numpy.typing import NDArray

    import sparfuse
    from sparfuse.describe import describe, dumps

    Floats = NDArray[numpy.float32]
    g: Floats = numpy.zeros((4, 3), dtype=numpy.float32)

    s = sparfuse.Sparsifier("topk", density=0.5, seed=1)
    idx, val = s.select(g, name="w", step=3)
    indices: NDArray[numpy.uint32] = idx
    s.density = 0.25
    average: Floats = sparfuse.decompress([(idx, val)], g.shape, out=g)
    coded: NDArray[numpy.uint8] = sparfuse.encode_payload(idx, val, g.size, values="f32")

    q = sparfuse.Quantizer("qsgd", levels=127)
    decoded: Floats = q.decode(q.encode(g), g.shape)
    memory: memoryview = q.decode(bytes(4), 1, out=memoryview(bytearray(4)))
    selected: tuple[NDArray[numpy.uint32], Floats] = sparfuse.ErrorFeedback(s).step("w", g)
    encoded: NDArray[numpy.uint8] = sparfuse.ErrorFeedback(q, clip=1.0).step("w", g)
    made: sparfuse.Quantizer = sparfuse.ErrorFeedback(q).sparsifier

    averages: dict[str, Floats] = sparfuse.PowerSGD(rank=2).average({"w": [g]})
    m = sparfuse.Method("wfbp", 2, [("w", (4, 3))], feedback="residual", units=2)
    summed: dict[str, Floats] = m.step([{"w": g}, {"w": None}])
    units: list[int] = sparfuse.plan(
        "mg-wfbp", layout={"w": 4}, backward_seconds=[1.0], alpha=1.0, beta=1.0
    )
    parts: list[tuple[str, int]] = [
        (each, n) for each, n in sparfuse.plan("hipress", layout=[], topology="PS", world_size=4)
    ]
    text: str = dumps(describe(None, g, unit="images", note=print))

    s.select([1.0])  # type: ignore[arg-type]
    sparfuse.ErrorFeedback(q, "momentum")  # type: ignore[call-overload]
    sparfuse.Method("wfbp", 2, [("w", 4)], order="backward")  # type: ignore[arg-type]
    sparfuse.plan("hipress", layout=[], topology="PS", world_size=5)  # type: ignore[call-overload]
    describe(None, g, measure="20")  # type: ignore[arg-type]
    wrong: str = q.decode(b"", 1)  # type: ignore[assignment]
"""


def bound_signature(function):
    """The signature that pybind11 writes at the head of a docstring, as ast.arguments."""
    head = function.__doc__.partition("\n")[0]
    return ast.parse(f"def {head}: ...").body[0].args


def parameters(arguments):
    """{name: (whether it is keyword-only, its default's source or None)}, without self."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    found = {}
    for keyword, given, values in [(False, positional, defaults),
                                   (True, arguments.kwonlyargs, arguments.kw_defaults)]:
        for argument, default in zip(given, values):
            found[argument.arg] = (keyword, default and ast.unparse(default))
    found.pop("self", None)
    return found


class Stubs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Reads the stubs' declarations: {function: nodes}, {class: {member: nodes}}, {class: bases}."""
        tree = ast.parse((PACKAGE / "_core.pyi").read_text())
        cls.functions, cls.classes, cls.bases = {}, {}, {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                cls.functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                members = cls.classes[node.name] = {}
                names = [base for base in node.bases if isinstance(base, ast.Name)]
                cls.bases[node.name] = [base.id for base in names]
                for member in node.body:
                    if isinstance(member, ast.FunctionDef):
                        members.setdefault(member.name, []).append(member)
                    elif isinstance(member, ast.AnnAssign):
                        members[member.target.id] = [member]

    def members(self, name):
        found = dict(self.classes[name])
        for base in self.bases[name]:
            found.update(self.classes.get(base, {}))
        return found

    def test_the_package_is_typed(self):
        self.assertTrue((PACKAGE / "py.typed").exists())

    def test_name_what_the_module_has(self):
        bound = {name for name in sparfuse.__all__ if name != "__version__"
                 and not hasattr(sparfuse._method, name)
                 and getattr(sparfuse, name).__module__ != "sparfuse._trace"}
        public = {*self.functions, *(name for name in self.classes if not name.startswith("_"))}
        self.assertEqual(public, bound)
        for name in bound & set(self.classes):
            thing = getattr(sparfuse, name)
            if not issubclass(thing, Exception):
                members = {key for key in vars(thing) if not key.startswith("_")}
                self.assertEqual(set(self.members(name)) - {"__init__"}, members, name)

    def test_take_what_the_bindings_take(self):
        pairs = {name: (overloads, getattr(sparfuse, name))
                 for name, overloads in self.functions.items()}
        for name in set(self.classes) & set(sparfuse.__all__):
            for member, overloads in self.members(name).items():
                thing = getattr(getattr(sparfuse, name), member)
                if callable(thing):
                    pairs[f"{name}.{member}"] = overloads, thing
        self.assertGreater(len(pairs), 25)
        for name, (overloads, thing) in pairs.items():
            with self.subTest(name):
                bound = bound_signature(thing)
                expected = parameters(bound)
                declared = {}
                for overload in overloads:
                    self.assertLessEqual(overload.args.kwarg is not None, bound.kwarg is not None)
                    for key, value in parameters(overload.args).items():
                        declared.setdefault(key, []).append(value)
                if bound.kwarg is None:
                    self.assertEqual(list(declared), list(expected))
                for key, (keyword, default) in expected.items():
                    self.assertEqual({each[0] for each in declared[key]}, {keyword}, key)
                    # One of several overloads may require an argument that is optional in another.
                    values = {each[1] for each in declared[key]}
                    self.assertIn(default, values, key)
                    self.assertLessEqual(values, {default, None}, key)

    def test_give_every_parameter_a_type(self):
        nodes = [node for overloads in self.functions.values() for node in overloads]
        for members in self.classes.values():
            nodes += [node for overloads in members.values() for node in overloads]
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                self.assertIsNotNone(node.returns, node.name)
                given = node.args
                for each in [*given.args, *given.kwonlyargs, given.vararg, given.kwarg]:
                    if each is not None and each.arg != "self":
                        self.assertIsNotNone(each.annotation, f"{node.name}: {each.arg}")

    def test_what_is_written_in_python_has_types(self):
        import sparfuse.describe as described

        functions = [sparfuse.list_methods, described.describe, described.dumps]
        for member in vars(sparfuse.Method).values():
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function) and not function.__name__.startswith("_"):
                functions.append(function)
        functions.append(sparfuse.Method.__init__)
        for function in functions:
            signature = inspect.signature(function)
            self.assertIsNot(signature.return_annotation, signature.empty, function)
            for parameter in signature.parameters.values():
                if parameter.name != "self":
                    self.assertIsNot(parameter.annotation, parameter.empty, (function, parameter))

    @unittest.skipIf(importlib.util.find_spec("mypy") is None, "mypy is not installed")
    def test_mypy_accepts_what_is_right_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "use.py")
            script.write_text(textwrap.dedent(USE))
            checked = subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir",
                 folder, script],
                env={**os.environ, "MYPYPATH": str(PACKAGE.parent)}, cwd=folder, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(checked.returncode, 0, checked.stdout)


if __name__ == "__main__":
    unittest.main()
