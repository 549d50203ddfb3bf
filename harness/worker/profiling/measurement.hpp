// Puts measurements into a profile, with their relative standard errors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/records/profile.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

// A curve while it is measured.
struct MeasuredPoint {
  std::size_t size = 0;  // elements or bytes
  Estimate seconds;
  std::optional<std::vector<std::int64_t>> shape = {};
};
using MeasuredCurve = std::vector<MeasuredPoint>;

// Values of a profile, each noted with its error under its place there, a JSON pointer
// (docs/profiles-and-clusters.md).
class Measurement {
 public:
  explicit Measurement(Profile& profile) : profile_(profile) {}

  double Value(const std::string& place, const Estimate& estimate) const {
    profile_.relative_errors[place] = {estimate.relative_error(), {}};
    return estimate.value;
  }
  // Its error is the median of the errors of the points.
  ProfileCurve Curve(const std::string& place, const MeasuredCurve& points) const {
    if (!points.empty()) profile_.relative_errors[place] = {Median(ErrorsOf(points)), {}};
    return PointsOf(points);
  }
  // One error a point.
  ProfileCurve CurveWithErrors(const std::string& place, const MeasuredCurve& points) const {
    profile_.relative_errors[place] = {0, ErrorsOf(points)};
    return PointsOf(points);
  }

 private:
  static std::vector<double> ErrorsOf(const MeasuredCurve& points) {
    std::vector<double> errors;
    for (const MeasuredPoint& point : points) errors.push_back(point.seconds.relative_error());
    return errors;
  }
  static ProfileCurve PointsOf(const MeasuredCurve& points) {
    ProfileCurve curve;
    for (const MeasuredPoint& point : points)
      curve.push_back({static_cast<double>(point.size), point.seconds.value, point.shape});
    return curve;
  }

  Profile& profile_;
};

}  // namespace sparfuse::harness
