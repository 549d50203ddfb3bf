#include "harness/worker/profiling/profile_record.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

json Points(const std::vector<CurvePoint>& points) {
  json array = json::array();
  for (const CurvePoint& point : points) {
    array.push_back({point.size, point.seconds.value});
    if (point.shape) array.back().push_back(*point.shape);
  }
  return array;
}

std::vector<Estimate> Seconds(const std::vector<CurvePoint>& points) {
  std::vector<Estimate> seconds;
  for (const CurvePoint& point : points) seconds.push_back(point.seconds);
  return seconds;
}

std::vector<double> RelativeErrors(const std::vector<Estimate>& estimates) {
  std::vector<double> errors;
  for (const Estimate& estimate : estimates) errors.push_back(estimate.relative_error());
  return errors;
}

}  // namespace

void ProfileRecord::Set(const Place& place, json value) { profile_[place] = std::move(value); }

void ProfileRecord::Number(const Place& place, const Estimate& estimate) {
  Set(place, estimate.value);
  profile_["relative_errors"][place.to_string()] = estimate.relative_error();
}

void ProfileRecord::Curve(const Place& place, const std::vector<CurvePoint>& points) {
  Set(place, Points(points));
  if (points.empty()) return;
  profile_["relative_errors"][place.to_string()] = Median(RelativeErrors(Seconds(points)));
}

void ProfileRecord::CurveWithErrors(const Place& place, const std::vector<CurvePoint>& points) {
  Set(place, Points(points));
  Errors(place, Seconds(points));
}

void ProfileRecord::Errors(const Place& place, const std::vector<Estimate>& elements) {
  profile_["relative_errors"][place.to_string()] = RelativeErrors(elements);
}

}  // namespace sparfuse::harness
