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
    std::vector<float> residual(n, 0.0f);
    const int steps = n > 100'000 ? 5 : 25;
    for (int step = 0; step < steps; ++step) {
      const auto gradient = MakeData(data, n, static_cast<std::uint32_t>(step));
      std::vector<float> x(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = gradient[i] + residual[i];
      const auto s = static_cast<std::uint64_t>(step);
      const Selected by_hand = plain.Run(x, s);
      residual = x;
      for (const std::uint32_t i : by_hand.indices) residual[i] = 0.0f;

      const Selected selected = fused.Run(gradient, s);
      ASSERT_EQ(selected.indices, by_hand.indices) << data << " step " << step;
      ASSERT_EQ(Bits(selected.values), Bits(by_hand.values));
      ASSERT_EQ(Bits(fused.residual()), Bits(residual)) << data << " step " << step;
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

INSTANTIATE_TEST_SUITE_P(All, Feedback, ::testing::ValuesIn(Cases()), [](const auto& instance) {
  return CaseName(std::get<0>(instance.param) + "_" + IsaSuffix(std::get<1>(instance.param)) + "_" +
                  std::to_string(std::get<2>(instance.param)));
});

}  // namespace
}  // namespace sparfuse::testing
