// Keeps the selections of a LiveEngine: a slot and a sparsifier's state for each selected range and
// residual, and the residuals and velocities themselves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

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
  // The selection into which `sparsify` selects on device `where`, ready for this step. Throws
  // Error{kInternal} if this step has already selected the range for the same residual.
  Selection& Prepare(const SparsifyRequest& sparsify, double density, Device where);
  // The residual of rounding to fp16 for the range of exchange `label`, ready for this step; empty
  // without feedback. It lies on the host, where values are rounded. Throws Error{kInternal} if
  // this step has already rounded the range for the same residual, which would decay twice.
  std::span<float> RoundedOf(Range range, std::string_view residual, const std::string& label);
  // How many elements of a range are to be selected. A range that is a whole tensor counts with the
  // tensor's shape.
  std::size_t Kept(Range range, double density) const;
  // Room for any part that a member gives of a shared range.
  std::size_t Capacity(const SharedRange& shared) const;
  // Call between steps when the plan changes: drops the state of fused ranges, which does not fit
  // other ranges.
  void ForgetFusedRanges();

  // Call these between steps. On a device they return a copy, valid until the next call.
  double ResidualNorm() { return residuals_.Norm(); }
  std::span<const float> Residual(Range range) { return residuals_.ReadAll(range); }
  std::span<const float> Velocity(Range range) { return velocities_.ReadAll(range); }
  void Save(EngineState& to);
  void Load(const EngineState& from);
  // The sparsifiers' memory: the part of Save and Load that Undo leaves out.
  void SaveRemembered(EngineState::Remembered& to) const;
  void LoadRemembered(const EngineState::Remembered& from);

  // As ResidualStore's functions, for all memory that Save copies; on the host only.
  void BeginUndoable();
  void Settle();
  void Undo() {
    for (PlacedStore* store : {&residuals_, &velocities_, &copies_}) store->Undo();
  }

 private:
  // Whether the new residual may be written to memory of its own.
  bool WritesApart(const Selection& selection) const;
  void PrepareSlot(Selection& selection);
  std::size_t Kept(std::size_t n, std::span<const std::int64_t> shape, double density) const {
    return config_.sparsifier == nullptr ? n : config_.sparsifier->Count(n, shape, density);
  }
  std::size_t Room(std::size_t n, std::span<const std::int64_t> shape, double density) const {
    return std::max(SlotCapacity(n, density, config_.unbounded_count), Kept(n, shape, density));
  }

  const LiveConfig& config_;
  const LiveStep& step_;
  const bool accumulates_;  // the collective selects
  PlacedStore residuals_;
  PlacedStore velocities_;  // with momentum
  PlacedStore copies_;      // copies of residuals that other ranks keep
  using Key = std::tuple<std::size_t, std::size_t, std::string>;  // range and residual
  std::map<Key, Selection> selections_;
  std::set<Key> rounded_;           // in this step
  EngineState::Remembered loaded_;  // for states that later steps make
  bool undoable_ = false;           // this step
};

}  // namespace sparfuse
