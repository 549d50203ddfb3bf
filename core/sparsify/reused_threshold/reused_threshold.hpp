// Estimates a threshold in some steps and reuses it in the steps between.
//
// Source: SAFusion, HPDC 2025, section 3: thresholds are estimated periodically and reused. The
// paper does not print the period.
#pragma once

#include <cstdint>
#include <memory>

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

inline constexpr int kThresholdPeriod = 32;  // steps, unless an experiment says otherwise

// The period that applies to an experiment: `given` if it is not 0. For 0 it is kThresholdPeriod if
// the sparsifier has a reusable threshold and no exact count by itself, else 1. Throws
// Error{kConfig} for a period below 0 or beyond an int, and for a period above 1 with a sparsifier
// whose threshold cannot be reused.
int ThresholdPeriod(const SparsifierDescriptor& sparsifier, std::int64_t given);

// Makes a sparsifier that calls `inner` for a tensor in the steps 0, period, 2 period, ... In the
// steps between, one pass sends all elements with |x| >= the smallest magnitude that `inner` sent
// last. A tensor's steps are its own calls with a density below 1. `inner` is called in other
// steps, too, if
//   - the smallest magnitude was zero, or the density has changed;
//   - fewer than K/2 or more than 2K elements reach the threshold (raises `fallbacks`). K is
//     inner's Count, or the number that `inner` kept last if that is outside Count/2 to 2 Count;
//   - more elements reach the threshold than the slot holds (raises `overflows`).
// Each call of `inner` gives a new threshold, but does not shift the period.
//
// The sparsifier has the name and the Count of `inner`, and its selections at density 1 or without
// a state; its state contains inner's. Returns `inner` itself for period 1. Throws Error{kConfig}
// for a period below 1.
// Cost: between estimates one pass over x; a call of `inner` there adds its own cost.
std::unique_ptr<Sparsifier> ReuseThreshold(std::unique_ptr<Sparsifier> inner, int period);

}  // namespace sparfuse
