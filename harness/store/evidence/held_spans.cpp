#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "core/engine/timeline.hpp"
#include "core/fusion/plan.hpp"
#include "harness/store/evidence/held.hpp"

namespace sparfuse::harness {
namespace {

constexpr double kRounding = 1e-6;  // of the step: a card's clock shifts spans

// The part of a step that a compute-lane span belongs to; kPartsOfAStep.size() if to none.
std::size_t PartOf(std::string_view kind) {
  static const std::map<std::string_view, std::size_t> kParts = {
      {SpanKindName(SpanKind::kForward), 0}, {SpanKindName(SpanKind::kBackward), 1},
      {SpanKindName(SpanKind::kPack), 2},    {SpanKindName(SpanKind::kSparsify), 2},
      {SpanKindName(SpanKind::kExposed), 3}, {SpanKindName(SpanKind::kDecompress), 4},
      {SpanKindName(SpanKind::kUpdate), 5},  {SpanKindName(SpanKind::kOuter), 6},
  };
  const auto found = kParts.find(kind);
  return found == kParts.end() ? kPartsOfAStep.size() : found->second;
}

bool HasParts(const OpenSeries& steps) {
  for (const char* part : kPartsOfAStep) {
    for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
      if (steps.Number(part, row).value_or(0) != 0) return true;
    }
  }
  return false;
}

using StepOfRank = std::pair<double, double>;
using Parts = std::array<double, kPartsOfAStep.size()>;

}  // namespace

std::string WhatSpansContradict(const OpenSeries& spans, const OpenSeries& steps) {
  for (const char* needed : {"step", "rank", "kind", "lane", "begin_seconds", "end_seconds"}) {
    if (spans.header.Find(needed) == nullptr)
      return fmt::format("spans.npy: expected a column {}", needed);
  }
  for (const char* text : {"kind", "lane"}) {
    if (!spans.header.Find(text)->type.starts_with("<U"))
      return fmt::format("spans.npy: column {}: expected texts", text);
  }
  if (!HasParts(steps)) return "";
  std::map<StepOfRank, Parts> traced;
  for (std::uint64_t row = 0; row < spans.header.rows; ++row) {
    Parts& parts = traced[{*spans.Number("step", row), *spans.Number("rank", row)}];
    if (spans.Text("lane", row) != LaneName(Lane::kCompute)) continue;
    const std::size_t part = PartOf(spans.Text("kind", row));
    if (part < parts.size())
      parts[part] += *spans.Number("end_seconds", row) - *spans.Number("begin_seconds", row);
  }
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    const auto found = traced.find({*steps.Number("step", row), *steps.Number("rank", row)});
    if (found == traced.end()) continue;
    const double step_seconds = *steps.Number("step_seconds", row);
    for (std::size_t part = 0; part < kPartsOfAStep.size(); ++part) {
      const double said = steps.Number(kPartsOfAStep[part], row).value_or(0);
      if (std::abs(said - found->second[part]) <= kRounding * step_seconds) continue;
      return fmt::format("steps.npy: {} = {} in row {}: spans.npy gives {}", kPartsOfAStep[part],
                         said, row, found->second[part]);
    }
    traced.erase(found);
  }
  if (traced.empty()) return "";
  return fmt::format("spans.npy: step {:g} of rank {:g}: steps.npy has no such step",
                     traced.begin()->first.first, traced.begin()->first.second);
}

}  // namespace sparfuse::harness
