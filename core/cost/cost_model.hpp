// Holds the times of single operations, for the ModelEngine and for planners. A cost model is
// filled from single-operation measurements and a backward profile, never from the step time of a
// compared cell.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/coding/selection_coding.hpp"
#include "core/collective/collective.hpp"
#include "core/payload/payload.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

// A measured curve: straight lines between points, with the last segment extended, and constant
// below the first point.
class PiecewiseLinear {
 public:
  PiecewiseLinear() = default;
  // Points in any order; x must be distinct. One point is a constant.
  explicit PiecewiseLinear(std::vector<std::pair<double, double>> points);

  bool empty() const noexcept { return points_.empty(); }
  // 0 when empty.
  double operator()(double x) const;
  // A bound of the curve's growth from 0 on: f(x + d) >= f(x) + slope * d - fall. `fall` is
  // infinity if the last segment falls.
  struct Growth {
    double slope = 0;
    double fall = 0;
  };
  Growth GrowthFrom0() const;
  // Whether the curve is one straight line from 0 on, or constant.
  bool straight() const noexcept {
    return points_.size() < 2 || (points_.size() == 2 && points_.front().first <= 0);
  }

 private:
  std::vector<std::pair<double, double>> points_;
};

// Seconds of one selection with fused error feedback: one curve over elements for each density,
// interpolated in log(density) between densities.
class SelectionCost {
 public:
  void Add(double density, PiecewiseLinear seconds_by_elements) {
    by_density_[density] = std::move(seconds_by_elements);
  }
  double operator()(std::size_t elements, double density) const;

 private:
  std::map<double, PiecewiseLinear> by_density_;
};

// Costs of one link class.
struct LinkCost {
  // By bytes: seconds in which every rank sends this many bytes to the next one and receives the
  // same number. The value at 0 bytes is the start-up time (alpha); the time above it occupies the
  // link.
  PiecewiseLinear round_seconds;
  // For each message beyond the first that a rank sends at once.
  double seconds_per_extra_message = 0;
  // Additional processor time of each rank, polling included: seconds a round, seconds for each
  // message beyond the first, and a fraction of the time that messages are on the way.
  double round_cpu_seconds = 0;
  double message_cpu_seconds = 0;
  double cpu_fraction = 0;

  static LinkCost FromAlphaBeta(double alpha_seconds, double seconds_per_byte,
                                double seconds_per_extra_message = 0);
};

// Seconds for each element, by kind of work.
class WorkSeconds {
 public:
  double& operator[](Work kind) { return seconds_[static_cast<std::size_t>(kind)]; }
  double Of(const WorkByKind& elements) const;

 private:
  std::array<double, kWorkKinds> seconds_{};
};

// Seconds of adding the payloads of an exchange into a tensor.
struct DecodeCost {
  double per_call = 0;
  double per_call_and_rank = 0;     // of the ranks that take part
  double per_element = 0;           // of the range
  double per_element_and_rank = 0;  // if each rank's payload is made a dense tensor first
  double per_entry = 0;             // received

  double Seconds(std::size_t elements, std::size_t entries, int ranks) const;
};

// Seconds of coding selections one by one, by the operations of the coding (SelectionWork).
struct SelectionCodingCost {
  double per_query = 0;     // an index is looked up in a filter
  double per_insert = 0;    // a bit of a filter is set
  double per_fitted = 0;    // a value is sorted and fitted
  double per_restored = 0;  // a value is computed from a polynomial
  double per_packed = 0;    // an element is put into bits of a chunk
  double per_unpacked = 0;  // an element is taken from them

  double Seconds(const SelectionWork& work) const {
    return per_query * work.queries + per_insert * work.inserts + per_fitted * work.fitted +
           per_restored * work.restored + per_packed * work.packed + per_unpacked * work.unpacked;
  }
};

// A dense all-reduce at the modelled number of ranks, by the algorithm that its library chooses;
// replaces rounds. By bytes: start-up, and time on the links of each class.
struct AllReduceCost {
  PiecewiseLinear start_seconds;
  std::array<PiecewiseLinear, kLinkClasses> link_seconds;

  bool empty() const { return start_seconds.empty(); }
};

// Buffers of the model, such as running statistics, that rank 0 sends to all ranks before each
// forward pass. Seconds without the host's part.
struct BufferBroadcast {
  double bytes = 0;  // 0: there is none
  double start_seconds = 0;
  double link_seconds = 0;
};

struct CostModel {
  std::map<std::string, SelectionCost, std::less<>> selection;  // by sparsifier
  // The same on the host lane, if that is another processor. A sparsifier missing here costs as
  // in `selection`.
  std::map<std::string, SelectionCost, std::less<>> host_selection;
  // The same on the side lane, if that has fewer threads. A sparsifier missing here costs as in
  // `selection`.
  std::map<std::string, SelectionCost, std::less<>> side_selection;
  // Factor on the times of the side lane, which shares the memory with backward; 1: the two do not
  // disturb one another.
  double side_slowdown = 1;
  // Selections synchronise with the device within backward's hooks: work of the side lane waits for
  // the compute lane, and no exchange goes on while a selection runs.
  bool selects_in_hooks = false;
  std::map<std::string, PiecewiseLinear, std::less<>> encode_seconds;  // by quantizer; by elements
  PiecewiseLinear pack_seconds;   // by elements: checked copy into the flat gradient
  PiecewiseLinear scale_seconds;  // by elements: average of a dense sum
  PiecewiseLinear clear_seconds;  // by elements: decompression, the part that each element costs
  double seconds_per_entry = 0;   // decompression, the part that each received entry costs
  // By sparsifier or quantizer: replaces the two above.
  std::map<std::string, DecodeCost, std::less<>> decode;
  SelectionCodingCost selection_coding;  // if payloads are coded selection by selection
  // Work of collectives on elements between messages; and the same on the host, if that is another
  // processor.
  WorkSeconds work_seconds;
  WorkSeconds host_work_seconds;
  double dispatch_seconds = 0;  // local work: from a strategy's request to its start, and back
  double exchange_dispatch_seconds = 0;  // the same for an exchange
  // Host time to prepare an exchange, and the same for each rank that takes part. The host prepares
  // one after another, in parallel with the network (StepScheduler). host_in_line: it waits for an
  // exchange to end before it prepares the next.
  double exchange_host_seconds = 0;
  double exchange_host_seconds_per_rank = 0;
  bool host_in_line = false;
  // Further host time of an exchange for each element that it covers, sent or not. stages_payloads:
  // the host moves payloads, and an exchange of them counts StagedElements instead.
  double exchange_seconds_per_element = 0;
  bool stages_payloads = false;
  // Further host time for each entry that a rank gives to a collective that sums on the host.
  double sum_host_seconds_per_entry = 0;
  // All host time of an exchange grows with ranks as (ranks / host_growth_from) to this power,
  // because the host waits for the slowest rank.
  double host_growth = 0;
  double host_growth_from = 1;
  double exchange_cpu_seconds = 0;  // of each rank's processor, once an exchange, beside `links`
  std::array<LinkCost, kLinkClasses> links;
  PiecewiseLinear native_all_reduce_seconds;  // by bytes, at the modelled number of ranks
  AllReduceCost all_reduce;                   // empty: by rounds
  AllGatherBy all_gather = AllGatherBy::kRing;
  // The fraction of an exchange that goes on while its ranks compute: 1 all of it, 0 none before
  // backward ends. payload_overlap is the fraction for exchanges of payloads (none: `overlap`),
  // fused_overlap for payloads selected from several tensors at once (none: payload_overlap).
  double overlap = 1;
  std::optional<double> payload_overlap, fused_overlap;
  // Bytes that travel for an element with its index, if payloads are gathered uncoded.
  double entry_bytes = kSparseElementBytes;
  // Factor on all times of the device's computation while an exchange is under way.
  double compute_slowdown = 1;
  BufferBroadcast buffers;

  // From the begin of the broadcast of buffers to forward, the host's part counted in; 0 for one
  // rank.
  double BroadcastSeconds(int ranks) const;

  // Host time to prepare an exchange, and to move `elements` elements.
  double ExchangeHostSeconds(int ranks) const {
    return HostGrowth(ranks) * (exchange_host_seconds + ranks * exchange_host_seconds_per_rank);
  }
  double HostElementSeconds(double elements, int ranks) const {
    return HostGrowth(ranks) * exchange_seconds_per_element * elements;
  }
  // Host time of a sum on the host, if a rank gives `payload_bytes`.
  double HostSumSeconds(double payload_bytes, int ranks) const {
    return HostGrowth(ranks) * sum_host_seconds_per_entry * payload_bytes /
           static_cast<double>(kSparseElementBytes);
  }
  // The number of float elements whose copies to the host and back have as many bytes as the
  // payloads that a rank sends and receives.
  static double StagedElements(double sent_bytes, double received_bytes) {
    return (sent_bytes + received_bytes) / (2 * sizeof(float));
  }
  // Throws Error{kConfig} when there is no curve for `sparsifier`.
  double SelectionSeconds(std::string_view sparsifier, std::size_t elements, double density) const;
  double HostSelectionSeconds(std::string_view sparsifier, std::size_t elements,
                              double density) const;
  // side_slowdown is not included.
  double SideSelectionSeconds(std::string_view sparsifier, std::size_t elements,
                              double density) const;
  // For a tensor that travels whole. Throws Error{kConfig} if there is no curve for `quantizer`.
  double EncodeSeconds(std::string_view quantizer, std::size_t elements) const;
  // entries: received from all ranks together; coder: the sparsifier or quantizer that made them.
  double DecompressSeconds(std::string_view coder, std::size_t elements, std::size_t entries,
                           int ranks) const;

  // The times of a collective's rounds: start-up, on the links, on a core of every rank.
  struct Phases {
    double latency_seconds = 0;
    std::array<double, kLinkClasses> link_seconds{};
    double local_seconds = 0;
    double cpu_seconds = 0;  // of a core of every rank, in parallel with the other times

    double on_links() const { return link_seconds[0] + link_seconds[1]; }
    // With nothing else on links and cores.
    double alone() const { return latency_seconds + on_links() + local_seconds; }
  };
  // byte_factor: bytes that travel for each byte of the plan.
  Phases PhasesOf(const RoundPlan& plan, double byte_factor = 1) const;
  // For a dense all-reduce of `bytes` by a library; `native`: the backend's own. Measured or
  // declared times, if any, replace the rounds of `plan`.
  Phases AllReducePhases(const RoundPlan& plan, bool native, std::uint64_t bytes) const;
  // For an exchange by `collective`; `plan` is its ModelledRounds, `bytes` a rank's payload.
  Phases PhasesOf(const RoundPlan& plan, const Collective& collective, std::uint64_t bytes) const;
  // A bound for exchanges whose rounds are in proportion to `plan`, the plan of `bytes`. An
  // exchange of b bytes more takes at least seconds_per_byte * b - fall longer. `fall` is infinity
  // if curves fall without end.
  struct Growth {
    double seconds_per_byte = 0;
    double fall = 0;
  };
  Growth GrowthOf(const RoundPlan& plan, const Collective& collective, std::uint64_t bytes) const;
  // Bytes that travel for each byte of an uncoded payload.
  double ByteFactor(const Collective& collective) const;

 private:
  double HostGrowth(int ranks) const {
    return host_growth == 0 ? 1 : std::pow(ranks / host_growth_from, host_growth);
  }
};

// Seconds of a step without communication, tensor by tensor in ready order.
struct BackwardProfile {
  double begin_seconds = 0;  // from the step's begin to forward: fetching the batch
  double forward_seconds = 0;
  std::vector<double> backward_seconds;  // [tensors] since the previous gradient was ready
  double tail_seconds = 0;               // from the last gradient to the end of backward
  double update_seconds = 0;
  bool sleeps = false;  // forward and backward take no core

  // Multiplies all times by `factor`.
  void Slow(double factor);
};

// A link of `gbps` (10^9 bit/s) with alpha_seconds a message. Any local work takes 1 us plus 1 ns
// an element at any density: packing, encoding with any quantizer, selecting with any sparsifier of
// core or the one called `sparsifier`.
CostModel DeclaredCost(double gbps, double alpha_seconds, const std::string& sparsifier = {});

}  // namespace sparfuse
