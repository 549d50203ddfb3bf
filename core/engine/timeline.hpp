// Records spans: operations with their times and lanes. Both engines write the same kinds.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse {

enum class SpanKind : std::uint8_t {
  kForward,
  kBackward,
  kPack,
  kSparsify,
  kExchange,
  kNegotiate,
  kDecompress,
  kUpdate,
  kExposed,  // the compute lane waits for communication
  kAlign,    // the method waits for other ranks
  kOuter     // with local steps: parameters are packed to be sent, or the outer rule is applied
};
// The name of both kExposed and kAlign is "wait"; the lane tells them apart.
std::string_view SpanKindName(SpanKind kind);

// The label of the exchange before forward in which rank 0's buffers are broadcast.
inline constexpr const char* kBuffersLabel = "buffers";

// Seconds since the rank's step began.
struct Span {
  SpanKind kind = SpanKind::kForward;
  std::string lane;   // "compute", "side", "host", or a channel's name
  std::string label;  // tensor, unit; may be empty
  double begin_seconds = 0;
  double end_seconds = 0;
  std::uint64_t bytes = 0;  // exchanges: this rank's contribution
};

// The spans of one step. Add may be called by any thread.
class Timeline {
 public:
  void Clear();
  void Add(Span span);
  // Moves all spans by `seconds`, none to before the step began.
  void Shift(double seconds);
  double shifted_seconds() const;  // since Clear
  // By begin.
  std::vector<Span> Sorted() const;
  // Sum of the durations of one kind on one lane ("" is any lane).
  double Total(SpanKind kind, std::string_view lane = "") const;

 private:
  mutable std::mutex mutex_;
  std::vector<Span> spans_;
  double shifted_seconds_ = 0;
};

// Sums of one step of one rank, from its spans and counters. Seconds and bytes.
struct StepRecord {
  double step_seconds = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;  // without the local work that hooks ran in between
  double sparsify_seconds = 0;  // pack and sparsify on the compute lane
  double exposed_communication_seconds = 0;
  double decompress_seconds = 0;
  double update_seconds = 0;
  double outer_seconds = 0;  // of kOuter on the compute lane
  double align_wait_seconds = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t messages_sent = 0;
  // Elements that this rank contributed (ExchangeRequest::counts). If a collective selects: the
  // number that this rank was to contribute.
  std::uint64_t selected = 0;
  // For exchanges that give sums: elements of the sums, and elements that came back to this rank.
  std::uint64_t summed = 0;
  std::uint64_t returned = 0;
  std::uint64_t served = 0;  // ExchangeBuffers::served
  std::uint64_t tensors_missing = 0;
  std::uint64_t exchanges = 0;
  double residual_norm = 0;

  bool operator==(const StepRecord&) const = default;
};

// Chrome trace JSON ("traceEvents", microseconds), one process a rank, one thread a lane; opens in
// Perfetto and chrome://tracing. spans_by_rank[i] holds the spans of rank first_rank + i.
// clock_uncertainty_seconds bounds the error between clocks of ranks; it is written if it is not 0.
std::string ChromeTrace(const std::vector<std::vector<Span>>& spans_by_rank, int first_rank = 0,
                        double clock_uncertainty_seconds = 0);

}  // namespace sparfuse
