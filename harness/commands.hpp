// The verbs of the program.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/catalog.hpp"
#include "harness/experiment.hpp"
#include "harness/explain.hpp"
#include "harness/store.hpp"
#include "harness/table.hpp"

namespace sparfuse {

// Exit codes (DESIGN.md, section 6).
enum ExitCode {
  kDone = 0,
  kTrialFailed = 1,
  kUsage = 2,
  kClaimNotReproduced = 3,
  kInterrupted = 130
};

class Commands {
 public:
  struct Settings {
    std::filesystem::path root, results, worker;
    bool json = false;
    const std::atomic<bool>* interrupted = nullptr;
  };
  explicit Commands(Settings settings)
      : settings_(std::move(settings)), store_(settings_.results) {}

  // Each returns an ExitCode and throws Error for what ends it early.
  int List(const std::string& what);
  int Plan(const std::string& experiment, bool why);
  int Run(const std::vector<std::string>& experiments, bool fresh);
  int Status(const std::string& experiment);
  int Table(const std::string& experiment, TableFormat format);
  int Figure(const std::string& experiment, const std::filesystem::path& out);
  int Report(const std::string& experiment, const std::filesystem::path& out);
  int Explain(const ExplainRequest& request, const std::filesystem::path& out);
  int Reproduce(const std::string& experiment, bool fresh, bool strict);
  int Profile(const std::string& workload, int max_ranks, int threads, std::optional<int> batch,
              const std::vector<std::string>& sparsifiers,
              const std::vector<std::string>& quantizers, bool fresh);
  int Calibrate(const std::string& cluster);
  int Prove(const std::string& method);
  int RebuildIndex();
  int Doctor();
  int Annotate(const std::string& trial, const std::string& reason);

 private:
  struct Loaded {
    Experiment experiment;
    std::vector<Part> parts;  // twins included
    std::vector<TrialRow> rows;
    std::vector<PartResult> results;  // point into parts and rows
  };
  const Catalog& catalog();
  std::filesystem::path ResolveExperiment(const std::string& name) const;
  Experiment Load(const std::string& name);
  std::unique_ptr<Loaded> LoadWithResults(const std::string& name);
  std::vector<TrialRow> Rows();
  int Render(const std::string& verb, const Loaded& loaded, const std::filesystem::path& out,
             const std::vector<std::string>& more = {});
  std::filesystem::path Python() const;
  std::filesystem::path ReportFolder(const Experiment& experiment) const;

  Settings settings_;
  Store store_;
  std::optional<Catalog> catalog_;
};

}  // namespace sparfuse
