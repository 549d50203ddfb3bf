#include "harness/traces/trace_reader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

constexpr const char* kCutOff = "was the profiler killed while writing?";

// The text of a file, read piece by piece, and unpacked if it is packed.
class TraceText {
 public:
  explicit TraceText(const std::filesystem::path& path)
      : path_(path), file_(path, O_RDONLY), digest_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(digest_.get(), EVP_sha256(), nullptr);
    ReadMore();
    packed_ = got_ >= 2 && raw_[0] == 0x1f && raw_[1] == 0x8b;
    if (packed_ && inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK)
      SPARFUSE_THROW(kInternal, "cannot begin to unpack");
    Fill();
  }
  ~TraceText() {
    if (packed_) inflateEnd(&stream_);
  }
  TraceText(const TraceText&) = delete;
  TraceText& operator=(const TraceText&) = delete;

  bool AtEnd() { return at_ == end_ && !Fill(); }
  char Now() const { return *at_; }
  void Next() { ++at_; }

  // Precondition: the text was read to its end.
  std::string Sha256() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
    unsigned size = 0;
    EVP_DigestFinal_ex(digest_.get(), bytes.data(), &size);
    std::string hex;
    for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", bytes[i]);
    return hex;
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 18;

  bool ReadMore() {
    ssize_t got = 0;
    do got = ::read(file_.number(), raw_.data(), raw_.size());
    while (got < 0 && errno == EINTR);
    if (got < 0) FailAt("read", path_, errno);
    got_ = static_cast<std::size_t>(got);
    EVP_DigestUpdate(digest_.get(), raw_.data(), got_);
    stream_.next_in = raw_.data();
    stream_.avail_in = static_cast<uInt>(got_);
    return got_ > 0;
  }

  // False at the end of the text.
  bool Fill() {
    done_ += static_cast<std::size_t>(end_ - begin_);
    begin_ = at_ = end_ = nullptr;
    if (!packed_) {
      if (got_ == 0 || (taken_ && !ReadMore())) return false;
      taken_ = true;
      return Give(reinterpret_cast<const char*>(raw_.data()), got_);
    }
    while (true) {
      if (stream_.avail_in == 0 && !ReadMore()) {
        if (in_member_) FailUnpacking("the packed file ends");
        return false;
      }
      if (!in_member_ && std::exchange(began_, true)) inflateReset(&stream_);
      in_member_ = true;
      stream_.next_out = unpacked_.data();
      stream_.avail_out = static_cast<uInt>(unpacked_.size());
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_STREAM_END)
        in_member_ = false;
      else if (status != Z_OK && status != Z_BUF_ERROR)
        FailUnpacking("the packed file is broken");
      const std::size_t made = unpacked_.size() - stream_.avail_out;
      if (made > 0) return Give(reinterpret_cast<const char*>(unpacked_.data()), made);
    }
  }

  bool Give(const char* from, std::size_t size) {
    begin_ = at_ = from;
    end_ = from + size;
    return true;
  }

  [[noreturn]] void FailUnpacking(const char* what) const {
    SPARFUSE_THROW(kConfig, fmt::format("{}: {} at byte {} of its text: expected a whole file: {}",
                                        path_.string(), what, done_, kCutOff));
  }

  std::filesystem::path path_;
  Descriptor file_;
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> digest_;
  std::vector<unsigned char> raw_ = std::vector<unsigned char>(kPiece);
  std::vector<unsigned char> unpacked_ = std::vector<unsigned char>(2 * kPiece);
  z_stream stream_{};
  std::size_t got_ = 0, done_ = 0;
  bool packed_ = false, taken_ = false, in_member_ = false, began_ = false;
  const char *begin_ = nullptr, *at_ = nullptr, *end_ = nullptr;
};

// The text in the form that the parser takes.
struct TextIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  TraceText* text = nullptr;  // null: the end

  char operator*() const { return text->Now(); }
  TextIterator& operator++() {
    text->Next();
    return *this;
  }
  bool operator==(const TextIterator&) const { return text == nullptr || text->AtEnd(); }
};

constexpr std::string_view kEvaluating = "autograd::engine::evaluate_function: ";

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
  TraceParser(std::string file, Trace& trace) : file_(std::move(file)), trace_(trace) {}

  // The parser's events, with the names of nlohmann::json.
  bool null() { return Other("null"); }
  bool boolean(bool value) { return Other(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) {
    Integer(value);
    return true;
  }
  bool number_unsigned(std::uint64_t value) {
    // Identifiers are arbitrary 64-bit numbers.
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) || !IsTime())
      Integer(static_cast<std::int64_t>(value));
    else
      Time(std::to_string(value));
    return true;
  }
  bool number_float(double value, const std::string& text) {
    if (Here() == In::kEvent && IsTime())
      Time(text);
    else if (Here() == In::kArguments && key_ == "bytes")
      Extra().bytes = value;
    return true;
  }
  bool string(std::string& value);
  bool binary(json::binary_t&) { return true; }
  bool start_object(std::size_t) {
    Open(true);
    return true;
  }
  bool key(std::string& value) {
    key_.swap(value);
    return true;
  }
  bool end_object() {
    if (Here() == In::kEvent) Add();
    open_.pop_back();
    return true;
  }
  bool start_array(std::size_t) {
    Open(false);
    return true;
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t byte, const std::string& near, const json::exception&) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("{}: cut off, or not JSON, at byte {}{}: expected a whole file of "
                               "torch.profiler: {}",
                               file_, byte, near.empty() ? "" : " near " + Shown(near), kCutOff));
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

  void Open(bool object);
  void OpenTop(bool object);
  void Integer(std::int64_t value);
  void ArgumentInteger(std::int64_t value);
  void Time(std::string_view text);
  bool Other(const char* text) {
    if (IsTime()) WrongTime(text);
    return true;
  }
  // Reported once the event is known to count.
  void WrongTime(std::string_view text) {
    now_.wrong_key = key_;
    now_.wrong = text;
  }

  void Add();
  std::optional<EventKind> KindOf() const;
  std::uint32_t NameIndex(const std::string& name);
  StoredExtra Stored(const EventExtra& extra);
  std::uint32_t ThreadIndex();

  const std::string file_;
  Trace& trace_;
  std::vector<In> open_;
  std::string key_;
  GivenEvent now_;
  std::size_t types_read_ = 0;
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
      if (IsTime())
        Time(std::to_string(value));
      else if (key_ == "pid")
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
      if (key_ == "rank") trace_.rank = static_cast<int>(value);
      if (key_ == "world_size") trace_.world = static_cast<int>(value);
      break;
    default:
      break;
  }
}

bool TraceParser::string(std::string& value) {
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
  return true;
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
  const auto [at, is_new] =
      names_.try_emplace(name, static_cast<std::uint32_t>(trace_.names.size()));
  if (is_new) trace_.names.push_back(name);
  return at->second;
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
  return threads_
      .try_emplace({now_.process, now_.thread}, static_cast<std::uint32_t>(threads_.size()))
      .first->second;
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
  event.correlation = now_.correlation;
  event.external_id = now_.external_id;
  event.name = NameIndex(now_.name);
  event.thread = ThreadIndex();
  event.kind = *kind;
  event.has_sequence = now_.has_sequence;
  if (now_.has_extra && NeedsExtra(*kind)) {
    event.extra = static_cast<std::uint32_t>(trace_.extras.size());
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

std::optional<EventExtra> Trace::Extra(const TraceEvent& event) const {
  if (event.extra == kNoExtra) return std::nullopt;
  const StoredExtra& stored = extras[event.extra];
  EventExtra extra;
  if (stored.shape != kNoExtra) extra.shape = shapes[stored.shape];
  extra.type = names[stored.type];
  extra.collective = names[stored.collective];
  extra.dtype = names[stored.dtype];
  extra.group = names[stored.group];
  if (stored.elements != kNoId) extra.elements = stored.elements;
  if (stored.sequence != kNoId) extra.sequence = stored.sequence;
  if (stored.ranks >= 0) extra.ranks = stored.ranks;
  extra.bytes = stored.bytes;
  return extra;
}

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

std::string UnpackedText(const std::filesystem::path& file) {
  std::string all;
  for (TraceText text(file); !text.AtEnd(); text.Next()) all += text.Now();
  return all;
}

Trace ReadTrace(const std::filesystem::path& file) {
  Trace trace;
  trace.file = file.filename().string();
  TraceText text(file);
  TraceParser parser(file.string(), trace);
  json::sax_parse(TextIterator{&text}, TextIterator{}, &parser);
  trace.sha256 = text.Sha256();
  parser.Finish();
  return trace;
}

}  // namespace sparfuse::harness
