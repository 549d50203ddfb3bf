// Binds transforms of floats for exchanges: DeMo's cosine transform and the lossless coding of
// exponents.

#include "baselines/demo/chunked_dct.hpp"
#include "core/base/error.hpp"
#include "core/coding/exponent_coding.hpp"
#include "core/payload/accumulate.hpp"
#include "harness/python/bindings/bound.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

TileRule ReadTiles(const std::string& tiles) {
  SPARFUSE_REQUIRE(tiles == "short" || tiles == "divisor",
                   "tiles = \"" + tiles + "\": expected \"short\" or \"divisor\"");
  return tiles == "short" ? TileRule::kShort : TileRule::kDivisor;
}

ChunkedDct MakeDct(std::span<const std::int64_t> shape, std::size_t n, std::int64_t tile,
                   const std::string& tiles) {
  constexpr auto kMost = static_cast<std::int64_t>(kMostOfTileSide);
  SPARFUSE_REQUIRE(tile >= 1 && tile <= kMost,
                   "tile = " + std::to_string(tile) + ": expected 1 to " + std::to_string(kMost));
  return {shape, n, static_cast<std::size_t>(tile), ReadTiles(tiles)};
}

void RequireFinite(std::span<const float> values, const std::string& what) {
  const std::size_t bad = FirstNotFinite(values);
  if (bad == values.size()) return;
  SPARFUSE_THROW(kNumeric, what + " has " + std::to_string(values[bad]) + " at element " +
                               std::to_string(bad) + ": expected finite values");
}

py::array Transform(const py::object& x, const Given<"tile", std::int64_t>& tile,
                    const Given<"tiles", std::string>& tiles) {
  const FloatArray values = ReadFloats(x, "x");
  const ChunkedDct dct = MakeDct(values.shape, values.values().size(), tile, tiles);
  ArrayMemory<float> coefficients(dct.elements());
  {
    const GilReleased no_gil;
    RequireFinite(values.values(), "x");
    dct.Forward(values.values(), coefficients.span());
  }
  return std::move(coefficients).Release();
}

py::array TransformBack(const py::object& coefficients, const py::object& extents,
                        const Given<"tile", std::int64_t>& tile,
                        const Given<"tiles", std::string>& tiles) {
  const FloatArray values = ReadFloats(coefficients, "coefficients");
  const std::vector<std::int64_t> shape = ReadShape(extents);
  SPARFUSE_REQUIRE(ElementCount(shape) == values.values().size(),
                   "coefficients has " + std::to_string(values.values().size()) +
                       " elements; expected the elements of shape " + ShapeText(shape));
  const ChunkedDct dct = MakeDct(shape, values.values().size(), tile, tiles);
  ArrayMemory<float> x(dct.elements());
  {
    const GilReleased no_gil;
    RequireFinite(values.values(), "coefficients");
    dct.Inverse(values.values(), x.span());
  }
  return std::move(x).Release(shape);
}

py::array Encode(const py::object& val) {
  const FloatArray values = ReadFloats(val, "val");
  ArrayMemory<std::uint8_t> bytes(ExponentBytesBound(values.values().size()));
  {
    const GilReleased no_gil;
    bytes.Shrink(EncodeExponents(values.values(), std::as_writable_bytes(bytes.span())));
  }
  return std::move(bytes).Release();
}

py::array Decode(const py::object& payload, const Given<"n", std::uint64_t>& n) {
  const ByteArray array = ReadBytes(payload, "payload");
  // Each value takes at least three bytes.
  SPARFUSE_REQUIRE(*n <= array.bytes().size() / 3, "n = " + std::to_string(*n) + ": a payload of " +
                                                       std::to_string(array.bytes().size()) +
                                                       " bytes has fewer values");
  ArrayMemory<float> values(*n);
  {
    const GilReleased no_gil;
    DecodeExponents(array.bytes(), values.span(), "payload");
  }
  return std::move(values).Release();
}

void BindExponents(py::module_& module) {
  module.def(
      "encode_exponents", &Encode, py::arg("val"),
      R"(Floats in fewer bytes, without loss, as a uint8 array, the payload of collective="exponent".

val   float32 array of any values: NaNs, infinities and -0 come back bit for bit

Exponents are coded by blocks of 1024 values. Of Gaussian values 27.3 bits are left of each 32.

>>> import numpy, sparfuse
>>> payload = sparfuse.encode_exponents(numpy.array([1, -1.5, 0.25, 3], dtype=numpy.float32))
>>> payload.tobytes().hex(" ")
'80 02 01 00 00 00 00 00 00 c0 00 00 00 00 00 40 35 7d 00 00'
>>> sparfuse.decode_exponents(payload, 4).tolist()
[1.0, -1.5, 0.25, 3.0]
)");
  module.def("decode_exponents", &Decode, py::arg("payload"), py::arg("n"),
             R"(The n floats that encode_exponents was given, bit for bit.

payload  uint8 array, or bytes

Any bytes are safe: bytes that encode_exponents cannot have written for n values raise ConfigError.

>>> import numpy, sparfuse
>>> g = numpy.random.default_rng(0).standard_normal(4096, dtype=numpy.float32)
>>> payload = sparfuse.encode_exponents(g)
>>> payload.nbytes < 0.86 * g.nbytes, bool((sparfuse.decode_exponents(payload, g.size) == g).all())
(True, True)
)");
}

void BindDct(py::module_& module) {
  module.def(
      "dct", &Transform, py::arg("x"), py::arg("tile") = 64, py::arg("tiles") = "short",
      R"(Cosine transforms of the tiles of an array, as DeMo makes them: a flat float32 array.

x      float32; of two dimensions and more a matrix of the first one times the rest
tile   side of a tile, at most 64; its number of elements if x has one dimension
tiles  "short": the last tile of a dimension is shorter; "divisor": all are of the largest size up to
       `tile` that divides it

The result has the coefficients of one tile after another: first the tiles of the first rows, from
left to right. In a tile of w columns, coefficient (k, l) is at k w + l. Transforms are orthonormal
(DCT-II), first of rows, then of columns.

>>> import numpy, sparfuse
>>> x = numpy.arange(1, 9, dtype=numpy.float32).reshape(2, 4)
>>> (sparfuse.dct(x, tile=2).round(5) + 0).tolist()
[7.0, -1.0, -4.0, 0.0, 11.0, -1.0, -4.0, 0.0]
)");
  module.def("idct", &TransformBack, py::arg("coefficients"), py::arg("shape"),
             py::arg("tile") = 64, py::arg("tiles") = "short",
             R"(The array of this shape that dct was given with the same tile and tiles.

>>> import numpy, sparfuse
>>> sparfuse.idct(numpy.array([2, 0, 0, 0], dtype=numpy.float32), 4).tolist()
[1.0, 1.0, 1.0, 1.0]
)");
}

}  // namespace

void BindTransforms(py::module_& module) {
  BindExponents(module);
  BindDct(module);
}

}  // namespace sparfuse::python
