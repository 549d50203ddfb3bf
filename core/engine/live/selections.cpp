#include "core/engine/live/selections.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "core/coding/selection_coding.hpp"

namespace sparfuse {

Selections::Selections(const LiveConfig& config, const LiveStep& step)
    : config_(config),
      step_(step),
      accumulates_(config.sparse_collective != nullptr &&
                   config.sparse_collective->traits().selects),
      residuals_(step.layout, config.device),
      velocities_(step.layout, config.device),
      copies_(step.layout, config.device) {}

void Selections::BeginStep() {
  for (auto& [key, selection] : selections_) selection.selected = false;
  rounded_.clear();
}

std::span<float> Selections::RoundedOf(Range range, std::string_view residual,
                                       const std::string& label) {
  const TensorEntry& tensor = step_.layout.tensor(step_.layout.PositionOf(range.begin));
  if (config_.feedback.kind == FeedbackKind::kNone || !tensor.feedback || residual.empty()) {
    return {};
  }
  if (!rounded_.emplace(range.begin, range.end, residual).second) {
    SPARFUSE_THROW(kInternal, label, " is rounded twice in step ", step_.number,
                   " for the residual \"", residual, "\"");
  }
  const std::span<float> rounded = residuals_.Get(residual, range, Device{}).host();
  const auto decay = static_cast<float>(config_.feedback.decay);
  if (decay != 1) {
    for (float& value : rounded) value *= decay;
  }
  return rounded;
}

Selection& Selections::Prepare(const SparsifyRequest& sparsify, double density, Device where) {
  const Range range = sparsify.range;
  Selection& selection = selections_[{range.begin, range.end, std::string(sparsify.residual)}];
  const std::size_t first = step_.layout.PositionOf(range.begin);
  const TensorEntry& tensor = step_.layout.tensor(first);
  if (!selection.name.empty() && selection.device != where) {
    selection = {};  // its state starts anew in the other place
  }
  if (selection.name.empty()) {
    const bool one_tensor = range == tensor.range();
    selection.range = range;
    selection.device = where;
    selection.place = Concat("selection of ", range.begin, " to ", range.end, ", residual \"",
                             sparsify.residual, "\"");
    selection.name = one_tensor ? tensor.name : "the unit that begins with " + tensor.name;
    selection.info.id = static_cast<std::uint32_t>(first);
    selection.info.name = selection.name;
    if (one_tensor) selection.info.shape = tensor.shape;
  }
  if (selection.selected) {
    SPARFUSE_THROW(kInternal, selection.name, " is selected twice in step ", step_.number,
                   " for the residual \"", sparsify.residual, "\"");
  }
  selection.selected = true;
  selection.density = density;
  PrepareSlot(selection);
  selection.info.step = step_.number;
  const bool feedback = config_.feedback.kind != FeedbackKind::kNone && tensor.feedback &&
                        !sparsify.residual.empty() && sparsify.keeps_unsent;
  selection.residual = selection.updated = selection.velocity = {};
  PlacedStore& residuals = sparsify.copy_of ? copies_ : residuals_;
  if (feedback && undoable_ && WritesApart(selection)) {
    const auto [from, to] = residuals.GetApart(sparsify.residual, range);
    selection.residual = from;
    selection.updated = to;
  } else if (feedback) {
    selection.residual = residuals.Get(sparsify.residual, range, where);
  }
  if (feedback && config_.feedback.kind == FeedbackKind::kMomentum) {
    selection.velocity = velocities_.Get(sparsify.residual, range, where);
  }
  selection.accumulated = !selection.whole && accumulates_;
  if (selection.accumulated && selection.residual.size == 0) {
    SPARFUSE_THROW(kInternal, selection.name, " has no residual, from which collective \"",
                   config_.sparse_collective->descriptor().name, "\" selects");
  }
  const float* const source = step_.ReadsGradient(range)
                                  ? step_.gradients[first].data() + (range.begin - tensor.offset)
                                  : step_.FlatOf(range);
  selection.source = {source, range.size(), Stream{config_.device, nullptr}};
  return selection;
}

bool Selections::WritesApart(const Selection& selection) const {
  const Feedback& feedback = config_.feedback;
  if (feedback.rule != nullptr) return false;
  if (feedback.decay != 1) return true;  // the product is written apart
  return !accumulates_ && !selection.whole && config_.sparsifier->SelectsApart();
}

void Selections::BeginUndoable() {
  undoable_ = true;
  for (PlacedStore* store : {&residuals_, &velocities_, &copies_}) store->BeginUndoable();
}

void Selections::Settle() {
  if (!std::exchange(undoable_, false)) return;
  for (PlacedStore* store : {&residuals_, &velocities_, &copies_}) store->Settle();
}

void Selections::PrepareSlot(Selection& selection) {
  const std::size_t n = selection.range.size();
  selection.kept = n;
  const std::string what = "the selection of " + selection.name;
  selection.whole = config_.dense_quantizer != nullptr && selection.density >= 1;
  if (selection.whole) {
    selection.slot = {};
    const std::size_t bytes = config_.dense_quantizer->EncodedBytes(n);
    if (selection.encoded.size() != bytes) {
      selection.encoded = Buffer<std::byte>(bytes, selection.device, what);
    }
    return;
  }
  if (accumulates_) {  // the collective selects later
    selection.slot = {};
    if (config_.sparsifier == nullptr) return;
    selection.kept = Kept(n, selection.info.shape, selection.density);
    selection.slot.capacity = Room(n, selection.info.shape, selection.density);
    return;
  }
  if (!config_.sparsifier) {
    SPARFUSE_THROW(kInternal, "the strategy sparsifies, but the method has no sparsifier");
  }
  // It follows from the density, so all ranks have room for one another's payloads.
  selection.kept = Kept(n, selection.info.shape, selection.density);
  const std::size_t capacity = Room(n, selection.info.shape, selection.density);
  if (selection.indices.size() < capacity) {
    selection.indices = Buffer<std::uint32_t>(capacity, selection.device, what);
    selection.values = Buffer<float>(capacity, selection.device, what);
  }
  if (config_.coding.of_selections()) {
    const std::size_t bytes = SelectionBytesBound(config_.coding, capacity, n);
    if (selection.coded.size() < bytes) selection.coded = Buffer<std::byte>(bytes);
  }
  const Stream stream{selection.device, nullptr};
  selection.slot = {selection.indices.view(stream), selection.values.view(stream), capacity, 0};
  if (selection.state) return;
  selection.state = selection.device.kind == DeviceKind::kHost
                        ? config_.sparsifier->MakeState(n)
                        : config_.sparsifier->MakeDeviceState(n, selection.device);
  const auto loaded = loaded_.find(selection.place);
  if (!selection.state || loaded == loaded_.end()) return;
  StateNumbers numbers(loaded->second);
  selection.state->Exchange(numbers);
  numbers.RequireEnd();
}

void Selections::SaveRemembered(EngineState::Remembered& to) const {
  for (const auto& [place, numbers] : loaded_) to.insert_or_assign(place, numbers);
  for (const auto& [key, selection] : selections_) {
    if (!selection.state) continue;
    StateNumbers numbers;
    selection.state->Exchange(numbers);
    std::vector<double> taken = numbers.Take();
    if (!taken.empty()) to.insert_or_assign(selection.place, std::move(taken));
  }
}

void Selections::LoadRemembered(const EngineState::Remembered& from) {
  loaded_ = from;
  for (auto& [key, selection] : selections_) selection.state.reset();
}

std::size_t Selections::Kept(Range range, double density) const {
  const TensorEntry& tensor = step_.layout.tensor(step_.layout.PositionOf(range.begin));
  std::span<const std::int64_t> shape;
  if (range == tensor.range()) shape = tensor.shape;
  return Kept(range.size(), shape, density);
}

// A part may be a whole tensor. By its shape, it may keep more than a range of equal size.
std::size_t Selections::Capacity(const SharedRange& shared) const {
  std::size_t room = Room(shared.largest, {}, shared.density);
  for (const std::size_t t : step_.layout.TensorsIn(shared.range)) {
    const TensorEntry& tensor = step_.layout.tensor(t);
    if (tensor.numel > shared.largest) continue;
    room = std::max(room, Room(tensor.numel, tensor.shape, shared.density));
  }
  return shared.parts * room;
}

void Selections::Save(EngineState& to) {
  residuals_.Save(to.residuals);
  velocities_.Save(to.velocities);
  copies_.Save(to.copies);
  SaveRemembered(to.remembered);
}

void Selections::Load(const EngineState& from) {
  residuals_.Load(from.residuals);
  velocities_.Load(from.velocities);
  copies_.Load(from.copies);
  LoadRemembered(from.remembered);
}

void Selections::ForgetFusedRanges() {
  loaded_.clear();
  std::erase_if(selections_, [this](const auto& entry) {
    return entry.second.range != step_.layout.tensor(entry.second.info.id).range();
  });
}

}  // namespace sparfuse
