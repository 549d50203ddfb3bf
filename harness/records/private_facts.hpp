// Holds the facts of a trial about people and a site, outside of its records. Records number hosts,
// cards and processes, and here are their names. Interfaces keep their names in records, because
// these distinguish settings.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "harness/records/launch.hpp"
#include "harness/records/machine.hpp"

namespace sparfuse::harness {

// In a trial's directory. It leaves in no bundle, site or report.
inline constexpr const char* kPrivateFile = "private.json";

struct PrivateCard {
  std::string uuid, pci;
  bool operator==(const PrivateCard&) const = default;
};

struct PrivateFacts {
  std::vector<std::string> hosts;            // "host0" of records first; by rank
  std::vector<std::string> processes;        // "process0" first: others on the cards
  std::map<std::string, PrivateCard> cards;  // of rank 0's host, by their index
  std::vector<std::string> buses;            // "card0" of a launch's binding first
  std::vector<std::string> users;
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;   // without public variables
  std::map<std::string, std::string> python_files;  // of sparsifiers' classes, by sparsifier
  std::string failure, log_tail;                    // as they were said
  bool operator==(const PrivateFacts&) const = default;

  void AddUsers(const std::set<std::string>& more);  // adds users that are not there yet
  // With the real name in the place of "host1"; other words stay.
  std::vector<std::string> NamesOf(std::vector<std::string> placement) const;
};

// Turns hosts' names into "host0", "host1", ... in order of first appearance, and keeps the names
// in that order.
class HostNames {
 public:
  // hosts: the names that have a number already. It must outlive this object.
  explicit HostNames(std::vector<std::string>& hosts) : hosts_(hosts) {}

  std::string Numbered(const std::string& name);  // "" stays
  void Number(std::vector<std::string>& names);
  // A sentence in which each known name that is a word of its own becomes its number.
  std::string InText(const std::string& text) const;

 private:
  std::vector<std::string>& hosts_;
};

// Leave numbers in the record and take the names.
void TakeNames(Machine& machine, PrivateFacts& facts);
void TakeNames(Quiet& quiet, PrivateFacts& facts);
void TakeNames(TrialLaunch& launch, PrivateFacts& facts);
// Leaves only public variables in `environment`: numbers of threads and of visible cards, and the
// variables that choose NCCL's algorithms. The others go to `facts`.
void TakeNames(std::map<std::string, std::string>& environment, PrivateFacts& facts);

nlohmann::json ToJson(const PrivateFacts& facts);

// The message of a failed trial, for people at this machine; "" if it is not known here.
std::string FailureMessageIn(const std::filesystem::path& directory);

// Write to and read from a trial's directory. Reading gives nothing if the file does not exist.
void WritePrivateFacts(const std::filesystem::path& directory, const PrivateFacts& facts);
PrivateFacts ReadPrivateFacts(const std::filesystem::path& directory);

}  // namespace sparfuse::harness
