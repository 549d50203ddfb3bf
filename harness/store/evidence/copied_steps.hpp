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

// The steps of trials that ran. No two trials have the same times, and none with another seed the
// same losses.
class KnownSteps {
 public:
  // seed: of the trial, called at most once, where losses are equal.
  void Take(const std::string& id, std::string_view steps,
            const std::function<std::optional<std::int64_t>()>& seed);

  // "" or which trial's steps these are, a sentence: the same to the last bit; all times of at
  // least eight rows within a millionth; or the same losses, of which two differ, of another seed.
  // Bytes that are no steps.npy are no copy.
  std::string WhatIsCopied(std::string_view steps, std::int64_t seed) const;

 private:
  struct Steps {
    std::string id, sha256;
    std::vector<double> seconds, losses;
    std::function<std::optional<std::int64_t>()> seed;
  };
  static std::optional<Steps> Read(std::string_view steps);

  std::multimap<std::size_t, Steps> by_rows_;
};

}  // namespace sparfuse::harness
