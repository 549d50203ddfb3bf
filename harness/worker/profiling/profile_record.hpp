// Records a profile while it is measured: values, each with its standard error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

struct CurvePoint {
  std::size_t size = 0;  // elements or bytes
  Estimate seconds;
  std::optional<std::vector<std::int64_t>> shape = {};
};

// Every value goes to its place in the profile and its relative standard error to the same place,
// as text, in "relative_errors" (docs/profiles-and-clusters.md).
class ProfileRecord {
 public:
  using Place = nlohmann::json::json_pointer;

  void Set(const Place& place, nlohmann::json value);
  void Number(const Place& place, const Estimate& estimate);
  // One error: the median of those of the points.
  void Curve(const Place& place, const std::vector<CurvePoint>& points);
  // One error a point.
  void CurveWithErrors(const Place& place, const std::vector<CurvePoint>& points);
  // One error an element of the array that stands there.
  void Errors(const Place& place, const std::vector<Estimate>& elements);

  double at(const Place& place) const { return profile_.at(place); }
  nlohmann::json Take() { return std::move(profile_); }

 private:
  nlohmann::json profile_ = nlohmann::json::object();
};

}  // namespace sparfuse::harness
