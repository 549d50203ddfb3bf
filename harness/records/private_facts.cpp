#include "harness/records/private_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "harness/files/durable_file.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {

using nlohmann::json;

template <>
const std::vector<RecordKey<PrivateCard>>& KeysOf<PrivateCard>() {
  using C = PrivateCard;
  static const std::vector<RecordKey<C>> kKeys = {Key<&C::uuid>({.name = "uuid"}),
                                                  Key<&C::pci>({.name = "pci"})};
  return kKeys;
}

template <>
const std::vector<RecordKey<PrivateFacts>>& KeysOf<PrivateFacts>() {
  using F = PrivateFacts;
  static const std::vector<RecordKey<F>> kKeys = {
      Key<&F::hosts>({.name = "hosts", .optional = true}),
      Key<&F::processes>({.name = "processes", .optional = true}),
      Key<&F::cards>({.name = "cards", .optional = true}),
      Key<&F::buses>({.name = "buses", .optional = true})};
  return kKeys;
}

namespace {

constexpr std::string_view kHost = "host";

// "host1" of the second of `known`, which a name that is new joins.
std::string NumberIn(std::vector<std::string>& known, std::string_view kind,
                     const std::string& name) {
  if (name.empty()) return name;
  const auto found = std::ranges::find(known, name);
  const auto number = found - known.begin();
  if (found == known.end()) known.push_back(name);
  return fmt::format("{}{}", kind, number);
}

bool IsOfName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

}  // namespace

std::vector<std::string> PrivateFacts::NamesOf(std::vector<std::string> placement) const {
  for (std::string& host : placement) {
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      if (host != fmt::format("{}{}", kHost, i)) continue;
      host = hosts[i];
      break;
    }
  }
  return placement;
}

std::string HostNames::Numbered(const std::string& name) { return NumberIn(hosts_, kHost, name); }

void HostNames::Number(std::vector<std::string>& names) {
  for (std::string& name : names) name = Numbered(name);
}

std::string HostNames::InText(const std::string& text) const {
  std::string numbered;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    while (end < text.size() && IsOfName(text[end])) ++end;
    if (end == begin) {
      numbered += text[begin++];
      continue;
    }
    std::string word = text.substr(begin, end - begin);
    std::string dots;  // of the sentence
    while (word.ends_with('.')) word.pop_back(), dots += '.';
    const auto found = std::ranges::find(hosts_, word);
    numbered += found == hosts_.end() ? word : fmt::format("{}{}", kHost, found - hosts_.begin());
    numbered += dots;
    begin = end;
  }
  return numbered;
}

void TakeNames(Machine& machine, PrivateFacts& facts) {
  HostNames(facts.hosts).Number(machine.placement);
  if (!machine.gpus) return;
  for (CardState& card : machine.gpus->cards) {
    facts.cards[std::to_string(card.index)] = {std::exchange(card.uuid, ""),
                                               std::exchange(card.pci, "")};
  }
}

void TakeNames(Quiet& quiet, PrivateFacts& facts) {
  if (!quiet.cards) return;
  for (std::string& process : quiet.cards->other_processes)
    process = NumberIn(facts.processes, "process", process);
}

void TakeNames(TrialLaunch& launch, PrivateFacts& facts) {
  HostNames hosts(facts.hosts);
  if (launch.binding) {
    hosts.Number(launch.binding->hosts);
    for (std::string& card : launch.binding->card) card = NumberIn(facts.buses, "card", card);
  }
  if (launch.network) hosts.Number(launch.network->hosts);
  if (launch.clocks) hosts.Number(launch.clocks->hosts);
  launch.failed_on = hosts.Numbered(launch.failed_on);
  hosts.Number(launch.left_out);
  for (std::string& warning : launch.warnings) warning = hosts.InText(warning);
}

json ToJson(const PrivateFacts& facts) { return WriteRecord(facts); }

PrivateFacts PrivateFactsOf(const json& stored, std::string_view whole) {
  PrivateFacts facts;
  ReadRecord(stored, KeyPlace(whole), facts);
  return facts;
}

void WritePrivateFacts(const std::filesystem::path& directory, const PrivateFacts& facts) {
  WriteFileDurably(directory / kPrivateFile, ToJson(facts).dump(1) + "\n");
}

PrivateFacts ReadPrivateFacts(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / kPrivateFile;
  if (!std::filesystem::exists(file)) return {};
  return PrivateFactsOf(ReadJsonFile(file), file.string());
}

}  // namespace sparfuse::harness
