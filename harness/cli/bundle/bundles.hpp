// Declares the verbs that write, merge and verify bundles.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/cli/program.hpp"

namespace sparfuse::harness {

struct ExportRequest {
  std::vector<std::string> names;  // ids of experiments or papers, or .toml files
  std::filesystem::path out;       // FILE.sparfuse; "": none is written
  bool show = false;               // list the keys that leave and those that stay
};
// kTrialFailed where a trial had to be left out.
int ExportVerb(Program& program, const ExportRequest& request);
// kTrialFailed where anything was refused; the rest is merged.
int MergeVerb(Program& program, const std::vector<std::filesystem::path>& files);
// kTrialFailed where the bundle is not as it was written.
int VerifyVerb(Program& program, const std::filesystem::path& file);

}  // namespace sparfuse::harness
