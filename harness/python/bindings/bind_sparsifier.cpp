// Binds Sparsifier, list_sparsifiers and register_sparsifier.
#include "harness/python/bindings/bound.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

std::size_t Count(const BoundSparsifier& self, const py::object& shape) {
  const std::vector<std::int64_t> extents = ReadShapeOfSome(shape);
  return self.configured->sparsifier->Count(ElementCount(extents), extents,
                                            self.configured->density);
}

void BindSparsifierClass(py::module_& module) {
  py::class_<BoundSparsifier> sparsifier(module, "Sparsifier",
                                         R"(Selects the elements of a gradient to send.

name      of a sparsifier (list_sparsifiers() has them all) or an alias
density   fraction of the elements to keep, in (0, 1]: k = max(1, trunc(density * n)) of n. How many
          are kept is exactly that or near it, as the sparsifier's exact_count says. May be set
          later: the next selection follows.
seed      of the sparsifier's random numbers. They follow from seed, tensor name and step, so that
          workers with equal seeds draw alike
options   of the sparsifier; unknown ones raise ConfigError

An object may be used from several threads, one at a time; selections run without the GIL.

>>> import numpy, sparfuse
>>> s = sparfuse.Sparsifier("topk", density=0.5)
>>> g = numpy.array([[0.1, -3], [2, 0]], dtype=numpy.float32)
>>> idx, val = s.select(g)
>>> idx.tolist(), val.tolist()
([1, 2], [-3.0, 2.0])
)");
  sparsifier
      .def(py::init([](const Given<"name", std::string>& name,
                       const Given<"density", double>& density, const py::object& seed,
                       const py::kwargs& options) {
             return Make<BoundSparsifier>(
                 ConfigureSparsifier(*name, *density, ReadSeed(seed), options));
           }),
           py::arg("name"), py::arg("density") = 0.01, py::arg("seed") = 0)
      .def("select", &CompressOne<BoundSparsifier>, py::arg("g"), py::kw_only(),
           py::arg("name") = py::none(), py::arg("step") = py::none(),
           R"(Selects from g; returns (indices, values).

g        float32 array of any shape, read only: NumPy, torch or others by DLPack, or the buffer
         protocol. It is not copied if it is contiguous in row-major order; otherwise a copy of it
         alone is made.
name     of the tensor: errors say it, and a sparsifier's memory from step to step (a
         threshold, say) is kept under it. Without a name it is kept under the shape.
step     of training, keys random numbers; by default one more than this tensor's last one

indices  uint32, increasing, positions in the flattened g (row-major)
values   float32, g at these indices, bit for bit

Raises NumericError for a NaN or an infinity in g, ConfigError for an empty g, TypeError for another
dtype, UnsupportedError for memory that is not on the host.

>>> import numpy, sparfuse
>>> s = sparfuse.Sparsifier("topk", density=0.25)
>>> g = numpy.arange(-4, 4, dtype=numpy.float32)
>>> idx, val = s.select(g, name="fc.bias")
>>> idx.dtype, idx.tolist(), val.tolist()
(dtype('uint32'), [0, 1], [-4.0, -3.0])
>>> s.select(g.astype(numpy.float64))
Traceback (most recent call last):
    ...
TypeError: g has dtype float64; expected float32: pass g.astype(numpy.float32)
)")
      .def("count", &Count, py::arg("shape"),
           R"(The number of elements that select keeps of an array of a shape.

Exactly this number if the descriptor says exact_count; else the largest number that it aims at.

>>> import sparfuse
>>> sparfuse.Sparsifier("topk", density=0.01).count((300, 50))
150
)")
      .def("__repr__",
           [](const BoundSparsifier& self) {
             const ConfiguredSparsifier& made = *self.configured;
             const auto density = py::cast<std::string>(py::repr(py::float_(made.density)));
             return ReprText("Sparsifier", made.descriptor,
                             "density=" + density + ", seed=" + std::to_string(made.seed),
                             made.options);
           })
      .def_property(
          "density", [](const BoundSparsifier& self) { return self.configured->density.load(); },
          [](BoundSparsifier& self, const Given<"density", double>& density) {
            self.configured->density = CheckedDensity(*density);
          },
          R"(Fraction of the elements to keep. May be set, say in a warm-up.

>>> import sparfuse
>>> s = sparfuse.Sparsifier("topk")
>>> s.density = sparfuse.warmup_density(epoch=0, density=0.01, epochs=4, factor=0.25)
>>> s.density
0.25
)");
  BindPickling(sparsifier);
  BindDescription(sparsifier, "Sparsifier", "sparsifier",
                  {{{R"(("topk").name)", "'topk'"},
                    {R"(("randomk", seed=3).seed)", "3"},
                    {R"(("dgc", sample_ratio=0.05).options["sample_ratio"])", "0.05"},
                    {R"(("dgc").paper)", "'Lin et al., ICLR 2018'"},
                    {R"(("topk").deviations)", "''"},
                    {R"(("topk").descriptor["exact_count"])", "True"}}});
}

void BindRegistry(py::module_& module) {
  module.def("list_sparsifiers", &ListSparsifiers,
             R"(Every sparsifier, those registered from Python included, as a list of dicts:

name, aliases    names that Sparsifier takes
paper            its source
deviations       differences from the paper or its code; "" if none is known
revision         raised when results may change
exact_count      whether exactly Sparsifier.count elements are kept
unbounded_count  whether the count may be anything up to n, on some data at least
index_shared     whether workers with equal seeds keep the same indices
options          dicts of name, default, range (None, or the least and the largest value), choices,
                 meaning
language         "C++" or "Python"

>>> import sparfuse
>>> for entry in sparfuse.list_sparsifiers():
...     if entry["name"] == "dgc":
...         print(entry["paper"], [option["name"] for option in entry["options"]][:2])
Lin et al., ICLR 2018 ['sample_ratio', 'upper_bound']
)");
  module.def(
      "register_sparsifier",
      [](const Given<"name", std::string>& name, const py::object& sparsifier) {
        RegisterSparsifier(*name, sparsifier);
      },
      py::arg("name"), py::arg("sparsifier"),
      R"(Makes a sparsifier that is written in Python known under a name.

sparsifier  a class, of which each Sparsifier(name, ...) makes an object with its options as
            keywords (and seed, if the constructor takes one), or an object. It has a method
            select(g, k):
              g  [n] float32, flat: the gradient, residual added; a read-only copy, for the
                 call only: ConfigError if g, or a view of it, is kept (keep g.copy())
              k  how many elements to keep, below n (all are kept without a call)
              name, step  of the tensor, if select has parameters of these names, or **keywords:
                 select(g, k, *, name, step). Of several tensors in one buffer name is "the unit
                 that begins with NAME"
              returns k different integers in [0, n), in any order
            Methods state_dict(self), which returns a dict, and load_state_dict(self, state), both or
            neither: what the class remembers between steps, for checkpoints and copies.
            Attributes, all optional: exact_count = False (any number of indices, at least one and
            at most max(4k, k + 1024), or n with unbounded_count = True), paper, deviations,
            revision, index_shared.

A name registered from Python before is replaced; built-in names are refused. The result of select
is checked: ConfigError says what is wrong with it.

>>> import numpy, sparfuse
>>> class Largest:
...     def select(self, g, k):
...         return numpy.argpartition(-abs(g), k)[:k]
>>> sparfuse.register_sparsifier("largest", Largest)
>>> s = sparfuse.Sparsifier("largest", density=0.4)
>>> s.select(numpy.array([5, -9, 0, 1, 7], dtype=numpy.float32))[0].tolist()
[1, 4]
)");
}

}  // namespace

void BindSparsifier(py::module_& module) {
  BindSparsifierClass(module);
  BindRegistry(module);
}

}  // namespace sparfuse::python
