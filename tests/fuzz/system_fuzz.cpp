// Feeds arbitrary text to the reader of systems' files, and an accepted system's nodes back to it.
#include "harness/systems/system_file.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using namespace sparfuse::harness;
  const auto read = [&] {
    const SystemDescription system(TomlFile::Parse(fuzz::Text(data, size), "fuzz.toml"));
    for (const Node& node : system.nodes()) {
      fuzz::Require(system.Find(node) >= 0, "a node that is none of its system");
      fuzz::Require(system.ContradictionsWith(node).empty(), "a node that contradicts itself");
    }
    for (const SystemProblem& problem : system.Contradictions())
      fuzz::Require(!TextOf(problem).empty(), "a problem without a word");
    if (!system.Contradictions().empty()) return;
    fuzz::Require(system.Hash().size() == 64, "a hash");
    fuzz::Require(!system.Summary().empty(), "a summary");
  };
  fuzz::Accepts(read, FailureKind::kConfig);
  return 0;
}
