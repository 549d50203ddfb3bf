// Keeps the selections of a LiveEngine: a slot and a sparsifier's state for each range and residual
// that is selected, with the residuals and velocities themselves.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "core/engine/live/live_config.hpp"
#include "core/engine/live/live_state.hpp"
#include "core/engine/live/live_step.hpp"
#include "core/engine/scheduler.hpp"
#include "core/feedback/placed_store.hpp"

namespace sparfuse {

// Used by one thread at a time.
class Selections {
 public:
  // Both outlive it.
  Selections(const LiveConfig& config, const LiveStep& step);

  void BeginStep();
  // What `sparsify` selects into on device `where`, ready for this step. Throws Error{kInternal}
  // when this step has selected its range for the same residual before.
  Selection& Prepare(const Op& sparsify, Device where);
  // Between steps: the plan changes, and what is remembered of fused ranges is of no use to others.
  void ForgetFusedRanges();

  // Between steps. On a device Read is a copy, valid until the next call.
  double ResidualNorm() { return residuals_.Norm(); }
  std::span<const float> Residual(std::string_view name, Range range) {
    return residuals_.Read(name, range);
  }
  std::span<const float> Velocity(std::string_view name, Range range) {
    return velocities_.Read(name, range);
  }

 private:
  void PrepareSlot(const Op& sparsify, Selection& selection);

  const LiveConfig& config_;
  const LiveStep& step_;
  const bool accumulates_;  // the collective selects
  PlacedStore residuals_;
  PlacedStore velocities_;  // with momentum
  // By range and residual.
  std::map<std::tuple<std::size_t, std::size_t, std::string>, Selection> selections_;
};

}  // namespace sparfuse
