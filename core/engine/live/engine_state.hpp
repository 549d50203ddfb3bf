// Holds what one step of a LiveEngine leaves to the next.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace sparfuse {

// On the host; whole flat gradients in ready order. Its memory is used again.
struct EngineState {
  using Stores = std::map<std::string, std::vector<float>, std::less<>>;  // by residual
  Stores residuals;
  Stores velocities;
  Stores copies;  // of residuals that other ranks keep
};

}  // namespace sparfuse
