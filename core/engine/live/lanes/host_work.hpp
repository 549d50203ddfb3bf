// Does operations on host memory, for one lane: packing, selecting, averaging.
#pragma once

#include <cstdint>

#include "core/engine/live/lanes/lanes.hpp"
#include "core/engine/live/live_state.hpp"

namespace sparfuse {

// Used by the lane's thread; the counters may be read between steps.
class HostWork {
 public:
  // pool: of that thread; outlives it, as does what `setup` refers to.
  HostWork(const LaneSetup& setup, Lane lane, ThreadPool& pool)
      : setup_(setup), lane_(lane), pool_(pool) {}

  // Does the operation and adds its span. Returns the time of its end.
  double Do(Op& local);

  const SelectCounters& counters() const noexcept { return counters_; }

 private:
  void Pack(const Op& pack);
  void Sparsify(Op& sparsify);
  void CorrectMomentum(Selection& selection);
  void Select(Selection& selection, double density);
  void Accumulate(Selection& selection);
  void Encode(Selection& selection);
  std::uint64_t CountMissing(const Selection& selection) const;
  void Apply(const Op& apply);
  void ApplyReduced(const Op& apply);
  void ApplySums(const Op& apply);
  void ApplyWhole(const ExchangeState& exchange);
  void ApplySelected(const Op& apply);
  float scale() const { return 1.0f / static_cast<float>(setup_.workers); }

  const LaneSetup setup_;
  Lane lane_;
  ThreadPool& pool_;
  Workspace workspace_;
  SelectCounters counters_;
  Elements decoded_;
  Buffer<float> growth_;  // of velocities, with nesterov
};

}  // namespace sparfuse
