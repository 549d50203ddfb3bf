// sparfuse: from experiment files to figures. `sparfuse --help` lists the verbs.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>

#include "harness/cli/commands.hpp"
#include "harness/cli/listing.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

void OnInterrupt(int) {
  interrupted.store(true);
  std::signal(SIGINT, SIG_DFL);  // a second ^C ends the program at once; its supervisor cleans up
}

constexpr const char* kNames =
    "a name beneath experiments/, a folder there (a paper), or a .toml file";

fs::path DefaultRoot() {
  if (const char* root = std::getenv("SPARFUSE_ROOT")) return root;
  return fs::exists(fs::path(SPARFUSE_SOURCE_DIRECTORY) / "experiments")
             ? fs::path(SPARFUSE_SOURCE_DIRECTORY)
             : fs::current_path();
}

fs::path DefaultWorker() {
  if (const char* worker = std::getenv("SPARFUSE_WORKER")) return worker;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path nested = folder / "worker" / "sparfuse-worker";
  return fs::exists(nested) ? nested : folder / "sparfuse-worker";
}

int Main(int argc, char** argv) {
  CLI::App app{"sparfuse: benchmarks of gradient sparsification and tensor fusion", "sparfuse"};
  app.require_subcommand(1);
  app.fallthrough();
  Commands::Settings settings;
  std::string results;
  settings.root = DefaultRoot();
  settings.worker = DefaultWorker();
  app.add_option("--root", settings.root, "the project's folder");
  app.add_option("--results", results,
                 "the results folder (default: results in the project's folder)");
  app.add_option("--worker", settings.worker, "the executable of live trials");

  std::function<int(Commands&)> act;
  const auto verb = [&](const char* name, const char* help, bool reads) {
    CLI::App* sub = app.add_subcommand(name, help);
    if (reads) sub->add_flag("--json", settings.json, "print JSON");
    return sub;
  };
  std::string what, experiment, reason, format = "md";
  std::vector<std::string> experiments;
  fs::path out;
  bool why = false, fresh = false, rebuild = false;
  Commands::ReproduceOptions how;
  ProfileRequest measured;
  int batch = 0;

  auto* list = verb("list", "what experiment files may name, and the experiments there are", true);
  list->add_option(
          "what", what,
          "methods, sparsifiers, planners, collectives, strategies, workloads, experiments")
      ->required()
      ->check(CLI::IsMember(Listings()));
  list->callback([&] { act = [&](Commands& c) { return c.List(what); }; });

  auto* plan = verb("plan", "what would run, why, and how long it will take", true);
  plan->add_option("experiment", experiment, kNames)->required();
  plan->add_flag("--why", why, "say for each trial what the store lacks");
  plan->callback([&] { act = [&](Commands& c) { return c.Plan(experiment, why); }; });

  auto* run = verb("run", "run what is missing; ^C is resumable", false);
  run->add_option("experiment", experiments, kNames)->required();
  run->add_flag("--fresh", fresh, "run everything again");
  run->callback([&] { act = [&](Commands& c) { return c.Run(experiments, fresh); }; });

  auto* status = verb("status", "what is there and what failed", true);
  status->add_option("experiment", experiment)->required();
  status->callback([&] { act = [&](Commands& c) { return c.Status(experiment); }; });

  auto* table = verb("table", "results as text", true);
  table->add_option("experiment", experiment)->required();
  table->add_option("--format", format, "md, latex or, numbers in base units, csv")
      ->check(CLI::IsMember({"md", "csv", "latex"}));
  table->callback([&] { act = [&](Commands& c) { return c.Table(experiment, format); }; });

  auto* figure = verb("figure", "figures as PNG, PDF and SVG", false);
  figure->add_option("experiment", experiment)->required();
  figure->add_option("--out", out, "folder (default: reports/ID/figures in the results)");
  figure->callback([&] { act = [&](Commands& c) { return c.Figure(experiment, out); }; });

  auto* report = verb("report", "one self-contained HTML file", false);
  report->add_option("experiment", experiment, kNames)->required();
  report->add_option("--out", out, "file (default: reports/ID/report.html in the results)");
  report->callback([&] { act = [&](Commands& c) { return c.Report(experiment, out); }; });

  ExplainRequest explained;
  auto* explain =
      verb("explain", "where the difference in step time of two cells comes from", true);
  explain->add_option("experiment", explained.experiment)->required();
  explain->add_option("--of", explained.of, "the cell: key=value,... (link.gbps=1 into a table)");
  explain->add_option("--over", explained.over, "the cell that it is compared with, likewise");
  explain->add_option("--part", explained.part, "the part of both (default: any)");
  explain->add_option("--out", out, "folder (default: reports/ID/figures in the results)");
  explain->callback([&] { act = [&](Commands& c) { return c.Explain(explained, out); }; });

  auto* reproduce = verb("reproduce", "run, verify, report", false);
  reproduce->add_option("experiment", experiment, kNames)->required();
  reproduce->add_flag("--fresh", how.fresh, "run everything again");
  reproduce->add_flag("--strict", how.strict,
                      "exit 3 where a claim is not reproduced or does not hold");
  reproduce->add_flag("--modelled", how.modelled,
                      "modelled trials only, with the profiles that they need");
  reproduce->callback([&] { act = [&](Commands& c) { return c.Reproduce(experiment, how); }; });

  auto* profile = verb(
      "profile", "measure workloads' backward passes and this machine's kernels and links", true);
  profile->add_option("workload", measured.workloads)->required();
  profile->add_option("--device", measured.device, "where kernels run: cpu or cuda")
      ->capture_default_str();
  profile
      ->add_option("--precision", measured.precision, "of products: fp32, bf16 or, with cuda, tf32")
      ->capture_default_str();
  profile
      ->add_option("--ranks", measured.most_ranks,
                   "measured with 1, 2, 4, ... up to this many ranks at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  profile->add_option("--threads", measured.threads, "threads of a rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  profile->add_option("--batch", batch, "samples of a step (default: the workload's)")
      ->check(CLI::PositiveNumber);
  profile
      ->add_option("--sparsifiers", measured.sparsifiers,
                   "whose selections are measured; all: every one without an @origin")
      ->delimiter(',')
      ->capture_default_str();
  profile
      ->add_option("--quantizers", measured.quantizers,
                   "whose encodings are measured; none: of none")
      ->delimiter(',')
      ->capture_default_str();
  profile->add_option("--passes", measured.passes, "timed backward passes")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  profile->add_option("--warmup", measured.warmup, "steps before them")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  profile->add_option("--link", measured.links,
                      "GBPS:ALPHA_US, a shaped link to measure beside the machine's own");
  profile->add_option("--name", measured.name,
                      "keep it as results/profiles/NAME.json, for cluster = \"NAME\"");
  profile->add_flag("--fresh", measured.fresh, "measure again what the store or NAME.json has");
  profile->callback([&] {
    if (batch > 0) measured.batch = batch;
    act = [&](Commands& c) { return c.Profile(measured); };
  });

  auto* calibrate = verb(
      "calibrate", "what a declared cluster states, and what its published bars make of it", true);
  calibrate->add_option("cluster", what, "a .toml file of results/profiles, by its name")
      ->required();
  calibrate->callback([&] { act = [&](Commands& c) { return c.Calibrate(what); }; });

  auto* index = verb("index", "the SQLite index over the trials", false);
  index->add_flag("--rebuild", rebuild, "make it again from the trial directories")->required();
  index->callback([&] { act = [&](Commands& c) { return c.RebuildIndex(); }; });

  auto* doctor =
      verb("doctor", "what this machine can run, and what would disturb a measurement", true);
  doctor->callback([&] { act = [&](Commands& c) { return c.Doctor(); }; });

  auto* prove = verb("prove", "run a method's convergence proof, step by step, in numbers", true);
  prove->add_option("method", what)->required()->check(CLI::IsMember({"adtopk"}));
  prove->callback([&] { act = [&](Commands& c) { return c.Prove(what); }; });

  auto* annotate = verb("annotate", "call a trial bad: it stays, and readers leave it out", true);
  annotate->add_option("trial", what, "its id, as `sparfuse status --json` prints it")->required();
  annotate->add_option("--reason", reason)->required();
  annotate->callback([&] { act = [&](Commands& c) { return c.Annotate(what, reason); }; });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  }
  settings.results = results.empty() ? settings.root / "results" : fs::path(results);
  settings.interrupted = &interrupted;
  std::signal(SIGINT, OnInterrupt);
  std::signal(SIGTERM, OnInterrupt);
  std::signal(SIGPIPE, SIG_IGN);
  Commands commands(settings);
  return act(commands);
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
