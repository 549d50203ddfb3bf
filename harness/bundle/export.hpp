// Writes bundles.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/bundle/bundle.hpp"

namespace sparfuse::harness {

struct ExportSummary {
  BundleContent content;
  std::set<std::string> stays;        // files, and keys of private.json, that do not leave
  std::vector<std::string> left_out;  // trials that do not leave, and why; sentences
};

// The content of a bundle of the store's trials: the first half of an export.
class Export {
 public:
  // `rows` are the trials to export, of Store::Rows. Says on standard error how far it is.
  Export(const Store& store, const std::vector<TrialRow>& rows, PrivateNames names);

  const ExportSummary& summary() const noexcept { return summary_; }
  // Writes the bundle; equal trials, annotations and `written_by` give equal bytes. Nothing is at
  // `out` before it is complete. Throws Error{kData} if a trial changes meanwhile, or if the
  // file cannot be written.
  void Write(const SourceState& written_by, const std::filesystem::path& out) const;

 private:
  const Store& store_;
  TextScrubber scrubber_;
  ExportSummary summary_;
  std::map<std::string, std::string> annotations_;  // their text, by id
  std::string table_;
};

}  // namespace sparfuse::harness
