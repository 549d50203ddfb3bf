// Holds the parts that the checks of proofs.hpp share: tensors to select from, numbers, and the
// methods to compare.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/adtopk/proofs/proofs.hpp"
#include "core/collective/collective.hpp"
#include "core/sparsify/adtopk/adtopk.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

using ProofVector = std::vector<float>;
using ProofShape = std::vector<std::int64_t>;

// Collects the rows, and sets for each whether it holds.
class ProofRows {
 public:
  void Add(const char* check, std::string statement, const char* source, double measured,
           Relation relation, double bound);
  std::vector<ProofRow> Take() { return std::move(rows_); }

 private:
  std::vector<ProofRow> rows_;
};

// The papers that the statements come from.
inline constexpr const char* kStich = "Stich, Cordonnier & Jaggi, NeurIPS 2018";
inline constexpr const char* kKarimireddy = "Karimireddy et al., ICML 2019";
inline constexpr const char* kDelayed = "Stich & Karimireddy, JMLR 2020";
inline constexpr const char* kAlistarh = "Alistarh et al., NeurIPS 2018, assumption 1";
inline constexpr const char* kAdTopK = "ADTopk, HPDC 2024";

// Normally distributed numbers, the same on every machine with the same math library.
ProofVector NormalNumbers(std::size_t n, std::uint64_t seed, std::uint64_t step);

// Gradients of different tails. kind 0: normal; 1: cubes of normal; 2: all of one magnitude.
ProofVector ProofGradient(int kind, std::size_t n, std::uint64_t seed);

double SquareOf(const auto& x) {
  double sum = 0;
  for (const auto v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}

// One tensor of one rank: a selection with its memory and its residual.
class ProofTensor {
 public:
  ProofTensor(std::string_view sparsifier, ProofShape shape, double density,
              const std::string& axis = "1", std::string name = "layer.weight",
              std::uint64_t seed = 1);

  // Selects from gradient + residual and keeps the rest as the residual.
  void Step(const ProofVector& gradient) { Select(gradient, {residual_.data(), n_, {}}); }

  // Selects from x alone.
  void Choose(const ProofVector& x) { Select(x, {}); }

  std::span<const std::uint32_t> indices() const { return {indices_.data(), count_}; }
  std::span<const float> values() const { return {values_.data(), count_}; }
  SparsePayload payload() const { return {indices(), values()}; }
  const ProofVector& residual() const { return residual_; }

  ProofVector Dense() const {
    ProofVector dense(n_, 0.0f);
    for (std::size_t i = 0; i < count_; ++i) dense[indices_[i]] = values_[i];
    return dense;
  }

 private:
  void Select(const ProofVector& x, DeviceSpan<float> residual);

  ProofShape shape_;
  double density_;
  std::string name_;
  std::size_t n_;
  ProofVector residual_;
  std::unique_ptr<Sparsifier> sparsifier_;
  std::unique_ptr<SparsifierState> state_;
  ThreadPool pool_{1};
  Workspace workspace_;
  SelectCounters counters_;
  std::vector<std::uint32_t> indices_;
  ProofVector values_;
  std::size_t count_ = 0;
  std::uint64_t step_ = 0;
};

// A method on a tensor, with its label in the rows.
struct ProofVariant {
  const char* label;
  const char* sparsifier;
  const char* axis;
};
inline constexpr std::array kProofVariants = {
    ProofVariant{"AD, axis 1", "adtopk", "1"}, ProofVariant{"AD, axis 0", "adtopk", "0"},
    ProofVariant{"AD, longest axis", "adtopk", "longest"},
    ProofVariant{"global top-k", "topk", "1"},
    ProofVariant{"interleaved", "adtopk-interleaved", "1"}};

// The delta of a method's contraction on a tensor of this shape.
double ProofDelta(std::string_view sparsifier, const ProofShape& shape, double density,
                  std::string_view axis);

// The checks that train: C6, C7 and C10, in proofs_training.cpp.
void ProveVirtualIterate(ProofRows& rows);
void ProveQuadratic(ProofRows& rows);
void ProveXi(ProofRows& rows);

}  // namespace sparfuse
