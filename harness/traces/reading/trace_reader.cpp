#include "harness/traces/reading/trace_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/base/error.hpp"
#include "harness/traces/reading/json_scanner.hpp"
#include "harness/traces/reading/trace_text.hpp"

namespace sparfuse::harness {

namespace {

constexpr std::string_view kEvaluating = "autograd::engine::evaluate_function: ";

// Arguments of the event at hand that few events have.
struct EventExtra {
  std::optional<std::vector<std::int64_t>> shape;  // of the first argument
  std::string type;                                // of it; "": a shape without a type is none
  std::string collective, dtype, group;
  std::optional<std::int64_t> elements, ranks, sequence;
  double bytes = 0;
};

// One event of the file. Whether it counts is known at its end.
struct GivenEvent {
  std::string phase, category, name;
  std::int64_t process = 0, thread = 0, begin = 0, duration = 0;
  bool has_begin = false, has_duration = false, has_sequence = false, has_extra = false;
  std::string wrong_key, wrong;  // key and text of an invalid time
  std::int64_t correlation = kNoId, external_id = kNoId;
  std::string argument_name;
  EventExtra extra;
  bool shape_open = false;

  void Clear() {
    phase.clear();
    category.clear();
    name.clear();
    argument_name.clear();
    wrong_key.clear();
    process = thread = begin = duration = 0;
    has_begin = has_duration = has_sequence = shape_open = false;
    correlation = external_id = kNoId;
    if (std::exchange(has_extra, false)) extra = EventExtra();
  }
};

// The parser's place in the file.
enum class In : std::uint8_t {
  kTop,
  kDistributed,
  kDevices,
  kDevice,
  kEvents,
  kEvent,
  kArguments,
  kShapes,  // 'Input Dims': shapes of all arguments
  kShape,   // shape of one argument
  kTypes,   // 'Input type'
  kOther
};

class TraceParser {
 public:
  TraceParser(std::string file, Trace& trace) : file_(std::move(file)), trace_(trace) {
    trace_.names.emplace_back();
  }

  // The scanner's events.
  void Key(std::string& value) { key_.swap(value); }
  void String(std::string& value);
  void Number(std::string_view text, bool whole);
  void Literal(std::string_view text) {
    if (IsTime()) WrongTime(text);
  }
  void Open(bool object);
  void Close(bool) {
    if (Here() == In::kEvent) Add();
    open_.pop_back();
  }
  [[noreturn]] void ParseError(std::size_t byte, std::string_view near) const {
    Fail(
        fmt::format("cut off, or not JSON, at byte {}{}: expected a whole file of "
                    "torch.profiler: {}",
                    byte, near.empty() ? "" : " near " + Shown(near), kCutOff));
  }

  // Precondition: all was parsed.
  void Finish();

 private:
  static std::string Shown(std::string_view text) {
    std::string shown;
    for (const char c : text.substr(0, 40)) shown += c >= ' ' && c <= '~' ? c : '?';
    return "\"" + shown + "\"";
  }
  [[noreturn]] void Fail(const std::string& what) const {
    SPARFUSE_THROW(kConfig, fmt::format("{}: {}", file_, what));
  }
  std::string Place() const {
    return fmt::format("traceEvents[{}] {}", trace_.read, Shown(now_.name));
  }

  In Here() const { return open_.empty() ? In::kOther : open_.back(); }
  bool IsTime() const { return Here() == In::kEvent && (key_ == "ts" || key_ == "dur"); }
  EventExtra& Extra() {
    now_.has_extra = true;
    return now_.extra;
  }

  void OpenTop(bool object);
  void Integer(std::int64_t value);
  void ArgumentInteger(std::int64_t value);
  void Time(std::string_view text);
  // Reported once the event is known to count.
  void WrongTime(std::string_view text) {
    now_.wrong_key = key_;
    now_.wrong = text;
  }

  void Add();
  std::optional<EventKind> KindOf() const;
  std::uint32_t NameIndex(const std::string& name);
  StoredExtra Stored(const EventExtra& extra);
  void CheckSizes(const EventExtra& extra) const;
  void TakeRank();
  std::uint32_t ThreadIndex();

  const std::string file_;
  Trace& trace_;
  std::vector<In> open_;
  std::string key_;
  GivenEvent now_;
  std::size_t types_read_ = 0;
  std::optional<std::int64_t> rank_, world_;
  bool has_events_ = false, has_distributed_ = false, has_devices_ = false;
  std::string other_profiler_, other_category_;
  std::size_t of_other_devices_ = 0;  // events
  std::unordered_map<std::string, std::uint32_t> names_;
  std::map<std::vector<std::int64_t>, std::uint32_t> shapes_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> threads_;
};

void TraceParser::OpenTop(bool object) {
  if (key_ == "traceEvents") {
    if (has_events_) Fail("the key \"traceEvents\" is twice at the top: expected it once");
    if (object) Fail("traceEvents is an object: expected a list of events");
    has_events_ = true;
    open_.push_back(In::kEvents);
  } else if (key_ == "distributedInfo" && object && !has_distributed_) {
    has_distributed_ = true;
    open_.push_back(In::kDistributed);
  } else if (key_ == "deviceProperties" && !object && !has_devices_) {
    has_devices_ = true;
    open_.push_back(In::kDevices);
  } else {
    open_.push_back(In::kOther);
  }
}

void TraceParser::Open(bool object) {
  if (open_.empty()) {
    if (!object) {
      Fail(
          "its top is a list, as Chrome's own tracing writes: expected a file of torch.profiler, "
          "an object with \"traceEvents\"");
    }
    open_.push_back(In::kTop);
    return;
  }
  switch (Here()) {
    case In::kTop:
      OpenTop(object);
      break;
    case In::kDevices:
      open_.push_back(object ? In::kDevice : In::kOther);
      break;
    case In::kEvents:
      now_.Clear();
      open_.push_back(object ? In::kEvent : In::kOther);
      break;
    case In::kEvent:
      if (IsTime()) WrongTime(object ? "an object" : "a list");
      open_.push_back(object && key_ == "args" ? In::kArguments : In::kOther);
      break;
    case In::kArguments:
      types_read_ = 0;
      open_.push_back(!object && key_ == "Input Dims"   ? In::kShapes
                      : !object && key_ == "Input type" ? In::kTypes
                                                        : In::kOther);
      break;
    case In::kShapes:
      // Only the first argument's shape is kept.
      if (!object && !now_.shape_open) {
        now_.shape_open = true;
        Extra().shape.emplace();
        open_.push_back(In::kShape);
      } else {
        open_.push_back(In::kOther);
      }
      break;
    default:
      open_.push_back(In::kOther);
  }
}

void TraceParser::Time(std::string_view text) {
  const bool is_begin = key_ == "ts";
  std::int64_t& value = is_begin ? now_.begin : now_.duration;
  if (!NanosecondsOf(text, value)) {
    WrongTime(text);
    return;
  }
  (is_begin ? now_.has_begin : now_.has_duration) = true;
}

void TraceParser::ArgumentInteger(std::int64_t value) {
  if (key_ == "correlation")
    now_.correlation = value;
  else if (key_ == "External id")
    now_.external_id = value;
  else if (key_ == "Sequence number")
    now_.has_sequence = true;
  else if (key_ == "In msg nelems")
    Extra().elements = value;
  else if (key_ == "Group size")
    Extra().ranks = value;
  else if (key_ == "Seq")
    Extra().sequence = value;
  else if (key_ == "bytes")
    Extra().bytes = static_cast<double>(value);
  else if (key_ == "Process Group Name")
    Extra().group = std::to_string(value);
}

void TraceParser::Integer(std::int64_t value) {
  switch (Here()) {
    case In::kEvent:
      if (key_ == "pid")
        now_.process = value;
      else if (key_ == "tid")
        now_.thread = value;
      break;
    case In::kArguments:
      ArgumentInteger(value);
      break;
    case In::kShape:
      now_.extra.shape->push_back(value);
      break;
    case In::kDistributed:
      if (key_ == "rank") rank_ = value;
      if (key_ == "world_size") world_ = value;
      break;
    default:
      break;
  }
}

// A whole number beyond 64 bits of an identifier is none; identifiers are arbitrary bits.
void TraceParser::Number(std::string_view text, bool whole) {
  if (IsTime()) {
    Time(text);
    return;
  }
  const In here = Here();
  if (here != In::kEvent && here != In::kArguments && here != In::kShape &&
      here != In::kDistributed)
    return;
  const char* end = text.data() + text.size();
  if (whole) {
    std::int64_t value = 0;
    std::uint64_t bits = 0;
    if (std::from_chars(text.data(), end, value).ec == std::errc()) {
      Integer(value);
      return;
    }
    if (std::from_chars(text.data(), end, bits).ec == std::errc()) {
      Integer(static_cast<std::int64_t>(bits));
      return;
    }
  }
  if (here == In::kArguments && key_ == "bytes")
    Extra().bytes = std::strtod(std::string(text).c_str(), nullptr);
}

void TraceParser::String(std::string& value) {
  switch (Here()) {
    case In::kEvent:
      if (key_ == "name")
        now_.name.swap(value);
      else if (key_ == "cat")
        now_.category.swap(value);
      else if (key_ == "ph")
        now_.phase.swap(value);
      else if (key_ == "tid")
        now_.thread = static_cast<std::int64_t>(std::hash<std::string>()(value));
      else if (key_ == "pid")
        now_.process = static_cast<std::int64_t>(std::hash<std::string>()(value));
      else if (IsTime())
        WrongTime(Shown(value));
      break;
    case In::kArguments:
      if (key_ == "name")
        now_.argument_name.swap(value);
      else if (key_ == "Collective name")
        Extra().collective.swap(value);
      else if (key_ == "dtype")
        Extra().dtype.swap(value);
      else if (key_ == "Process Group Name")
        Extra().group.swap(value);
      break;
    case In::kTypes:
      if (types_read_++ == 0) Extra().type.swap(value);
      break;
    case In::kDistributed:
      if (key_ == "backend") trace_.backend = value;
      break;
    case In::kDevice:
      if (key_ == "name" && trace_.hardware.empty()) trace_.hardware.swap(value);
      break;
    default:
      break;
  }
}

std::optional<EventKind> TraceParser::KindOf() const {
  const std::string_view category = now_.category, name = now_.name;
  if (category == "cpu_op") {
    if (name.starts_with(kEvaluating)) return EventKind::kEvaluation;
    if (name == "torch::autograd::AccumulateGrad") return EventKind::kAccumulate;
    if (name.starts_with("c10d::")) return EventKind::kCall;
    if (name == "record_param_comms") return EventKind::kComms;
    if (name == "torch.distributed.ddp.reducer::copy_bucket_to_grad") return EventKind::kCopyBack;
    if (name == "torch::distributed::reducer::mul_out") return EventKind::kMulOut;
    return EventKind::kOperator;
  }
  if (category == "user_annotation") {
    if (name.starts_with("ProfilerStep#")) return EventKind::kStep;
    if (name.starts_with("Optimizer.step#")) return EventKind::kOptimizer;
    if (name == "DistributedDataParallel.forward") return EventKind::kForward;
    if (name.starts_with("gloo:")) return EventKind::kGloo;
    return std::nullopt;
  }
  if (category == "cuda_runtime" || category == "cuda_driver") {
    if (name == "cudaGraphLaunch" || name == "hipGraphLaunch" || name == "cuGraphLaunch")
      return EventKind::kGraph;
    if (now_.correlation != kNoId) return EventKind::kLaunch;
    return std::nullopt;
  }
  if (category == "kernel") return EventKind::kKernel;
  if (category == "gpu_memcpy" || category == "gpu_memset") return EventKind::kCopy;
  return std::nullopt;
}

// Whether events of a kind have the fields of an EventExtra, or use them.
bool NeedsExtra(EventKind kind) {
  return kind == EventKind::kAccumulate || kind == EventKind::kMulOut || kind == EventKind::kGloo ||
         kind == EventKind::kComms || kind == EventKind::kKernel || kind == EventKind::kCopy;
}

std::uint32_t TraceParser::NameIndex(const std::string& name) {
  if (name.empty()) return kNoName;
  const auto [at, is_new] =
      names_.try_emplace(name, static_cast<std::uint32_t>(trace_.names.size()));
  if (is_new) trace_.names.push_back(name);
  return at->second;
}

// Sizes that no tensor, group or copy has come from an edited file, and would make wrong rates.
void TraceParser::CheckSizes(const EventExtra& extra) const {
  constexpr std::int64_t kMost = std::int64_t{1} << 48, kMostRanks = 1 << 24;
  std::int64_t elements = 1;
  for (const std::int64_t size : extra.shape.value_or(std::vector<std::int64_t>())) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements) || elements > kMost) {
      Fail(fmt::format(
          "{}: Input Dims [{}]: expected the sizes of a tensor, of at most 2^48 elements", Place(),
          fmt::join(*extra.shape, ", ")));
    }
  }
  const auto check = [&](const char* key, double value, double most) {
    if (value >= 0 && value <= most) return;
    Fail(fmt::format("{}: {} = {:g}: expected 0 to {:g}", Place(), key, value, most));
  };
  check("In msg nelems", static_cast<double>(extra.elements.value_or(0)), kMost);
  check("Group size", static_cast<double>(extra.ranks.value_or(0)), kMostRanks);
  check("bytes", extra.bytes, kMost);
}

// Files of old versions may lack one of both.
void TraceParser::TakeRank() {
  constexpr std::int64_t kMost = 1 << 24;
  const std::int64_t world = world_.value_or(std::max<std::int64_t>(1, rank_.value_or(0) + 1));
  const std::int64_t rank = rank_.value_or(0);
  if (world < 1 || world > kMost || rank < 0 || rank >= world) {
    Fail(fmt::format(
        "distributedInfo: rank = {} and world_size = {}: expected one of the ranks from "
        "0 on",
        rank, world));
  }
  trace_.rank = static_cast<int>(rank);
  trace_.world = world_ ? static_cast<int>(world) : 1;
}

StoredExtra TraceParser::Stored(const EventExtra& extra) {
  StoredExtra stored;
  stored.elements = extra.elements.value_or(kNoId);
  stored.sequence = extra.sequence.value_or(kNoId);
  stored.ranks = static_cast<std::int32_t>(extra.ranks.value_or(-1));
  stored.bytes = extra.bytes;
  stored.type = NameIndex(extra.type);
  stored.collective = NameIndex(extra.collective);
  stored.dtype = NameIndex(extra.dtype);
  stored.group = NameIndex(extra.group);
  if (extra.shape) {
    const auto [at, is_new] =
        shapes_.try_emplace(*extra.shape, static_cast<std::uint32_t>(trace_.shapes.size()));
    if (is_new) trace_.shapes.push_back(*extra.shape);
    stored.shape = at->second;
  }
  return stored;
}

std::uint32_t TraceParser::ThreadIndex() {
  const auto next = static_cast<std::uint32_t>(threads_.size());
  const std::uint32_t index = threads_.try_emplace({now_.process, now_.thread}, next).first->second;
  if (index == kMostThreads) Fail(fmt::format("expected at most {} threads", kMostThreads));
  return index;
}

// Devices whose categories of events are not read, by the prefixes of these (libkineto's
// ActivityType.cpp).
constexpr std::pair<std::string_view, const char*> kOtherDevices[] = {
    {"mtia_", "an MTIA device"},
    {"hpu_", "a Gaudi device"},
    {"xpu_", "an Intel XPU"},
    {"privateuse1_", "a device of another vendor"}};

void TraceParser::Add() {
  if (now_.argument_name.starts_with("/device:TPU")) other_profiler_ = "a TPU";
  for (const auto& [prefix, device] : kOtherDevices) {
    if (!now_.category.starts_with(prefix)) continue;
    other_profiler_ = device;
    other_category_ = now_.category;
    ++of_other_devices_;
  }
  const std::optional<EventKind> kind = now_.phase == "X" ? KindOf() : std::optional<EventKind>();
  if (!kind) {
    ++trace_.read;
    return;
  }
  if (!now_.wrong_key.empty()) {
    Fail(fmt::format("{}: {} = {}: expected a number of microseconds", Place(), now_.wrong_key,
                     now_.wrong));
  }
  if (!now_.has_begin || !now_.has_duration) {
    Fail(fmt::format("{}: the key \"{}\" is missing: expected a number of microseconds", Place(),
                     now_.has_begin ? "dur" : "ts"));
  }
  if (now_.duration < 0) {
    Fail(fmt::format(
        "{}: dur = {:.3f}: expected 0 or more, as the profiler writes; use the file unchanged",
        Place(), static_cast<double>(now_.duration) / 1e3));
  }
  TraceEvent event;
  event.begin = now_.begin;
  if (__builtin_add_overflow(now_.begin, now_.duration, &event.end))
    Fail(fmt::format("{}: ends beyond 2^63 ns: expected microseconds", Place()));
  if (*kind >= EventKind::kLaunch && now_.correlation != kNoId) {
    if (now_.correlation < 0 || now_.correlation >= kNoCorrelation) {
      Fail(fmt::format("{}: correlation = {}: expected 0 to 4294967294, as CUPTI counts", Place(),
                       now_.correlation));
    }
    event.correlation = static_cast<std::uint32_t>(now_.correlation);
  }
  event.external_id = now_.external_id;
  event.name = NameIndex(now_.name);
  event.thread = ThreadIndex() & (kMostThreads - 1);
  event.kind = *kind;
  event.has_sequence = now_.has_sequence;
  if (now_.has_extra && NeedsExtra(*kind)) {
    event.extra = static_cast<std::uint32_t>(trace_.extras.size());
    CheckSizes(now_.extra);
    trace_.extras.push_back(Stored(now_.extra));
  }
  trace_.events.push_back(event);
  ++trace_.read;
}

void TraceParser::Finish() {
  if (open_.empty() && !has_events_) {
    Fail(
        "no key \"traceEvents\" at its top: expected a file of torch.profiler's "
        "export_chrome_trace; Nsight Systems and others write other forms");
  }
  TakeRank();
  const bool knows = std::ranges::any_of(trace_.events, [](const TraceEvent& event) {
    return event.kind != EventKind::kStep && event.kind != EventKind::kOptimizer;
  });
  if (!knows) {
    Fail(fmt::format(
        "no operator or kernel of torch.profiler among its {} events{}: expected a "
        "trace of training in PyTorch on CPUs, CUDA or ROCm",
        trace_.read,
        other_profiler_.empty() ? ": it comes from another program, such as Chrome itself or Nsight"
                                : ": it comes from " + other_profiler_));
  }
  // Without its device, such a trace would be read as one of a CPU.
  if (of_other_devices_ > 0) {
    Fail(
        fmt::format("{} of its {} events are of {} (cat \"{}\"): expected a trace of training in "
                    "PyTorch on CPUs, CUDA or ROCm",
                    of_other_devices_, trace_.read, other_profiler_, other_category_));
  }
  std::ranges::sort(trace_.events, [&](const TraceEvent& a, const TraceEvent& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    if (a.end != b.end) return a.end > b.end;
    if (a.external_id != b.external_id) return a.external_id < b.external_id;
    if (a.kind != b.kind) return a.kind < b.kind;
    return trace_.names[a.name] < trace_.names[b.name];
  });
}

}  // namespace

bool NanosecondsOf(std::string_view text, std::int64_t& nanoseconds) {
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  int exponent = 0;
  if (const std::size_t at = text.find_first_of("eE"); at != std::string_view::npos) {
    std::string_view power = text.substr(at + 1);
    const bool below = !power.empty() && power.front() == '-';
    if (!power.empty() && (power.front() == '-' || power.front() == '+')) power.remove_prefix(1);
    if (power.empty() || power.size() > 3) return false;
    for (const char c : power) {
      if (c < '0' || c > '9') return false;
      exponent = 10 * exponent + (c - '0');
    }
    if (below) exponent = -exponent;
    text = text.substr(0, at);
  }
  // Reads the digits down to the nanosecond, and one more for rounding.
  std::uint64_t value = 0;
  int left = std::numeric_limits<int>::max();  // remaining digits that count; known at the point
  std::size_t digits = 0;
  const std::size_t point = text.find('.');
  const int whole = static_cast<int>(std::min(point, text.size()));
  left = whole + exponent + 3;
  bool round_up = false;
  for (const char c : text) {
    if (c == '.' && digits == static_cast<std::size_t>(whole)) continue;
    if (c < '0' || c > '9') return false;
    ++digits;
    if (left == 0) round_up = c >= '5';
    if (left-- <= 0) continue;
    if (__builtin_mul_overflow(value, std::uint64_t{10}, &value) ||
        __builtin_add_overflow(value, static_cast<std::uint64_t>(c - '0'), &value)) {
      return false;
    }
  }
  if (digits == 0) return false;
  for (; left > 0; --left) {
    if (value != 0 && __builtin_mul_overflow(value, std::uint64_t{10}, &value)) return false;
  }
  value += round_up ? 1 : 0;
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return false;
  nanoseconds = negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
  return true;
}

Trace ReadTrace(const std::filesystem::path& file) {
  Trace trace;
  trace.file = file.filename().string();
  TraceText text(file);
  TraceParser parser(file.string(), trace);
  JsonScanner<TraceText, TraceParser>(text, parser).Read();
  trace.sha256 = text.Sha256();
  parser.Finish();
  return trace;
}

}  // namespace sparfuse::harness
