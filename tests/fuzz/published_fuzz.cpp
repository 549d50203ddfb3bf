// Feeds arbitrary text to the reader of published numbers.
#include "harness/published/published.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  fuzz::Accepts(
      [&] {
        for (const auto& row : harness::ParsePublished(fuzz::Text(data, size), "fuzz.csv"))
          fuzz::Require(!row.stated.empty(), "a row has a value");
      },
      FailureKind::kConfig);
  return 0;
}
