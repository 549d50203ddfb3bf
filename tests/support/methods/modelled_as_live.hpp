// Compares modelled steps of a method with live steps: bytes, messages, counts and times.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/engine/model/model_engine.hpp"
#include "tests/support/methods/configured_method.hpp"

namespace sparfuse::harness {

inline ModelConfig Modelled(const CellConfig& config, const Composition& composition,
                            const std::vector<TensorShape>& tensors, const Topology& topology) {
  ModelConfig model;
  model.layout = MakeLayout(tensors, config);
  model.topology = topology;
  model.cost = CostOf(config);
  model.backward = testing::EvenBackward(tensors.size());
  model.plan = MakePlan(composition, model.layout, model.topology, &model.backward, &model.cost);
  model.make_strategy = [composition] { return composition.MakeStrategy(); };
  if (composition.sparsifier != nullptr) {
    model.sparsifier = composition.sparsifier->name;
    model.selector = composition.MakeSparsifier(0);
  }
  model.dense_quantizer = composition.MakeDenseQuantizer(0);
  model.dense_collective = composition.dense_collective;
  model.sparse_collective = composition.sparse_collective;
  model.coding = composition.coding;
  return model;
}

// Ranks that follow rank 0 must have the times and counts of their own simulation. If a run records
// times alone, these must be equal too.
inline void ExpectFollowersAsSimulated(const ModelConfig& model) {
  const int ranks = model.topology.ranks;
  const ModelStep all = SimulateStep(model, 3, ranks);
  const ModelStep first = SimulateStep(model, 3, 0);
  ASSERT_EQ(first.records.size(), all.records.size());
  for (std::size_t r = 0; r < all.records.size(); ++r) {
    EXPECT_EQ(first.records[r].step_seconds, all.records[r].step_seconds) << r;
    EXPECT_EQ(first.records[r].exposed_communication_seconds,
              all.records[r].exposed_communication_seconds)
        << r;
    EXPECT_EQ(first.records[r].payload_bytes, all.records[r].payload_bytes) << r;
    EXPECT_EQ(first.records[r].selected, all.records[r].selected) << r;
    EXPECT_EQ(first.records[r].summed, all.records[r].summed) << r;
    EXPECT_EQ(first.records[r].sent_bytes, all.records[r].sent_bytes) << r;
    EXPECT_EQ(first.records[r].received_bytes, all.records[r].received_bytes) << r;
    EXPECT_EQ(first.records[r].messages_sent, all.records[r].messages_sent) << r;
    EXPECT_EQ(first.records[r].exchanges, all.records[r].exchanges) << r;
    EXPECT_EQ(first.records[r].served, all.records[r].served) << r;
  }
  const ModelStep times = SimulateStep(model, 3, 0, Recorded::kTimes);
  EXPECT_EQ(times.wire_seconds, first.wire_seconds);
  for (std::size_t r = 0; r < times.records.size(); ++r) {
    for (double StepRecord::*seconds :
         {&StepRecord::step_seconds, &StepRecord::forward_seconds, &StepRecord::backward_seconds,
          &StepRecord::sparsify_seconds, &StepRecord::exposed_communication_seconds,
          &StepRecord::decompress_seconds, &StepRecord::update_seconds}) {
      EXPECT_EQ(times.records[r].*seconds, first.records[r].*seconds) << r;
    }
  }
}

inline void ExpectModelledAsLive(const Method& method, const CellConfig& config,
                                 const Topology& topology) {
  const auto live = RunLive(config, topology, testing::IntegerGradient);
  const Composition composition = Compose(config);
  ModelConfig model = Modelled(config, composition, Tensors(), topology);
  const ModelStep modelled = SimulateStep(model, 0, topology.ranks);
  for (const double sigma : {0.0, 0.2}) {
    model.selection.sigma = sigma;
    ExpectFollowersAsSimulated(model);
  }
  // Sizes that depend on values are given as expected sizes.
  ExchangeSizes sizes{{1000, 10, 0}, std::vector<std::uint64_t>(4, 80), {}};
  composition.sparse_collective->Expect({}, {4, 1}, sizes);
  const bool known = sizes.seen.empty();
  for (std::size_t r = 0; r < live.size(); ++r) {
    const StepRecord& expected = live[r].records.back();
    const StepRecord& record = modelled.records[r];
    EXPECT_EQ(record.payload_bytes, expected.payload_bytes);
    EXPECT_EQ(record.selected, expected.selected);
    if (method.name != "horovod-fusion") {  // the cycle's time decides how much it fuses
      EXPECT_EQ(record.exchanges, expected.exchanges);
    }
    if (method.name != "horovod-fusion" && known) {
      EXPECT_EQ(record.messages_sent, expected.messages_sent);
      EXPECT_EQ(record.sent_bytes, expected.sent_bytes);
      EXPECT_EQ(record.received_bytes, expected.received_bytes);
    }
    EXPECT_GE(record.step_seconds,
              0.01 + 0.001 * static_cast<double>(testing::kTensorSizes.size()));
    const double parts = record.forward_seconds + record.backward_seconds +
                         record.sparsify_seconds + record.exposed_communication_seconds +
                         record.decompress_seconds + record.update_seconds;
    EXPECT_NEAR(parts, record.step_seconds, 1e-9);  // the compute lane is always in one
  }
}

}  // namespace sparfuse::harness
