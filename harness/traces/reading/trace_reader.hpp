// Reads PyTorch profiler files (Kineto's form) of any size as a stream. Keeps the events that show
// how a step was trained, each in some fifty bytes, with times in whole nanoseconds.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::harness {

enum class EventKind : std::uint8_t {
  kStep,        // ProfilerStep#N
  kOptimizer,   // Optimizer.step#NAME
  kEvaluation,  // of a node of autograd's graph
  kForward,     // DistributedDataParallel.forward
  kAccumulate,  // torch::autograd::AccumulateGrad, within an evaluation
  kCall,        // c10d::*
  kComms,       // record_param_comms
  kCopyBack,    // copy_bucket_to_grad
  kMulOut,      // of DDP's hook: its first argument is the gradient
  kOperator,    // any other operator on the host
  kGloo,        // an operation of gloo, on a thread of its own
  kLaunch,      // a call of the runtime or driver with a correlation
  kGraph,       // one that launches a graph
  kKernel,      // of the device, collectives too
  kCopy         // or a fill
};

inline constexpr std::int64_t kNoId = -1;
inline constexpr std::uint32_t kNoExtra = ~std::uint32_t{0};
inline constexpr std::uint32_t kNoName = 0;  // of Trace::names: ""

inline constexpr std::uint32_t kNoCorrelation = ~std::uint32_t{0};
inline constexpr std::uint32_t kMostThreads = 1u << 24;

struct TraceEvent {
  std::int64_t begin = 0, end = 0;             // ns
  std::int64_t external_id = kNoId;            // of operators and of collectives' kernels
  std::uint32_t correlation = kNoCorrelation;  // of launches and of the device's work
  std::uint32_t name = 0, extra = kNoExtra;    // indices
  std::uint32_t thread : 24 = 0;               // by process and thread
  EventKind kind : 7 = EventKind::kOperator;
  bool has_sequence : 1 = false;  // a forward operator, or its node
};
static_assert(sizeof(TraceEvent) == 40);

// Arguments that few events have: indices of names and shapes, each of which is kept once.
struct StoredExtra {
  std::int64_t elements = kNoId, sequence = kNoId;
  double bytes = 0;
  std::int32_t ranks = -1;
  std::uint32_t shape = kNoExtra;  // of the first argument; without a type it is none
  std::uint32_t type = kNoName, collective = kNoName, dtype = kNoName, group = kNoName;
};

struct Trace {
  std::string file, sha256;  // its base name, and of its bytes
  int rank = 0, world = 1;
  std::optional<std::string> backend;
  std::string hardware;           // the first device's name; "": none
  std::size_t read = 0;           // events in the file, ignored ones included
  std::deque<TraceEvent> events;  // by begin, the longer first, then by external id
  std::vector<std::string> names;
  std::deque<StoredExtra> extras;
  std::vector<std::vector<std::int64_t>> shapes;

  const std::string& Name(const TraceEvent& event) const { return names[event.name]; }
  // Null if the event has none.
  const StoredExtra* Stored(const TraceEvent& event) const {
    return event.extra == kNoExtra ? nullptr : &extras[event.extra];
  }
};

// Plain or gzip, decided by the first bytes. Cost: memory of at most 100 bytes an event, 150 MB of
// JSON a second. Throws Error{kConfig} naming file, byte or event, the finding and a remedy: for a
// file that is cut off, not JSON, or from another profiler; for a time that is not a number.
Trace ReadTrace(const std::filesystem::path& file);

// Reads "12.345" as 12345; false if it is not a decimal number of at most 64 bits of nanoseconds.
bool NanosecondsOf(std::string_view microseconds, std::int64_t& nanoseconds);

}  // namespace sparfuse::harness
