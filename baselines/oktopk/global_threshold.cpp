#include "baselines/oktopk/global_threshold.hpp"

#include <array>
#include <string>
#include <string_view>

namespace sparfuse::baselines {
namespace {

struct Application {
  std::string_view name;
  GlobalThreshold threshold;
};

constexpr std::array kApplications = {Application{"vgg", {32, 2.0 / 3, 4.0 / 3, 1.008, 1.008}},
                                      Application{"lstm", {32, 3.0 / 4, 5.0 / 4, 1.01, 1.008}},
                                      Application{"bert", {128, 4.0 / 5, 5.0 / 4, 1.036, 1.025}}};

}  // namespace

std::vector<OptionSpec> GlobalThresholdOptions() {
  return {
      ChoiceOption("application", "vgg", {"vgg", "lstm", "bert"},
                   "whose published constants stand where an option is 0"),
      WholeOption("global_threshold_period", 0, 0, 1e9,
                  "steps from one exact global threshold to the next; 0: 32, 32, 128"),
      NumberOption(
          "band_low", 0.0, 0, 1,
          "the global threshold falls where fewer sums than this part of k reach it; 0: 2/3, "
          "3/4, 4/5"),
      NumberOption(
          "band_high", 0.0, 0, 1e6,
          "the global threshold rises where more sums than this part of k reach it; 0: 4/3, 5/4, "
          "5/4"),
      NumberOption(
          "lower_by", 0.0, 0, 1e6,
          "what the global threshold is divided by to fall, at least 1; 0: 1.008, 1.01, 1.036"),
      NumberOption("raise_by", 0.0, 0, 1e6,
                   "what the global threshold is multiplied by to rise, at least 1; 0: 1.008, "
                   "1.008, 1.025")};
}

GlobalThreshold ReadGlobalThreshold(const Options& resolved) {
  const std::string& name = StringOption(resolved, "application");
  GlobalThreshold read;
  for (const Application& each : kApplications) {
    if (each.name == name) read = each.threshold;
  }
  const auto given = [&](const char* option, double& value) {
    if (DoubleOption(resolved, option) != 0) value = DoubleOption(resolved, option);
  };
  given("band_low", read.band_low);
  given("band_high", read.band_high);
  given("lower_by", read.lower_by);
  given("raise_by", read.raise_by);
  const std::int64_t period = IntOption(resolved, "global_threshold_period");
  if (period != 0) read.period = static_cast<std::uint64_t>(period);
  return read;
}

}  // namespace sparfuse::baselines
