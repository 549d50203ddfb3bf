// Adds the verbs about parts of methods, machines and models: lists, laws and proofs, systems,
// profiles and clusters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/cli/command_line/command_line.hpp"
#include "harness/cli/list/list.hpp"
#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

void AddList(CommandLine& line) {
  const auto [verb, request] = AddVerb<ListRequest>(
      line, "list",
      "list the names that experiment files may use (methods, workloads, keys, ...), and the "
      "experiments",
      Speaks::kTextOrJson, ListVerb);
  verb->add_option("what", request->what, fmt::format("{}", fmt::join(Listings(), ", ")))
      ->required();
  verb->add_flag("--rounds", request->rounds,
                 "for collectives: steps, messages and bytes at some numbers of ranks");
}

void AddProve(CommandLine& line) {
  const auto [verb, method] = AddVerb<std::string>(
      line, "prove", "run a method's convergence proof, step by step, in numbers",
      Speaks::kTextOrJson, ProveVerb);
  verb->add_option("method", *method, "a method with a proof")
      ->required()
      ->check(CLI::IsMember({"adtopk"}));
}

void AddCheck(CommandLine& line) {
  const auto [verb, request] = AddVerb<CheckVerbRequest>(
      line, "check", "run the laws of one part; builds their program first", Speaks::kText,
      CheckVerb);
  verb->add_option("kind", request->kind, fmt::format("{}", fmt::join(CheckableKinds(), ", ")))
      ->required();
  verb->add_option("name", request->name,
                   "a name of `sparfuse list`; for parts also python:FILE.py:Class or "
                   "library:FILE.so:NAME, for methods also FILE.toml")
      ->required();
}

void AddNew(CommandLine& line) {
  const auto [verb, request] = AddVerb<NewBaseline>(
      line, "new", "write the files of a new baseline", Speaks::kText, NewBaselineVerb);
  verb->add_option("what", request->what, "baseline")
      ->required()
      ->check(CLI::IsMember({"baseline"}));
  verb->add_option("name", request->name, "the method's name: small letters, digits and '-'")
      ->required();
  auto* outside =
      verb->add_option("--out-of-tree", request->folder,
                       "a folder of your own for the files, instead of the project's tree")
          ->check(NotEmpty("a folder"));
  auto* python = verb->add_flag("--python", request->python, "a planner in Python")->needs(outside);
  verb->add_flag("--cpp", request->cpp, "a plugin in C++ (the default)")
      ->needs(outside)
      ->excludes(python);
}

namespace {

void AddSystemFingerprint(CommandLine& line, CLI::App* system) {
  const auto [verb, asked] = AddVerbBelow<SystemFingerprint>(
      line, *system, "fingerprint",
      "measure links, collectives, memory, a product and a selection, about ten seconds, and keep "
      "them as results/systems/NAME.fingerprint.json",
      SystemFingerprintVerb);
  verb->add_option("name", asked->name, "the name of the file, and of cluster = \"NAME\"")
      ->capture_default_str();
  verb->add_option("--ranks", asked->ranks, "ranks that measure at once (default: two a host)")
      ->check(CLI::Range(1, 65'536));
  verb->add_option(
          "--ranks-per-node", asked->ranks_per_node,
          "ranks that share a node (default: all on one host; over several hosts, spread over all)")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--threads", asked->threads, "threads of a rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  verb->add_option("--device", asked->device, "the device of single operations: cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  verb->add_option("--transport", asked->transport, "the transport of messages: mpi or nccl")
      ->check(CLI::IsMember({"mpi", "nccl"}))
      ->capture_default_str();
  verb->add_option("--link", asked->link,
                   "GBPS:ALPHA_US, a shaped link instead of the machine's own; a second "
                   ":GBPS:ALPHA_US shapes links within nodes of --ranks-per-node");
  AddLaunch(verb, asked->launch);
  verb->add_flag("--json", line.settings.json, "print JSON");
}

}  // namespace

void AddSystem(CommandLine& line) {
  auto* verb = line.app.add_subcommand(
      "system",
      "systems: describe the nodes that run jobs together, check the description, measure them");
  verb->require_subcommand(1);
  const auto [init, wanted] = AddVerbBelow<SystemInit>(
      line, *verb, "init",
      "detect this node and write it to results/systems/NAME.toml, or add it there",
      SystemInitVerb);
  init->add_option("name", wanted->name, "the NAME of results/systems/NAME.toml")
      ->capture_default_str();
  init->add_flag("--print", wanted->print, "print this node's part and write nothing");
  const auto [check, name] = AddVerbBelow<std::string>(
      line, *verb, "check",
      "check that the description is complete, and that one of its nodes equals this one",
      SystemCheckVerb);
  *name = wanted->name;
  check->add_option("name", *name, "the NAME of results/systems/NAME.toml")->capture_default_str();
  check->add_flag("--json", line.settings.json, "print JSON");
  AddSystemFingerprint(line, verb);
}

void AddDoctor(CommandLine& line) {
  const auto [verb, request] = AddVerb<DoctorRequest>(
      line, "doctor",
      "check which trials this machine can run, and find causes of disturbed measurements; "
      "with --launch, check the hosts of live trials",
      Speaks::kTextOrJson, DoctorVerb);
  AddLaunch(verb, request->launch);
  verb->add_option("--ranks", request->ranks, "number of ranks of --launch (default: one a host)")
      ->check(CLI::Range(1, 65'536));
}

void AddProfile(CommandLine& line) {
  const auto [verb, request] = AddVerb<ProfileRequest>(
      line, "profile", "measure workloads' backward passes and this machine's kernels and links",
      Speaks::kTextOrJson, ProfileVerb);
  verb->add_option("workload", request->workloads, "names of `sparfuse list workloads`")
      ->required();
  verb->add_option("--device", request->device, "the device that kernels run on: cpu or cuda")
      ->capture_default_str();
  verb->add_option("--precision", request->precision,
                   "precision of products: fp32, bf16 or, with cuda, tf32")
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
                   "sparsifiers whose selections are measured; all: every one without an @origin")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--quantizers", request->quantizers,
                   "quantizers whose encodings are measured; none: no encoding")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--passes", request->passes, "timed backward passes")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  verb->add_option("--warmup", request->warmup, "warm-up steps before the timed passes")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  verb->add_option("--link", request->links,
                   "GBPS:ALPHA_US, a shaped link to measure beside the machine's own; a second "
                   ":GBPS:ALPHA_US shapes links within nodes");
  verb->add_option("--ranks-per-node", request->ranks_per_node,
                   "for a shaped link: number of ranks that share a node")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  verb->add_option("--name", request->name,
                   "keep it as results/profiles/NAME.json, for cluster = \"NAME\"");
  verb->add_flag("--fresh", request->fresh,
                 "measure again even if the store or NAME.json has a measurement");
}

void AddCalibrate(CommandLine& line) {
  const auto [verb, cluster] = AddVerb<std::string>(
      line, "calibrate",
      "show a declared cluster's inputs, and calibrate them with its references, or compare",
      Speaks::kTextOrJson, CalibrateVerb);
  verb->add_option("cluster", *cluster, "a .toml file of results/profiles, by its name")
      ->required();
}

void AddLinkImport(CommandLine& line, CLI::App& verb, const std::string& name,
                   const std::string& help, const std::string& from) {
  const auto [take, import] =
      AddVerbBelow<ClusterImport>(line, verb, name, help, ClusterImportVerb);
  import->from = from;
  take->add_option("name", import->cluster, "the cluster, the NAME of results/profiles/NAME.toml")
      ->required();
  if (from.empty()) {
    take->add_option(
            "--from", import->from,
            "the program that wrote the logs: nccl-tests, osu, fingerprint, nccl-inspector, trace "
            "(torch.profiler's) or nccl-info (NCCL_DEBUG=INFO, from which nothing is written)")
        ->required()
        ->check(CLI::IsMember(
            {"nccl-tests", "osu", "fingerprint", "nccl-inspector", "nccl-info", "trace"}));
  }
  take->add_option(
          "logs", import->logs,
          from.empty()
              ? "output of all_reduce_perf, all_gather_perf or sendrecv_perf (also with -J), or of "
                "osu_latency, osu_bw, osu_allreduce or osu_allgather; a NAME.fingerprint.json; or "
                "the files that NCCL or the profiler of each rank wrote"
          : from == "osu"
              ? "output of osu_latency, osu_bw, osu_allreduce or osu_allgather"
              : "output of all_reduce_perf, all_gather_perf or sendrecv_perf (also with -J)wrote")
      ->required();
  take->add_option("--ranks", import->ranks, "number of ranks, for logs that do not state it")
      ->check(CLI::Range(2, 65'536));
  take->add_option("--nodes", import->nodes, "number of nodes, for logs that do not state it")
      ->check(CLI::Range(1, 65'536));
  if (from != "osu") {
    take->add_option("--operation", import->operation,
                     "the operation, for logs of nccl-tests that do not name their program")
        ->check(CLI::IsMember({"all-reduce", "all-gather", "send-receive"}));
  }
  take->add_flag("--print", import->print, "print the lines, and write nothing");
}

void AddCluster(CommandLine& line) {
  auto* verb = line.app.add_subcommand(
      "cluster", "clusters: make one from a preset, import measured links, list all");
  verb->require_subcommand(1);
  const auto [make, wanted] = AddVerbBelow<NewCluster>(
      line, *verb, "new", "write results/profiles/NAME.toml from a preset of data-sheet values",
      ClusterNewVerb);
  make->add_option("name", wanted->name, "the name for experiment files: cluster = \"NAME\"")
      ->required();
  make->add_option("--preset", wanted->preset, "one of `sparfuse cluster list`")->required();
  make->add_option("--nodes", wanted->nodes, "number of nodes (default: the preset's)")
      ->check(CLI::Range(1, 65'536));
  make->add_option("--ranks-per-node", wanted->ranks_per_node,
                   "ranks of a node (default: all cards of the preset's node)")
      ->check(CLI::Range(1, 1024));
  AddLinkImport(line, *verb, "import",
                "import links that nccl-tests, OSU micro-benchmarks or a fingerprint measured into "
                "a declared cluster",
                "");
  AddVerbBelow(line, *verb, "list", "presets, stacks, and clusters with their kind",
               ClusterListVerb)
      ->add_flag("--json", line.settings.json, "print JSON");
}

}  // namespace sparfuse::harness
