// Tests error feedback over many steps: nothing is lost, nothing is rounded twice, and the fused
// form equals adding the residual by hand.
#include <gtest/gtest.h>

#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

class Feedback : public ::testing::TestWithParam<std::tuple<std::string, Isa, std::size_t>> {};

TEST_P(Feedback, EqualsAddingSelectingAndClearingByHand) {
  const auto& [name, isa, n] = GetParam();
  const ScopedIsa scope(isa);
  const auto sparsifier = MakeSparsifier(name);
  for (const char* data : {"gaussian", "layers", "sparse", "denormal"}) {
    Selection fused(*sparsifier, n, 0.02, 2, true);
    Selection plain(*sparsifier, n, 0.02, 1, false);
    const std::uint64_t steps = n > 100'000 ? 5 : 25;
    for (std::uint64_t step = 0; step < steps; ++step) {
      const auto gradient = MakeData(data, n, step);
      const std::vector<float> x = fused.WithResidual(gradient);
      const Selected by_hand = plain.Run(x, step);
      ASSERT_TRUE(Same(fused.Run(gradient, step), by_hand)) << data << " step " << step;
      ASSERT_EQ(Bits(fused.residual()), Bits(Unsent(x, by_hand))) << data << " step " << step;
    }
  }
}

// (name, instruction set, elements). Published forms share the kernels of the canonical ones, which
// are tested on large tensors.
std::vector<std::tuple<std::string, Isa, std::size_t>> Cases() {
  std::vector<std::tuple<std::string, Isa, std::size_t>> cases;
  for (const std::string& name : SparsifierNames()) {
    for (const Isa isa : SupportedIsas()) {
      for (const std::size_t n : {37u, 9001u, 400'003u}) {
        if (n > 100'000 && name.find('@') != std::string::npos) continue;
        cases.emplace_back(name, isa, n);
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Feedback, ::testing::ValuesIn(Cases()), NameOfTuple);

}  // namespace
}  // namespace sparfuse::testing
