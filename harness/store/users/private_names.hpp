// Takes names of hosts and users out of texts that leave this machine.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace sparfuse::harness {

// Names that may stand in words and data.
struct PrivateNames {
  std::set<std::string> hosts, users;

  // With its short form. localhost says nothing, and is a word of many sentences.
  void AddHost(const std::string& name);
  // The strings of a list; of all else nothing.
  void AddHosts(const nlohmann::json& list);
  // Those that a trial's provenance names (TrialRow).
  void AddHostsOf(const nlohmann::json& provenance);
  void AddThisHost();

  // Of this machine and who runs this.
  static PrivateNames OfThisMachine();
};

// The hosts that a trial's record of its launch names.
nlohmann::json HostsOfLaunch(const nlohmann::json& launch);

// "HOST" and "USER" in the place of each that is a whole word, of a host with the domain behind it.
std::string WithoutNames(const std::string& text, const PrivateNames& names);

}  // namespace sparfuse::harness
