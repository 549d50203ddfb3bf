#include "baselines/sparcml/partial_sum.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse::baselines {

DenseSwitch DenseSwitchOf(const Options& resolved) {
  const std::string& name = StringOption(resolved, "dense_switch");
  return name == "bytes"       ? DenseSwitch::kBytes
         : name == "published" ? DenseSwitch::kPublished
                               : DenseSwitch::kNever;
}

void PartialSum::Start(std::span<const std::byte> own) {
  sparse_ = ViewSparsePayload(own);
  message_ = own;
  dense_ = IsDense(rule_, sparse_.indices.size(), elements_);
  if (dense_) BecomeDense();
}

void PartialSum::BecomeDense() {
  dense_ = true;
  Reserve(room_, elements_ * sizeof(float));
  std::ranges::fill(Floats(), 0.0f);
  Scatter(sparse_);
  message_ = std::as_bytes(Floats());
}

void PartialSum::Scatter(const SparsePayload& from) {
  const std::span<float> to = Floats();
  for (std::size_t i = 0; i < from.indices.size(); ++i) {
    if (from.indices[i] >= elements_) {
      SPARFUSE_THROW(kComm, "a payload has index " + std::to_string(from.indices[i]) +
                                ": expected one below " + std::to_string(elements_));
    }
    to[from.indices[i]] += from.values[i];
  }
}

void PartialSum::Add(std::span<const std::byte> message) {
  if (IsDenseMessage(message)) {
    const std::span<const float> other(reinterpret_cast<const float*>(message.data()), elements_);
    if (dense_) return AddInto(other, Floats());
    Reserve(room_, message.size());
    std::ranges::copy(other, Floats().begin());
    dense_ = true;
    Scatter(sparse_);
    message_ = std::as_bytes(Floats());
    return;
  }
  if (message.size() % kSparseElementBytes != 0) {
    SPARFUSE_THROW(kComm, "a sum has " + std::to_string(message.size()) +
                              " bytes: expected a multiple of " +
                              std::to_string(kSparseElementBytes) + ", or those of a dense one");
  }
  const SparsePayload other = ViewSparsePayload(message);
  if (dense_) return Scatter(other);
  Merge(sparse_, other, next_);
  std::swap(merged_, next_);
  sparse_ = merged_.view();
  if (IsDense(rule_, merged_.size(), elements_)) return BecomeDense();
  Reserve(room_, merged_.bytes());
  message_ = merged_.WriteTo(room_.host());
}

}  // namespace sparfuse::baselines
