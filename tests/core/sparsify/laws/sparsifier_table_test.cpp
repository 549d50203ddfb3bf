// Checks that the table describes its sparsifiers completely, and promises no less than they do.
// sparsifier_conformance_test.cpp checks that they do no less than the table promises.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

TEST(SparsifierTable, NamesAreUnique) {
  std::vector<std::string> names;
  for (const auto& descriptor : Sparsifiers()) {
    names.emplace_back(descriptor.name);
    names.insert(names.end(), descriptor.aliases.begin(), descriptor.aliases.end());
  }
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST(SparsifierTable, DescribesEveryEntry) {
  for (const auto& descriptor : Sparsifiers()) {
    SCOPED_TRACE(descriptor.name);
    EXPECT_FALSE(descriptor.paper.empty());
    for (const OptionSpec& option : descriptor.options) {
      EXPECT_FALSE(option.meaning.empty()) << option.name;
    }
    if (descriptor.exact_count) {
      EXPECT_EQ(descriptor.selection_model.mean, 0);
      EXPECT_EQ(descriptor.selection_model.sigma, 0);
    } else {
      EXPECT_GT(descriptor.selection_model.sigma, 0);
    }
  }
}

TEST(SparsifierTable, SaysWhichSelectTheSameOnEveryRank) {
  constexpr std::size_t kN = 5000;
  for (const auto& descriptor : Sparsifiers()) {
    const auto sparsifier = MakeSparsifier(std::string(descriptor.name));
    Selection one(*sparsifier, kN, 0.01, 1, false);
    Selection other(*sparsifier, kN, 0.01, 1, false);
    const auto a = one.Run(MakeData("gaussian", kN, 1), 4).indices;
    const auto b = other.Run(MakeData("sparse", kN, 2), 4).indices;
    EXPECT_EQ(a == b, descriptor.index_shared) << descriptor.name;
  }
}

}  // namespace
}  // namespace sparfuse::testing
