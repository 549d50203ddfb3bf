#include "harness/compare/side.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ranges>
#include <set>
#include <sstream>
#include <string_view>

#include "harness/files/durable_file.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

json MemberOf(const json& table, const char* key) {
  return table.is_object() ? table.value(key, json()) : json();
}

// The numbers in "4,5"; empty if cards have other names.
std::vector<int> VisibleCards(const TrialRow& trial) {
  const json said = MemberOf(MemberOf(trial.provenance, "environment"), "CUDA_VISIBLE_DEVICES");
  std::vector<int> cards;
  if (!said.is_string()) return cards;
  std::istringstream words(said.get<std::string>());
  for (std::string word; std::getline(words, word, ',');) {
    if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos ||
        word.size() > 4)
      return {};
    cards.push_back(std::atoi(word.c_str()));
  }
  return cards;
}

// The cards of the ranks on rank 0's host, by the driver's numbers.
std::set<int> CardsOf(const TrialRow& trial, const json& machine) {
  constexpr std::string_view kCuda = "cuda:";
  const json cards = MemberOf(machine, "cards"), placement = MemberOf(machine, "placement");
  const std::vector<int> visible = VisibleCards(trial);
  std::set<int> used;
  if (!cards.is_array()) return used;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const bool here =
        !placement.is_array() || rank >= placement.size() || placement[rank] == placement.front();
    if (!here || !cards[rank].is_string()) continue;
    const auto& text = cards[rank].get_ref<const std::string&>();
    if (!text.starts_with(kCuda)) continue;
    const int number = std::atoi(text.c_str() + kCuda.size());
    const bool renamed = number >= 0 && static_cast<std::size_t>(number) < visible.size();
    used.insert(renamed ? visible[static_cast<std::size_t>(number)] : number);
  }
  return used;
}

constexpr const char* kClasses[] = {"", "by NVLink", "by PCIe", "through the system"};

// The index in kClasses, in which worse links come later; 0: unknown.
std::size_t ClassOf(const json& kind) {
  if (!kind.is_string()) return 0;
  const auto& word = kind.get_ref<const std::string&>();
  if (word.starts_with("NV")) return 1;
  if (word == "board" || word == "PIX" || word == "PXB" || word == "PHB") return 2;
  return word == "NODE" || word == "SYS" ? 3 : 0;
}

// The worst link between two cards of rank 0's host: "by NVLink", "by PCIe" (switches or a host
// bridge) or "through the system" (between host bridges or processors). "" if the ranks there use
// one card or none, or the trial does not record the links.
//
// The trial numbers cards as CUDA does. CUDA_VISIBLE_DEVICES, if recorded, maps these numbers to
// the driver's.
std::string CardLinksOf(const TrialRow& trial) {
  const json machine = MemberOf(trial.provenance, "machine");
  const json topology = MemberOf(MemberOf(machine, "gpus"), "topology");
  const std::set<int> used = CardsOf(trial, machine);
  if (used.size() < 2 || !topology.is_array()) return "";
  std::size_t worst = 0;
  for (const json& link : topology) {
    const json ends = MemberOf(link, "cards");
    const bool both =
        ends.is_array() && ends.size() == 2 && std::ranges::all_of(ends, [&](const json& card) {
          return card.is_number_integer() && used.contains(card.get<int>());
        });
    if (both) worst = std::max(worst, ClassOf(MemberOf(link, "kind")));
  }
  return kClasses[worst];
}

// Below this share of communication, a step counts as pure computation.
constexpr double kNoShare = 0.02;

// The relative distance of the lower and the upper quartile, so that one round does not count. 0
// for fewer than four rounds.
double MovedWithin(std::vector<double> rounds) {
  constexpr std::size_t kLeast = 4;
  if (rounds.size() < kLeast) return 0;
  std::ranges::sort(rounds);
  const std::size_t quarter = rounds.size() / kLeast;
  return rounds[rounds.size() - 1 - quarter] / rounds[quarter] - 1;
}

std::map<int, double> MovedByBlock(const CellResult& reference) {
  std::map<int, double> moved;
  const std::map<int, double> steps = reference.Values("step_seconds");
  const double usual = steps.empty() ? 0 : Median(OfBlocks(steps));
  for (const auto& [block, seconds] : steps) {
    const double between = std::exp(std::abs(std::log(seconds / usual))) - 1;
    const double within = MovedWithin(reference.trials.at(block)->launch.rounds);
    if (steps.size() > 1 || within > 0) moved[block] = std::max(between, within);
  }
  return moved;
}

}  // namespace

std::function<nlohmann::json(const TrialRow&)> OutcomesIn(const std::filesystem::path& results) {
  return [results](const TrialRow& row) {
    const std::filesystem::path file = results / row.directory / "outcome.json";
    return SomethingIsAt(file) ? nlohmann::json::parse(ReadFile(file), nullptr, false)
                               : nlohmann::json();
  };
}

std::map<CellKey, SideCell> CellsOf(const SystemSide& side, DisturbedTrials disturbed) {
  std::map<CellKey, SideCell> cells;
  for (const TrialRow& row : side.rows | std::views::reverse) {
    if (row.kind == "profile") continue;
    SideCell& cell = cells[{row.experiment, row.part, row.config_hash}];
    if (row.counts() && cell.newest == nullptr) cell.newest = &row;
  }
  for (const TrialRow& row : side.rows) {
    if (row.kind == "profile") continue;
    SideCell& cell = cells.at({row.experiment, row.part, row.config_hash});
    cell.result.disturbed_trials = disturbed;
    const bool current = cell.newest == nullptr ||
                         (row.revisions == cell.newest->revisions && RanAlike(row, *cell.newest));
    if (current) AddTrial(cell.result, row);
  }
  return cells;
}

std::string Regime::links() const {
  if (hosts == 0 || ranks < 2) return "";
  if (hosts == 1) return "within a node";
  return hosts == ranks ? "between nodes" : "both";
}

std::string Regime::LinkWords() const {
  if (card_links.empty()) return links();
  return links().empty() ? "cards " + card_links : links() + ", cards " + card_links;
}

Regime RegimeOf(const SideCell& reference) {
  Regime regime;
  const auto exposed = reference.result.Mean("exposed_communication_seconds");
  const auto step = reference.result.Mean("step_seconds");
  if (exposed && step && *step > *exposed) regime.communication = *exposed / (*step - *exposed);
  const std::vector<double> steps = OfBlocks(reference.result.Values("step_seconds"));
  if (steps.size() > 1) regime.drift = std::ranges::max(steps) / std::ranges::min(steps) - 1;
  regime.moved = MovedByBlock(reference.result);
  if (reference.newest != nullptr) {
    regime.ranks = reference.newest->workers;
    regime.hosts = HostsOf(*reference.newest);
    regime.card_links = CardLinksOf(*reference.newest);
  }
  return regime;
}

std::string WhyOtherRegime(const Regime& first, const Regime& second) {
  const auto apart = [](double a, double b) {
    return std::max(a, b) > kOtherRegime * std::min(a, b);
  };
  if (first.links() != second.links() && !first.links().empty() && !second.links().empty()) {
    return fmt::format("ranks are linked {} and {}", first.links(), second.links());
  }
  if (first.card_links != second.card_links && !first.card_links.empty() &&
      !second.card_links.empty()) {
    return fmt::format("cards reach each other {} and {}", first.card_links, second.card_links);
  }
  if (first.hosts > 0 && second.hosts > 0 &&
      apart(first.ranks_per_host(), second.ranks_per_host())) {
    return fmt::format("{:g} and {:g} ranks a node", first.ranks_per_host(),
                       second.ranks_per_host());
  }
  if (first.communication && second.communication) {
    const double a = std::max(*first.communication, kNoShare);
    const double b = std::max(*second.communication, kNoShare);
    if (apart(a, b)) {
      return fmt::format(
          "the reference exposes communication of {:.3g} and {:.3g} times the rest of its step",
          *first.communication, *second.communication);
    }
  }
  return "";
}

}  // namespace sparfuse::harness
