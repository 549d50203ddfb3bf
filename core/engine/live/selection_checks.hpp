// Checks the selections of a LiveEngine in steps that verify: whether mass is conserved, and which
// fibres send nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "core/engine/live/live_state.hpp"
#include "core/payload/payload.hpp"

namespace sparfuse {

// Counts over the life of an engine. Any thread may use it.
class SelectionChecks {
 public:
  // Both outlive it.
  SelectionChecks(const LiveConfig& config, const GradientLayout& layout)
      : config_(config), layout_(layout) {}

  // x: the values selected from, the residual included; unsent: the remaining residual, or x.
  void CheckSelected(std::span<const float> x, const Selection& selection, SparsePayload sent,
                     std::span<const float> unsent);
  // encoded: x as the dense quantizer encoded it; residual: the remaining residual, empty without
  // feedback.
  void CheckWhole(std::span<const float> x, std::span<const std::byte> encoded,
                  std::span<const float> residual);

  std::uint64_t mass_checks() const noexcept { return mass_checks_; }
  std::uint64_t mass_violations() const noexcept { return mass_violations_; }
  std::uint64_t fibres_checked() const noexcept { return fibres_checked_; }
  std::uint64_t fibres_missing() const noexcept { return fibres_missing_; }

 private:
  void CheckMass(std::span<const float> x, const Selection& selection, SparsePayload sent,
                 std::span<const float> unsent);
  void CheckFibres(std::span<const float> x, const Selection& selection,
                   std::span<const std::uint32_t> indices);

  const LiveConfig& config_;
  const GradientLayout& layout_;
  std::atomic<std::uint64_t> mass_checks_ = 0;
  std::atomic<std::uint64_t> mass_violations_ = 0;
  std::atomic<std::uint64_t> fibres_checked_ = 0;
  std::atomic<std::uint64_t> fibres_missing_ = 0;
};

}  // namespace sparfuse
