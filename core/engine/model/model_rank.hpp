// Runs a modelled rank through its step: forward, backward and update, its lanes, its strategy, and
// how many elements it selects.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/model/model_cluster.hpp"
#include "core/engine/model/model_engine.hpp"
#include "core/engine/scheduler.hpp"
#include "core/engine/timeline.hpp"

namespace sparfuse {

// How many elements of a range are to be kept: all, if it is a tensor that is not sparsified. A
// range that is a whole tensor counts with the tensor's shape.
std::size_t KeptCount(const ModelConfig& config, Range range, double density);

// Whether ranks select different counts.
bool PayloadsDiffer(const ModelConfig& config);

// How many elements `rank` selects: `kept`, the sparsifier's own count, with config.selection's
// spread about it. Equal arguments give equal counts, whatever was drawn before. All ranks have the
// same count if config.index_shared.
std::size_t SelectedCount(const ModelConfig& config, const SparsifyRequest& sparsify,
                          std::size_t kept, int rank, std::uint64_t step);

class ModelRank final : public StepScheduler {
 public:
  ModelRank(ModelCluster& cluster, int rank, bool traced);

  void Begin();
  // The contribution of `rank`, which is this rank or one of its followers.
  Contribution ContributionOf(const Op& exchange, int rank) const;
  // Whether the exchange carries a selection from more than one tensor.
  bool SelectsFromSeveral(const Op& exchange) const;
  // For parts with owners: whether each member owns one, and all have the same size.
  bool IsOwnedAlike(const Op& to_owners) const;
  // For a range of which members give parts: whether this rank's part is as large as each part of
  // an even division.
  bool GivesAnEvenPart(const Op& shared) const;
  // The exchange that this rank waits for is over; `traffic` is this rank's share of the traffic.
  void ExchangeDone(Handle handle, double began, const Traffic& traffic, const Contribution& given,
                    const ExchangeResult& result);

  using StepScheduler::TopologyOf;
  std::uint64_t step() const noexcept override {
    return cluster_.first_step() + static_cast<std::uint64_t>(index_);
  }
  std::size_t inner_arrays() const noexcept override { return cluster_.config().inner_arrays; }
  int index() const noexcept { return index_; }  // of the rank's step
  const Op& ExchangeOf(Handle handle) const { return op(handle); }
  std::uint64_t PayloadBytes(Handle sparsified) const override;
  void BeginWait(std::string label) override { waits_[std::move(label)] = Now(); }
  void EndWait(const std::string& label) override;

  bool ended() const noexcept { return phase_ == Phase::kEnded; }
  std::string Unfinished() const { return DescribeUnfinished(); }
  const StepRecord& record(std::size_t index) const noexcept { return records_[index]; }
  std::vector<Span> TakeSpans(std::size_t index) { return std::move(spans_[index]); }

 private:
  enum class Phase {
    kBegin,
    kBuffers,
    kForward,
    kEarlierBackward,  // of a micro-step before the last
    kNextBatch,
    kBackward,
    kTail,
    kFinishing,
    kUpdate,
    kSynchronising,
    kEnded
  };
  struct LaneState {
    std::deque<Handle> queue;
    bool busy = false;
    // The operation of the queue that the lane does.
    Handle handle = 0;
    bool in_hook = false;
    double began = 0;
  };
  // A piece of forward, backward or update; the compute lane does them one by one.
  struct Piece {
    SpanKind kind = SpanKind::kForward;
    double* total = nullptr;
    std::string_view label;
    Continuation next;
    double began = 0;
  };

  void StartLocal(Handle handle, Op& started) override;
  void StartExchange(Handle handle, Op& started) override {
    cluster_.Arrive(rank(), handle, started);
  }
  void StartTimerOp(Handle handle, double seconds) override;
  void StepComplete() override { complete_ = true; }

  double Now() const { return cluster_.simulation().now(); }
  bool Waits() const { return phase_ == Phase::kFinishing || phase_ == Phase::kSynchronising; }
  void BeginStep();
  void EndStep();
  void Trace(SpanKind kind, std::string_view lane, std::string_view label, double begin,
             std::uint64_t bytes);
  // Records how long the compute lane has waited since it last worked.
  void RecordExposed();

  // Between the pieces of backward the compute lane does its queued work, as the live hook does;
  // after backward it also waits for work.
  void WakeCompute();
  void WakeLane(Lane which);
  void Work(Lane which);
  void WorkDone(Lane which);
  void EndWork(Lane lane, Handle handle, double began);
  double LocalSeconds(Handle handle);
  double DecompressSeconds(const Op& started);
  const SparsifyRequest& Selecting(Handle selection) const {
    return *op(selection).If<SparsifyRequest>();
  }
  double SelectionSeconds(const SparsifyRequest& sparsify) const;
  // For selections that are coded one by one: the elements that a selection sends, the seconds of
  // coding it, and the seconds of decoding the selections of all ranks.
  bool IsCodedAlone(const SparsifyRequest& sparsify) const {
    return cluster_.config().coding.of_selections() && !IsWhole(sparsify);
  }
  std::size_t SelectedElements(const SparsifyRequest& sparsify, int rank) const {
    return static_cast<std::size_t>(SelectionBytes(sparsify, rank) / kSparseElementBytes);
  }
  double CodingSeconds(const SparsifyRequest& sparsify) const;
  double DecodingSeconds(const ExchangeRequest& exchange) const;
  std::uint64_t SelectionBytes(const SparsifyRequest& sparsify, int rank) const;
  // `kept`: KeptCount of the selection.
  std::uint64_t SelectionBytes(const SparsifyRequest& sparsify, std::size_t kept, int rank) const;
  std::size_t KeptOf(Handle selection) const;
  ExchangeResult& ResultOf(Handle exchange);
  bool IsWhole(const SparsifyRequest& sparsify) const {
    return cluster_.config().dense_quantizer != nullptr && sparsify.density >= 1;
  }
  // The name of the coder that decodes an exchange's payloads: the quantizer if the ranges are sent
  // whole, else the sparsifier's.
  std::string_view CoderOf(const ExchangeRequest& exchange) const;

  // Runs one piece of forward, backward or update on the compute lane, then `next`. `label` is
  // copied when the piece is done.
  void Compute(double seconds, SpanKind kind, double* total, std::string_view label,
               Continuation next);
  void PieceDone();
  void ComputeBackwardAtOnce();
  // Waits for the broadcast of buffers. All ranks begin a step at once, so none waits for rank 0.
  // With local steps there is no broadcast, because ranks train alone.
  void AwaitBuffers();
  void RunProgram();

  ModelCluster& cluster_;
  std::unique_ptr<Strategy> strategy_;
  bool traced_;
  Phase phase_ = Phase::kBegin;
  bool in_program_ = false;  // inside a reaction: lanes are woken when it returns
  bool complete_ = false;
  std::size_t next_tensor_ = 0;
  int micro_step_ = 0;
  double idle_since_ = 0;
  std::array<LaneState, kLanes> lanes_;
  Piece piece_;
  std::vector<ExchangeResult> results_;    // of the step, by handle
  mutable std::vector<std::size_t> kept_;  // KeptOf, by handle; 0: not known yet
  std::map<Handle, ExchangeResult> background_results_;
  std::map<std::string, double> waits_;
  struct Exchanged {
    double began = 0, ended = 0;
    Traffic traffic;
    Contribution given;
  };
  std::map<Handle, Exchanged> untaken_;  // in the background
  int index_ = 0;
  double step_began_ = 0;
  StepRecord record_;                     // of the step
  std::vector<StepRecord> records_;       // [steps]
  std::vector<std::vector<Span>> spans_;  // [steps]
};

}  // namespace sparfuse
