// Adds the verbs of what is modelled: profiles and clusters.
#include <memory>

#include "harness/cli/cluster/cluster.hpp"
#include "harness/cli/command_line/command_line.hpp"
#include "harness/cli/profile/profile.hpp"

namespace sparfuse::harness {

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
                   "GBPS:ALPHA_US, a shaped link to measure beside the machine's own; with another "
                   ":GBPS:ALPHA_US those within nodes");
  verb->add_option("--ranks-per-node", request->ranks_per_node,
                   "of such a link: how many ranks share a node")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
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

void AddLinkImport(CommandLine& line, CLI::App& verb, const std::string& name,
                   const std::string& help, const std::string& from) {
  const auto import = std::make_shared<ClusterImport>();
  import->from = from;
  auto* take = verb.add_subcommand(name, help);
  take->add_option("name", import->cluster, "the cluster, of results/profiles/NAME.toml")
      ->required();
  if (from.empty()) {
    take->add_option("--from", import->from, "what wrote the logs: nccl-tests, osu or fingerprint")
        ->required()
        ->check(CLI::IsMember({"nccl-tests", "osu", "fingerprint"}));
  }
  take->add_option("logs", import->logs,
                   from.empty() ? "what all_reduce_perf, all_gather_perf or sendrecv_perf (also "
                                  "with -J), or osu_latency, osu_bw, osu_allreduce or "
                                  "osu_allgather wrote, or a NAME.fingerprint.json"
                   : from == "osu"
                       ? "what osu_latency, osu_bw, osu_allreduce or osu_allgather wrote"
                       : "what all_reduce_perf, all_gather_perf or sendrecv_perf (also with -J) "
                         "wrote")
      ->required();
  take->add_option("--ranks", import->ranks, "of logs that do not say")
      ->check(CLI::Range(2, 65'536));
  take->add_option("--nodes", import->nodes, "of logs that do not say")
      ->check(CLI::Range(1, 65'536));
  if (from != "osu") {
    take->add_option("--operation", import->operation,
                     "of logs of nccl-tests that do not name their program")
        ->check(CLI::IsMember({"all-reduce", "all-gather", "send-receive"}));
  }
  take->add_flag("--print", import->print, "write nothing: print what would be written");
  take->callback([&line, import] {
    line.act = [import](Program& program) { return ClusterImportVerb(program, *import); };
  });
}

void AddCluster(CommandLine& line) {
  auto* verb = line.app.add_subcommand(
      "cluster", "clusters: make one from a preset, import measured links, list what there is");
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
  AddLinkImport(line, *verb, "import",
                "take links that nccl-tests, OSU micro-benchmarks or a fingerprint measured into a "
                "declared cluster",
                "");
  auto* list = verb->add_subcommand("list", "presets, stacks, and clusters with their kind");
  list->add_flag("--json", line.settings.json, "print JSON");
  list->callback([&line] { line.act = ClusterListVerb; });
}

}  // namespace sparfuse::harness
