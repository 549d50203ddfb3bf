// Binds Quantizer and list_quantizers.
#include "core/base/error.hpp"
#include "harness/python/bindings/bound.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

py::object Average(const BoundQuantizer& self, const py::object& given, const py::object& shape,
                   const py::object& out) {
  if (!py::isinstance<py::sequence>(given))
    RefuseArgument(given, "payloads", "a list of payloads of encode");
  const auto payloads = py::reinterpret_borrow<py::sequence>(given);
  SPARFUSE_REQUIRE(py::len(payloads) > 0, "average: no payloads; expected at least one");
  const std::vector<std::int64_t> extents = ReadShapeOfSome(shape);
  std::vector<ByteArray> arrays;
  std::vector<std::span<const std::byte>> views;
  for (std::size_t p = 0; p < py::len(payloads); ++p) {
    arrays.push_back(ReadBytes(payloads[p], "payloads[" + std::to_string(p) + "]"));
    views.push_back(arrays.back().bytes());
  }
  const DenseResult result = MakeDense(out, extents);
  for (std::size_t p = 0; p < views.size(); ++p)
    RequireApart("out", std::as_bytes(result.values), "payloads[" + std::to_string(p) + "]",
                 views[p]);
  {
    const GilReleased no_gil;
    AccumulateQuantized(*self.configured->quantizer, views, 1.0f / static_cast<float>(views.size()),
                        result.values, *ModulePool());
  }
  return result.object;
}

std::size_t ElementsOf(const py::object& shape) { return ElementCount(ReadShapeOfSome(shape)); }

void BindQuantizerCoding(py::class_<BoundQuantizer>& quantizer) {
  quantizer
      .def(py::init([](const Given<"name", std::string>& name, const py::object& seed,
                       const py::object& rank, const py::kwargs& options) {
             return Make<BoundQuantizer>(ConfigureQuantizer(
                 *name, ReadSeed(seed), static_cast<int>(ReadInteger(rank, "rank", 0, 0x7fffffff)),
                 options));
           }),
           py::arg("name"), py::arg("seed") = 0, py::arg("rank") = 0)
      .def("encode", &CompressOne<BoundQuantizer>, py::arg("g"), py::kw_only(),
           py::arg("name") = py::none(), py::arg("step") = py::none(),
           R"(Encodes g: bytes(g.shape) of uint8.

g        as in Sparsifier.select; not modified, not copied if contiguous in row-major order
name     of the tensor: errors say it, and random numbers follow from it. Without one, from the
         shape.
step     of training, keys random numbers; by default one more than this tensor's last one

"fp16" sends values beyond 65504, its largest number, as 65504; ErrorFeedback keeps the
rest. Raises NumericError for a NaN or an infinity in g, and the other errors of Sparsifier.select.

>>> import numpy, sparfuse
>>> g = numpy.array([1, -2, 3], dtype=numpy.float32)
>>> payload = sparfuse.Quantizer("fp16").encode(g, name="fc.bias")
>>> payload.dtype, payload.nbytes
(dtype('uint8'), 8)
)")
      .def(
          "decode",
          [](const BoundQuantizer& self, const py::object& payload, const py::object& shape,
             const py::object& out) { return Average(self, py::make_tuple(payload), shape, out); },
          py::arg("payload"), py::arg("shape"), py::kw_only(), py::arg("out") = py::none(),
          R"(The float32 array that a payload stands for.

payload  a payload of encode, here or on another worker: uint8, or bytes
shape    of the array that was encoded: an integer, or integers. Payloads are whole words: for a
         payload of more elements in as many bytes, ConfigError says so if the surplus is not 0
out      memory to reuse, as in decompress

>>> import numpy, sparfuse
>>> q = sparfuse.Quantizer("sign")
>>> q.decode(q.encode(numpy.array([1, -2, 3], dtype=numpy.float32)), 3).tolist()
[2.0, -2.0, 2.0]
)")
      .def("average", &Average, py::arg("payloads"), py::arg("shape"), py::kw_only(),
           py::arg("out") = py::none(),
           R"(The average of payloads, one for each worker, as a dense float32 array.

payloads  a sequence of payloads of encode, or of their bytes, all of quantizers of the same name
          and options. They are added in the order given, so that equal payloads give equal bits on
          every worker.
shape     of the arrays that were encoded: an integer, or integers
out       memory to reuse, as in decompress

Raises ConfigError that names a payload that cannot be of this shape; the content of `out` is then
unspecified.

>>> import numpy, sparfuse
>>> q = sparfuse.Quantizer("fp16")
>>> payloads = [q.encode(numpy.full((2, 2), x, dtype=numpy.float32)) for x in [1, 4]]
>>> q.average(payloads, (2, 2)).tolist()
[[2.5, 2.5], [2.5, 2.5]]
>>> q.average(payloads, 7)
Traceback (most recent call last):
    ...
sparfuse.ConfigError: quantized payload 0 is corrupt: fp16: 8 bytes; expected 16 for 7 elements
)");
}

void BindQuantizerProperties(py::class_<BoundQuantizer>& quantizer) {
  quantizer
      .def(
          "bytes",
          [](const BoundQuantizer& self, const py::object& shape) {
            return self.configured->quantizer->EncodedBytes(ElementsOf(shape));
          },
          py::arg("shape"), R"(How many bytes encode makes of an array of a shape.

>>> import sparfuse
>>> sparfuse.Quantizer("sign").bytes((64, 32))
260
)")
      .def(
          "error_bound",
          [](const BoundQuantizer& self, const py::object& shape) {
            return self.configured->quantizer->ErrorBound(ElementsOf(shape));
          },
          py::arg("shape"),
          R"(The least known c with E|x - decoded|^2 <= c |x|^2 for every x of a shape.

Above 1, residuals may grow without bound: do not use ErrorFeedback then.

>>> import sparfuse
>>> sparfuse.Quantizer("qsgd", levels=4, bucket=512).error_bound(512) > 1
True
>>> sparfuse.Quantizer("sign").error_bound(4)
0.75
)")
      .def("__repr__",
           [](const BoundQuantizer& self) {
             const ConfiguredQuantizer& configured = *self.configured;
             return ReprText("Quantizer", configured.descriptor,
                             "seed=" + std::to_string(configured.seed) +
                                 ", rank=" + std::to_string(configured.rank),
                             configured.options);
           })
      .def_property_readonly(
          "rank", [](const BoundQuantizer& self) { return self.configured->rank; },
          R"(The rank of this worker; it keys random numbers.

>>> import sparfuse
>>> sparfuse.Quantizer("qsgd", rank=2).rank
2
)");
  BindPickling(quantizer);
  BindDescription(
      quantizer, "Quantizer", "quantizer",
      {{{R"(("fp16").name)", "'fp16'"},
        {R"(("qsgd", seed=3).seed)", "3"},
        {R"(("qsgd", bucket=64).options)", "{'bucket': 64, 'levels': 127}"},
        {R"(("qsgd").paper)", "'Alistarh et al., NeurIPS 2017'"},
        {R"(("qsgd").deviations)", "'Levels travel as bytes instead of in Elias code.'"},
        {R"(("sign").descriptor["needs_feedback"])", "True"}}});
}

}  // namespace

void BindQuantizer(py::module_& module) {
  py::class_<BoundQuantizer> quantizer(module, "Quantizer",
                                       R"(Encodes a whole gradient in fewer bits.

name      of a quantizer: list_quantizers() has them all
seed      of the quantizer's random numbers. They follow from seed, rank, tensor name and step
rank      of this worker: workers with equal seeds and different ranks round independently
options   of the quantizer; unknown ones raise ConfigError

The error of encoding is lost; ErrorFeedback(quantizer) adds it to the next gradient instead, which
some quantizers need: descriptor["needs_feedback"].

An object may be used from several threads, one at a time; it works without the GIL.

>>> import numpy, sparfuse
>>> q = sparfuse.Quantizer("qsgd", seed=1, levels=127)
>>> g = numpy.random.default_rng(0).standard_normal((64, 32), dtype=numpy.float32)
>>> payload = q.encode(g, name="layer1.weight")
>>> g.nbytes, payload.nbytes
(8192, 2064)
>>> error = q.decode(payload, g.shape) - g
>>> bool((error**2).sum() <= q.error_bound(g.shape) * (g**2).sum())
True
)");
  BindQuantizerCoding(quantizer);
  BindQuantizerProperties(quantizer);
  module.def("list_quantizers", &ListQuantizers, R"(Every quantizer, as a list of dicts:

name            the name that Quantizer takes
paper           its source
deviations      differences from the paper; "" if none is known
revision        raised when results may change
unbiased        whether decoded values are right in expectation
needs_feedback  whether training does not converge without ErrorFeedback
options         as in list_sparsifiers

>>> import sparfuse
>>> for entry in sparfuse.list_quantizers():
...     if entry["name"] == "qsgd":
...         print(entry["paper"], [option["name"] for option in entry["options"]])
Alistarh et al., NeurIPS 2017 ['levels', 'bucket']
)");
}

}  // namespace sparfuse::python
