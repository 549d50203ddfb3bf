// Keeps the selections of a LiveEngine: a slot and a sparsifier's state for each range and residual
// that is selected, with the residuals and velocities themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "core/engine/live/engine_state.hpp"
#include "core/engine/live/live_state.hpp"
#include "core/engine/scheduler.hpp"
#include "core/feedback/residual_store.hpp"

namespace sparfuse {

// Used by one thread at a time.
class Selections {
 public:
  // Both outlive it.
  Selections(const LiveConfig& config, const LiveStep& step);

  void BeginStep();
  // What `sparsify` selects into on device `where`, ready for this step. Throws Error{kInternal}
  // when this step has selected its range for the same residual before.
  Selection& Prepare(const SparsifyRequest& sparsify, double density, Device where);
  // What rounding has taken of the range of exchange `label` in halves, ready for this step; empty
  // without feedback. On the host, where it is rounded. Throws Error{kInternal} when this step has
  // rounded the range for the same residual before: that would have decayed twice.
  std::span<float> RoundedOf(Range range, std::string_view residual, const std::string& label);
  // How many elements of a range are to be selected; a range that is a whole tensor has its shape.
  std::size_t Kept(Range range, double density) const;
  // Room for what a member gives of a shared range, whichever of its parts that is.
  std::size_t Capacity(const SharedRange& shared) const;
  // Between steps: the plan changes, and what is remembered of fused ranges is of no use to others.
  void ForgetFusedRanges();

  // Between steps. On a device Read is a copy, valid until the next call.
  double ResidualNorm() { return residuals_.Norm(); }
  std::span<const float> Residual(Range range) { return residuals_.ReadAll(range); }
  std::span<const float> Velocity(Range range) { return velocities_.ReadAll(range); }
  void Save(EngineState& to);
  void Load(const EngineState& from);

 private:
  void PrepareSlot(Selection& selection);
  std::size_t Kept(std::size_t n, std::span<const std::int64_t> shape, double density) const;
  std::size_t Room(std::size_t n, std::span<const std::int64_t> shape, double density) const;

  const LiveConfig& config_;
  const LiveStep& step_;
  const bool accumulates_;  // the collective selects
  PlacedStore residuals_;
  PlacedStore velocities_;  // with momentum
  PlacedStore copies_;      // of residuals that other ranks keep
  using Key = std::tuple<std::size_t, std::size_t, std::string>;  // range and residual
  std::map<Key, Selection> selections_;
  std::set<Key> rounded_;  // in this step
};

}  // namespace sparfuse
