// Declares the verbs of the program: what each is asked for, and the function that does it. Folders
// beneath declare those of theirs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/program.hpp"
#include "harness/cli/submit.hpp"
#include "harness/compare/comparison.hpp"
#include "harness/report/explain.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

// Where `name` may be a paper, that is a folder of experiments/, all of its experiments are meant.

struct PlanRequest {
  std::string name;
  std::vector<std::string> with_methods;  // that join every method axis
  bool why = false;                       // say for each trial what the store lacks
  bool commands = false;                  // print the line of each launch
  LaunchOptions launch;                   // of these
  SubmitRequest submit;                   // print the script of the job that runs them
};
int PlanVerb(Program& program, const PlanRequest& request);

struct RunRequest {
  std::vector<std::string> names;
  std::vector<std::string> with_methods;  // that join every method axis
  bool fresh = false;                     // run everything again
  bool retry_disturbed = false;           // and what only disturbed trials stand for
  std::optional<int> block;               // nothing: all
  SubmitRequest submit;
  std::optional<bool> fingerprint;  // RunOptions::fingerprint
  LaunchOptions launch;
};
int RunVerb(Program& program, const RunRequest& request);
// Runs what the store lacks and prints how many trials ran well, failed and were there.
RunSummary RunAndCount(Program& program, const std::vector<Experiment>& experiments,
                       const RunOptions& options);

// The tables of an experiment, headed by what disturbed its trials.
void PrintTables(Program& program, const LoadedExperiment& loaded, TableFormat format);

int StatusVerb(Program& program, const std::string& experiment);
// format: "md", "latex" or "csv".
int TableVerb(Program& program, const std::string& experiment, const std::string& format);
struct CompareVerbRequest {
  std::vector<std::string> sides;  // heads of systems' hashes, "here"
  CompareRequest compare;
  std::string format = "md";      // or "latex", "csv"
  std::filesystem::path figures;  // a folder for figures and their numbers, or ""
  bool transport = false;
  std::vector<std::string> profiles;       // "SIDE=NAME": which profile stands for a side
  std::string with_plan;                   // the side whose plans the others get, or ""
  std::filesystem::path write_experiment;  // a new file: cells that measure these plans, or ""
};
int CompareVerb(Program& program, const CompareVerbRequest& request);
struct SiteRequest {
  std::filesystem::path out;  // a folder; "": none is written
  CompareRequest compare;     // of all that systems have in common
  bool dated = false;         // say when the pages were written
};
int SiteVerb(Program& program, const SiteRequest& request);
// `out`: a folder; "": reports/ID/figures in the results.
int FigureVerb(Program& program, const std::string& experiment, const std::filesystem::path& out);
// `out`: a file; "": reports/ID/report.html in the results.
int ReportVerb(Program& program, const std::string& name, const std::filesystem::path& out);
int ExplainVerb(Program& program, ExplainRequest request, const std::filesystem::path& out);

struct ReproduceRequest {
  std::string name;
  std::vector<std::string> with_methods;  // that join every method axis
  bool fresh = false;                     // run everything again
  bool strict = false;                    // kClaimNotReproduced where a claim fails
  bool modelled = false;         // modelled trials and the profiles that they need, no others
  bool retry_disturbed = false;  // run again what only disturbed trials stand for
  LaunchOptions launch;
};
int ReproduceVerb(Program& program, const ReproduceRequest& request);

// Runs the laws of a part in seconds; `kind`: one of CheckableKinds().
int CheckVerb(Program& program, const std::string& kind, const std::string& name);
std::vector<std::string> CheckableKinds();

// Writes the files of a method with a planner of its own into the project's folder.
int NewBaselineVerb(Program& program, const std::string& name);

// As typed; numbers are lists with commas.
struct AdviseOptions {
  std::string workload, cluster;
  std::string workers, densities;
  std::vector<std::string> methods;
  std::optional<std::string> sparsifier, link;
  std::optional<int> batch;
  bool toml = false;          // print the experiment in the place of the answer
  bool phase = false;         // draw the phase diagram
  std::filesystem::path out;  // of it: a folder; "": the working directory
};
int AdviseVerb(Program& program, const AdviseOptions& asked);

struct IndexRequest {
  bool rebuild = false;      // make the index again from the trial directories
  bool empty_trash = false;  // delete unfinished trials of earlier runs for good
};
int IndexVerb(Program& program, const IndexRequest& request);

struct DoctorRequest {
  LaunchOptions launch;
  bool hosts = false;  // of a launch, in the place of this machine
  int ranks = 0;       // 0: one a host
};
// kTrialFailed where trials would fail on the hosts of a launch.
int DoctorVerb(Program& program, const DoctorRequest& request);
int ProveVerb(Program& program, const std::string& method);
int AnnotateVerb(Program& program, const std::string& trial, const std::string& reason);

}  // namespace sparfuse::harness
