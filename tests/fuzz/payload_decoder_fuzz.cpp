// Feeds arbitrary bytes to the decoder of sparse payloads: the first four are the length of the
// range less one, the rest is the payload. An accepted payload must equal its encoder's output,
// byte for byte.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/coding/payload_coding.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using fuzz::Require;
  std::uint32_t last = 0;
  if (size < sizeof last) return 0;
  std::memcpy(&last, data, sizeof last);
  const std::size_t n = std::size_t{last} + 1;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(sizeof last);
  // Room for fewer elements than the longest payload of this size, so that this limit is tested,
  // too.
  std::vector<std::uint32_t> indices(size / 5);
  std::vector<float> values(size / 5);
  SparsePayload payload;
  if (!fuzz::Accepts([&] { payload = DecodePayload(bytes, n, indices, values); },
                     FailureKind::kComm)) {
    return 0;
  }
  Require(payload.indices.size() == payload.values.size(), "as many indices as values");
  for (std::size_t i = 0; i < payload.indices.size(); ++i) {
    Require(payload.indices[i] < n, "indices within the range");
    Require(i == 0 || payload.indices[i - 1] < payload.indices[i], "increasing indices");
  }
  const PayloadCoding coding = CodingOf(bytes);
  std::vector<std::byte> again(EncodedBytesBound(coding, payload.indices.size(), n));
  const std::size_t written = EncodePayload(coding, payload, n, again);
  Require(written == bytes.size(), "the encoding is as long");
  Require(std::memcmp(again.data(), bytes.data(), written) == 0, "the encoding is the same");
  return 0;
}
