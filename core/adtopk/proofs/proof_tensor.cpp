#include "core/adtopk/proofs/proof_tensor.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/random_stream.hpp"

namespace sparfuse {

void ProofRows::Add(const char* check, std::string statement, const char* source, double measured,
                    Relation relation, double bound) {
  const bool holds = relation == Relation::kAtMost  ? measured <= bound
                     : relation == Relation::kAbove ? measured > bound
                                                    : measured == bound;
  rows_.push_back({check, std::move(statement), source, measured, relation, bound, holds});
}

ProofVector NormalNumbers(std::size_t n, std::uint64_t seed, std::uint64_t step) {
  const RandomStream stream(seed, 0, step);
  ProofVector x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double u = (static_cast<double>(stream.At(2 * i) >> 11) + 1) * 0x1p-53;
    const double v = static_cast<double>(stream.At(2 * i + 1) >> 11) * 0x1p-53;
    x[i] = static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
  }
  return x;
}

ProofVector ProofGradient(int kind, std::size_t n, std::uint64_t seed) {
  ProofVector x = NormalNumbers(n, 7, seed);
  for (float& v : x) {
    if (kind == 1) v = v * v * v;
    if (kind == 2) v = v < 0 ? -0.5f : 0.5f;
  }
  return x;
}

ProofTensor::ProofTensor(std::string_view sparsifier, ProofShape shape, double density,
                         const std::string& axis, std::string name, std::uint64_t seed)
    : shape_(std::move(shape)),
      density_(density),
      name_(std::move(name)),
      n_(ElementsOf(shape_)),
      residual_(n_, 0.0f) {
  const SparsifierDescriptor& descriptor = FindSparsifier(sparsifier);
  Options options;
  for (const OptionSpec& option : descriptor.options) {
    if (option.name == "axis") options.emplace("axis", axis);
  }
  sparsifier_ = descriptor.make(
      ResolveOptions("sparsifier " + std::string(sparsifier), descriptor.options, options), seed);
  state_ = sparsifier_->MakeState(n_);
  const std::size_t capacity = SlotCapacityFor(descriptor, *sparsifier_, n_, shape_, density_);
  indices_.resize(capacity);
  values_.resize(capacity);
}

void ProofTensor::Select(const ProofVector& x, DeviceSpan<float> residual) {
  const std::size_t room = indices_.size();
  Slot slot{{indices_.data(), room, {}}, {values_.data(), room, {}}, room, 0};
  sparsifier_->Select({&pool_, &workspace_, &counters_, {}}, {{x.data(), n_, {}}, residual},
                      density_, {0, name_, shape_, step_++}, state_.get(), slot);
  count_ = slot.count;
}

double ProofDelta(std::string_view sparsifier, const ProofShape& shape, double density,
                  std::string_view axis) {
  const double global = KeptFraction(shape, density);
  const double fibre = AllDimensionContraction(ElementsOf(shape), shape, density, AxisOf(axis));
  if (sparsifier == "adtopk") return fibre;
  return sparsifier == "adtopk-interleaved" ? std::min(fibre, global) : global;
}

}  // namespace sparfuse
