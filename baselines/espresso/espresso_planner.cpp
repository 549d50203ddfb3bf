#include "baselines/espresso/espresso_planner.hpp"

#include <string>
#include <vector>

#include "baselines/espresso/espresso_solver.hpp"
#include "core/base/error.hpp"
#include "core/fusion/plan_times.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::string_view kName = "espresso";
constexpr int kPlanned = -1;

int OptionOf(const Options& resolved) { return static_cast<int>(IntOption(resolved, "option")); }

// Of what the published planner has times for.
EspressoCompressor CompressorOf(std::string_view sparsifier) {
  return sparsifier == "randomk" ? EspressoCompressor::kRandomK : EspressoCompressor::kDgc;
}

class Espresso final : public Planner {
 public:
  explicit Espresso(const Options& options)
      : option_(OptionOf(options)),
        compress_from_(static_cast<std::size_t>(DoubleOption(options, "compress_from"))),
        setting_{.nvlink = BoolOption(options, "nvlink"),
                 .cpu = BoolOption(options, "cpu"),
                 .two_level = BoolOption(options, "two_level"),
                 .mod1000 = BoolOption(options, "mod1000")} {}
  std::string_view name() const noexcept override { return kName; }

  Plan MakePlan(const PlanInput& input) const override {
    const std::vector<int> options = OptionsOf(input);
    Plan plan;
    for (std::size_t t = 0; t < options.size(); ++t) {
      Unit unit{t, t + 1};
      if (!input.layout.tensor(t).dense) unit.path = static_cast<std::uint8_t>(options[t]);
      if (EspressoCompresses(unit.path)) {
        unit.sparsified = Sparsified::kBehind;
        unit.density = input.density;
        unit.lane = Lane::kSide;
      }
      plan.units.push_back(unit);
    }
    return plan;
  }

 private:
  std::vector<int> OptionsOf(const PlanInput& input) const {
    const std::size_t tensors = input.layout.tensors();
    if (option_ != kPlanned) {
      std::vector<int> options(tensors, option_);
      for (std::size_t t = 0; t < tensors; ++t) {
        if (EspressoCompresses(option_) && input.layout.tensor(t).numel < compress_from_)
          options[t] = option_ == kOnProcessor ? kByServers : kWhole;
      }
      return options;
    }
    EspressoSetting setting = setting_;
    setting.nodes = input.topology.nodes();
    setting.gpus_per_node = input.topology.ranks_per_node;
    setting.compressor = CompressorOf(input.sparsifier);
    setting.density = input.density;
    const PlanTimes times(input, kName);
    std::vector<std::size_t> elements;
    std::vector<double> seconds;
    for (std::size_t t = 0; t < tensors; ++t) {
      elements.push_back(input.layout.tensor(t).numel);
      seconds.push_back(times.Backward(t));
    }
    return EspressoOptions({elements, seconds}, setting);
  }

  int option_;
  std::size_t compress_from_;  // elements
  EspressoSetting setting_;
};

}  // namespace

const PlannerDescriptor kEspressoPlanner = {
    .name = kName,
    .summary =
        "each tensor by itself, by the option of Espresso's runtime with which all is sent "
        "earliest by the published constants",
    .source = "Wang et al., Espresso, EuroSys 2023",
    .revision = 2,
    .options = {{"option",
                 std::int64_t{kPlanned},
                 kPlanned,
                 kEspressoOptions - 1,
                 {},
                 "of every tensor, 0 to 14; -1: as planned"},
                {"compress_from",
                 0.0,
                 0,
                 1e12,
                 {},
                 "elements from which tensors go by an option that compresses; smaller ones are "
                 "pushed to servers in fp32 with option 5, and all-reduced with others"},
                {"nvlink", false, 0, 0, {}, "cards of a node have NVLink; else PCIe"},
                {"cpu", false, 0, 0, {}, "processors may compress, too"},
                {"two_level", false, 0, 0, {}, "may compress before the exchange within nodes"},
                {"mod1000",
                 false,
                 0,
                 0,
                 {},
                 "takes gaps between gradients modulo 1000 us, as the published planner does"}},
    .make = [](const Options& options) -> std::unique_ptr<Planner> {
      const double from = DoubleOption(options, "compress_from");
      const int option = OptionOf(options);
      SPARFUSE_REQUIRE(from == 0 || EspressoCompresses(option),
                       "compress_from with option = " + std::to_string(option) +
                           ": expected an option that compresses, 2 to 12");
      return std::make_unique<Espresso>(options);
    },
    .needs_profile = [](const Options& resolved) { return OptionOf(resolved) == kPlanned; },
    .deviations =
        "Gaps are not taken modulo 1000 us unless told to. The search for what goes to "
        "processors is bounded. A sparsifier that is not randomk is planned with the "
        "times of DGC.",
    .strategy = "espresso"};

}  // namespace sparfuse::baselines
