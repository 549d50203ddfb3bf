// Says how the cards that a trial used reach each other on their host.
#pragma once

#include <string>

#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// "by NVLink", "by PCIe" (switches or a host bridge) or "through the system" (between host bridges
// or processors): of the two cards of rank 0's host that reach each other worst. "" where ranks
// there use one card or none, and where the trial does not say.
//
// The trial names cards as CUDA numbers them; CUDA_VISIBLE_DEVICES, where it is recorded, says
// which those are.
std::string CardLinksOf(const TrialRow& trial);

}  // namespace sparfuse::harness
