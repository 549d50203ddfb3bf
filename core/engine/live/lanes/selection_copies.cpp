#include "core/engine/live/lanes/selection_copies.hpp"

#include <span>

#include "core/device/runtime.hpp"

namespace sparfuse {
namespace {

template <class T>
void Copy(const Stream& stream, std::vector<T>& to, const T* from, std::size_t count) {
  to.resize(count);
  gpu::CopyAsync(stream, to.data(), from, count * sizeof(T));
}

}  // namespace

SelectionCopies::SelectionCopies(const Stream& stream, const Selection& selection) {
  Copy<float>(stream, source_, selection.source.data, selection.source.size);
  Copy<float>(stream, residual_, selection.residual.data, selection.residual.size);
}

void SelectionCopies::CopyAfter(const Stream& stream, const Selection& selection) {
  Copy<float>(stream, unsent_, selection.residual.data, selection.residual.size);
  if (selection.whole) {
    Copy<std::byte>(stream, encoded_, selection.encoded.data(), selection.encoded.size());
    return;
  }
  Copy<std::uint32_t>(stream, indices_, selection.slot.indices.data, selection.slot.capacity);
  Copy<float>(stream, values_, selection.slot.values.data, selection.slot.capacity);
}

void SelectionCopies::Check(SelectionChecks& checks, const Selection& selection) const {
  std::vector<float> x = source_;
  for (std::size_t i = 0; i < residual_.size(); ++i) x[i] += residual_[i];
  if (selection.whole) return checks.CheckWhole(x, encoded_, unsent_);
  const std::size_t count = selection.slot.count;
  checks.CheckSelected(x, selection,
                       {std::span(indices_).first(count), std::span(values_).first(count)},
                       residual_.empty() ? source_ : unsent_);
}

}  // namespace sparfuse
