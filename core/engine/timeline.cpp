#include "core/engine/timeline.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

namespace sparfuse {
namespace {

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) continue;
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string_view SpanKindName(SpanKind kind) {
  static constexpr std::string_view kNames[] = {"forward",  "backward",  "pack",       "sparsify",
                                                "exchange", "negotiate", "decompress", "update",
                                                "wait",     "wait",      "outer"};
  return kNames[static_cast<std::size_t>(kind)];
}

void Timeline::Clear() {
  std::lock_guard lock(mutex_);
  spans_.clear();
  shifted_seconds_ = 0;
}

void Timeline::Add(Span span) {
  std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

void Timeline::Shift(double seconds) {
  std::lock_guard lock(mutex_);
  shifted_seconds_ += seconds;
  for (Span& span : spans_) {
    span.begin_seconds = std::max(0.0, span.begin_seconds + seconds);
    span.end_seconds = std::max(0.0, span.end_seconds + seconds);
  }
}

double Timeline::shifted_seconds() const {
  std::lock_guard lock(mutex_);
  return shifted_seconds_;
}

std::vector<Span> Timeline::Sorted() const {
  std::lock_guard lock(mutex_);
  std::vector<Span> sorted = spans_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Span& a, const Span& b) { return a.begin_seconds < b.begin_seconds; });
  return sorted;
}

double Timeline::Total(SpanKind kind, std::string_view lane) const {
  std::lock_guard lock(mutex_);
  double total = 0;
  for (const Span& span : spans_) {
    if (span.kind == kind && (lane.empty() || span.lane == lane)) {
      total += span.end_seconds - span.begin_seconds;
    }
  }
  return total;
}

std::string ChromeTrace(const std::vector<std::vector<Span>>& spans_by_rank, int first_rank,
                        double clock_uncertainty_seconds) {
  std::string out = "{\"displayTimeUnit\": \"ms\", ";
  if (clock_uncertainty_seconds > 0) {
    char uncertainty[96];
    std::snprintf(uncertainty, sizeof uncertainty,
                  "\"otherData\": {\"clock_uncertainty_us\": %.3f}, ",
                  clock_uncertainty_seconds * 1e6);
    out += uncertainty;
  }
  out += "\"traceEvents\": [\n";
  bool first = true;
  const auto emit = [&](const std::string& event) {
    out += (first ? "" : ",\n") + event;
    first = false;
  };
  for (std::size_t rank = 0; rank < spans_by_rank.size(); ++rank) {
    const std::string pid = std::to_string(static_cast<std::size_t>(first_rank) + rank);
    emit("{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": " + pid +
         ", \"args\": {\"name\": \"rank " + pid + "\"}}");
    std::map<std::string, int> lanes;
    for (const Span& span : spans_by_rank[rank]) {
      const auto [lane, added] = lanes.emplace(span.lane, static_cast<int>(lanes.size()));
      if (added) {
        emit("{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": " + pid + ", \"tid\": " +
             std::to_string(lane->second) + ", \"args\": {\"name\": " + Quoted(span.lane) + "}}");
      }
      char times[96];
      std::snprintf(times, sizeof times, "\"ts\": %.3f, \"dur\": %.3f", span.begin_seconds * 1e6,
                    (span.end_seconds - span.begin_seconds) * 1e6);
      const std::string name =
          std::string(SpanKindName(span.kind)) + (span.label.empty() ? "" : " " + span.label);
      emit("{\"ph\": \"X\", \"name\": " + Quoted(name) +
           ", \"cat\": " + Quoted(SpanKindName(span.kind)) + ", \"pid\": " + pid +
           ", \"tid\": " + std::to_string(lane->second) + ", " + times +
           ", \"args\": {\"bytes\": " + std::to_string(span.bytes) + "}}");
    }
  }
  return out + "\n]}\n";
}

}  // namespace sparfuse
