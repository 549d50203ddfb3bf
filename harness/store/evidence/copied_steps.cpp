#include "harness/store/evidence/copied_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/files/canonical.hpp"
#include "harness/store/evidence/open_series.hpp"
#include "harness/store/evidence/series_file.hpp"

namespace sparfuse::harness {

namespace {

constexpr std::size_t kFewestRows = 8;  // fewer may agree by chance

// Clocks count nanoseconds, and steps differ by parts of a thousand at least.
bool AreOneTime(double a, double b) {
  constexpr double kLastDigits = 1e-6;
  return std::abs(a - b) <= kLastDigits * std::max(std::abs(a), std::abs(b));
}

bool Differ(const std::vector<double>& losses) {
  return std::ranges::any_of(losses, [&](double loss) { return loss != losses.front(); });
}

}  // namespace

std::optional<TrialSteps> ReadTrialSteps(std::string_view bytes) {
  OpenSeries open;
  open.bytes = bytes;
  if (!WhatIsWrongWithSeries("steps.npy", bytes, &open.header).empty() || open.header.rows == 0)
    return std::nullopt;
  TrialSteps steps;
  steps.sha256 = Sha256Hex(bytes);
  for (std::uint64_t row = 0; row < open.header.rows; ++row) {
    steps.seconds.push_back(open.Number("step_seconds", row).value_or(0));
    steps.losses.push_back(open.Number("loss", row).value_or(0));
  }
  return steps;
}

void KnownSteps::Take(std::string id, TrialSteps steps,
                      std::function<std::optional<std::int64_t>()> seed) {
  const std::size_t rows = steps.seconds.size();
  by_rows_.emplace(rows, Known{std::move(id), std::move(steps), std::move(seed)});
}

std::string KnownSteps::WhatIsCopied(const TrialSteps& steps, std::int64_t seed) const {
  const std::size_t rows = steps.seconds.size();
  const auto [begin, end] = by_rows_.equal_range(rows);
  for (auto other = begin; other != end; ++other) {
    const Known& known = other->second;
    if (known.steps.sha256 == steps.sha256)
      return fmt::format("steps.npy: it equals the steps.npy of {} to the last bit", known.id);
    if (rows >= kFewestRows && std::ranges::equal(known.steps.seconds, steps.seconds, AreOneTime))
      return fmt::format(
          "steps.npy: all of its times equal the times of {} to a "
          "millionth",
          known.id);
    if (known.steps.losses != steps.losses || !Differ(steps.losses)) continue;
    const std::optional<std::int64_t> of_other = known.seed();
    if (of_other && *of_other != seed)
      return fmt::format(
          "steps.npy: all of its losses equal the losses of {}, which has seed "
          "{}",
          known.id, *of_other);
  }
  return "";
}

}  // namespace sparfuse::harness
