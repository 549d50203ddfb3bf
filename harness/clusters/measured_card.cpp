#include "harness/clusters/measured_card.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "harness/clusters/profile_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

ProfileCurve ScaledCurve(ProfileCurve curve, double factor) {
  for (ProfilePoint& point : curve) point.seconds *= factor;
  return curve;
}

// What its first point takes goes with kernels, what comes on top with memory.
ProfileCurve StreamedCurve(ProfileCurve curve, const CardFactors& factors) {
  if (curve.empty()) return curve;
  const double first = curve.front().seconds;
  for (ProfilePoint& point : curve) {
    point.seconds =
        point.seconds * (1 / factors.memory) + first * (factors.kernel - 1 / factors.memory);
  }
  return curve;
}

std::optional<double> Times(const std::optional<double>& seconds, double factor) {
  return seconds ? std::optional(*seconds * factor) : std::nullopt;
}

}  // namespace

const ProfileOutcome* MeasuredCard::Of(const CellConfig& config) const {
  for (const ProfileOutcome& outcome : outcomes) {
    if (IsOfSubject(outcome, config)) return &outcome;
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
  for (ProfileOutcome& outcome : ReadProfiles(file)) {
    if (outcome.config.workers == 1) card.outcomes.push_back(std::move(outcome));
  }
  if (card.outcomes.empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("{} has no outcome of one rank alone; `sparfuse profile "
                                        "WORKLOAD --ranks 1 --name {}` measures it",
                                        file.string(), name));
  }
  card.kind = KindOfAll(card.outcomes);
  json system = card.outcomes.front().system;
  if (system.is_null()) system = json::object();
  if (system.contains("nodes")) system = json(system["nodes"].front());
  const json cards = system.value("gpus", json::array());
  card.hardware = cards.empty() ? system.value("cpu_model", "unknown hardware")
                                : cards.front().get<std::string>();
  return card;
}

BackwardTimes BackwardOfCard(const ProfileOutcome& outcome, const CardFactors& factors) {
  if (!outcome.profile.backward) SPARFUSE_THROW(kData, "the profile has no backward");
  BackwardTimes backward = *outcome.profile.backward;
  for (double* seconds :
       {&backward.begin_seconds, &backward.forward_seconds, &backward.tail_seconds})
    *seconds *= factors.compute;
  for (ProfiledTensor& tensor : backward.tensors) tensor.seconds *= factors.compute;
  backward.update_seconds *= 1 / factors.memory;
  return backward;
}

void PutKernelsOfCard(const ProfileOutcome& outcome, const CardFactors& factors, Profile& profile) {
  const Profile& measured = outcome.profile;
  profile.pack = StreamedCurve(measured.pack, factors);
  profile.scale = StreamedCurve(measured.scale, factors);
  profile.clear = StreamedCurve(measured.clear, factors);
  profile.seconds_per_entry = Times(measured.seconds_per_entry, 1 / factors.memory);
  profile.seconds_per_reduced_element =
      Times(measured.seconds_per_reduced_element, 1 / factors.memory);
  for (const auto& [work, seconds] : measured.collective_work)
    profile.collective_work[work] = seconds * (1 / factors.memory);
  profile.dispatch_seconds = measured.dispatch_seconds;
  const auto forget_decoding = [&](const std::string& coder) {
    if (profile.decode) profile.decode->erase(coder);
  };
  for (const auto& [sparsifier, curves] : measured.selection.value_or(Selections())) {
    auto& selection = (*profile.selection)[sparsifier] = curves;
    for (SelectionCurve& curve : selection)
      curve.seconds = ScaledCurve(std::move(curve.seconds), factors.sparsify);
    forget_decoding(sparsifier);
  }
  if (!measured.encode) return;
  for (const auto& [quantizer, curve] : *measured.encode) {
    (*profile.encode)[quantizer] = ScaledCurve(curve, factors.sparsify);
    forget_decoding(quantizer);
  }
}

}  // namespace sparfuse::harness
