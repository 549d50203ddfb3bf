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

// Names that may stand in texts.
struct PrivateNames {
  std::set<std::string> hosts, users;

  // With its short form. localhost says nothing, and is a word of many sentences.
  void AddHost(const std::string& name);
  void Add(const PrivateFacts& facts);
  // Of this machine and who runs this.
  static PrivateNames OfThisMachine();
  // Those, and whom the private.json of trials of the store in `results` name.
  static PrivateNames OfTrials(const std::vector<TrialRow>& rows,
                               const std::filesystem::path& results);
};

// What the environment and the system call whoever runs this.
std::set<std::string> CurrentUsers();

// Texts lose names as whole words, hosts with the domain behind them ("HOST", "USER"), the folders
// of absolute paths, what looks like a token ("SECRET") and control characters. A text that is no
// hash or no place, where one is expected, becomes "". Scrubbing again without names changes
// nothing.
class TextScrubber : public Scrubber {
 public:
  explicit TextScrubber(PrivateNames names = {}) : names_(std::move(names)) {}
  std::string Scrubbed(const std::string& text, Leaves as) const override;
  // Whether a name of a host or a user stands in it.
  bool HasName(const std::string& text) const;

 private:
  PrivateNames names_;
};

// Texts of machines, launches and people lose what TextScrubber takes out: names of this machine,
// of who is at it, and those that the trials' private.json in `results` knows. Values that have
// none of it stay shared.
void MakeShareable(std::vector<TrialRow>& rows, const std::filesystem::path& results);

}  // namespace sparfuse::harness
