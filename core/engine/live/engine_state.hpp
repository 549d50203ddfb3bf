// Holds the state that one step of a LiveEngine leaves to the next.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace sparfuse {

// In host memory: whole flat gradients in ready order. SaveState reuses the memory.
struct EngineState {
  using Stores = std::map<std::string, std::vector<float>, std::less<>>;  // by residual
  Stores residuals;
  Stores velocities;
  Stores copies;    // copies of residuals that other ranks keep
  Stores averages;  // of collectives that have such, by name (CollectiveState::Kept)
  // Other memory of sparsifiers and collectives (Exchange of their states), by the place that it
  // serves. A state without an entry begins anew.
  using Remembered = std::map<std::string, std::vector<double>, std::less<>>;
  Remembered remembered;
};

}  // namespace sparfuse
