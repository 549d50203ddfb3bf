// Finds steps that were copied from another trial.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::harness {

// The content of a steps.npy: [rows].
struct TrialSteps {
  std::string sha256;
  std::vector<double> seconds, losses;
};

// Nothing if the bytes are no steps.npy, or have no row.
std::optional<TrialSteps> ReadTrialSteps(std::string_view bytes);

// The steps of trials that ran. No two trials have the same times, and none with another seed the
// same losses.
class KnownSteps {
 public:
  // seed: gives the trial's seed; called at most once, if losses are equal.
  void Take(std::string id, TrialSteps steps, std::function<std::optional<std::int64_t>()> seed);

  // "" or a sentence that names the trial with the same steps: steps equal to the last bit; or all
  // times of at least eight rows within a millionth; or the same losses (at least two of them
  // different) with another seed.
  std::string WhatIsCopied(const TrialSteps& steps, std::int64_t seed) const;

 private:
  struct Known {
    std::string id;
    TrialSteps steps;
    std::function<std::optional<std::int64_t>()> seed;
  };
  std::multimap<std::size_t, Known> by_rows_;
};

}  // namespace sparfuse::harness
