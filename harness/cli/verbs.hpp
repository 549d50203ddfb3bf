// Declares the verbs of the program: the options of each, and the function that runs it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/program.hpp"
#include "harness/clusters/cluster_text.hpp"
#include "harness/compare/comparison.hpp"
#include "harness/imports/import_map.hpp"
#include "harness/report/explanation.hpp"
#include "harness/report/tables/pivot.hpp"
#include "harness/run/live/submitted_blocks.hpp"
#include "harness/traces/trace_model.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

// If `name` may be a paper, that is a folder of experiments/, all its experiments are meant.

// The options of `sparfuse run --submit`, which gives blocks of experiments to Slurm.
struct SubmitRequest {
  bool submit = false;
  std::string sbatch_options;            // one line, as sbatch takes them
  LaunchOptions launch;                  // within the job
  std::optional<bool> fingerprint = {};  // of the job's run
};

int SubmitVerb(Program& program, const std::vector<Experiment>& experiments,
               const SubmitRequest& request);
// Prints the scripts that Submit would give to Slurm if nothing were there yet.
int PrintScripts(Program& program, const std::vector<Experiment>& experiments,
                 const SubmitRequest& request);
// A job calls it after it has run a block to its end, so that the program that submitted the job
// learns of it.
void RecordBlock(Program& program, const std::vector<Experiment>& experiments, int block,
                 const RunSummary& summary);
// By block; empty if nothing was submitted.
std::map<int, BlockState> StatesOfBlocks(Program& program, const Experiment& experiment);

struct PlanRequest {
  std::string name;
  std::vector<std::string> with_methods;  // that join every method axis
  bool why = false;                       // say for each trial why the store lacks it
  bool commands = false;                  // print the line of each launch
  bool modelled = false;                  // modelled trials alone, with the profiles they need
  bool fresh = false;                     // as if the store had nothing
  LaunchOptions launch;                   // of these
  SubmitRequest submit;                   // print the script of the job that runs them
};
int PlanVerb(Program& program, const PlanRequest& request);

struct RunRequest {
  std::vector<std::string> names;
  std::vector<std::string> with_methods;  // that join every method axis
  bool fresh = false;                     // run everything again
  bool retry_disturbed = false;           // and cells with disturbed trials alone
  std::optional<int> block;               // nothing: all
  SubmitRequest submit;
  std::optional<bool> fingerprint;  // RunOptions::fingerprint
  bool kineto = false;              // each trial's traced step also as torch.profiler writes it
  LaunchOptions launch;
};
int RunVerb(Program& program, const RunRequest& request);
// Runs the trials that the store lacks, and prints how many ran well, how many failed and how many
// were there.
RunSummary RunAndCount(Program& program, const std::vector<Experiment>& experiments,
                       const RunOptions& options);

// Prints the tables of an experiment, and above them the disturbances of its trials.
void PrintTables(Program& program, const LoadedExperiment& loaded, TableFormat format);

// experiment "": a line for each that the store has trials of.
int StatusVerb(Program& program, const std::string& experiment);
struct TableRequest {
  std::string experiment;
  std::string format = "md";  // or "text", "latex", "csv"
  PivotRequest pivot;         // without rows: tables as they are
};
int TableVerb(Program& program, const TableRequest& request);
struct CompareVerbRequest {
  std::vector<std::string> sides;  // heads of systems' hashes, "here"
  CompareRequest compare;
  std::string format = "md";      // or "latex", "csv"
  std::filesystem::path figures;  // a folder for figures and their numbers, or ""
  bool transport = false;
  std::vector<std::string> profiles;       // "SIDE=NAME": the profile of a side
  std::string with_plan;                   // the side whose plans the others get, or ""
  std::filesystem::path write_experiment;  // a new file: cells that measure these plans, or ""
};
int CompareVerb(Program& program, const CompareVerbRequest& request);
struct SiteRequest {
  std::filesystem::path out;  // a folder; "": none is written
  CompareRequest compare;     // of all that systems have in common
  std::string reference;      // the method that ratios are to; "": of the store's experiments
  bool dated = false;         // say when the pages were written
};
int SiteVerb(Program& program, const SiteRequest& request);
struct DrawRequest {
  std::string name;
  std::filesystem::path out;  // "": in reports/ID of the results
};
int FigureVerb(Program& program, const DrawRequest& request);  // into the folder `out`, or figures
int ReportVerb(Program& program, const DrawRequest& request);  // the file `out`, or report.html
struct SkillVerbRequest {
  std::vector<std::string> names = {"validation", "safusion"};
  std::vector<std::string> without;  // KEY=VALUE of numbers to leave out
  std::string by;                    // a key whose values get rows of their own, or ""
};
// Predictions of published numbers beside formulas, in one table of all experiments of the names.
int SkillVerb(Program& program, const SkillVerbRequest& request);
struct ExplainVerbRequest {
  ExplainRequest cells;
  std::filesystem::path out;  // a folder; "": reports/ID/figures in the results
};
int ExplainVerb(Program& program, const ExplainVerbRequest& request);

struct ReproduceRequest {
  std::string name;
  std::vector<std::string> with_methods;  // that join every method axis
  bool fresh = false;                     // run everything again
  bool strict = false;                    // kClaimNotReproduced if a claim fails
  bool modelled = false;         // modelled trials and the profiles that they need, no others
  bool retry_disturbed = false;  // run cells with disturbed trials alone again
  LaunchOptions launch;
};
int ReproduceVerb(Program& program, const ReproduceRequest& request);

struct CheckVerbRequest {
  std::string kind, name;  // kind: one of CheckableKinds()
};
// Runs the laws of a part in seconds.
int CheckVerb(Program& program, const CheckVerbRequest& request);
std::vector<std::string> CheckableKinds();

struct NewBaseline {
  std::string what, name;
  std::filesystem::path folder;      // of the user's; "": the project's
  bool python = false, cpp = false;  // its language in a folder of the user's
};
// Writes the files of a method with a planner of its own.
int NewBaselineVerb(Program& program, const NewBaseline& wanted);

// As typed; numbers are lists with commas.
struct AdviseOptions {
  std::string workload, cluster;
  std::string workers, densities;
  std::vector<std::string> methods;
  std::optional<std::string> sparsifier, link;
  std::optional<int> batch;
  bool toml = false;          // print the experiment in the place of the answer
  bool phase = false;         // draw the phase diagram
  bool utilisation = false;   // find the rates that utilisations need
  std::filesystem::path out;  // of it: a folder; "": the working directory
  TraceImport trace;          // files: none, or of the training that contains the step
};
int AdviseVerb(Program& program, const AdviseOptions& asked);

struct TraceRequest {
  std::vector<std::string> files;  // of one training, a rank each; or one trial of ours
  TraceOptions options;
  std::filesystem::path kineto;  // a folder for the trial's step in the profiler's form; or ""
};
int TraceVerb(Program& program, const TraceRequest& request);

struct IndexRequest {
  bool rebuild = false;      // make the index again from the trial directories
  bool empty_trash = false;  // delete unfinished trials of earlier runs for good
};
int IndexVerb(Program& program, const IndexRequest& request);

struct DoctorRequest {
  LaunchOptions launch;  // one that names a launch or a hostfile: its hosts, not this machine
  int ranks = 0;         // 0: one a host
};
// kTrialFailed if trials would fail on the hosts of a launch.
int DoctorVerb(Program& program, const DoctorRequest& request);
int ProveVerb(Program& program, const std::string& method);
struct AnnotateRequest {
  std::string trial, reason;
};
int AnnotateVerb(Program& program, const AnnotateRequest& request);

struct ExportRequest {
  std::vector<std::string> names;  // ids of experiments or papers, or .toml files
  std::filesystem::path out;       // FILE.sparfuse; "": none is written
  bool show = false;               // list the keys that leave and the keys that stay
};
// kTrialFailed if a trial had to be left out.
int ExportVerb(Program& program, const ExportRequest& request);
struct MergeVerbRequest {
  std::vector<std::filesystem::path> files;
  bool take_annotations = false;  // MergeRequest::take_annotations
};
// kTrialFailed if anything was refused; the rest is merged.
int MergeVerb(Program& program, const MergeVerbRequest& request);
// Returns kTrialFailed if the bundle is not as written.
int VerifyVerb(Program& program, const std::filesystem::path& file);

int CalibrateVerb(Program& program, const std::string& cluster);
// Writes results/profiles/NAME.toml; nothing is overwritten.
int ClusterNewVerb(Program& program, const NewCluster& wanted);
// As typed.
struct ClusterImport {
  std::string cluster, from;  // "nccl-tests", "osu", "fingerprint", "nccl-inspector", ...
  std::vector<std::string> logs;
  int ranks = 0, nodes = 0;  // 0: as the logs say
  std::string operation;     // for logs that do not name it; or ""
  bool print = false;        // write nothing
};
// Takes links that others measured into results/profiles/NAME.toml. Curves are written, in a block
// of their own. Lines of [input] are printed only, because [input] belongs to the file's owner.
int ClusterImportVerb(Program& program, const ClusterImport& asked);
// Presets, stacks and clusters.
int ClusterListVerb(Program& program);

struct ImportRequest {
  ImportForm form = ImportForm::kTable;
  std::filesystem::path file;
  ImportMapRequest map;
  bool dry_run = false;           // show the result, and write nothing
  bool keep_implausible = false;  // with the doubt in a column of its own
};
// kTrialFailed if a number is implausible, or the store has another: then nothing is imported.
int ImportVerb(Program& program, const ImportRequest& request);
int ImportListVerb(Program& program);
struct KinetoImport {
  std::string cluster;
  TraceImport trace;
  bool print = false;  // write nothing
};
// Takes a trace into results/profiles/CLUSTER.toml. Its model table and all facts go next to that
// file.
int ImportKinetoVerb(Program& program, const KinetoImport& asked);

struct ProfileRequest {
  std::vector<std::string> workloads;
  std::string device = "cpu";
  std::string precision = "fp32";
  int most_ranks = 2;    // at once: 1, 2, 4, ... up to these
  LaunchOptions launch;  // over several hosts: ranks are spread over all of them
  int threads = 1;       // of a rank
  std::optional<int> batch;
  std::vector<std::string> sparsifiers = {"all"};  // "all": all without an origin in their name
  std::vector<std::string> quantizers = {"all"};
  int warmup = 5;                  // steps of training before the timed ones
  int passes = 50;                 // timed
  std::vector<std::string> links;  // "GBPS:ALPHA_US[:GBPS:ALPHA_US]": besides the machine's own
  int ranks_per_node = 2;          // of a link with two more numbers
  std::string name;                // of the file in results/profiles, or ""
  bool fresh = false;
};
int ProfileVerb(Program& program, const ProfileRequest& request);

// An option --link of verbs that measure: {gbps, alpha_us} of "1:100", and {intra_node_gbps,
// intra_node_us} where "1:100:10:100" goes on. Throws Error{kConfig} naming the option, also for a
// link that cannot be emulated.
LinkShape ParseLink(const std::string& text);

struct SystemInit {
  std::string name = "this-system";  // of results/systems/NAME.toml
  bool print = false;                // print this node's part and write nothing
};
// Writes a description of a system that begins with this node, or adds this node to one that has
// none like it; nothing that is there is changed.
int SystemInitVerb(Program& program, const SystemInit& asked);
// Returns kTrialFailed if the file has open entries or contradicts the hardware detected here.
int SystemCheckVerb(Program& program, const std::string& name);
// The quantities to measure, and the ranks.
struct SystemFingerprint {
  std::string name = "this-system";   // of results/systems/NAME.fingerprint.json
  int ranks = 0, ranks_per_node = 0;  // 0: two a host
  int threads = 1;                    // of a rank
  std::string device = "cpu", transport = "mpi";
  std::string link;  // "GBPS:ALPHA_US", or "": the machine's own
  LaunchOptions launch;
};
// Measures the system, prints the changes since the file was written, and writes the file.
int SystemFingerprintVerb(Program& program, const SystemFingerprint& asked);

struct DataPrepareRequest {
  std::string name;
  std::filesystem::path from;
  std::filesystem::path out;                 // "": NAME in the data directory
  std::filesystem::path val_labels;          // of images that lie flat, or ""
  std::filesystem::path tokenizer;           // of texts; "": words; of questions
  int window = 0, stride = 0, question = 0;  // of questions, in pieces; 0: the usual values of BERT
  bool accept = false;
};
// Each returns kTrialFailed if something is wrong with the data; sparfuse_data prints the reason.
int DataPrepareVerb(Program& program, const DataPrepareRequest& request);
int DataListVerb(Program& program);
int DataCheckVerb(Program& program, const std::string& name);
struct DataScoreRequest {
  std::string name;
  std::filesystem::path answers;
};
// Prints exact match and F1 of answers against prepared questions.
int DataScoreVerb(Program& program, const DataScoreRequest& request);
struct DataShowRequest {
  std::string name, split = "train";
  std::size_t image = 0;
  std::filesystem::path out;  // FILE.ppm
};
// Writes an image as training decodes it, before it is cut.
int DataShowVerb(Program& program, const DataShowRequest& request);

struct WeightsPrepareRequest {
  std::string name;
  std::filesystem::path from;
};
// Writes weights of PyTorch, or safetensors in one or several files, as one safetensors file.
int WeightsPrepareVerb(Program& program, const WeightsPrepareRequest& request);
struct WeightsCheckRequest {
  std::string workload, weights;
  std::string data;  // the data set that the model trains on, or ""
};
// Prints a line for each tensor of the file and each parameter of the workload: filled, skipped and
// why, fresh, or missing. Returns kTrialFailed if the file is not of this model.
int WeightsCheckVerb(Program& program, const WeightsCheckRequest& request);

}  // namespace sparfuse::harness
