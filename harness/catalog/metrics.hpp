// Names the metrics that trials store, with their units and meanings.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sparfuse::harness {

struct Metric {
  std::string name;
  std::string unit;     // "" if the workload's decides
  std::string meaning;  // of one trial's number
};

// The metrics that claims and figures may name.
std::span<const Metric> Metrics();
std::span<const std::string> MetricNames();

// Whether a metric is a time or derived from one, so that other work on the machine disturbs it. A
// trial counts or computes all other metrics.
bool IsTimed(const std::string& metric);
// Whether a metric is stated by trials that reached their target, and by no others.
bool IsToTarget(std::string_view metric);

}  // namespace sparfuse::harness
