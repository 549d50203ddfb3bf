// Tests the executable part of ADTopk's convergence proofs.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/adtopk/proofs/proofs.hpp"

namespace sparfuse {
namespace {

TEST(AdTopKProofs, EveryMeasuredConstantKeepsItsBound) {
  std::set<std::string> checks;
  for (const ProofRow& row : ProveAdTopK()) {
    const std::string what = row.check + " " + row.statement + " (" + row.source + ")";
    checks.insert(row.check);
    EXPECT_TRUE(std::isfinite(row.measured)) << what;
    switch (row.relation) {
      case Relation::kAtMost:
        EXPECT_LE(row.measured, row.bound) << what;
        break;
      case Relation::kEquals:
        EXPECT_EQ(row.measured, row.bound) << what;
        break;
      case Relation::kAbove:
        EXPECT_GT(row.measured, row.bound) << what;
        break;
    }
    EXPECT_TRUE(row.holds) << what;
  }
  EXPECT_EQ(checks,
            (std::set<std::string>{"C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10"}));
}

TEST(AdTopKProofs, AreDeterministic) {
  const auto once = ProveAdTopK();
  const auto again = ProveAdTopK();
  ASSERT_EQ(once.size(), again.size());
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(once[i].measured, again[i].measured) << once[i].statement;
  }
}

}  // namespace
}  // namespace sparfuse
