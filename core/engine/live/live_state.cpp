#include "core/engine/live/live_state.hpp"

#include <algorithm>
#include <numeric>

namespace sparfuse {

FlatPlaces::FlatPlaces(const GradientLayout& layout, const Plan& plan, bool by_fragment,
                       std::size_t arrays)
    : layout_(layout), size_(layout.numel()), arrays_(arrays) {
  if (!by_fragment) return;
  std::vector<std::size_t> fragment_of(layout.tensors());
  std::size_t fragments = 0;
  for (const Unit& unit : plan.units) {
    for (std::size_t t = unit.first; t < unit.last; ++t) fragment_of[t] = unit.date;
    fragments = std::max<std::size_t>(fragments, unit.date + std::size_t{1});
  }
  std::vector<std::size_t> by_offset(layout.tensors());
  std::iota(by_offset.begin(), by_offset.end(), std::size_t{0});
  std::ranges::sort(by_offset, {}, [&](std::size_t t) { return layout.tensor(t).offset; });
  std::vector<std::size_t> sizes(fragments);
  begins_.resize(layout.tensors());
  for (const std::size_t t : by_offset) {
    begins_[t] = sizes[fragment_of[t]];
    sizes[fragment_of[t]] += layout.tensor(t).numel;
  }
  size_ = sizes.empty() ? 0 : *std::ranges::max_element(sizes);
}

std::size_t FlatPlaces::Of(Range range, std::size_t array) const {
  if (begins_.empty() || range.size() == 0) return array * size_ + range.begin;
  const std::size_t tensor = layout_.PositionOf(range.begin);
  return array * size_ + begins_[tensor] + (range.begin - layout_.tensor(tensor).offset);
}

std::vector<Range> TensorsWithIndices(const ExchangeState& exchange) {
  const std::size_t begin = exchange.op->range().begin;
  std::vector<Range> tensors;
  for (const Selection* part : exchange.payload.parts) {
    if (!part->whole) tensors.push_back({part->range.begin - begin, part->range.end - begin});
  }
  return tensors;
}

std::string LabelOf(const LiveOp& local, const GradientLayout& layout) {
  const auto* pack = local.op->If<PackRequest>();
  if (pack != nullptr) return layout.tensor(pack->tensor).name;
  return local.selection != nullptr ? local.selection->name : "";
}

LiveStep::LiveStep(const GradientLayout& of_layout, const LiveConfig& config)
    : layout(of_layout),
      places(layout, config.plan, config.local_steps.has_value(), SentArrays(config)),
      flat(places.size(), config.device, "the packed gradient"),
      averaged(config.local_steps ? 0 : layout.numel(), config.device, "the averaged gradient"),
      zeros(layout.largest_tensor(), config.device, "zeros for tensors without a gradient"),
      gradients(layout.tensors()),
      averages(layout.tensors()),
      packed(layout.tensors()),
      checked(layout.tensors()) {
  if (config.local_steps) anchors.emplace(layout, *config.local_steps, config.device);
}

void LiveStep::Begin(std::uint64_t step, bool verified) {
  number = step;
  verify = verified;
  timeline.Clear();
  if (anchors) anchors->BeginStep();
  std::fill(gradients.begin(), gradients.end(), std::span<const float>());
  std::fill(averages.begin(), averages.end(), std::span<float>());
  std::fill(packed.begin(), packed.end(), std::uint8_t{0});
  for (std::atomic<bool>& each : checked) each.store(false, std::memory_order_relaxed);
  begin = Clock::now();
}

std::span<float> LiveStep::AverageOf(std::size_t tensor) const {
  if (averages[tensor].data() != nullptr) return averages[tensor];
  const Range range = layout.tensor(tensor).range();
  return averaged.host().subspan(range.begin, range.size());
}

bool LiveStep::ReadsGradient(Range range) const {
  const std::size_t tensor = layout.PositionOf(range.begin);
  return range.end <= layout.tensor(tensor).range().end && packed[tensor] == 0;
}

}  // namespace sparfuse
