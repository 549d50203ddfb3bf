// The verbs of the program.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/report/explain.hpp"
#include "harness/report/results.hpp"
#include "harness/report/table.hpp"
#include "harness/run/runner.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

// Exit codes (DESIGN.md, section 6).
enum ExitCode {
  kDone = 0,
  kTrialFailed = 1,
  kUsage = 2,
  kClaimNotReproduced = 3,
  kInterrupted = 130
};

// What `sparfuse profile` is to measure.
struct ProfileRequest {
  std::vector<std::string> workloads;
  std::string device = "cpu";
  std::string precision = "fp32";
  int most_ranks = 2;  // at once: 1, 2, 4, ... up to these
  int threads = 1;     // of a rank
  std::optional<int> batch;
  std::vector<std::string> sparsifiers = {"all"};  // "all": those that are no origin's form
  std::vector<std::string> quantizers = {"all"};
  int warmup = 5;                  // steps of training before the timed ones
  int passes = 50;                 // timed
  std::vector<std::string> links;  // "GBPS:ALPHA_US": beside the machine's own
  std::string name;                // of the file in results/profiles, or ""
  bool fresh = false;
};

class Commands {
 public:
  struct Settings {
    std::filesystem::path root, results, worker;
    bool json = false;
    const std::atomic<bool>* interrupted = nullptr;
  };
  explicit Commands(Settings settings)
      : settings_(std::move(settings)),
        store_(settings_.results, settings_.root / "results" / "profiles") {}

  // Each returns an ExitCode and throws Error for what ends it early. Where `name` may be a paper,
  // that is a folder of experiments/, all of its experiments are meant.
  int List(const std::string& what);
  int Plan(const std::string& name, bool why);
  int Run(const std::vector<std::string>& names, bool fresh);
  int Status(const std::string& experiment);
  int Table(const std::string& experiment, const std::string& format);
  int Figure(const std::string& experiment, const std::filesystem::path& out);
  int Report(const std::string& name, const std::filesystem::path& out);
  int Explain(const ExplainRequest& request, const std::filesystem::path& out);
  struct ReproduceOptions {
    bool fresh = false;     // run everything again
    bool strict = false;    // kClaimNotReproduced where a claim fails
    bool modelled = false;  // modelled trials and the profiles that they need, no others
  };
  int Reproduce(const std::string& name, const ReproduceOptions& options);
  int Profile(const ProfileRequest& request);
  int Calibrate(const std::string& cluster);
  int Prove(const std::string& method);
  int RebuildIndex();
  int Doctor();
  int Annotate(const std::string& trial, const std::string& reason);

 private:
  struct Loaded {
    Experiment experiment;
    std::vector<Part> parts;                            // twins included
    std::shared_ptr<const std::vector<TrialRow>> rows;  // of all that were loaded together
    std::vector<PartResult> results;                    // point into parts and rows
  };
  const Catalog& catalog();
  std::filesystem::path ExperimentsFolder() const { return settings_.root / "experiments"; }
  bool IsPaper(const std::string& name) const;
  std::filesystem::path ResolveExperiment(const std::string& name) const;
  Experiment Load(const std::string& name);
  std::vector<Experiment> LoadAll(const std::string& name);  // of a paper, or the one
  std::unique_ptr<Loaded> LoadWithResults(const std::string& name);
  std::vector<std::unique_ptr<Loaded>> WithResults(std::vector<Experiment> experiments);
  std::vector<TrialRow> Rows();
  RunSummary RunAll(const std::vector<Experiment>& experiments, bool fresh, bool modelled);
  int Render(const std::string& verb, const Loaded& loaded, const std::filesystem::path& out,
             const std::vector<std::string>& more = {});
  void RenderPaper(const std::string& paper, const std::vector<std::unique_ptr<Loaded>>& loaded,
                   const std::filesystem::path& out);
  // Runs harness/figures/render.py; throws where it fails, or where nothing of `name` has run.
  void Draw(const std::vector<std::string>& arguments, const std::string& name);
  std::filesystem::path WriteSpec(const Loaded& loaded);  // what render.py is told of it
  std::filesystem::path Python() const;
  std::filesystem::path ReportFile(const std::string& id) const;  // its folder is made

  Settings settings_;
  Store store_;
  std::optional<Catalog> catalog_;
};

}  // namespace sparfuse::harness
