#include "core/feedback/residual_store.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "core/feedback/norm/norm.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {

ResidualStore::Store& ResidualStore::StoreOf(std::string_view name) {
  const auto it = stores_.find(name);
  if (it != stores_.end()) return it->second;
  return stores_.emplace(std::string(name), Store{MakeBuffer(), {}, {}, {}}).first->second;
}

DeviceSpan<float> ResidualStore::Get(std::string_view name, Range range) {
  assert(range.begin <= range.end && range.end <= numel_);
  Store& store = StoreOf(name);
  if (undoable_) {
    BringOver(store, range);
  } else if (store.before.size() > 0) {
    store.stale.Add(range);  // the caller may write
  }
  return PartOf(store.values, range);
}

// Makes the range the step's: it holds the old elements, which the step may change in place.
void ResidualStore::BringOver(Store& store, Range range) {
  store.stale.ForParts(range, [&](Range part) {
    std::copy_n(Begin(store.before) + part.begin, part.size(), Begin(store.values) + part.begin);
  });
  store.stale.Remove(range);
  store.taken.Add(range);
}

ResidualStore::Apart ResidualStore::GetApart(std::string_view name, Range range) {
  assert(range.begin <= range.end && range.end <= numel_);
  Store& store = StoreOf(name);
  if (!undoable_ || store.before.size() == 0 || store.taken.Overlaps(range))
    return {Get(name, range), {}};
  store.stale.Remove(range);
  store.taken.Add(range);
  return {PartOf(store.before, range), PartOf(store.values, range)};
}

void ResidualStore::BeginUndoable() {
  for (auto& [name, store] : stores_) {
    if (store.before.size() == 0) {
      store.before = MakeBuffer();
      store.stale.Add({0, numel_});
    }
    std::swap(store.values, store.before);
  }
  undoable_ = true;
}

void ResidualStore::Settle() {
  if (!undoable_) return;
  for (auto& [name, store] : stores_) {
    store.stale.ForParts({0, numel_}, [&](Range part) {
      std::copy_n(Begin(store.before) + part.begin, part.size(), Begin(store.values) + part.begin);
    });
    store.stale = std::exchange(store.taken, {});
  }
  undoable_ = false;
}

void ResidualStore::Undo() {
  assert(!undoable_);
  for (auto& [name, store] : stores_) {
    if (store.before.size() == 0) {  // the step made it
      std::fill_n(Begin(store.values), numel_, 0.0f);
    } else {
      std::swap(store.values, store.before);
    }
  }
}

std::vector<std::string> ResidualStore::names() const {
  std::vector<std::string> names;
  for (const auto& [name, store] : stores_) names.push_back(name);
  return names;
}

double ResidualStore::Norm() {
  const Stream stream{device_, nullptr};
  if (device_.kind != DeviceKind::kHost && norm_.size() == 0)
    norm_ = Buffer<double>(1, device_, "a norm");
  ThreadPool alone(1);
  double sum = 0;
  for (const auto& [name, store] : stores_) {
    const DeviceSpan<float> all = PartOf(store.values, {0, numel_});
    if (device_.kind == DeviceKind::kHost) {
      sum += SumSquares(all.host(), alone);
      continue;
    }
    double squares = 0;
    SumSquaresOnDevice(stream, workspace_, {all.data, all.size, stream}, norm_.data());
    gpu::CopyAsync(stream, &squares, norm_.data(), sizeof(squares));
    gpu::Synchronize(stream);
    sum += squares;
  }
  return std::sqrt(sum);
}

namespace {

// The first element of the largest tensor.
std::size_t LargestTensor(const GradientLayout& layout) {
  std::size_t largest = 0;
  for (std::size_t t = 1; t < layout.tensors(); ++t) {
    if (layout.tensor(t).numel > layout.tensor(largest).numel) largest = t;
  }
  return layout.tensors() == 0 ? 0 : layout.tensor(largest).offset;
}

}  // namespace

PlacedStore::PlacedStore(const GradientLayout& layout, Device device)
    : layout_(layout),
      device_(device),
      on_host_(layout.numel(), Device{}, LargestTensor(layout)),
      on_device_(layout.numel(), device) {}

const Stream& PlacedStore::CopyStream() {
  if (copies_.view().device != device_) copies_ = gpu::GpuStream(device_);
  return copies_.view();
}

DeviceSpan<float> PlacedStore::Get(std::string_view name, Range range, Device where) {
  if (device_.kind == DeviceKind::kHost) return on_host_.Get(name, range);
  auto it = places_.find(name);
  if (it == places_.end()) {
    it = places_.emplace(std::string(name), std::vector<Place>(layout_.tensors())).first;
  }
  const Place to = where.kind == DeviceKind::kHost ? Place::kHost : Place::kDevice;
  for (const std::size_t t : layout_.TensorsIn(range)) {
    if (it->second[t] == to) continue;
    if (it->second[t] != Place::kNowhere) Move(name, t, to);
    it->second[t] = to;
  }
  return (to == Place::kHost ? on_host_ : on_device_).Get(name, range);
}

void PlacedStore::Move(std::string_view name, std::size_t tensor, Place to) {
  const Range range = layout_.tensor(tensor).range();
  float* const on_host = on_host_.Get(name, range).data;
  float* const on_device = on_device_.Get(name, range).data;
  const bool to_host = to == Place::kHost;
  gpu::CopyAsync(CopyStream(), to_host ? on_host : on_device, to_host ? on_device : on_host,
                 range.size() * sizeof(float));
  if (to_host) gpu::FillAsync(CopyStream(), on_device, 0, range.size() * sizeof(float));
  gpu::Synchronize(CopyStream());
  if (!to_host) std::fill_n(on_host, range.size(), 0.0f);
}

std::span<const float> PlacedStore::Read(std::string_view name, Range range) {
  if (device_.kind == DeviceKind::kHost) return on_host_.Get(name, range).host();
  if (read_.size() < range.size()) {
    read_ = {};
    read_ = gpu::PinnedBuffer<float>(range.size(), device_, "residuals that are read");
  }
  const std::span<float> read = read_.span().first(range.size());
  std::fill(read.begin(), read.end(), 0.0f);
  const auto it = places_.find(name);
  if (it == places_.end()) return read;
  for (const std::size_t t : layout_.TensorsIn(range)) {
    if (it->second[t] == Place::kNowhere) continue;
    const Range tensor = layout_.tensor(t).range();
    const Range part{std::max(tensor.begin, range.begin), std::min(tensor.end, range.end)};
    ResidualStore& store = it->second[t] == Place::kHost ? on_host_ : on_device_;
    gpu::CopyAsync(CopyStream(), read.data() + (part.begin - range.begin),
                   store.Get(name, part).data, part.size() * sizeof(float));
  }
  gpu::Synchronize(CopyStream());
  return read;
}

std::vector<std::string> PlacedStore::names() const {
  std::vector<std::string> names = on_host_.names();
  for (const auto& [name, places] : places_) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

std::span<const float> PlacedStore::ReadAll(Range range) {
  const std::vector<std::string> all = names();
  if (all.size() == 1) return Read(all.front(), range);
  sum_.assign(range.size(), 0.0f);
  for (const std::string& name : all) AddInto(Read(name, range), sum_);
  return sum_;
}

void PlacedStore::Save(Copies& to) {
  const std::vector<std::string> all = names();
  std::erase_if(
      to, [&](const auto& entry) { return std::ranges::find(all, entry.first) == all.end(); });
  for (const std::string& name : all) {
    const std::span<const float> values = Read(name, {0, layout_.numel()});
    std::vector<float>& copy = to[name];
    copy.resize(values.size());
    std::ranges::copy(values, copy.begin());
  }
}

void PlacedStore::Load(const Copies& from) {
  std::vector<std::string> all = names();
  for (const auto& [name, values] : from) {
    if (std::ranges::find(all, name) == all.end()) all.push_back(name);
  }
  for (const std::string& name : all) {
    const std::span<float> values = Get(name, {0, layout_.numel()}, Device{}).host();
    const auto copy = from.find(name);
    if (copy == from.end()) {
      std::ranges::fill(values, 0.0f);
    } else {
      std::ranges::copy(copy->second, values.begin());
    }
  }
}

double PlacedStore::Norm() {
  if (device_.kind == DeviceKind::kHost) return on_host_.Norm();
  return std::hypot(on_device_.Norm(), on_host_.Norm());
}

}  // namespace sparfuse
