// Tests PowerSGD as a collective against its steps taken by hand, and what it sends.
#include <gtest/gtest.h>

#include <random>

#include "baselines/powersgd/powersgd.hpp"
#include "baselines/registry.hpp"
#include "core/payload/accumulate.hpp"
#include "tests/support/exchanges.hpp"

namespace sparfuse::testing {
namespace {

constexpr int kRank = 2;
const std::vector<std::int64_t> kWide = {8, 30};
const std::vector<std::int64_t> kVector = {5};
const std::vector<std::int64_t> kKernel = {20, 3, 4};

// Three tensors: 240, 5 and 240 elements.
std::vector<ExchangedTensor> Tensors() {
  return {{3, 0, 240, kWide}, {4, 240, 5, kVector}, {5, 245, 240, kKernel}};
}

Sent Accumulated(std::size_t ranks, unsigned seed) {
  Sent sent{"made up", 485, 485, std::vector<SparseVector>(ranks)};
  sent.tensors = Tensors();
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (std::size_t r = 0; r < ranks; ++r) {
    sent.accumulated.emplace_back(sent.elements);
    for (float& value : sent.accumulated.back()) value = normal(random);
  }
  return sent;
}

std::unique_ptr<Collective> Factors() {
  return MakeCollective(FindCollective("powersgd-factors"), {{"rank", std::int64_t{kRank}}});
}

// One matrix on several ranks: what is applied of it, a rank's share.
class ByHand {
 public:
  ByHand(const ExchangedTensor& tensor, std::size_t ranks) : tensor_(tensor) {
    for (std::size_t r = 0; r < ranks; ++r) matrices_.emplace_back(tensor.shape, kRank, 1);
  }
  std::vector<float> Step(const Sent& sent, std::uint64_t step) {
    TensorInfo info;
    info.id = tensor_.id;
    info.shape = tensor_.shape;
    info.step = step;
    ForEach(sent,
            [&](PowerSgd& matrix, const SelectSource& x) { matrix.ComputeP(context_, x, info); });
    Average([](PowerSgd& matrix) { return matrix.p(); });
    ForEach(sent, [&](PowerSgd& matrix, const SelectSource& x) {
      matrix.Orthonormalize();
      matrix.ComputeQ(context_, x);
    });
    Average([](PowerSgd& matrix) { return matrix.q(); });
    std::vector<float> out(tensor_.numel);
    ForEach(sent,
            [&](PowerSgd& matrix, const SelectSource& x) { matrix.Reconstruct(context_, x, out); });
    return out;
  }

 private:
  template <class Body>
  void ForEach(const Sent& sent, const Body& body) {
    for (std::size_t r = 0; r < matrices_.size(); ++r) {
      body(matrices_[r],
           SelectSource{{sent.accumulated[r].data() + tensor_.begin, tensor_.numel, {}}, {}});
    }
  }
  template <class Factor>
  void Average(const Factor& of) {
    const std::size_t n = of(matrices_[0]).size();
    for (std::size_t i = 0; i < n; ++i) {
      float sum = 0;
      for (PowerSgd& matrix : matrices_) sum += of(matrix)[i];
      for (PowerSgd& matrix : matrices_) {
        of(matrix)[i] = sum / static_cast<float>(matrices_.size());
      }
    }
  }

  ExchangedTensor tensor_;
  std::vector<PowerSgd> matrices_;
  ThreadPool alone_{1};
  Workspace workspace_;
  QuantizeContext context_{&alone_, &workspace_, 0};
};

TEST(PowerSgdFactors, AreThoseOfItsStepsTakenByHand) {
  constexpr std::size_t kRanks = 3;
  const auto collective = Factors();
  const std::vector<Sent> steps = {Accumulated(kRanks, 1), Accumulated(kRanks, 2),
                                   Accumulated(kRanks, 3)};
  const auto outcomes = RunExchanges(*collective, steps);
  ByHand wide(Tensors()[0], kRanks);
  ByHand kernel(Tensors()[2], kRanks);
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const std::vector<float> of_wide = wide.Step(steps[s], s);
    const std::vector<float> of_kernel = kernel.Step(steps[s], s);
    for (const Outcome& outcome : outcomes[s]) {
      ASSERT_EQ(outcome.applied, outcomes[s][0].applied);
      for (std::size_t i = 0; i < 240; ++i) {
        ASSERT_NEAR(outcome.applied[i], kRanks * of_wide[i], 1e-4);
        ASSERT_NEAR(outcome.applied[245 + i], kRanks * of_kernel[i], 1e-4);
      }
    }
    for (std::size_t i = 240; i < 245; ++i) {
      float sum = 0;
      for (const auto& x : steps[s].accumulated) sum += x[i];
      EXPECT_NEAR(outcomes[s][0].applied[i], sum, 1e-5) << "a vector is sent as it is";
    }
  }
}

TEST(PowerSgdFactors, ResidualsAndWhatIsAppliedAreWhatHadAccumulated) {
  const Sent sent = Accumulated(4, 7);
  const auto outcomes = RunExchanges(*Factors(), {sent});
  for (std::size_t i = 0; i < sent.elements; ++i) {
    double left = outcomes[0][0].applied[i];
    for (const Outcome& outcome : outcomes[0]) left += outcome.returned[i];
    ASSERT_NEAR(left, 0, 1e-5) << i;
  }
}

// 4 r (rows + cols) bytes of each matrix, and 4 an element of the vector, each twice (P - 1) / P
// times.
TEST(PowerSgdFactors, SendFactorsAlone) {
  const Sent sent = Accumulated(5, 7);
  const auto collective = Factors();
  const auto outcomes = RunExchanges(*collective, {sent});
  const RoundPlan plan =
      collective->Rounds(RecordedSizes(*collective, sent, 0, outcomes[0]), {5, 1});
  std::uint64_t bytes = 0;
  for (std::size_t rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(outcomes[0][rank].traffic, plan.per_rank[rank]);
    bytes += outcomes[0][rank].traffic.bytes_sent;
  }
  EXPECT_EQ(bytes, 2 * 4 * 4u * (kRank * (8 + 30) + 5 + kRank * (20 + 12)));
}

}  // namespace
}  // namespace sparfuse::testing
