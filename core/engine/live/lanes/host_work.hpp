// Does operations on host memory, for one lane: packing, selecting, averaging.
#pragma once

#include <cstdint>

#include "core/coding/selection_coding.hpp"
#include "core/engine/live/lanes/lanes.hpp"
#include "core/engine/live/live_state.hpp"
#include "core/localsteps/sender_rules.hpp"

namespace sparfuse {

// Throws the error of a tensor that was packed with a NaN or an infinity.
[[noreturn]] void ThrowNotFinite(const LaneSetup& setup, const PackRequest& pack);

// Used by the lane's thread. Other threads may read the counters between steps.
class HostWork {
 public:
  // pool: of that thread. It outlives this object, as do all objects referenced by `setup`.
  HostWork(const LaneSetup& setup, Lane lane, ThreadPool& pool)
      : setup_(setup), lane_(lane), pool_(pool) {}

  // Does the operation and adds its span. Returns the time of its end.
  double Do(LiveOp& local);

  const SelectCounters& counters() const noexcept { return counters_; }

 private:
  void Pack(const PackRequest& pack);
  // Looks at a gradient and reports it if it is not finite.
  bool Nonfinite(std::size_t tensor) const;
  // With LiveConfig::on_nonfinite: whether the selection reads a gradient that nobody has looked
  // at.
  bool ReadsUnchecked(const Selection& selection) const {
    return setup_.config.on_nonfinite && setup_.step.ReadsGradient(selection.range);
  }
  // Gives the selection zeros if its gradient is not finite. Returns whether it did.
  bool ReplaceNonfinite(Selection& selection);
  std::uint64_t Sparsify(Selection& selection);  // payload bytes
  std::uint64_t SparsifyOnly(Selection& selection);
  void CorrectMomentum(Selection& selection);
  void TakeAtRate(Selection& selection);
  const FeedbackRule* RuleOf(const Selection& selection) const {  // null: none from outside
    return selection.residual.size == 0 ? nullptr : setup_.config.feedback.rule.get();
  }
  void Compensate(const FeedbackRule& rule, Selection& selection);
  void Select(Selection& selection);
  void Code(Selection& selection);
  void Accumulate(Selection& selection);
  void Encode(Selection& selection);
  std::uint64_t CountMissing(const Selection& selection) const;
  // The destination of a sum: the flat gradient, all averages, or where each tensor's average goes.
  struct Target {
    enum class Place : std::uint8_t { kFlat, kAverages, kTensors };
    Place place = Place::kFlat;
    float scale = 1;
  };
  // Calls take(part, memory of part) for the parts of a range that lie in one piece.
  template <class Take>
  void ForPieces(const Target& to, Range range, const Take& take) const;
  // The memory of a range if it lies in one piece, else nothing.
  std::span<float> InOnePiece(const Target& to, Range range) const;
  void MoveAnchor(const ApplyRequest& apply, const ExchangeState* exchange);
  void RenewInnerState(const ApplyRequest& apply, const ExchangeState* exchange);
  void TakeSum(const ExchangeState& exchange, const Target& to);
  void TakeReduced(const ExchangeState& exchange, const Target& to);
  void TakeSums(const ExchangeState& exchange, const Target& to);
  void TakeWhole(const ExchangeState& exchange, const Target& to);
  void TakeSelected(const ExchangeState& exchange, const Target& to);
  SparsePayload Decode(const ExchangeState& exchange, std::span<const std::byte> payload,
                       std::size_t rank);

  const LaneSetup setup_;
  Lane lane_;
  ThreadPool& pool_;
  Workspace workspace_;
  SelectCounters counters_;
  Elements decoded_;
  SelectionCoder coder_;
  Buffer<float> growth_;       // of velocities, with nesterov
  Buffer<float> compensated_;  // by a rule from outside
  Buffer<float> whole_;        // averages that are decoded in one piece
  SenderRules rules_;
};

}  // namespace sparfuse
