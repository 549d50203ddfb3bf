// Caches declared clusters that were read, and draws them again within their inputs' ranges.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "core/base/fnv.hpp"
#include "core/base/random_stream.hpp"
#include "harness/clusters/cluster_calibration.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/profile_data.hpp"

namespace sparfuse::harness {
namespace {

// Half of all draws are below the value, half above, uniform in its logarithm on either side.
double Draw(double value, double low, double high, const std::string& name, int draw) {
  if (draw == 0 || value <= 0) return value;
  const double u = static_cast<double>(
                       RandomStream(FnvOf(name), static_cast<std::uint64_t>(draw), 0).At(0) >> 11) *
                   0x1p-53;
  const double end = u < 0.5 ? low : high;
  const double way = u < 0.5 ? 1 - 2 * u : 2 * u - 1;
  constexpr double kLeast = 1e-12;
  return value * std::pow(std::max(end, kLeast * value) / value, way);
}

// Chooses an input's value from its name, its declared value, and its low and high end.
using Choice = std::function<double(const std::string&, double, double, double)>;

std::string NameOfInput(const ComputeTime& time) { return "compute/" + time.workload; }
bool IsCalibrated(const DeclaredCluster& cluster) {
  return std::ranges::any_of(cluster.inputs, &DeclaredInput::calibrated);
}

DeclaredCluster ChosenFrom(const DeclaredCluster& declared, const Choice& choose) {
  DeclaredCluster chosen = declared;
  for (DeclaredInput& input : chosen.inputs)
    input.value = choose(input.name, input.value, input.low, input.high);
  for (ComputeTime& time : chosen.compute) {
    const double factor = choose(NameOfInput(time), 1, 1 / time.spread, time.spread);
    time.forward_seconds *= factor;
    time.backward_seconds *= factor;
  }
  for (Coder& coder : chosen.coders) {
    const double factor = choose(NameOfInput(coder), 1, 1 / coder.spread, coder.spread);
    for (double* each :
         {&coder.encode_seconds, &coder.encode_seconds_per_element, &coder.host_encode_seconds,
          &coder.host_encode_seconds_per_element, &coder.decode_seconds,
          &coder.decode_seconds_per_rank, &coder.decode_seconds_per_element,
          &coder.decode_seconds_per_element_and_rank, &coder.decode_seconds_per_entry}) {
      *each *= factor;
    }
    for (ProfileCurve* curve : {&coder.encode_curve, &coder.host_encode_curve}) {
      for (ProfilePoint& point : *curve) point.seconds *= factor;
    }
  }
  if (IsCalibrated(chosen)) {
    for (ReferenceStep& step : chosen.references)
      step.measured *= choose(NameOfInput(step), 1, 1 / step.spread, step.spread);
  }
  return chosen;
}

// The slopes of a cluster that LoadDeclaredCluster returned.
const CalibrationSlopes& SlopesOfLoaded(const DeclaredCluster& declared) {
  static std::map<const DeclaredCluster*, CalibrationSlopes> known;
  const auto found = known.find(&declared);
  return found != known.end() ? found->second
                              : known.emplace(&declared, SlopesOf(declared)).first->second;
}

// Repeats the calibration of a cluster chosen from `declared`. It runs on the cluster's own steps.
// If the calibration comes from another cluster, its values change by the same factors as there,
// from `before` to `after`.
void CalibrateAgain(DeclaredCluster& chosen, const DeclaredCluster& declared,
                    const DeclaredCluster* before, const DeclaredCluster* after) {
  if (before == nullptr) {
    if (IsCalibrated(chosen)) RecalibrateOnSteps(chosen, SlopesOfLoaded(declared));
    return;
  }
  for (DeclaredInput& input : chosen.inputs) {
    if (input.kind != "calibrated") continue;
    const std::string family = input.families.empty() ? "" : input.families.front();
    input.value *= after->Value(input.name, family) / before->Value(input.name, family);
  }
}

}  // namespace

std::string NameOfInput(const Coder& coder) {
  const char* direction = coder.encodes ? "" : coder.encodes_on_host ? "/host_encode" : "/decode";
  return fmt::format("coder/{}{}", coder.name, direction);
}

std::string NameOfInput(const ReferenceStep& step) {
  return fmt::format("reference/{}/{}/{}/{}", step.workload, step.method, step.workers,
                     step.over ? "ratio" : kStepPartNames[static_cast<std::size_t>(step.part)]);
}

const DeclaredCluster& DrawnCluster(const ProfileFolders& profiles, const std::string& cluster,
                                    int draw) {
  // Results are kept: calibration simulates, and an experiment calls this for each cell.
  using Key = std::tuple<std::filesystem::path, std::vector<std::string>, int>;
  static std::map<Key, DeclaredCluster> loaded;
  const ClusterName name = ClusterName::Of(cluster);
  const std::filesystem::path file = std::filesystem::absolute(profiles.File(name.file + ".toml"));
  const Key key{file, name.left_out, draw};
  const auto found = loaded.find(key);
  if (found != loaded.end()) return found->second;
  DeclaredCluster read;
  if (draw == 0) {
    read = ParseDeclaredCluster(TomlFile::Read(file), profiles, name.left_out);
  } else {
    const DeclaredCluster& declared = DrawnCluster(profiles, cluster, 0);
    read = ChosenFrom(declared, [&](const std::string& input, double value, double low,
                                    double high) { return Draw(value, low, high, input, draw); });
    if (read.card) {
      read.card->outcomes =
          PerturbedOutcomes(declared.card->outcomes, static_cast<std::uint64_t>(draw));
    }
    const std::string& other = declared.calibrated_on;
    CalibrateAgain(read, declared, other.empty() ? nullptr : &DrawnCluster(profiles, other, 0),
                   other.empty() ? nullptr : &DrawnCluster(profiles, other, draw));
  }
  return loaded.emplace(key, std::move(read)).first->second;
}

std::vector<std::string> OpenInputs(const ProfileFolders& profiles, const std::string& cluster) {
  std::vector<std::string> names;
  for (const std::string& each : {cluster, LoadDeclaredCluster(profiles, cluster).calibrated_on}) {
    if (each.empty()) continue;
    ChosenFrom(LoadDeclaredCluster(profiles, each),
               [&](const std::string& name, double value, double low, double high) {
                 const bool known = std::ranges::find(names, name) != names.end();
                 if (low < high && value > 0 && !known) names.push_back(name);
                 return value;
               });
  }
  return names;
}

DeclaredCluster ClusterAtEnd(const ProfileFolders& profiles, const std::string& cluster,
                             const std::string& input, RangeEnd end) {
  const DeclaredCluster& declared = LoadDeclaredCluster(profiles, cluster);
  const auto choose = [&](const std::string& name, double value, double low, double high) {
    return name != input ? value : end == RangeEnd::kLow ? low : high;
  };
  DeclaredCluster moved = ChosenFrom(declared, choose);
  if (declared.calibrated_on.empty()) {
    CalibrateAgain(moved, declared, nullptr, nullptr);
  } else {
    const DeclaredCluster after = ClusterAtEnd(profiles, declared.calibrated_on, input, end);
    CalibrateAgain(moved, declared, &LoadDeclaredCluster(profiles, declared.calibrated_on), &after);
  }
  return moved;
}

const DeclaredCluster& LoadDeclaredCluster(const ProfileFolders& profiles,
                                           const std::string& cluster) {
  return DrawnCluster(profiles, cluster, 0);
}

}  // namespace sparfuse::harness
