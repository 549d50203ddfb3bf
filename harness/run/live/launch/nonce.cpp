#include "harness/run/live/launch/nonce.hpp"

#include <fmt/format.h>

#include <random>

namespace sparfuse::harness {

std::string Nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace sparfuse::harness
