// Takes names of hosts and users, folders and secrets out of texts that leave this machine, and out
// of trials that pages show.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "harness/records/private_facts.hpp"
#include "harness/records/record.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// Names to remove from texts.
struct PrivateNames {
  std::set<std::string> hosts, users;

  // With its short form. localhost says nothing, and is a word of many sentences.
  void AddHost(const std::string& name);
  void Add(const PrivateFacts& facts);
  // The names of this machine and of this user, and those that the private.json of trials of the
  // store in `results` name.
  static PrivateNames OfTrials(const std::vector<TrialRow>& rows,
                               const std::filesystem::path& results);
};

// The names of this user in the environment and the system.
std::set<std::string> CurrentUsers();

// Removes from texts names as whole words, with the domain of a host ("HOST", "USER"), the folders
// of absolute paths, words that look like a token ("SECRET"), and control characters. If a hash or
// a path is expected and the text is neither, it becomes "". Scrubbing the result again without
// names changes nothing.
class TextScrubber : public Scrubber {
 public:
  explicit TextScrubber(PrivateNames names = {}) : names_(std::move(names)) {}
  std::string Scrubbed(const std::string& text, Leaves as) const override;

 private:
  PrivateNames names_;
};

// Scrubs texts of machines, launches and people with TextScrubber: names of this machine, of its
// user, and those in the private.json of the trials in `results`. Values without such names stay
// shared.
void MakeShareable(std::vector<TrialRow>& rows, const std::filesystem::path& results);

}  // namespace sparfuse::harness
