// Tells launches apart.
#pragma once

#include <string>

namespace sparfuse::harness {

// Returns a text that no other launch has, not even one that was killed and left ranks behind.
std::string Nonce();

}  // namespace sparfuse::harness
