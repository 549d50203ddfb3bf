#include "harness/records/private_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/files/durable_file.hpp"
#include "harness/files/plain_text.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {

using nlohmann::json;

template <>
RecordKeys KeysOf<PrivateCard>() {
  using C = PrivateCard;
  static constexpr auto kKeys =
      KeyTable<C>(Key<&C::uuid>({.name = "uuid"}), Key<&C::pci>({.name = "pci"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<PrivateFacts>() {
  using F = PrivateFacts;
  static constexpr auto kKeys =
      KeyTable<F>(Key<&F::hosts>({.name = "hosts", .optional = true}),
                  Key<&F::processes>({.name = "processes", .optional = true}),
                  Key<&F::cards>({.name = "cards", .optional = true}),
                  Key<&F::buses>({.name = "buses", .optional = true}),
                  Key<&F::users>({.name = "users", .optional = true}),
                  Key<&F::argv>({.name = "argv", .optional = true}),
                  Key<&F::environment>({.name = "environment", .optional = true}),
                  Key<&F::python_files>({.name = "python_files", .optional = true}),
                  Key<&F::failure>({.name = "failure", .optional = true}),
                  Key<&F::log_tail>({.name = "log_tail", .optional = true}));
  return kKeys;
}

namespace {

constexpr std::string_view kHost = "host";

// "host1" for the second of `known`. A new name is added to `known`.
std::string NumberIn(std::vector<std::string>& known, std::string_view kind,
                     const std::string& name) {
  if (name.empty()) return name;
  const auto found = std::ranges::find(known, name);
  const auto number = found - known.begin();
  if (found == known.end()) known.push_back(name);
  return fmt::format("{}{}", kind, number);
}

// Whether a variable's value may be shown. Values of number variables must be numbers: cards may
// also be chosen by their serial numbers.
bool MayBeSeen(std::string_view name, std::string_view value) {
  static const std::map<std::string_view, std::string_view> kCharacters = {
      {"OMP_NUM_THREADS", "0123456789"},
      {"MKL_NUM_THREADS", "0123456789"},
      {"OPENBLAS_NUM_THREADS", "0123456789"},
      {"CUDA_VISIBLE_DEVICES", "0123456789,"}};
  static const std::set<std::string_view> kAnyValue = {
      "NCCL_ALGO",          "NCCL_PROTO",      "NCCL_NTHREADS",     "NCCL_MIN_NCHANNELS",
      "NCCL_MAX_NCHANNELS", "NCCL_BUFFSIZE",   "NCCL_P2P_DISABLE",  "NCCL_P2P_LEVEL",
      "NCCL_SHM_DISABLE",   "NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL"};
  const auto found = kCharacters.find(name);
  if (found == kCharacters.end()) return kAnyValue.contains(name);
  return value.size() <= 64 && value.find_first_not_of(found->second) == std::string_view::npos;
}

}  // namespace

void PrivateFacts::AddUsers(const std::set<std::string>& more) {
  for (const std::string& user : more) {
    if (std::ranges::find(users, user) == users.end()) users.push_back(user);
  }
}

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
    std::string dots;  // dots that end the sentence
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

void TakeNames(std::map<std::string, std::string>& environment, PrivateFacts& facts) {
  std::map<std::string, std::string> seen;
  for (auto& [name, value] : environment)
    (MayBeSeen(name, value) ? seen : facts.environment).emplace(name, std::move(value));
  environment = std::move(seen);
}

json ToJson(const PrivateFacts& facts) { return WriteRecord(facts); }

std::string FailureMessageIn(const std::filesystem::path& directory) {
  try {
    return ReadPrivateFacts(directory).failure;
  } catch (const Error& error) {
    return error.what();
  }
}

void WritePrivateFacts(const std::filesystem::path& directory, const PrivateFacts& facts) {
  WriteFileDurably(directory / kPrivateFile,
                   ToJson(facts).dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

PrivateFacts ReadPrivateFacts(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / kPrivateFile;
  if (!std::filesystem::exists(file)) return {};
  return RecordOf<PrivateFacts>(ReadJsonFile(file), file.string());
}

}  // namespace sparfuse::harness
