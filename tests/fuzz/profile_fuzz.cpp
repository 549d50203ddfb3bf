// Feeds arbitrary JSON to the users of a profile file: the reader, the model's costs and times, and
// draws within its errors.
#include "harness/clusters/profile_data.hpp"
#include "harness/clusters/profile_file.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace sparfuse;
using namespace sparfuse::harness;

// Uses a profile like a modelled trial does.
void Use(const Profile& profile) {
  const GradientLayout layout = MakeLayout(TensorsOf(profile), {}, "the profile");
  const BackwardProfile backward = BackwardOf(profile, layout);
  fuzz::Require(backward.backward_seconds.size() == layout.tensors(), "a time for each tensor");
  CostModel cost = KernelCosts(profile);
  AddLink(cost, profile);
  cost.DecompressSeconds("topk", layout.numel(), 1000, 2);
  for (const auto& [name, selection] : cost.selection)
    cost.SelectionSeconds(name, layout.numel(), 0.01);
  Perturbed(profile, 1);
  ShapesToTime(layout);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ProfileOutcomes outcomes;
  const auto read = [&] { outcomes = ParseProfiles(fuzz::Text(data, size), "fuzz.json"); };
  if (!fuzz::Accepts(read, FailureKind::kData)) return 0;
  CellConfig config;
  config.workload = "digits-resnet";
  ProfilesOf(outcomes, config);
  for (const ProfileOutcome& outcome : outcomes) {
    fuzz::Accepts([&] { Use(outcome.profile); }, FailureKind::kData, FailureKind::kConfig);
  }
  return 0;
}
