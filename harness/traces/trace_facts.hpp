// Extracts facts from a trace: times of forward, backward and the update, the ready time of each
// gradient, the host's time for a tensor and for an exchange, and the exchanges.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/traces/reading/trace_reader.hpp"

namespace sparfuse::harness {

// Statistics of samples in microseconds; the median of an even number is the mean of the middle
// two.
struct Spread {
  double median = 0, low = 0, high = 0;
  int n = 0;
  double ratio() const { return low > 0 ? high / low : 1; }
  bool operator==(const Spread&) const = default;
};
std::optional<Spread> SpreadOf(std::vector<double> samples);

struct TracedHost {
  std::optional<Spread> forward_us, backward_us, update_us, hook_us_a_tensor, exchange_call_us,
      copy_back_us_a_tensor;
  bool operator==(const TracedHost&) const = default;
};

struct TracedTensor {
  std::optional<std::vector<std::int64_t>> shape;
  double ready_us = 0, low = 0, high = 0;  // from the begin of backward
  double idle_us = 0;                      // the part of it without a kernel; on CPUs all
  bool operator==(const TracedTensor&) const = default;
};

// One of backward's exchanges, by its position in a step.
struct TracedExchange {
  std::string collective;
  std::optional<std::int64_t> elements;
  std::string dtype;
  std::optional<std::int64_t> ranks;
  std::optional<std::string> group;
  Spread us;
  std::vector<double> us_by_step;
  double begin_us = 0, end_us = 0;  // from the begin of backward, medians
  std::optional<double> bytes, bus_gbytes_per_s_at_low;
  std::string kernel;  // its name on the device, which has the algorithm; "" on CPUs
  std::optional<std::int64_t> sequence;
  // Not written, by step: the host's call of the exchange and its copies of the sums back into the
  // gradients; empty where tensors cannot be told by exchange.
  std::vector<double> host_us_by_step, copies_us_by_step;
  bool operator==(const TracedExchange&) const = default;
};

// Collectives before backward: DDP's broadcasts of buffers.
struct TracedBroadcast {
  std::string collective;
  double a_step = 0, bytes_a_step = 0;
  bool operator==(const TracedBroadcast&) const = default;
};

// Facts of a device that copies and kernels alone show.
struct TracedDevice {
  Spread kernel_us;                                     // of compute kernels, in all of the file
  double kernel_us_tenth = 0, kernel_us_hundredth = 0;  // percentiles, entry floor(n / 10)
  std::optional<Spread> memory_gbytes_per_s, host_link_gbytes_per_s;
  bool operator==(const TracedDevice&) const = default;
};

// A compute kernel of backward, for comparing two traces of one step.
struct BackwardKernel {
  std::string name;
  double us = 0;
  double beside = 0;  // the part of it with an exchange in parallel
};

// The part of each without a kernel, in which the host and its profiler act; on CPUs all. Medians.
struct TracedIdle {
  double forward_us = 0, backward_us = 0, update_us = 0;
  std::optional<double> period_us;
  bool operator==(const TracedIdle&) const = default;
};

inline constexpr int kTraceSchema = 1;

struct TraceFacts {
  int schema = kTraceSchema;
  std::string file, sha256;
  int rank = 0, world = 1;
  std::optional<std::string> backend;
  std::string device = "cpu";  // or "device"
  std::string hardware;
  std::vector<std::string> steps_found, steps_used;
  std::vector<int> passes_a_step;  // all that occur
  std::optional<Spread> period_us;
  Spread forward_us, backward_us, update_us;
  std::optional<double> idle_share_of_backward;
  std::optional<Spread> launch_lag_us;
  std::string bound;  // "host-bound", "device-bound", "mixed"; "" on CPUs
  TracedHost host;
  TracedIdle idle;
  std::optional<Spread> hooks_us;  // of a step, with the exchanges' calls within them
  std::optional<Spread> exposed_us;
  std::optional<double> rest_us;  // of the period, medians
  std::vector<int> tensors_a_step;
  bool same_order = true;
  std::vector<TracedTensor> tensors;
  std::vector<TracedExchange> exchanges;
  std::vector<TracedBroadcast> before_backward;
  std::optional<TracedDevice> on_device;
  // Percentiles of exchange_call_us and of hook_us_a_tensor, entries floor(n / 10) and
  // n - 1 - floor(n / 10).
  std::optional<double> exchange_call_tenth_us, exchange_call_ninetieth_us;
  std::optional<double> hook_tenth_us, hook_ninetieth_us;
  std::optional<int> compiled_regions;
  std::vector<std::string> notes;

  // Not written: the part of forward in which buffers are broadcast, and a step's copies from
  // buckets back into gradients; medians.
  double buffers_us = 0, copies_back_us = 0;
  // Not written: hook_us_a_tensor without the copy into a bucket, with its percentiles.
  std::optional<double> bare_hook_us, bare_hook_tenth_us, bare_hook_ninetieth_us;

  // Not written, and only on request: of each used step, in launch order, without kernels of hooks.
  std::vector<std::vector<BackwardKernel>> kernels;
};

// As `sparfuse trace --json` prints it.
nlohmann::json ToJson(const TraceFacts& facts);

struct TraceOptions {
  bool optimizer_steps = false;      // steps end with the optimizer's
  std::optional<std::string> group;  // of exchanges that count, by its name in the file
  bool keep_kernels = false;         // TraceFacts::kernels
};

// Throws Error{kConfig} naming the file, the finding and a remedy, for a trace that does not have
// these facts.
TraceFacts FactsOf(const Trace& trace, const std::string& file, const TraceOptions& options);

// Reads and makes facts.
TraceFacts ReadTraceFacts(const std::string& file, const TraceOptions& options);

// The same for files of one training, a rank each. If all ranks are there, no note asks for more.
std::vector<TraceFacts> ReadTraceFacts(const std::vector<std::string>& files,
                                       const TraceOptions& options);

// An exchange of several ranks: the time of its transfer, without waiting for the last of them.
struct TracedTransfer {
  std::string collective;
  std::int64_t elements = 0;
  double bytes = 0;
  Spread transfer_us;
  std::int64_t group_ranks = 0;
  bool operator==(const TracedTransfer&) const = default;
};
struct TransferFacts {
  std::vector<int> ranks;
  std::vector<TracedTransfer> exchanges;
};
nlohmann::json ToJson(const TransferFacts& transfers);

// The transfers in the files of several ranks of one training. For each exchange, by group and
// position in the step, it takes the shortest over ranks; clocks are not compared. Throws
// Error{kConfig} if a rank is given twice, or if worlds, steps or exchanges differ.
TransferFacts TransfersOf(const std::vector<TraceFacts>& ranks);

}  // namespace sparfuse::harness
