#include "harness/store/evidence/stated.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"

namespace sparfuse::harness {

using nlohmann::json;

bool AreEqual(double a, double b) {
  constexpr double kMostRelative = 1e-9;
  return std::abs(a - b) <= kMostRelative * std::max(std::abs(a), std::abs(b));
}

double NumberOf(const json& config, const char* key) {
  const json value = config.is_object() ? config.value(key, json()) : json();
  return value.is_number() ? value.get<double>() : 0;
}

std::string TextOf(const json& config, const char* key) {
  const json value = config.is_object() ? config.value(key, json()) : json();
  return value.is_string() ? value.get<std::string>() : "";
}

bool IsLive(const Trial& trial) {
  const std::string mode = TextOf(trial.config, "mode"), kind = TextOf(trial.config, "kind");
  return (mode == NameOf(Mode::kMeasured) || mode == NameOf(Mode::kEmulated)) &&
         (kind == NameOf(TrialKind::kThroughput) || kind == NameOf(TrialKind::kConvergence));
}

bool IsProfile(const Trial& trial) {
  return TextOf(trial.config, "kind") == NameOf(TrialKind::kProfile);
}

const workloads::WorkloadDescriptor* WorkloadOf(const json& config) {
  try {
    const std::string name = TextOf(config, "workload");
    return name.empty() ? nullptr : &workloads::FindWorkload(name);
  } catch (const Error&) {
    return nullptr;
  }
}

std::string SaidAndGiven(const std::string& name, const json& stored, const json& given,
                         const char* by) {
  return fmt::format("{}: trial.json has {}, {} {}", name, stored.dump(), by, given.dump());
}

}  // namespace sparfuse::harness
