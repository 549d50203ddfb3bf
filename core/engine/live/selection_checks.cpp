#include "core/engine/live/selection_checks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/coding/selection_coding.hpp"

namespace sparfuse {
namespace {

// Returns whether sent + rest = x up to the rounding of x - sent.
bool IsRounded(float x, float sent, float rest) {
  constexpr float kRounding = 2 * std::numeric_limits<float>::epsilon();
  return std::abs(x - (sent + rest)) <= kRounding * (std::abs(x) + std::abs(sent));
}

}  // namespace

void SelectionChecks::CheckSelected(std::span<const float> x, const Selection& selection,
                                    SparsePayload sent, std::span<const float> unsent) {
  CheckMass(x, selection, sent, unsent);
  CheckFibres(x, selection, sent.indices);
}

// Checks that sent + new residual = x, bit for bit: every element is in exactly one of the two,
// unchanged. If the coding rounds, a sent element is split between the two, and their sum is exact
// except for the sign of a zero. If the coding fits polynomials or has four levels, the sum is
// exact up to the rounding of their difference. Without feedback only sent values are checked, and
// fitted ones not at all.
void SelectionChecks::CheckMass(std::span<const float> x, const Selection& selection,
                                SparsePayload sent, std::span<const float> unsent) {
  ++mass_checks_;
  const bool feedback = selection.residual.size > 0;
  const ValueCoding coding = config_.coding.of_selections()
                                 ? SelectionCodingOf(config_.coding, selection.range.size()).values
                                 : config_.coding.values;
  std::vector<float> kept(unsent.begin(), unsent.end());
  bool conserved = true;
  for (std::size_t i = 0; i < sent.indices.size(); ++i) {
    const std::uint32_t index = sent.indices[i];
    const float value = sent.values[i];
    if (coding == ValueCoding::kF32) {
      if (feedback && kept[index] != 0.0f) conserved = false;
      kept[index] = value;
      continue;
    }
    float whole = x[index];
    const float rest = feedback ? kept[index] : 0.0f;
    kept[index] = whole;
    if (coding == ValueCoding::kFitted || coding == ValueCoding::kCodes4) {
      if (feedback && !IsRounded(whole, value, rest)) conserved = false;
      continue;
    }
    if (!feedback) RoundToCoding({coding}, {&index, 1}, {&whole, 1}, {});
    if (value + rest != whole) conserved = false;
  }
  if (std::memcmp(kept.data(), x.data(), x.size() * sizeof(float)) != 0) conserved = false;
  if (!conserved) ++mass_violations_;
}

void SelectionChecks::CheckFibres(std::span<const float> x, const Selection& selection,
                                  std::span<const std::uint32_t> indices) {
  std::vector<bool> has;   // something to send
  std::vector<bool> sent;  // some of its elements were sent
  for (const std::size_t t : layout_.TensorsIn(selection.range)) {
    const TensorEntry& tensor = layout_.tensor(t);
    const bool whole =
        tensor.range().begin >= selection.range.begin && tensor.range().end <= selection.range.end;
    if (tensor.shape.size() < 2 || !whole) continue;
    const std::size_t begin = tensor.offset - selection.range.begin;
    const auto length = static_cast<std::size_t>(tensor.shape[1]);
    const std::size_t inner =
        tensor.numel / static_cast<std::size_t>(tensor.shape[0]) / std::max<std::size_t>(length, 1);
    const auto fibre = [&](std::size_t i) { return i / (length * inner) * inner + i % inner; };
    has.assign(tensor.numel / length, false);
    sent.assign(tensor.numel / length, false);
    for (std::size_t i = 0; i < tensor.numel; ++i) {
      if (x[begin + i] != 0.0f) has[fibre(i)] = true;
    }
    for (auto it = std::lower_bound(indices.begin(), indices.end(), begin);
         it != indices.end() && *it < begin + tensor.numel; ++it) {
      sent[fibre(*it - begin)] = true;
    }
    for (std::size_t f = 0; f < has.size(); ++f) {
      fibres_checked_ += has[f];
      fibres_missing_ += has[f] && !sent[f];
    }
  }
}

// Checks that decoded + new residual = x up to the rounding of their difference. Without feedback
// there is nothing to compare.
void SelectionChecks::CheckWhole(std::span<const float> x, std::span<const std::byte> encoded,
                                 std::span<const float> residual) {
  ++mass_checks_;
  if (residual.empty()) return;
  std::vector<float> decoded(x.size());
  ThreadPool alone(1);
  AccumulateQuantized(*config_.dense_quantizer, {&encoded, 1}, 1.0f, decoded, alone);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (IsRounded(x[i], decoded[i], residual[i])) continue;
    ++mass_violations_;
    return;
  }
}

}  // namespace sparfuse
