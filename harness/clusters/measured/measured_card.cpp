#include "harness/clusters/measured/measured_card.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "harness/clusters/measured/profile_kind.hpp"
#include "harness/clusters/profile_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

double Times(const json& seconds, double factor) { return seconds.get<double>() * factor; }

// Of a curve [[x, seconds], ...] each point times the factor.
json ScaledCurve(json curve, double factor) {
  for (json& point : curve) point.at(1) = Times(point.at(1), factor);
  return curve;
}

// What its first point takes goes with kernels, what comes on top with memory.
json StreamedCurve(json curve, const CardFactors& factors) {
  if (curve.empty()) return curve;
  const double first = curve.at(0).at(1);
  for (json& point : curve) {
    point.at(1) =
        Times(point.at(1), 1 / factors.memory) + first * (factors.kernel - 1 / factors.memory);
  }
  return curve;
}

}  // namespace

const json* MeasuredCard::Of(const CellConfig& config) const {
  const json wanted = ToJson(config);
  for (const json& outcome : outcomes) {
    if (IsOfSubject(outcome, wanted)) return &outcome;
  }
  return nullptr;
}

std::string MeasuredCard::MeasureCommand(const CellConfig& config) const {
  CellConfig alone = config;
  alone.link = std::nullopt;
  return harness::MeasureCommand(MeasuredLike(outcomes, alone), name) + " --ranks 1";
}

MeasuredCard ReadCard(const ProfileFolders& profiles, const std::string& name) {
  if (!profiles.Has(name + ".json")) {
    SPARFUSE_THROW(kConfig, fmt::format("no measured profile {}.json in {}; `sparfuse profile "
                                        "WORKLOAD --ranks 1 --name {}` on such a card makes it",
                                        name, profiles.Text(), name));
  }
  const auto file = profiles.File(name + ".json");
  MeasuredCard card;
  card.name = name;
  for (json& outcome : ReadProfiles(file)) {
    if (outcome.at("config").at("workers") == 1) card.outcomes.push_back(std::move(outcome));
  }
  if (card.outcomes.empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("{} has no outcome of one rank alone; `sparfuse profile "
                                        "WORKLOAD --ranks 1 --name {}` measures it",
                                        file.string(), name));
  }
  card.kind = KindOfAll(card.outcomes);
  json system = card.outcomes.front().value("system", json::object());
  if (system.contains("nodes")) system = json(system["nodes"].front());
  const json cards = system.value("gpus", json::array());
  card.hardware = cards.empty() ? system.value("cpu_model", "unknown hardware")
                                : cards.front().get<std::string>();
  return card;
}

json BackwardOfCard(const json& outcome, const CardFactors& factors) {
  json backward = outcome.at("profile").at("backward");
  for (const char* key : {"begin_seconds", "forward_seconds", "tail_seconds"})
    backward.at(key) = Times(backward.at(key), factors.compute);
  for (json& tensor : backward.at("tensors"))
    tensor.at("seconds") = Times(tensor.at("seconds"), factors.compute);
  backward.at("update_seconds") = Times(backward.at("update_seconds"), 1 / factors.memory);
  return backward;
}

void PutKernelsOfCard(const json& outcome, const CardFactors& factors, json& profile) {
  const json& measured = outcome.at("profile");
  for (const char* key : {"pack", "scale", "clear"})
    profile[key] = StreamedCurve(measured.at(key), factors);
  for (const char* key : {"seconds_per_entry", "seconds_per_reduced_element"})
    profile[key] = Times(measured.at(key), 1 / factors.memory);
  const json collective_work = measured.value("collective_work", json::object());
  for (const auto& [work, seconds] : collective_work.items())
    profile["collective_work"][work] = Times(seconds, 1 / factors.memory);
  profile["dispatch_seconds"] = measured.at("dispatch_seconds");
  for (const auto& [sparsifier, densities] : measured.at("selection").items()) {
    json& selection = profile["selection"][sparsifier];
    selection = densities;
    for (json& curve : selection)
      curve.at("seconds") = ScaledCurve(curve.at("seconds"), factors.sparsify);
    if (profile.contains("decode")) profile["decode"].erase(sparsifier);
  }
  const json encode = measured.value("encode", json::object());
  for (const auto& [quantizer, curve] : encode.items()) {
    profile["encode"][quantizer] = ScaledCurve(curve, factors.sparsify);
    if (profile.contains("decode")) profile["decode"].erase(quantizer);
  }
}

}  // namespace sparfuse::harness
