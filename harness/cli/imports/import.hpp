// Declares the verb that takes results of others into the store.
#pragma once

#include <filesystem>

#include "harness/cli/program.hpp"
#include "harness/imports/import_map.hpp"

namespace sparfuse::harness {

struct ImportRequest {
  ImportForm form = ImportForm::kTable;
  std::filesystem::path file;
  ImportMapRequest map;
  bool dry_run = false;           // show what would be, and write nothing
  bool keep_implausible = false;  // with the doubt beside each number
};
// kTrialFailed where a number is implausible, or the store has another: then nothing is imported.
int ImportVerb(Program& program, const ImportRequest& request);
int ImportListVerb(Program& program);

}  // namespace sparfuse::harness
