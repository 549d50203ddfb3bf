// Binds functions for sparse payloads: decompress, encode_payload and decode_payload.
#include <algorithm>
#include <optional>

#include "core/base/error.hpp"
#include "core/coding/chunk_coding.hpp"
#include "core/coding/payload_coding.hpp"
#include "core/coding/selection_coding.hpp"
#include "core/payload/accumulate.hpp"
#include "harness/python/bindings/bound.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

// Reads the coding of chunks, which payloads do not name.
PayloadCoding ReadChunks(const std::string& values, std::int64_t chunk, double density,
                         const std::string& scope) {
  SPARFUSE_REQUIRE(scope == "tensor" || scope == "chunk",
                   "scope = \"" + scope + "\": expected \"tensor\" or \"chunk\"");
  SPARFUSE_REQUIRE(scope == "tensor" || values == "codes4",
                   "scope = \"chunk\" with values = \"" + values + "\": expected \"codes4\"");
  SPARFUSE_REQUIRE(values == "f16" || values == "f32" || values == "codes4",
                   "values = \"" + values +
                       "\" with indices = \"u12\": expected \"f16\", \"f32\" or \"codes4\"");
  constexpr auto kMost = static_cast<std::int64_t>(kMostOfChunk);
  SPARFUSE_REQUIRE(chunk >= 1 && chunk <= kMost,
                   "chunk = " + std::to_string(chunk) + ": expected 1 to " + std::to_string(kMost));
  SPARFUSE_REQUIRE(density >= 0 && density <= 1,
                   "density = " + std::to_string(density) + ": expected 0 to 1");
  PayloadCoding coding{values == "codes4" ? ValueCoding::kCodes4 : ReadValueCoding(values),
                       IndexCoding::kU12};
  coding.chunk = static_cast<std::uint32_t>(chunk);
  coding.density = density;
  coding.codes_by_chunk = scope == "chunk";
  return coding;
}

PayloadCoding ReadCoding(const std::string& values, const std::string& indices,
                         const std::string& policy, double fpr) {
  SPARFUSE_REQUIRE(values != "codes4",
                   "values = \"codes4\" with indices = \"" + indices + "\": expected \"u12\"");
  SPARFUSE_REQUIRE(
      values == "f16" || values == "f32" || values == "fitted",
      "values = \"" + values + "\": expected \"f16\", \"f32\", \"fitted\" or \"codes4\"");
  SPARFUSE_REQUIRE(
      indices == "delta" || indices == "u32" || indices == "bloom",
      "indices = \"" + indices + "\": expected \"delta\", \"u32\", \"bloom\" or \"u12\"");
  SPARFUSE_REQUIRE(policy == "leftmost" || policy == "random" || policy == "p0",
                   "policy = \"" + policy + "\": expected \"leftmost\", \"random\" or \"p0\"");
  SPARFUSE_REQUIRE(fpr >= 0 && fpr <= 0.5, "fpr = " + std::to_string(fpr) + ": expected 0 to 0.5");
  SPARFUSE_REQUIRE(values != "fitted" || indices != "delta",
                   "values = \"fitted\" with indices = \"delta\": expected \"u32\" or \"bloom\"");
  SPARFUSE_REQUIRE(indices == "bloom" || (policy == "leftmost" && fpr == 0),
                   "policy and fpr need indices = \"bloom\", but indices = \"" + indices + "\"");
  return {values == "fitted" ? ValueCoding::kFitted : ReadValueCoding(values),
          indices == "bloom"   ? IndexCoding::kBloom
          : indices == "delta" ? IndexCoding::kDelta
                               : IndexCoding::kU32,
          policy == "p0"       ? BloomPolicy::kAll
          : policy == "random" ? BloomPolicy::kRandom
                               : BloomPolicy::kLeftmost,
          fpr};
}

void RequireElements(std::uint64_t n) {
  SPARFUSE_REQUIRE(n >= 1 && n <= (std::uint64_t{1} << 32),
                   "n = " + std::to_string(n) + ": expected 1 to 2^32 elements");
}

void RequireFinite(std::span<const float> values) {
  const std::size_t bad = FirstNotFinite(values);
  if (bad == values.size()) return;
  SPARFUSE_THROW(kNumeric, "val[" + std::to_string(bad) + "] = " + std::to_string(values[bad]) +
                               ": expected finite values");
}

// Encodes a copy of the selection, which coding revises. It has as much room as an engine's slot.
ArrayMemory<std::uint8_t> EncodeSelection(const PayloadCoding& coding, const SparsePayload& payload,
                                          std::size_t n, std::span<float> residual) {
  const std::size_t count = payload.indices.size();
  const std::size_t capacity = std::min(n, std::max(4 * count, count + 1024));
  std::vector<std::uint32_t> indices(capacity);
  std::vector<float> values(capacity);
  std::ranges::copy(payload.indices, indices.begin());
  std::ranges::copy(payload.values, values.begin());
  Slot slot{{indices.data(), capacity, {}}, {values.data(), capacity, {}}, capacity, count};
  ArrayMemory<std::uint8_t> bytes(SelectionBytesBound(coding, capacity, n));
  bytes.Shrink(SelectionCoder().Encode(coding, residual, residual, slot,
                                       std::as_writable_bytes(bytes.span()), *ModulePool()));
  return bytes;
}

// Throws Error{kConfig} if a chunk's number of elements does not match the density.
void RequireCountsOfChunks(const PayloadCoding& coding, const SparsePayload& payload,
                           std::size_t n) {
  if (coding.density == 0) return;
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < n; begin += coding.chunk) {
    const std::size_t end = std::min<std::size_t>(n, begin + coding.chunk);
    const std::size_t expected = KeptCount(end - begin, coding.density);
    std::size_t count = 0;
    for (; at < payload.indices.size() && payload.indices[at] < end; ++at) ++count;
    SPARFUSE_REQUIRE(count == expected, "idx has " + std::to_string(count) + " elements in [" +
                                            std::to_string(begin) + ", " + std::to_string(end) +
                                            "): expected " + std::to_string(expected) +
                                            " for density = " + std::to_string(coding.density));
  }
}

ArrayMemory<std::uint8_t> EncodeInChunks(const PayloadCoding& coding, const SparsePayload& payload,
                                         std::size_t n, std::span<float> residual) {
  RequireCountsOfChunks(coding, payload, n);
  std::vector<float> values(payload.values.begin(), payload.values.end());
  ArrayMemory<std::uint8_t> bytes(ChunkCodedBytes(coding, values.size(), n));
  EncodeChunks(coding, payload.indices, values, residual, n, std::as_writable_bytes(bytes.span()));
  return bytes;
}

py::array EncodeArrays(const py::object& idx, const py::object& val,
                       const Given<"n", std::uint64_t>& elements,
                       const Given<"values", std::string>& values,
                       const Given<"indices", std::string>& indices, const py::object& residual,
                       const Given<"policy", std::string>& policy, const Given<"fpr", double>& fpr,
                       const Given<"chunk", std::int64_t>& chunk,
                       const Given<"density", double>& density,
                       const Given<"scope", std::string>& scope) {
  const std::uint64_t n = elements;
  const bool chunks = *indices == "u12";
  SPARFUSE_REQUIRE(chunks || (density == 0 && *scope == "tensor"),
                   "density and scope need indices = \"u12\", but indices = \"" + *indices + "\"");
  SPARFUSE_REQUIRE(!chunks || (*policy == "leftmost" && *fpr == 0),
                   "policy and fpr need indices = \"bloom\", but indices = \"u12\"");
  const PayloadCoding coding =
      chunks ? ReadChunks(values, chunk, density, scope) : ReadCoding(values, indices, policy, fpr);
  RequireElements(n);
  const py::array_t<std::uint32_t> index_array = ReadIndices(idx, n, "idx");
  const FloatArray value_array = ReadFloats(val, "val");
  SparsePayload payload{ViewOf(index_array), value_array.values()};
  SPARFUSE_REQUIRE(payload.indices.size() == payload.values.size(),
                   "idx has " + std::to_string(payload.indices.size()) + " elements and val " +
                       std::to_string(payload.values.size()));
  std::span<float> kept;
  py::array residual_array;
  if (!residual.is_none()) {
    residual_array = ViewArray(residual, "residual");
    kept = WritableFloats(residual_array, "residual");
    SPARFUSE_REQUIRE(kept.size() == n, "residual has " + std::to_string(kept.size()) +
                                           " elements; expected n = " + std::to_string(n));
    RequireApart("residual", std::as_bytes(kept), "idx", std::as_bytes(payload.indices));
    RequireApart("residual", std::as_bytes(kept), "val", std::as_bytes(payload.values));
  }
  SPARFUSE_REQUIRE(
      chunks || !coding.of_selections() || !kept.empty(),
      "values = \"" + *values + "\", indices = \"" + *indices +
          "\": the payload is another selection, from val and residual; expected residual");
  return [&] {
    const GilReleased no_gil;
    CheckIndices(payload.indices, n, "idx");
    RequireFinite(payload.values);
    if (chunks) return EncodeInChunks(coding, payload, n, kept);
    if (coding.of_selections()) return EncodeSelection(coding, payload, n, kept);
    std::vector<float> rounded;
    if (!kept.empty() && coding.values != ValueCoding::kF32) {
      rounded.assign(payload.values.begin(), payload.values.end());
      RoundToCoding(coding, payload.indices, rounded, kept);
      payload.values = rounded;
    }
    ArrayMemory<std::uint8_t> bytes(EncodedBytesBound(coding, payload.values.size(), n));
    bytes.Shrink(EncodePayload(coding, payload, n, std::as_writable_bytes(bytes.span())));
    return bytes;
  }()
             .Release();
}

py::tuple DecodeChunkArrays(const PayloadCoding& coding, std::span<const std::byte> payload,
                            std::size_t n) {
  const std::size_t most = std::min(n, payload.size());  // an element has at least 12 bits
  ArrayMemory<std::uint32_t> indices(most);
  ArrayMemory<float> values(most);
  {
    const GilReleased no_gil;
    const auto [decoded, bytes] = DecodeChunks(coding, payload, n, indices.span(), values.span());
    if (bytes != payload.size()) {
      MalformedPayload(std::to_string(payload.size()) + " bytes; expected " +
                       std::to_string(bytes));
    }
    indices.Shrink(decoded.indices.size());
    values.Shrink(decoded.indices.size());
  }
  return py::make_tuple(std::move(indices).Release(), std::move(values).Release());
}

py::tuple DecodeArrays(const py::object& payload, const Given<"n", std::uint64_t>& elements,
                       const Given<"values", std::optional<std::string>>& values_given,
                       const Given<"indices", std::optional<std::string>>& indices_given,
                       const Given<"chunk", std::int64_t>& chunk,
                       const Given<"density", double>& density,
                       const Given<"scope", std::string>& scope) {
  const std::uint64_t n = elements;
  RequireElements(n);
  const ByteArray array = ReadBytes(payload, "payload");
  const std::optional<std::string>& given = indices_given;
  const std::optional<std::string>& values_as = values_given;
  SPARFUSE_REQUIRE(!given || *given == "u12", "indices = \"" + given.value_or("") +
                                                  "\": expected \"u12\", or nothing: other "
                                                  "payloads say how they were encoded");
  SPARFUSE_REQUIRE(given || (!values_as && density == 0 && *scope == "tensor"),
                   "values, density and scope need indices = \"u12\"");
  if (given) {
    return DecodeChunkArrays(ReadChunks(values_as.value_or("codes4"), chunk, density, scope),
                             array.bytes(), n);
  }
  const PayloadHeader header =
      ReadHeader(array.bytes(), kFlagF16 | kFlagDelta | kFlagFitted | kFlagBloom | kFlagPermuted);
  const bool of_selection = (header.flags & (kFlagFitted | kFlagBloom)) != 0;
  // An element takes at least four bytes, unless the payload is coded as a selection.
  const std::size_t most =
      std::min<std::size_t>(n, of_selection ? std::size_t{header.count} : array.bytes().size() / 4);
  ArrayMemory<std::uint32_t> indices(most);
  ArrayMemory<float> values(most);
  {
    const GilReleased no_gil;
    std::size_t count = 0;
    if (of_selection) {
      const auto [decoded, bytes] =
          SelectionCoder().Decode(array.bytes(), n, indices.span(), values.span(), *ModulePool());
      if (bytes != array.bytes().size()) {
        MalformedPayload(std::to_string(array.bytes().size()) + " bytes; expected " +
                         std::to_string(bytes));
      }
      count = decoded.indices.size();
    } else {
      count = DecodePayload(array.bytes(), n, indices.span(), values.span()).indices.size();
    }
    indices.Shrink(count);
    values.Shrink(count);
  }
  return py::make_tuple(std::move(indices).Release(), std::move(values).Release());
}

py::object Decompress(const py::object& given, const py::object& shape,
                      const Given<"average", bool>& average, const py::object& out) {
  if (!py::isinstance<py::sequence>(given))
    RefuseArgument(given, "payloads", "a list of (indices, values)");
  const auto payloads = py::reinterpret_borrow<py::sequence>(given);
  const std::vector<std::int64_t> extents = ReadShape(shape);
  const std::size_t n = ElementCount(extents);
  SPARFUSE_REQUIRE(n < (std::uint64_t{1} << 32),
                   "decompress: the shape has " + std::to_string(n) +
                       " elements; indices are 32 bits, expected below 2^32");
  SPARFUSE_REQUIRE(py::len(payloads) > 0, "decompress: no payloads; expected at least one");

  std::vector<py::array_t<std::uint32_t>> indices;
  std::vector<FloatArray> values;
  std::vector<SparsePayload> views;
  for (std::size_t p = 0; p < py::len(payloads); ++p) {
    const std::string what = "payloads[" + std::to_string(p) + "]";
    const py::object pair = payloads[p];
    if (!py::isinstance<py::sequence>(pair) || py::len(pair) != 2) {
      throw py::type_error(what + " is a " + TypeText(pair) + "; expected (indices, values)");
    }
    indices.push_back(ReadIndices(pair[py::int_(0)], n, what + "[0]"));
    values.push_back(ReadFloats(pair[py::int_(1)], what + "[1]"));
    views.push_back({ViewOf(indices.back()), values.back().values()});
    SPARFUSE_REQUIRE(views.back().indices.size() == views.back().values.size(),
                     what + " has " + std::to_string(views.back().indices.size()) +
                         " indices and " + std::to_string(views.back().values.size()) + " values");
  }

  const DenseResult result = MakeDense(out, extents);
  for (std::size_t p = 0; p < views.size(); ++p) {
    const std::string what = "payloads[" + std::to_string(p) + "]";
    const std::span<const std::byte> written = std::as_bytes(result.values);
    RequireApart("out", written, what + "[0]", std::as_bytes(views[p].indices));
    RequireApart("out", written, what + "[1]", std::as_bytes(views[p].values));
  }
  {
    const GilReleased no_gil;
    for (std::size_t p = 0; p < views.size(); ++p) {
      CheckIndices(views[p].indices, n, "payloads[" + std::to_string(p) + "][0]");
    }
    const float scale = average ? 1.0f / static_cast<float>(views.size()) : 1.0f;
    if (!AccumulateSparse(views, scale, result.values, *ModulePool())) {
      const std::size_t bad = FirstNotFinite(result.values);
      SPARFUSE_THROW(kNumeric, "decompress: element " + std::to_string(bad) + " of the sum is " +
                                   std::to_string(result.values[bad]) +
                                   "; expected finite values, and a sum that float32 holds");
    }
  }
  return result.object;
}

void BindDecompress(py::module_& module) {
  module.def("decompress", &Decompress, py::arg("payloads"), py::arg("shape"),
             py::arg("average") = true, py::kw_only(), py::arg("out") = py::none(),
             R"(The sum of sparse payloads as a dense float32 array; by default their average.

payloads  a sequence of (indices, values), one for each worker, as select and step return them:
          increasing indices (uint32; int32 and int64 are converted), float32 values. They are
          added in the order given, so that equal payloads give equal bits on every worker.
shape     of the result: an integer, or integers; the product is above every index
average   divide by the number of payloads
out       memory to reuse: a float32 array of that shape in row-major order, overwritten whole and
          returned. It may be a torch.Tensor, say a parameter's gradient, and no memory of payloads.

Raises ConfigError that names payload and position if indices are not increasing or not in the
shape, before anything is written; NumericError if a sum is not finite.

>>> import numpy, sparfuse
>>> a = (numpy.array([0, 2], dtype=numpy.uint32), numpy.array([1, 5], dtype=numpy.float32))
>>> b = (numpy.array([2], dtype=numpy.uint32), numpy.array([3], dtype=numpy.float32))
>>> sparfuse.decompress([a, b], (2, 2)).tolist()
[[0.5, 0.0], [4.0, 0.0]]
>>> out = numpy.empty(4, dtype=numpy.float32)
>>> sparfuse.decompress([a, b], 4, average=False, out=out) is out
True
>>> out.tolist()
[1.0, 0.0, 8.0, 0.0]
>>> sparfuse.decompress([a, b], 2)
Traceback (most recent call last):
    ...
sparfuse.ConfigError: payloads[0][0][1] = 2: expected indices in [0, 2)
)");
}

void BindCodings(py::module_& module) {
  module.def("encode_payload", &EncodeArrays, py::arg("idx"), py::arg("val"), py::arg("n"),
             py::arg("values") = "f16", py::arg("indices") = "delta", py::kw_only(),
             py::arg("residual") = py::none(), py::arg("policy") = "leftmost", py::arg("fpr") = 0.0,
             py::arg("chunk") = 4096, py::arg("density") = 0.0, py::arg("scope") = "tensor",
             R"(A sparse payload in fewer bytes, as a uint8 array: half of them by default.

idx, val  as Sparsifier.select and ErrorFeedback.step return them; not modified
n         elements of the array that was selected from
values    "f16": rounded to half precision, 65504 at most; "f32": as they are; "fitted": DeepReduce's
          polynomials of the sorted values, not with "delta"; "codes4", with "u12": SparseLoCo's
          two bits each, and the four levels that they stand for
indices   "delta": gaps, two bytes each below 65535, else six; "u32": four bytes each; "bloom":
          DeepReduce's Bloom filter, which also has some of the other indices; "u12": 12 bits each,
          within chunks
residual  float32 array of n elements, in row-major order: the rounding error of val is added to
          it in place, at idx. Without residual the error is lost, unless val came from
          ErrorFeedback(..., values="f16"), which rounds by itself and keeps the rest: do not pass
          its residual(), which is a copy. Needed with "fitted" and "bloom", which send another
          selection than idx and val: elements that leave idx go to residual, elements that enter
          come from there. decode_payload returns the elements sent. Arrays of up to 1000 are coded
          as "u32" beside "f16" or "f32"
policy    with "bloom", which of the filter's indices are sent: the "leftmost" or the first of a
          "random" but fixed permutation, as many as idx has, or all of them, "p0"
fpr       with "bloom", the fraction of the other indices that the filter has, at most 0.5; 0: a
          tenth of len(idx) / n
chunk     with "u12", elements of a chunk, at most 4096
density   with "u12", says that idx has max(1, int(density * m)) of each chunk of m elements: counts
          are then not sent. 0: counts are sent, two bytes each
scope     with "codes4": four levels for the whole "tensor", or for each "chunk"

The bytes say where they end and, except with "u12", how they were encoded. Raises ConfigError if
idx is not increasing or not below n, NumericError for a NaN or an infinity in val.

>>> import numpy, sparfuse
>>> g = numpy.array([0, 2049, 0, -3], dtype=numpy.float32)
>>> idx, val = sparfuse.Sparsifier("topk", density=0.5).select(g)
>>> residual = g.copy()
>>> residual[idx] = 0
>>> payload = sparfuse.encode_payload(idx, val, g.size, residual=residual)
>>> payload.nbytes, sparfuse.decode_payload(payload, g.size)[1].tolist(), residual.tolist()
(16, [2048.0, -3.0], [0.0, 1.0, 0.0, 0.0])
>>> g = numpy.arange(2000, dtype=numpy.float32)
>>> idx, val = sparfuse.Sparsifier("topk", density=0.01).select(g)
>>> residual = g.copy()
>>> residual[idx] = 0
>>> payload = sparfuse.encode_payload(idx, val, g.size, "f32", "bloom", residual=residual)
>>> sent, values = sparfuse.decode_payload(payload, g.size)
>>> payload.nbytes, len(sent), bool((values == g[sent]).all()), float(residual[sent].sum())
(132, 20, True, 0.0)
>>> idx, val = numpy.arange(6), numpy.array([4, -3, 2.5, -1, 0.5, -0.25], dtype=numpy.float32)
>>> payload = sparfuse.encode_payload(idx, val, 6, "codes4", "u12", density=1)
>>> payload.nbytes, sparfuse.decode_payload(payload, 6, indices="u12", density=1)[1].tolist()
(28, [3.25, -3.0, 3.25, -0.25, -0.25, -0.25])
)");
  module.def("decode_payload", &DecodeArrays, py::arg("payload"), py::arg("n"), py::kw_only(),
             py::arg("values") = py::none(), py::arg("indices") = py::none(),
             py::arg("chunk") = 4096, py::arg("density") = 0.0, py::arg("scope") = "tensor",
             R"((indices, values) of a payload of encode_payload, as decompress takes them.

payload  uint8 array, or bytes, in any coding
n        elements of the array that was selected from
values, indices, chunk, density, scope
         for a payload with indices = "u12", which does not say so by itself: as given to
         encode_payload; values "codes4" unless given

Any bytes are safe: bytes that encode_payload cannot have written raise ConfigError, which says what
is wrong and where.

>>> import numpy, sparfuse
>>> idx, val = numpy.array([3, 9], dtype=numpy.uint32), numpy.array([1, -2], dtype=numpy.float32)
>>> payload = sparfuse.encode_payload(idx, val, 10)
>>> sparfuse.decompress([sparfuse.decode_payload(payload, 10)], 10).tolist()
[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, -2.0]
>>> sparfuse.decode_payload(payload, 9)
Traceback (most recent call last):
    ...
sparfuse.ConfigError: malformed sparse payload: the last index is 9; expected one below 9
)");
}

}  // namespace

ValueCoding ReadValueCoding(const std::string& values) {
  SPARFUSE_REQUIRE(values == "f16" || values == "f32",
                   "values = \"" + values + "\": expected \"f16\" or \"f32\"");
  return values == "f16" ? ValueCoding::kF16 : ValueCoding::kF32;
}

void BindPayloads(py::module_& module) {
  BindDecompress(module);
  BindCodings(module);
}

}  // namespace sparfuse::python
