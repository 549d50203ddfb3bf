#include "harness/run/live/launch/launch_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "core/base/error.hpp"
#include "core/transport/world/world_check.hpp"
#include "harness/machine/binding.hpp"
#include "harness/machine/network.hpp"
#include "harness/machine/system.hpp"
#include "harness/run/live/launch/hostfile.hpp"
#include "harness/run/live/launch/launch_watch.hpp"

namespace sparfuse::harness {

namespace fs = std::filesystem;

namespace {

using Kind = LaunchMethod::Kind;
using Words = std::vector<std::string>;

void Append(Words& words, Words more) {
  words.insert(words.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

// Variables of this process that ranks on other hosts need, too: those that trials record, and
// folders of libraries. Each host chooses by itself which cards a process may use.
Words Inherited(const Environment& environment) {
  Words names;
  const auto add = [&](const std::string& name) {
    const auto given = std::ranges::find(environment, name, &Environment::value_type::first);
    if (std::getenv(name.c_str()) != nullptr && given == environment.end()) names.push_back(name);
  };
  for (const char* name : DescribedVariables()) {
    if (std::string_view(name) != "CUDA_VISIBLE_DEVICES") add(name);
  }
  add("LD_LIBRARY_PATH");
  return names;
}

// Other hosts get only the named variables of this process. mpirun passes variables that begin with
// OMPI_MCA_ by itself.
Words OverHosts(const CellConfig& config, const fs::path& hostfile,
                const Environment& environment) {
  Words words;
  if (!hostfile.empty()) words = {"--hostfile", hostfile.string()};
  Append(words,
         {"--map-by", fmt::format("ppr:{}:node", config.ranks_per_node), "--rank-by", "slot"});
  Words names;
  for (const auto& [name, value] : environment) names.push_back(name);
  Append(names, Inherited(environment));
  for (const std::string& name : names) {
    if (!name.starts_with("OMPI_MCA_")) Append(words, {"-x", name});
  }
  return words;
}

Words Mpirun(const CellConfig& config, const LaunchMethod& method, const Environment& environment) {
  Words words = {"mpirun"};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  if (!method.across_hosts() || method.oversubscribe) words.emplace_back("--oversubscribe");
  Append(words, {"--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"});
  if (!method.interface.empty()) {
    Append(words, {"--mca", "btl_tcp_if_include", method.interface, "--mca", "oob_tcp_if_include",
                   method.interface});
  }
  if (method.across_hosts()) {
    const fs::path& written = method.mpirun_hostfile;
    Append(words, OverHosts(config, written.empty() ? method.hostfile : written, environment));
  }
  Append(words, {"-np", std::to_string(config.workers)});
  return words;
}

std::string StepName(const std::string& nonce) { return "sparfuse-" + nonce; }

// Steps inherit srun's environment. Without --kill-on-bad-exit the other ranks would wait for a
// dead rank.
Words Srun(const LaunchedWork& work, const LaunchMethod& method) {
  const CellConfig& config = work.config;
  Words words = {"srun", "--mpi=" + method.pmi};
  if (!method.left_out.empty())
    words.push_back(fmt::format("--exclude={}", fmt::join(method.left_out, ",")));
  Append(words,
         {fmt::format("--nodes={}", NodesOf(config)), fmt::format("--ntasks={}", config.workers),
          fmt::format("--ntasks-per-node={}", config.ranks_per_node), "--distribution=block",
          "--cpu-bind=none", "--kill-on-bad-exit=1", "--job-name=" + StepName(work.nonce),
          "--export=ALL"});
  return words;
}

TemplateValues ValuesOf(const LaunchedWork& work, const LaunchMethod& method,
                        const Environment& environment) {
  TemplateValues values;
  values.within_words = {
      {"ranks", std::to_string(work.config.workers)},
      {"ranks_per_node", std::to_string(work.config.ranks_per_node)},
      {"nodes", std::to_string(NodesOf(work.config))},
      {"timeout", std::to_string(static_cast<long>(std::ceil(work.timeout_seconds)))},
      {"worker", work.worker.string()},
      {"hostfile", method.hostfile.string()},
      {"interface", method.interface},
      {"nonce", work.nonce}};
  for (const fs::path& directory : work.directories) values.arguments.push_back(directory.string());
  for (const auto& [name, value] : environment) values.environment.push_back(name + "=" + value);
  for (const std::string& name : Inherited(environment))
    values.environment.push_back(name + "=" + std::getenv(name.c_str()));
  return values;
}

Environment ThreadEnvironment(const CellConfig& config) {
  const std::string threads = std::to_string(config.threads_per_worker);
  Environment environment;
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    environment.emplace_back(name, threads);
  }
  // With this setting cuBLAS computes the same bits in every run, whatever else the card does.
  if (config.device == Place::kCuda && config.kind == TrialKind::kConvergence)
    environment.emplace_back("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  return environment;
}

std::string QuotedWord(const std::string& word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) || std::strchr("_-+=:,./@%", c) != nullptr;
  });
  return plain ? word : ShellQuoted(word);
}

}  // namespace

int NodesOf(const CellConfig& config) {
  return (config.workers + config.ranks_per_node - 1) / config.ranks_per_node;
}

bool StartsItsRanks(const CellConfig& config, const LaunchMethod& method) {
  return config.transport == Transport::kThreads ||
         (config.transport == Transport::kTcp && method.kind == Kind::kLocal);
}

void CheckMayLaunch(const CellConfig& config, const LaunchMethod& method) {
  if (!method.across_hosts()) return;
  if (config.link) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("link = {}: an emulated link delays messages between ranks of one "
                               "host, not between hosts; expected --launch local, or mode = "
                               "\"measured\" without a link",
                               ToJson(config.link).dump()));
  }
  if (method.kind != Kind::kMpirun || method.hostfile.empty()) return;
  const std::vector<Host> hosts = ReadHostfile(method.hostfile);
  const auto room = std::ranges::count_if(hosts, [&](const Host& host) {
    return method.oversubscribe || host.slots >= config.ranks_per_node;
  });
  if (room >= NodesOf(config)) return;
  SPARFUSE_THROW(kConfig,
                 fmt::format("{}: {} host(s) have slots={} or more, and {} ranks, {} on a node, "
                             "need {}: expected more hosts or slots, or another ranks_per_node",
                             method.hostfile.string(), room, config.ranks_per_node, config.workers,
                             config.ranks_per_node, NodesOf(config)));
}

Words LaunchCommand(const LaunchedWork& work, const LaunchMethod& method,
                    const Environment& environment) {
  Words command;
  if (StartsItsRanks(work.config, method)) {
    command = {work.worker.string()};
    if (work.config.transport == Transport::kTcp)
      Append(command, {kRanksArgument, std::to_string(work.config.workers)});
  } else {  // NCCL's ranks meet over MPI
    if (method.kind == Kind::kTemplate)
      return method.form.Fill(ValuesOf(work, method, environment));
    command =
        method.kind == Kind::kSrun ? Srun(work, method) : Mpirun(work.config, method, environment);
    command.push_back(work.worker.string());
  }
  for (const fs::path& directory : work.directories) command.push_back(directory.string());
  return command;
}

Environment LaunchEnvironment(const LaunchedWork& work, const LaunchMethod& method) {
  const CellConfig& config = work.config;
  Environment environment = ThreadEnvironment(config);
  for (auto& variable : InterfaceEnvironment(method.interface))
    environment.push_back(std::move(variable));
  // mpirun gets this setting on its command line.
  if (method.kind == Kind::kSrun || method.kind == Kind::kTemplate)
    environment.emplace_back("OMPI_MCA_mpi_yield_when_idle", "1");
  if (method.across_hosts() && method.oversubscribe) environment.emplace_back(kOversubscribe, "1");
  if (config.transport != Transport::kThreads)
    environment.emplace_back(kWorldVariable, ExpectedWorld{config.workers, work.nonce}.Text());
  if (method.across_hosts()) {
    constexpr double kGrace = 5;  // at the deadline itself the controller ends them
    environment.emplace_back(
        kLifetimeVariable,
        std::to_string(static_cast<long>(std::ceil(work.timeout_seconds + kGrace))));
  }
  return environment;
}

// srun ends its step on request, but cannot end a stopped rank on another node.
Words LaunchEnder(const LaunchMethod& method, const std::string& nonce) {
  if (method.kind == Kind::kTemplate) return method.form.FillEnd(nonce);
  if (method.kind != Kind::kSrun) return {};
  return {"sh", "-c",
          "scancel --signal=KILL $(squeue --noheader --steps --jobs=\"$SLURM_JOB_ID\" --name=" +
              StepName(nonce) + " --format=%i) 2>/dev/null"};
}

LaunchRequest RequestOf(const LaunchedWork& work, const LaunchMethod& method,
                        const Environment& more, const fs::path& folder) {
  LaunchRequest request;
  request.timeout_seconds = work.timeout_seconds;
  request.log = folder / "log.txt";
  request.environment = LaunchEnvironment(work, method);
  request.environment.insert(request.environment.end(), more.begin(), more.end());
  request.argv = LaunchCommand(work, method, request.environment);
  request.ender = LaunchEnder(method, work.nonce);
  // Other hosts lack a folder in this host's memory.
  if (!StartsItsRanks(work.config, method) && !method.across_hosts())
    request.session = folder / kSessionRecord;
  return request;
}

std::string ShellLine(const Environment& environment, std::span<const std::string> command) {
  std::string line;
  for (const auto& [name, value] : environment) line += name + "=" + QuotedWord(value) + " ";
  for (const std::string& word : command) line += QuotedWord(word) + " ";
  line.pop_back();
  return line;
}

std::string WhatItDoes(const fs::path& log) {
  constexpr std::streamoff kLooked = 1 << 16;  // reads only the end of a long log
  std::ifstream in(log, std::ios::binary | std::ios::ate);
  in.seekg(std::max<std::streamoff>(0, in.tellg() - kLooked));
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (const auto what = After(kMeasuringLine, line)) last = *what;
  }
  return last;
}

}  // namespace sparfuse::harness
