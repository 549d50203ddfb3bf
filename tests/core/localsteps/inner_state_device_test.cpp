// Tests that inner optimizers' states on a device become those of the host, bit for bit.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/devices/devices.hpp"
#include "tests/support/methods/inner_states.hpp"

namespace sparfuse::testing {
namespace {

class InnerStatesOnDevices : public ::testing::TestWithParam<std::tuple<InnerCase, DeviceKind>> {};

TEST_P(InnerStatesOnDevices, AreThoseOfTheHost) {
  const auto& [which, kind] = GetParam();
  const std::string why = WhyNotOn(kind);
  if (!why.empty()) GTEST_SKIP() << why;
  const auto expected = Train(InnerWindows(which, 2));
  const auto found = Train(InnerWindows(which, 2, {kind, 0}));
  for (std::size_t r = 0; r < expected.size(); ++r) {
    EXPECT_EQ(found[r].parameters, expected[r].parameters);
    EXPECT_EQ(found[r].inner, expected[r].inner);
    EXPECT_EQ(found[r].renewed, expected[r].renewed);
    EXPECT_EQ(found[r].memory, expected[r].memory);
    for (std::size_t t = 0; t < expected[r].records.size(); ++t)
      EXPECT_EQ(found[r].records[t].sent_bytes, expected[r].records[t].sent_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(All, InnerStatesOnDevices,
                         ::testing::Combine(::testing::ValuesIn(InnerCases()), TheDevices()),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param).name) +
                                  (std::get<1>(instance.param) == DeviceKind::kCuda ? "_cuda" : "");
                         });

}  // namespace
}  // namespace sparfuse::testing
