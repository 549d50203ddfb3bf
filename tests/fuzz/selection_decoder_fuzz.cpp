// Feeds arbitrary bytes to the decoder of coded selections: the first two are the length of the
// range less one, the rest is the input. An accepted selection lies within the range and the bytes.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/coding/selection_coding.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using fuzz::Require;
  std::uint16_t last = 0;
  if (size < sizeof last) return 0;
  std::memcpy(&last, data, sizeof last);
  const std::size_t n = std::size_t{last} + 1;
  const auto given = std::as_bytes(std::span(data, size)).subspan(sizeof last);
  // A buffer of exactly this size, so that the address sanitizer sees reads past it.
  const std::vector<std::byte> bytes(given.begin(), given.end());
  constexpr std::size_t kRoom = 300;
  std::vector<std::uint32_t> indices(kRoom);
  std::vector<float> values(kRoom);
  static ThreadPool pool(1);
  static SelectionCoder coder;
  DecodedSelection decoded;
  if (!fuzz::Accepts([&] { decoded = coder.Decode(bytes, n, indices, values, pool); },
                     FailureKind::kComm)) {
    return 0;
  }
  const auto& [payload, used] = decoded;
  Require(used <= bytes.size(), "no more bytes than there are");
  Require(payload.indices.size() == payload.values.size(), "as many indices as values");
  Require(payload.indices.size() <= kRoom, "no more elements than there is room for");
  for (std::size_t i = 0; i < payload.indices.size(); ++i) {
    Require(payload.indices[i] < n, "indices within the range");
    Require(i == 0 || payload.indices[i - 1] < payload.indices[i], "increasing indices");
    Require(std::isfinite(payload.values[i]), "finite values");
  }
  // The result depends on the used bytes alone.
  std::vector<std::uint32_t> again_indices(kRoom);
  std::vector<float> again_values(kRoom);
  const auto again =
      SelectionCoder().Decode(std::span(bytes).first(used), n, again_indices, again_values, pool);
  Require(again.bytes == used && indices == again_indices &&
              std::memcmp(values.data(), again_values.data(), sizeof(float) * kRoom) == 0,
          "the same from its own bytes alone");
  return 0;
}
