// Reads the command line of `sparfuse`, a function a verb, and calls the verb that it names.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>

#include "core/base/program_folder.hpp"
#include "harness/catalog/config_keys.hpp"
#include "harness/cli/list/list.hpp"
#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames =
    "a name beneath experiments/, a folder there (a paper), or a .toml file";

// The tree in which the program was compiled is the last resort: one built outside of it.
fs::path DefaultRoot() {
  if (const char* root = std::getenv("SPARFUSE_ROOT")) return root;
  if (const fs::path own = OwnFolder("experiments"); !own.empty()) return own;
  std::error_code none;
  const fs::path compiled = SPARFUSE_SOURCE_DIRECTORY;
  return fs::exists(compiled / "experiments", none) ? compiled : fs::current_path(none);
}

fs::path DefaultWorker() {
  if (const char* worker = std::getenv("SPARFUSE_WORKER")) return worker;
  const fs::path folder = ProgramFolder();
  const fs::path nested = folder / "worker" / "sparfuse-worker";
  return fs::exists(nested) ? nested : folder / "sparfuse-worker";
}

// An empty argument is a shell variable that is not set: nobody means a default by it.
CLI::Validator NotEmpty(const std::string& what) {
  return CLI::Validator(
      [what](const std::string& given) {
        return given.empty() ? "\"\": expected " + what : std::string();
      },
      "");
}

using Act = std::function<int(Program&)>;

// The command line while its verbs are added, and what it says once it is parsed.
struct CommandLine {
  CLI::App app{"sparfuse: benchmarks of gradient sparsification and tensor fusion", "sparfuse"};
  Program::Settings settings;
  std::string results, system;
  Act act;  // of the verb that was named
};

enum class Speaks { kText, kTextOrJson };

CLI::App* AddVerb(CommandLine& line, const char* name, const char* help, Speaks speaks, Act act) {
  CLI::App* verb = line.app.add_subcommand(name, help);
  if (speaks == Speaks::kTextOrJson) verb->add_flag("--json", line.settings.json, "print JSON");
  verb->callback([&line, act = std::move(act)] { line.act = act; });
  return verb;
}

void AddList(CommandLine& line) {
  const auto request = std::make_shared<ListRequest>();
  auto* verb =
      AddVerb(line, "list",
              "what experiment files may name beside files of their own (methods, Python "
              "sparsifiers, model tables), and the experiments there are",
              Speaks::kTextOrJson, [=](Program& program) { return ListVerb(program, *request); });
  verb->add_option("what", request->what, fmt::format("{}", fmt::join(Listings(), ", ")))
      ->required();
  verb->add_flag("--rounds", request->rounds,
                 "of collectives: steps, messages and bytes for some numbers of ranks");
}

void AddWithMethod(CLI::App* verb, std::vector<std::string>& methods) {
  verb->add_option("--with-method", methods,
                   "NAME or FILE.toml: joins every method axis; may be given again")
      ->allow_extra_args(false);
}

void AddKeepDisturbed(CLI::App* verb, CommandLine& line, const char* help) {
  verb->add_flag_callback(
      "--keep-disturbed", [&line] { line.settings.disturbed = DisturbedTrials::kCount; }, help);
}
constexpr const char* kKeepInResults = "times of disturbed trials count like others";
constexpr const char* kKeepInRuns = "a disturbed trial does not run again at once";

void AddSystemOption(CLI::App* verb, CommandLine& line) {
  verb->add_option("--system", line.system,
                   "how the hash of a machine begins, of `sparfuse status`: its trials alone "
                   "(default: this machine's, or those of the newest trial's)")
      ->check(NotEmpty("hexadecimal digits"));
}

void AddRetryDisturbed(CLI::App* verb, bool& retry) {
  verb->add_flag("--retry-disturbed", retry, "run again what only disturbed trials stand for");
}

void AddLaunch(CLI::App* verb, LaunchOptions& launch) {
  verb->add_option("--launch", launch.launch,
                   "how ranks of live trials are started: local, mpirun, srun or a template's "
                   "FILE.toml (default: local, with a hostfile mpirun)")
      ->check(NotEmpty("local, mpirun, srun or FILE.toml"));
  verb->add_option("--hostfile", launch.hostfile,
                   "of mpirun (lines \"NAME slots=N\"): the hosts that ranks are started on, which "
                   "share the results folder and the program")
      ->check(NotEmpty("a file"));
  verb->add_option("--interface", launch.interface,
                   "the network interface that ranks talk over, on all hosts")
      ->check(NotEmpty("an interface"));
}

void AddPlan(CommandLine& line) {
  const auto request = std::make_shared<PlanRequest>();
  auto* verb =
      AddVerb(line, "plan", "what would run, why, and how long it will take", Speaks::kTextOrJson,
              [=](Program& program) { return PlanVerb(program, *request); });
  verb->add_option("experiment", request->name, kNames)->required();
  AddWithMethod(verb, request->with_methods);
  auto* why = verb->add_flag("--why", request->why, "say for each trial what the store lacks");
  auto* commands = verb->add_flag("--commands", request->commands,
                                  "print the line that starts each launch, and nothing else");
  commands->excludes(why);
  AddLaunch(verb, request->launch);
}

void AddRun(CommandLine& line) {
  const auto request = std::make_shared<RunRequest>();
  auto* verb = AddVerb(line, "run", "run what is missing; ^C is resumable", Speaks::kText,
                       [=](Program& program) { return RunVerb(program, *request); });
  verb->add_option("experiment", request->names, kNames)->required();
  AddWithMethod(verb, request->with_methods);
  verb->add_flag("--fresh", request->fresh, "run everything again");
  AddKeepDisturbed(verb, line, kKeepInRuns);
  AddRetryDisturbed(verb, request->retry_disturbed);
  AddLaunch(verb, request->launch);
}

void AddStatus(CommandLine& line) {
  const auto name = std::make_shared<std::string>();
  auto* verb = AddVerb(line, "status", "what is there and what failed", Speaks::kTextOrJson,
                       [=](Program& program) { return StatusVerb(program, *name); });
  verb->add_option("experiment", *name)->required();
  AddSystemOption(verb, line);
}

void AddTable(CommandLine& line) {
  struct Request {
    std::string name, format = "md";
  };
  const auto request = std::make_shared<Request>();
  auto* verb =
      AddVerb(line, "table", "results as text or numbers", Speaks::kTextOrJson,
              [=](Program& program) { return TableVerb(program, request->name, request->format); });
  verb->add_option("experiment", request->name)->required();
  verb->add_option("--format", request->format, "md, latex or, numbers in base units, csv")
      ->check(CLI::IsMember({"md", "csv", "latex"}));
  AddKeepDisturbed(verb, line, kKeepInResults);
  AddSystemOption(verb, line);
}

void AddCompare(CommandLine& line) {
  const auto request = std::make_shared<CompareVerbRequest>();
  const auto percent = std::make_shared<double>(100 * kSameWithin);
  auto* verb = AddVerb(line, "compare", "what systems say of the same experiments, ratio first",
                       Speaks::kTextOrJson, [=](Program& program) {
                         request->compare.within = *percent / 100;
                         return CompareVerb(program, *request);
                       });
  verb->add_option("system", request->sides,
                   "two or more: FILE.sparfuse, of a file with several systems FILE.sparfuse:HASH; "
                   "the head of the hash of a system in the store (without any they are listed), "
                   "or here");
  verb->add_option("--experiment", request->compare.experiments,
                   "its id; may be given again (default: all that two of them have)")
      ->allow_extra_args(false);
  verb->add_option("--metric", request->compare.metric,
                   "default: throughput, of convergence trials final_metric")
      ->check(CLI::IsMember(std::vector<std::string>(MetricNames().begin(), MetricNames().end())));
  verb->add_option("--reference", request->compare.reference,
                   "the method that ratios are to (dense)");
  verb->add_option("--figures", request->figures, "a folder for figures, and the numbers in them")
      ->check(NotEmpty("a folder"));
  verb->add_option("--within", *percent, "ratios that are less percent apart agree (5)")
      ->check(CLI::Range(0.1, 100.0));
  verb->add_option("--format", request->format, "md, latex or, numbers in base units, csv")
      ->check(CLI::IsMember({"md", "csv", "latex"}));
  AddKeepDisturbed(verb, line, kKeepInResults);
}

// What is drawn, and where to.
struct DrawRequest {
  std::string name;
  fs::path out;
};

void AddFigure(CommandLine& line) {
  const auto request = std::make_shared<DrawRequest>();
  auto* verb =
      AddVerb(line, "figure", "figures as PNG, PDF and SVG", Speaks::kText,
              [=](Program& program) { return FigureVerb(program, request->name, request->out); });
  verb->add_option("experiment", request->name)->required();
  verb->add_option("--out", request->out, "folder (default: reports/ID/figures in the results)");
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddReport(CommandLine& line) {
  const auto request = std::make_shared<DrawRequest>();
  auto* verb =
      AddVerb(line, "report", "one self-contained HTML file", Speaks::kText,
              [=](Program& program) { return ReportVerb(program, request->name, request->out); });
  verb->add_option("experiment", request->name, kNames)->required();
  verb->add_option("--out", request->out, "file (default: reports/ID/report.html in the results)");
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddExplain(CommandLine& line) {
  struct Request {
    ExplainRequest cells;
    fs::path out;
  };
  const auto request = std::make_shared<Request>();
  auto* verb = AddVerb(line, "explain", "where the difference in step time of two cells comes from",
                       Speaks::kTextOrJson, [=](Program& program) {
                         return ExplainVerb(program, request->cells, request->out);
                       });
  verb->add_option("experiment", request->cells.experiment)->required();
  verb->add_option("--of", request->cells.of, "the cell: key=value,... (link.gbps=1 into a table)");
  verb->add_option("--over", request->cells.over, "the cell that it is compared with, likewise");
  verb->add_option("--part", request->cells.part, "the part of both (default: any)");
  verb->add_option("--out", request->out, "folder (default: reports/ID/figures in the results)");
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddReproduce(CommandLine& line) {
  const auto request = std::make_shared<ReproduceRequest>();
  auto* verb = AddVerb(line, "reproduce", "run, verify, report", Speaks::kText,
                       [=](Program& program) { return ReproduceVerb(program, *request); });
  verb->add_option("experiment", request->name, kNames)->required();
  AddWithMethod(verb, request->with_methods);
  verb->add_flag("--fresh", request->fresh, "run everything again");
  verb->add_flag("--strict", request->strict,
                 "exit 3 where a claim is not reproduced or does not hold");
  verb->add_flag("--modelled", request->modelled,
                 "modelled trials only, with the profiles that they need");
  AddKeepDisturbed(verb, line, "a disturbed trial does not run again at once, and its times count");
  AddRetryDisturbed(verb, request->retry_disturbed);
  AddLaunch(verb, request->launch);
}

void AddProfile(CommandLine& line) {
  const auto request = std::make_shared<ProfileRequest>();
  auto* verb = AddVerb(
      line, "profile", "measure workloads' backward passes and this machine's kernels and links",
      Speaks::kTextOrJson, [=](Program& program) { return ProfileVerb(program, *request); });
  verb->add_option("workload", request->workloads)->required();
  verb->add_option("--device", request->device, "where kernels run: cpu or cuda")
      ->capture_default_str();
  verb->add_option("--precision", request->precision, "of products: fp32, bf16 or, with cuda, tf32")
      ->capture_default_str();
  verb->add_option("--ranks", request->most_ranks,
                   "measured with 1, 2, 4, ... up to this many ranks at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  AddLaunch(verb, request->launch);
  verb->add_option("--threads", request->threads, "threads of a rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  verb->add_option("--batch", request->batch, "samples of a step (default: the workload's)")
      ->check(CLI::Range(1, 1'000'000));
  verb->add_option("--sparsifiers", request->sparsifiers,
                   "whose selections are measured; all: every one without an @origin")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--quantizers", request->quantizers,
                   "whose encodings are measured; none: of none")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--passes", request->passes, "timed backward passes")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  verb->add_option("--warmup", request->warmup, "steps before them")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  verb->add_option("--link", request->links,
                   "GBPS:ALPHA_US, a shaped link to measure beside the machine's own");
  verb->add_option("--name", request->name,
                   "keep it as results/profiles/NAME.json, for cluster = \"NAME\"");
  verb->add_flag("--fresh", request->fresh, "measure again what the store or NAME.json has");
}

void AddCalibrate(CommandLine& line) {
  const auto cluster = std::make_shared<std::string>();
  auto* verb = AddVerb(
      line, "calibrate", "what a declared cluster states, and what its published bars make of it",
      Speaks::kTextOrJson, [=](Program& program) { return CalibrateVerb(program, *cluster); });
  verb->add_option("cluster", *cluster, "a .toml file of results/profiles, by its name")
      ->required();
}

void AddCluster(CommandLine& line) {
  auto* verb = line.app.add_subcommand(
      "cluster",
      "clusters: make one from a preset, import measured links, list what there is, seal an old "
      "profile");
  verb->require_subcommand(1);
  const auto wanted = std::make_shared<NewCluster>();
  auto* make = verb->add_subcommand(
      "new", "write results/profiles/NAME.toml from a preset of data-sheet values");
  make->add_option("name", wanted->name, "as experiment files will have it: cluster = \"NAME\"")
      ->required();
  make->add_option("--preset", wanted->preset, "one of `sparfuse cluster list`")->required();
  make->add_option("--nodes", wanted->nodes, "default: the preset's")->check(CLI::Range(1, 65'536));
  make->add_option("--ranks-per-node", wanted->ranks_per_node,
                   "default: all cards of the preset's node")
      ->check(CLI::Range(1, 1024));
  make->callback([&line, wanted] {
    line.act = [wanted](Program& program) { return ClusterNewVerb(program, *wanted); };
  });
  const auto import = std::make_shared<ClusterImport>();
  auto* take = verb->add_subcommand(
      "import",
      "take links that nccl-tests or OSU micro-benchmarks measured into a declared cluster");
  take->add_option("name", import->cluster, "of results/profiles/NAME.toml")->required();
  take->add_option("--from", import->from, "what wrote the logs: nccl-tests or osu")
      ->required()
      ->check(CLI::IsMember({"nccl-tests", "osu"}));
  take->add_option("logs", import->logs,
                   "what all_reduce_perf, all_gather_perf or sendrecv_perf (also with -J), or "
                   "osu_latency, osu_bw, osu_allreduce or osu_allgather wrote")
      ->required();
  take->add_option("--ranks", import->ranks, "of logs that do not say")
      ->check(CLI::Range(2, 65'536));
  take->add_option("--nodes", import->nodes, "of logs that do not say")
      ->check(CLI::Range(1, 65'536));
  take->add_option("--operation", import->operation,
                   "of logs of nccl-tests that do not name their program")
      ->check(CLI::IsMember({"all-reduce", "all-gather", "send-receive"}));
  take->add_flag("--print", import->print, "write nothing: print what would be written");
  take->callback([&line, import] {
    line.act = [import](Program& program) { return ClusterImportVerb(program, *import); };
  });
  const auto sealed = std::make_shared<std::string>();
  auto* seal = verb->add_subcommand(
      "seal",
      "give a profile from before files had digests its own: you vouch that it is as it was "
      "measured");
  seal->add_option("name", *sealed, "of results/profiles/NAME.json")->required();
  seal->callback([&line, sealed] {
    line.act = [sealed](Program& program) { return ClusterSealVerb(program, *sealed); };
  });
  auto* list = verb->add_subcommand("list", "presets, stacks, and clusters with their kind");
  list->add_flag("--json", line.settings.json, "print JSON");
  list->callback([&line] { line.act = ClusterListVerb; });
}

void AddSystem(CommandLine& line) {
  auto* verb = line.app.add_subcommand(
      "system", "systems: describe the nodes that run jobs together, and check what is described");
  verb->require_subcommand(1);
  const auto wanted = std::make_shared<SystemInit>();
  auto* init = verb->add_subcommand(
      "init", "write what is detected of this node to results/systems/NAME.toml, or add it there");
  init->add_option("name", wanted->name, "of results/systems/NAME.toml")->capture_default_str();
  init->add_flag("--print", wanted->print, "print this node's part and write nothing");
  init->callback([&line, wanted] {
    line.act = [wanted](Program& program) { return SystemInitVerb(program, *wanted); };
  });
  const auto name = std::make_shared<std::string>(wanted->name);
  auto* check = verb->add_subcommand(
      "check", "whether all is written, and one of the nodes described is as this one");
  check->add_option("name", *name, "of results/systems/NAME.toml")->capture_default_str();
  check->add_flag("--json", line.settings.json, "print JSON");
  check->callback([&line, name] {
    line.act = [name](Program& program) { return SystemCheckVerb(program, *name); };
  });
}

void AddAdvise(CommandLine& line) {
  const auto asked = std::make_shared<AdviseOptions>();
  auto* verb =
      AddVerb(line, "advise", "which method trains faster on a cluster, and what decides",
              Speaks::kTextOrJson, [=](Program& program) { return AdviseVerb(program, *asked); });
  verb->add_option("--workload", asked->workload,
                   "of `sparfuse list workloads`, or table:FILE.json")
      ->required();
  verb->add_option("--cluster", asked->cluster, "of `sparfuse list clusters`")->required();
  verb->add_option("--workers", asked->workers,
                   "8,16,64 (default: a quarter, half and all of the cluster's devices)");
  verb->add_option("--density", asked->densities, "0.01,0.001 (default: 0.01)");
  verb->add_option("--methods", asked->methods, "a,b,... (default: all)")->delimiter(',');
  verb->add_option("--sparsifier", asked->sparsifier,
                   "in the place of the methods' own, where these may have another");
  verb->add_option("--batch", asked->batch, "samples of a worker's step (default: the workload's)");
  verb->add_option("--link", asked->link,
                   "GBPS:ALPHA_US, in the place of the cluster's between nodes");
  auto* toml =
      verb->add_flag("--toml", asked->toml, "print the experiment file that would keep it");
  toml->excludes(verb->get_option("--json"));
  verb->add_flag("--phase", asked->phase,
                 "also draw who wins over bandwidth and workers: PNG, PDF and SVG");
  verb->add_option("--out", asked->out, "folder of the drawing (default: the working directory)");
}

void AddIndex(CommandLine& line) {
  const auto request = std::make_shared<IndexRequest>();
  auto* verb =
      AddVerb(line, "index", "the SQLite index over the trials, and the trash", Speaks::kText,
              [=](Program& program) { return IndexVerb(program, *request); });
  auto* what = verb->add_option_group("what");
  what->add_flag("--rebuild", request->rebuild, "make it again from the trial directories");
  what->add_flag("--empty-trash", request->empty_trash,
                 "delete for good the unfinished trials that runs moved to results/trash");
  what->require_option(1, 2);
}

void AddBundles(CommandLine& line) {
  const auto request = std::make_shared<ExportRequest>();
  auto* give =
      AddVerb(line, "export", "write trials into a bundle for other machines", Speaks::kTextOrJson,
              [=](Program& program) { return ExportVerb(program, *request); });
  give->add_option("experiment", request->names,
                   "an experiment or a paper that the store has trials of, or a .toml file")
      ->required();
  give->add_option("--out", request->out, "FILE.sparfuse")->check(NotEmpty("a file"));
  give->add_flag("--show", request->show,
                 "list the keys that leave this machine, and those that stay");
  const auto files = std::make_shared<std::vector<std::filesystem::path>>();
  auto* take =
      AddVerb(line, "merge", "add the trials of bundles to the store; is resumable",
              Speaks::kTextOrJson, [=](Program& program) { return MergeVerb(program, *files); });
  take->add_option("file", *files, "bundles that `sparfuse export` wrote")->required();
  const auto file = std::make_shared<std::filesystem::path>();
  auto* verify =
      AddVerb(line, "verify", "check a bundle, and make its table again from its trials",
              Speaks::kTextOrJson, [=](Program& program) { return VerifyVerb(program, *file); });
  verify->add_option("file", *file)->required();
}

void AddDoctor(CommandLine& line) {
  AddVerb(line, "doctor", "what this machine can run, and what would disturb a measurement",
          Speaks::kTextOrJson, DoctorVerb);
}

void AddProve(CommandLine& line) {
  const auto method = std::make_shared<std::string>();
  auto* verb =
      AddVerb(line, "prove", "run a method's convergence proof, step by step, in numbers",
              Speaks::kTextOrJson, [=](Program& program) { return ProveVerb(program, *method); });
  verb->add_option("method", *method)->required()->check(CLI::IsMember({"adtopk"}));
}

void AddAnnotate(CommandLine& line) {
  struct Request {
    std::string trial, reason;
  };
  const auto request = std::make_shared<Request>();
  auto* verb = AddVerb(
      line, "annotate", "call a trial bad: it stays, and readers leave it out", Speaks::kTextOrJson,
      [=](Program& program) { return AnnotateVerb(program, request->trial, request->reason); });
  verb->add_option("trial", request->trial, "its id, as `sparfuse status --json` prints it")
      ->required();
  verb->add_option("--reason", request->reason)->required();
}

void AddCheck(CommandLine& line) {
  struct Request {
    std::string kind, name;
  };
  const auto request = std::make_shared<Request>();
  auto* verb =
      AddVerb(line, "check", "run the laws of one part; builds their program first", Speaks::kText,
              [=](Program& program) { return CheckVerb(program, request->kind, request->name); });
  verb->add_option("kind", request->kind, fmt::format("{}", fmt::join(CheckableKinds(), ", ")))
      ->required();
  verb->add_option("name", request->name,
                   "as `sparfuse list` has it; sparsifiers also python:FILE:CLASS")
      ->required();
}

void AddNew(CommandLine& line) {
  struct Request {
    std::string what, name;
  };
  const auto request = std::make_shared<Request>();
  auto* verb = AddVerb(line, "new", "write the files of a new baseline", Speaks::kText,
                       [=](Program& program) { return NewBaselineVerb(program, request->name); });
  verb->add_option("what", request->what, "baseline")
      ->required()
      ->check(CLI::IsMember({"baseline"}));
  verb->add_option("name", request->name, "of the method: small letters, digits and '-'")
      ->required();
}

// The first argument that is neither an option nor the value of one; "" without one.
std::string FirstWord(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (!argument.starts_with("-")) return argument;
    if (argument == "--root" || argument == "--results" || argument == "--worker") ++i;
  }
  return "";
}

int Main(int argc, char** argv) {
  CommandLine line;
  line.app.require_subcommand(1);
  line.app.fallthrough();
  Program::Settings& settings = line.settings;
  settings.root = DefaultRoot();
  settings.worker = DefaultWorker();
  line.app.add_option("--root", settings.root, "the project's folder")->check(NotEmpty("a folder"));
  line.app
      .add_option("--results", line.results,
                  "the results folder (default: results in the project's folder)")
      ->check(NotEmpty("a folder"));
  line.app.add_option("--worker", settings.worker, "the executable of live trials")
      ->check(NotEmpty("an executable"));
  for (const auto add :
       {AddList,    AddPlan,     AddRun,     AddStatus,    AddTable,   AddCompare,
        AddFigure,  AddReport,   AddExplain, AddReproduce, AddProfile, AddCalibrate,
        AddCluster, AddSystem,   AddAdvise,  AddIndex,     AddBundles, AddDoctor,
        AddProve,   AddAnnotate, AddCheck,   AddNew}) {
    add(line);
  }
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::vector<std::string> verbs;
    for (const CLI::App* verb : line.app.get_subcommands({})) verbs.push_back(verb->get_name());
    const std::string word = FirstWord(argc, argv);
    if (!word.empty() && std::find(verbs.begin(), verbs.end(), word) == verbs.end()) {
      fmt::print(stderr, "error: unknown verb \"{}\"{} (sparfuse --help lists them)\n", word,
                 Suggestion(word, verbs));
      return kUsage;
    }
    return line.app.exit(error) == 0 ? kDone : kUsage;
  }
  settings.results = line.results.empty() ? settings.root / "results" : fs::path(line.results);
  std::signal(SIGPIPE, SIG_IGN);
  Program program(settings);
  program.ShowSystem(line.system);
  return line.act(program);
}

}  // namespace
}  // namespace sparfuse::harness

int main(int argc, char** argv) {
  try {
    return sparfuse::harness::Main(argc, argv);
  } catch (const sparfuse::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.kind() == sparfuse::FailureKind::kConfig ? sparfuse::harness::kUsage
                                                          : sparfuse::harness::kTrialFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return sparfuse::harness::kTrialFailed;
  }
}
