// Feeds arbitrary text to the readers of other programs' link measurements, and to the search for
// imported blocks in a cluster's file.
#include <cmath>

#include "harness/clusters/imported/imported_links.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace sparfuse;
using namespace sparfuse::harness;

void Check(const LinkLog& log) {
  fuzz::Require(!log.samples.empty() && log.ranks > 0 && log.nodes > 0, "a log of something");
  double before = -1;
  for (const LinkSample& sample : log.samples) {
    fuzz::Require(sample.bytes > before && sample.seconds > 0, "sizes grow and take time");
    fuzz::Require(std::isfinite(log.BusBandwidth(sample)), "a bandwidth");
    before = sample.bytes;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::Text(data, size);
  for (const AskedOfLog& asked :
       {AskedOfLog{}, AskedOfLog{8, 2, LinkOperation::kAllReduce}, AskedOfLog{0, 1, {}}}) {
    fuzz::Accepts([&] { Check(ReadNcclTests(text, "fuzz.log", asked)); }, FailureKind::kConfig);
    fuzz::Accepts([&] { Check(ReadOsu(text, "fuzz.txt", asked)); }, FailureKind::kConfig);
  }
  LinkLog log;
  log.file = "run.log";
  log.program = "all_reduce_perf";
  log.ranks = 8;
  log.nodes = 2;
  log.samples = {{8, 1e-5}, {1e6, 1e-3}};
  const LinkLog* one[] = {&log};
  fuzz::Accepts(
      [&] {
        const std::string written = WithBlocks(std::string(text), "fuzz.toml", one);
        fuzz::Require(written.find(BlockOf(log)) != std::string::npos, "the block");
        fuzz::Require(WithBlocks(written, "fuzz.toml", one) == written, "once");
      },
      FailureKind::kConfig);
  return 0;
}
