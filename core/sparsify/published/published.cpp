#include "core/sparsify/published/published.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan_device/scan_sparsifier.hpp"

namespace sparfuse {
namespace {

class Published final : public ScanSparsifier {
 public:
  Published(std::string_view name, std::function<void(const PublishedCall&)> rule)
      : name_(name), rule_(std::move(rule)) {}

  std::string_view name() const noexcept override { return name_; }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* /*state*/, Slot& slot) const override {
    AddPending(context, input, info);
    rule_({name_, context, input, info, aim.density, aim.k, slot});
  }

 private:
  std::string name_;
  std::function<void(const PublishedCall&)> rule_;
};

Moments MomentsOf(const PublishedCall& call, const auto& of) {
  const auto n = static_cast<double>(call.input.n);
  const double mean = SumOver(call, of) / n;
  const double squares = SumOver(call, [&](double x) { return (of(x) - mean) * (of(x) - mean); });
  return {mean, squares / (n - 1)};
}

}  // namespace

std::vector<SparsifierDescriptor> AndPublished(std::vector<SparsifierDescriptor> canonical) {
  for (const auto family :
       {PublishedGaussianDescriptors, PublishedDgcDescriptors, PublishedRedSyncDescriptors,
        PublishedSidcoDescriptors, PublishedThresholdDescriptors, PublishedRandomKDescriptors}) {
    for (SparsifierDescriptor& form : family()) canonical.push_back(std::move(form));
  }
  return canonical;
}

std::unique_ptr<Sparsifier> MakePublished(std::string_view name,
                                          std::function<void(const PublishedCall&)> rule) {
  return std::make_unique<Published>(name, std::move(rule));
}

std::uint32_t KeyFrom(Comparison comparison, double threshold) {
  if (std::isnan(threshold)) return kInfinityKey;
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (std::abs(threshold) < kLargest) {
    threshold = static_cast<double>(static_cast<float>(threshold));
  }
  return comparison == Comparison::kAtLeast ? KeyAtLeast(threshold) : KeyAbove(threshold);
}

Moments PublishedCall::Signed() const {
  return MomentsOf(*this, [](double value) { return value; });
}

Moments PublishedCall::Magnitudes() const {
  return MomentsOf(*this, [](double value) { return std::abs(value); });
}

std::size_t PublishedCall::Count(Comparison comparison, double threshold) const {
  const std::uint32_t key = KeyFrom(comparison, threshold);
  std::size_t count = 0;
  CountReaching(context, input, {&key, 1}, {&count, 1});
  return count;
}

double PublishedCall::Refine(Comparison comparison, double threshold,
                             const ThresholdWalk& walk) const {
  for (int round = 0; round < walk.rounds; ++round) {
    const auto count = static_cast<double>(Count(comparison, threshold));
    if (count > walk.upper) {
      threshold *= walk.upper_factor;
    } else if (count < walk.lower) {
      threshold *= walk.lower_factor;
    } else {
      break;
    }
  }
  return threshold;
}

std::size_t PublishedCall::Take(Comparison comparison, double threshold) const {
  return TakeReaching(context, input, info, KeyFrom(comparison, threshold), k, slot);
}

void PublishedCall::TakeLargest(std::size_t count) const {
  RequireRoom(sparsifier, info, slot.capacity, count);
  SelectLargest(context, input, info, count, 0, slot);
}

void PublishedCall::FallBack() const {
  ++context.counters->fallbacks;
  TakeLargest(k);
}

double PublishedCall::KthMagnitude() const {
  SelectInput unsent{input.x(), nullptr, input.n, false};
  SelectLargest(context, unsent, info, k, 0, slot);
  float kth = std::numeric_limits<float>::max();
  for (std::size_t i = 0; i < k; ++i) kth = std::min(kth, std::abs(slot.values.data[i]));
  return static_cast<double>(kth);
}

}  // namespace sparfuse
