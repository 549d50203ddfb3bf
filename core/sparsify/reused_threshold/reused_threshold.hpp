// Estimates a threshold in some steps and reuses it in those between.
//
// Source: SAFusion, HPDC 2025, section 3: thresholds are estimated periodically and reused. The
// paper does not print the period.
#pragma once

#include <cstdint>
#include <memory>

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

inline constexpr int kThresholdPeriod = 32;  // steps, where an experiment does not say

// The period that an experiment means: `given`, or where that is 0 kThresholdPeriod for a
// sparsifier with a reusable threshold and a count that is not exact by itself, else 1. Throws
// Error{kConfig} for a period below 0 or beyond an int, and for one above 1 with a sparsifier whose
// threshold cannot be reused.
int ThresholdPeriod(const SparsifierDescriptor& sparsifier, std::int64_t given);

// `inner`, called for a tensor in its steps 0, period, 2 period, ...; between them one pass sends
// everything with |x| >= the smallest magnitude that `inner` sent last. Steps are a tensor's own
// calls with a density below 1. `inner` is called in other steps, too, where
//   - the smallest magnitude was zero, or the density has changed;
//   - fewer than K/2 or more than 2K elements reach the threshold, K = inner's Count, or, where
//     `inner` by itself keeps as few or as many, what it kept last (raises `fallbacks`);
//   - the slot holds fewer than reach it (raises `overflows`).
// Each call of `inner` gives a new threshold, but does not shift the period.
//
// Has the name, the Count, and at density 1 or without a state the selections of `inner`, whose
// state is kept in its own. Returns `inner` itself for period 1. Throws Error{kConfig} for a period
// below 1.
// Cost: between estimates one pass over x; a call of `inner` in their place adds its own.
std::unique_ptr<Sparsifier> ReuseThreshold(std::unique_ptr<Sparsifier> inner, int period);

}  // namespace sparfuse
