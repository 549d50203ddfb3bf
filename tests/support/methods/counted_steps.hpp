// Compares the counts of a model's steps with the counts of live steps.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "core/engine/model/model_engine.hpp"
#include "core/engine/timeline.hpp"

namespace sparfuse::testing {

inline void ExpectSameCounts(const StepRecord& modelled, const StepRecord& counted) {
  EXPECT_EQ(modelled.exchanges, counted.exchanges);
  EXPECT_EQ(modelled.messages_sent, counted.messages_sent);
  EXPECT_EQ(modelled.sent_bytes, counted.sent_bytes);
  EXPECT_EQ(modelled.received_bytes, counted.received_bytes);
  EXPECT_EQ(modelled.payload_bytes, counted.payload_bytes);
  EXPECT_EQ(modelled.selected, counted.selected);
}

// live: [ranks], each with its records: [steps].
template <class Ranks>
void ExpectSameCounts(const std::vector<ModelStep>& steps, const Ranks& live) {
  for (std::size_t s = 0; s < steps.size(); ++s) {
    for (std::size_t r = 0; r < live.size(); ++r) {
      SCOPED_TRACE(::testing::Message() << "step " << s << ", rank " << r);
      ExpectSameCounts(steps[s].records[r], live[r].records[s]);
    }
  }
}

}  // namespace sparfuse::testing
