#include "harness/compare/card_links.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

namespace sparfuse::harness {
namespace {

using nlohmann::json;

json MemberOf(const json& table, const char* key) {
  return table.is_object() ? table.value(key, json()) : json();
}

// The numbers in "4,5"; none of what names cards otherwise.
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

// As the driver numbers them, of the ranks on rank 0's host.
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

// The position in kClasses, worse links later; 0: not known.
std::size_t ClassOf(const json& kind) {
  if (!kind.is_string()) return 0;
  const auto& word = kind.get_ref<const std::string&>();
  if (word.starts_with("NV")) return 1;
  if (word == "board" || word == "PIX" || word == "PXB" || word == "PHB") return 2;
  return word == "NODE" || word == "SYS" ? 3 : 0;
}

}  // namespace

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

}  // namespace sparfuse::harness
