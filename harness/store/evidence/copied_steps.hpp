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

// Of a steps.npy: [rows].
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
  // seed: of the trial, called at most once, where losses are equal.
  void Take(std::string id, TrialSteps steps, std::function<std::optional<std::int64_t>()> seed);

  // "" or which trial's steps these are, a sentence: the same to the last bit; all times of at
  // least eight rows within a millionth; or the same losses, of which two differ, of another seed.
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
