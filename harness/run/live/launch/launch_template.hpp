// Reads and fills in the command line of a launcher that the program has no form of.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace sparfuse::harness {

// What stands for a placeholder of a template.
struct TemplateValues {
  int ranks = 1, ranks_per_node = 1, nodes = 1;
  long timeout_seconds = 0;
  std::string worker, hostfile, interface, nonce;
  std::vector<std::string> arguments;    // of the worker
  std::vector<std::string> environment;  // NAME=VALUE
};

// A file with `command = ["word", ...]`, the words as the launcher gets them: no shell reads them.
// {ranks}, {ranks_per_node}, {nodes}, {timeout} (seconds), {worker}, {hostfile} and {interface} may
// stand within a word; {arguments} and {environment}, each any number of words, are a word of their
// own: {environment}, NAME=VALUE, is what env(1) takes. {ranks}, {worker}, {arguments} and
// {environment} must be there. {nonce} stands for a word that no other launch has.
//
// `end = ["word", ...]`, if given, is run when a launch is ended before its time, beside SIGTERM to
// the command; of placeholders it may have {nonce}.
class LaunchTemplate {
 public:
  LaunchTemplate() = default;
  // Throws Error{kConfig} naming file, line, key and value.
  static LaunchTemplate Read(const std::filesystem::path& file);

  bool Uses(const std::string& placeholder) const;  // "hostfile"
  std::vector<std::string> Fill(const TemplateValues& values) const;
  // Nothing where there is no `end`.
  std::vector<std::string> FillEnd(const std::string& nonce) const;

 private:
  std::vector<std::string> words_, end_;
};

}  // namespace sparfuse::harness
