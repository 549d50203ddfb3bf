#include "baselines/espresso/espresso_planner.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/fusion/plan_times.hpp"

namespace sparfuse::baselines {
namespace {

// The planner's choices; the runtime's options follow from them at the end.
enum Choice : std::uint8_t { kFp32, kFp16, kOneLevel, kTwoLevels, kCpu };

constexpr double kMessageMicroseconds = 150;
constexpr double kBetweenMicrosecondsPerKilobyte = 0.8;
constexpr double kPcieMicrosecondsPerKilobyte = 0.4;
constexpr double kNvlinkMicrosecondsPerKilobyte = 0.02;
constexpr double kCpuBytesPerMicrosecond = 20e3 / 8;  // 20 Gbit/s

// Indexed by Choice. Times hold for up to 2^20 elements on a card.
struct Compression {
  std::array<double, 4> total_microseconds;
  std::array<double, 4> decode_microseconds;  // of the total
};
constexpr Compression kCompression[] = {{{0, 26, 88, 1000}, {0, 22, 34, 100}},
                                        {{0, 26, 390, 1400}, {0, 22, 34, 100}},
                                        {{0, 26, 270, 810}, {0, 22, 140, 420}},
                                        {{0, 26, 620, 2000}, {0, 22, 170, 520}}};

using Choices = std::vector<Choice>;

// Costs of one tensor, indexed by Choice without kCpu.
struct Costs {
  std::array<double, 4> message_microseconds;
  std::array<double, 4> compress_microseconds;  // encoding and decoding
  std::array<double, 4> encode_microseconds;
};

class Planning {
 public:
  Planning(const ReadyTensors& tensors, const EspressoSetting& setting)
      : elements_(tensors.elements), setting_(setting) {
    double ready = 0;
    for (const double seconds : tensors.backward_seconds) {
      double gap = ready_microseconds_.empty() ? 0 : std::round(seconds * 1e6);
      if (setting.mod1000) gap = std::fmod(gap, 1000);
      ready_microseconds_.push_back(ready += gap);
    }
    for (const std::size_t elements : elements_) costs_.push_back(CostsOf(elements));
  }

  std::vector<int> Options() const {
    Choices choices(elements_.size(), kFp32);
    const std::size_t first_busy = Send(choices, 0, 0).last_at_once;
    for (std::size_t i = first_busy; i < choices.size(); ++i) {
      if (elements_[i] > std::size_t{1} << 17) choices[i] = kFp16;
    }
    CompressOnCards(Send(choices, first_busy, ready_microseconds_[first_busy]).last_at_once,
                    choices);
    if (setting_.cpu) Offload(choices);
    std::vector<int> options;
    for (std::size_t i = 0; i < choices.size(); ++i) options.push_back(OptionOf(i, choices[i]));
    return options;
  }

 private:
  bool sparsifies() const {
    return setting_.compressor == EspressoCompressor::kRandomK ||
           setting_.compressor == EspressoCompressor::kDgc;
  }
  // Returns the bytes of a compressed tensor, as a share of its uncompressed bytes.
  double sent_share() const { return sparsifies() ? setting_.density * 2 : 1.0 / 32; }

  Costs CostsOf(std::size_t elements) const {
    const double shard = static_cast<double>(elements) / setting_.gpus_per_node;
    const double scale = std::max(1.0, shard / 0x1p20);
    const Compression& table = kCompression[static_cast<std::size_t>(setting_.compressor)];
    Costs costs;
    for (const Choice choice : {kFp32, kFp16, kOneLevel, kTwoLevels}) {
      const double decode = table.decode_microseconds[choice] * scale;
      costs.message_microseconds[choice] = MessageMicroseconds(elements, choice);
      costs.compress_microseconds[choice] = table.total_microseconds[choice] * scale;
      costs.encode_microseconds[choice] = costs.compress_microseconds[choice] - decode;
    }
    return costs;
  }
  // Follows the published order of operations, since the last bit decides between equal plans.
  double MessageMicroseconds(std::size_t elements, Choice choice) const {
    const double bytes = 4.0 * static_cast<double>(elements);
    const double g = setting_.gpus_per_node, n = setting_.nodes;
    const double within_share = choice == kFp32 ? 1 : choice == kTwoLevels ? sent_share() : 0.5;
    const double between_share = choice == kFp32 ? 1 : choice == kFp16 ? 0.5 : sent_share();
    const double within = std::floor(2 * (g - 1) / g * bytes * within_share / 1000);
    const double between = std::floor(2 * (n - 1) / n * bytes * between_share / 1000);
    return (choice == kTwoLevels ? 4 : 2) * kMessageMicroseconds +
           (setting_.nvlink ? kNvlinkMicrosecondsPerKilobyte : kPcieMicrosecondsPerKilobyte) *
               within +
           kBetweenMicrosecondsPerKilobyte * between;
  }

  // Returns the time for which compression occupies the sending lane; casts do not.
  double OnLaneMicroseconds(std::size_t i, Choice choice) const {
    return choice >= kOneLevel ? costs_[i].compress_microseconds[choice] : 0;
  }

  struct Sent {
    double end_microseconds = 0;
    std::size_t last_at_once = 0;  // the last tensor that was sent without waiting for others
  };
  // Sends the tensors from `first` on in order, with times relative to `origin`. Encoding delays
  // the tensor and all later ones, and also occupies the lane: it counts twice, as published.
  Sent Send(const Choices& choices, std::size_t first, double origin_microseconds) const {
    Sent sent{0, first};
    double encoded = 0;
    for (std::size_t i = first; i < choices.size(); ++i) {
      encoded += costs_[i].encode_microseconds[choices[i]];
      const double ready = ready_microseconds_[i] - origin_microseconds + encoded;
      if (ready >= sent.end_microseconds) sent.last_at_once = i;
      sent.end_microseconds = std::max(sent.end_microseconds, ready) +
                              OnLaneMicroseconds(i, choices[i]) +
                              costs_[i].message_microseconds[choices[i]];
    }
    return sent;
  }

  // Sends the processor's tensors beside the others. Nothing delays gradients.
  double SendOnTwoLanes(const Choices& choices) const {
    double cards = 0, processor = 0;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (choices[i] == kCpu) {
        processor = std::max({cards, ready_microseconds_[i], processor}) +
                    4.0 * static_cast<double>(elements_[i]) / kCpuBytesPerMicrosecond +
                    costs_[i].message_microseconds[kOneLevel];
      } else {
        cards = std::max(cards, ready_microseconds_[i]) + OnLaneMicroseconds(i, choices[i]) +
                costs_[i].message_microseconds[choices[i]];
      }
    }
    return std::max(cards, processor);
  }

  void CompressOnCards(std::size_t first, Choices& choices) const {
    const std::size_t one = std::size_t{1} << (setting_.nvlink ? 19 : 20);
    const std::size_t two = std::size_t{1} << (setting_.nvlink ? 22 : 23);
    std::vector<std::size_t> order(choices.size() - first);
    std::iota(order.rbegin(), order.rend(), first);
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return elements_[i]; });
    const auto end_of = [&] { return Send(choices, first, 0).end_microseconds; };
    double best = end_of();
    for (const std::size_t i : order) {
      if (elements_[i] <= one) return;
      const Choice before = choices[i];
      choices[i] = setting_.two_level && elements_[i] > two ? kTwoLevels : kOneLevel;
      const double end = end_of();
      if (end < best) {
        best = end;
      } else {
        choices[i] = before;
      }
    }
  }

  // The tensors that may be offloaded, grouped by size; a group is in ready order.
  using Sizes = std::vector<std::vector<std::size_t>>;

  void Offload(Choices& choices) const {
    constexpr double kMost = 0x1p20;  // combinations
    Sizes sizes;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (choices[i] < kOneLevel || elements_[i] >= std::size_t{1} << 25) continue;
      const auto same = std::ranges::find(
          sizes, elements_[i], [&](const auto& tensors) { return elements_[tensors.front()]; });
      if (same == sizes.end()) {
        sizes.push_back({i});
      } else {
        same->push_back(i);
      }
    }
    double combinations = 1;
    for (const auto& tensors : sizes) combinations *= static_cast<double>(tensors.size() + 1);
    const Choices on_cards = choices;
    if (combinations <= kMost) {
      double best = SendOnTwoLanes(choices);
      Choices tried = on_cards;
      TryAll(sizes, 0, on_cards, tried, best, choices);
      return;
    }
    for (double best = SendOnTwoLanes(choices), before = best + 1; best < before;) {
      before = best;
      for (const auto& tensors : sizes) {
        Choices tried = choices;
        TryAll({tensors}, 0, on_cards, tried, best, choices);
      }
    }
  }

  void TryAll(const Sizes& sizes, std::size_t size, const Choices& on_cards, Choices& tried,
              double& best, Choices& chosen) const {
    if (size == sizes.size()) {
      const double end = SendOnTwoLanes(tried);
      if (end >= best) return;
      best = end;
      chosen = tried;
      return;
    }
    for (const std::size_t i : sizes[size]) tried[i] = on_cards[i];
    TryAll(sizes, size + 1, on_cards, tried, best, chosen);
    for (const std::size_t i : sizes[size]) {
      tried[i] = kCpu;
      TryAll(sizes, size + 1, on_cards, tried, best, chosen);
    }
  }

  int OptionOf(std::size_t i, Choice choice) const {
    constexpr double kTiny = 0.005;  // of its size before: gathering all of it costs little
    switch (choice) {
      case kFp32:
        return kWhole;
      case kFp16:
        return kHalves;
      case kOneLevel:
        return sparsifies() || elements_[i] < std::size_t{1} << 24 || setting_.nodes <= 3
                   ? kGatherBetween
                   : kAllToAllBetween;
      case kTwoLevels:
        return !sparsifies() ? kRootEncoded : sent_share() < kTiny ? kGatherAll : kGatherSelected;
      case kCpu:
        break;
    }
    return kOnProcessor;
  }

  std::span<const std::size_t> elements_;
  const EspressoSetting& setting_;
  std::vector<double> ready_microseconds_;
  std::vector<Costs> costs_;
};

constexpr std::string_view kEspressoName = "espresso";
constexpr int kPlanned = -1;

int OptionOf(const Options& resolved) { return static_cast<int>(IntOption(resolved, "option")); }

// Returns the compressor for which the published planner has times.
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
    const PlanTimes times(input, kEspressoName);
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

std::vector<int> EspressoOptions(const ReadyTensors& tensors, const EspressoSetting& setting) {
  CheckReadyTensors(tensors, "espresso");
  SPARFUSE_REQUIRE(setting.nodes >= 1 && setting.gpus_per_node >= 1,
                   "espresso: " + std::to_string(setting.nodes) + " nodes of " +
                       std::to_string(setting.gpus_per_node) + " cards: expected at least 1");
  SPARFUSE_REQUIRE(
      setting.density > 0 && setting.density <= 1,
      "espresso: density = " + std::to_string(setting.density) + ": expected a number in (0, 1]");
  return Planning(tensors, setting).Options();
}

const PlannerDescriptor kEspressoPlanner = {
    .name = kEspressoName,
    .summary =
        "each tensor in a unit of its own, with the option of Espresso's runtime for which "
        "everything is sent earliest by the published constants",
    .source = "Wang et al., Espresso, EuroSys 2023",
    .revision = 2,
    .options =
        {WholeOption("option", kPlanned, kPlanned, kEspressoOptions - 1,
                     "option of every tensor, 0 to 14; -1: as planned"),
         NumberOption(
             "compress_from", 0.0, 0, 1e12,
             "with an option that compresses: elements from which a tensor is compressed; smaller "
             "tensors are pushed to servers in fp32 with option 5, and all-reduced with others"),
         FlagOption("nvlink", false, "cards of a node have NVLink; else PCIe"),
         FlagOption("cpu", false, "processors may compress, too"),
         FlagOption("two_level", false, "may compress before the exchange within nodes"),
         FlagOption("mod1000", false,
                    "takes gaps between gradients modulo 1000 us, as the published planner does")},
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
        "Gaps are taken modulo 1000 us only with mod1000. The search for the tensors that "
        "processors compress is bounded. Sparsifiers other than randomk are planned with the times "
        "of DGC.",
    .strategy = "espresso"};

}  // namespace sparfuse::baselines
