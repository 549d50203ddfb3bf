#include "core/engine/live/selections.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace sparfuse {

Selections::Selections(const LiveConfig& config, const LiveStep& step)
    : config_(config),
      step_(step),
      accumulates_(config.sparse_collective != nullptr &&
                   config.sparse_collective->traits().selects),
      residuals_(step.layout, config.device),
      velocities_(step.layout, config.device) {}

void Selections::BeginStep() {
  for (auto& [key, selection] : selections_) selection.selected = false;
}

Selection& Selections::Prepare(const Op& sparsify, Device where) {
  const Range range = sparsify.range;
  Selection& selection = selections_[{range.begin, range.end, std::string(sparsify.residual)}];
  const std::size_t first = step_.layout.PositionOf(range.begin);
  const TensorEntry& tensor = step_.layout.tensor(first);
  if (!selection.name.empty() && selection.device != where) {
    selection = {};  // what is remembered of it starts again in the other place
  }
  if (selection.name.empty()) {
    const bool one_tensor = range == tensor.range();
    selection.range = range;
    selection.device = where;
    selection.name = one_tensor ? tensor.name : "the unit that begins with " + tensor.name;
    selection.info.id = static_cast<std::uint32_t>(first);
    selection.info.name = selection.name;
    if (one_tensor) selection.info.shape = tensor.shape;
  }
  if (selection.selected) {
    SPARFUSE_THROW(kInternal, selection.name + " is selected twice in step " +
                                  std::to_string(step_.number) + " for the residual \"" +
                                  std::string(sparsify.residual) + "\"");
  }
  selection.selected = true;
  PrepareSlot(sparsify, selection);
  selection.info.step = step_.number;
  const bool feedback = config_.feedback.kind != FeedbackKind::kNone && tensor.feedback;
  selection.residual = selection.velocity = {};
  if (feedback) selection.residual = residuals_.Get(sparsify.residual, range, where);
  if (feedback && config_.feedback.kind == FeedbackKind::kMomentum) {
    selection.velocity = velocities_.Get(sparsify.residual, range, where);
  }
  selection.accumulated = !selection.whole && accumulates_;
  if (selection.accumulated && selection.residual.size == 0) {
    SPARFUSE_THROW(kInternal, selection.name + " has no residual, from which collective \"" +
                                  std::string(config_.sparse_collective->descriptor().name) +
                                  "\" selects");
  }
  const float* const source = step_.ReadsGradient(range)
                                  ? step_.gradients[first].data() + (range.begin - tensor.offset)
                                  : step_.flat.data() + range.begin;
  selection.source = {source, range.size(), Stream{config_.device, nullptr}};
  return selection;
}

void Selections::PrepareSlot(const Op& sparsify, Selection& selection) {
  const std::size_t n = sparsify.range.size();
  selection.kept = n;
  const std::string what = "the selection of " + selection.name;
  selection.whole = config_.dense_quantizer != nullptr && sparsify.density >= 1;
  if (selection.whole) {
    selection.slot = {};
    const std::size_t bytes = config_.dense_quantizer->EncodedBytes(n);
    if (selection.encoded.size() != bytes) {
      selection.encoded = Buffer<std::byte>(bytes, selection.device, what);
    }
    return;
  }
  if (accumulates_) {  // nothing is selected here
    selection.slot = {};
    if (config_.sparsifier == nullptr) return;
    selection.kept = config_.sparsifier->Count(n, selection.info.shape, sparsify.density);
    selection.slot.capacity =
        std::max(SlotCapacity(n, sparsify.density, config_.unbounded_count), selection.kept);
    return;
  }
  if (!config_.sparsifier) {
    SPARFUSE_THROW(kInternal, "the strategy sparsifies, the method has no sparsifier");
  }
  // Equal on all ranks, which have room for one another's payloads: it follows from the density.
  selection.kept = config_.sparsifier->Count(n, selection.info.shape, sparsify.density);
  const std::size_t capacity =
      std::max(SlotCapacity(n, sparsify.density, config_.unbounded_count), selection.kept);
  if (selection.indices.size() < capacity) {
    selection.indices = Buffer<std::uint32_t>(capacity, selection.device, what);
    selection.values = Buffer<float>(capacity, selection.device, what);
  }
  const Stream stream{selection.device, nullptr};
  selection.slot = {selection.indices.view(stream), selection.values.view(stream), capacity, 0};
  if (selection.state) return;
  selection.state = selection.device.kind == DeviceKind::kHost
                        ? config_.sparsifier->MakeState(n)
                        : config_.sparsifier->MakeDeviceState(n, selection.device);
}

void Selections::ForgetFusedRanges() {
  std::erase_if(selections_, [this](const auto& entry) {
    return entry.second.range != step_.layout.tensor(entry.second.info.id).range();
  });
}

}  // namespace sparfuse
