#include "harness/run/live/launch/launch_method.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/network.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using Kind = LaunchMethod::Kind;

[[noreturn]] void Fail(const std::string& message) { SPARFUSE_THROW(kConfig, message); }

std::string PmiOfSrun() {
  bool ok = false;
  const std::string list = CommandOutput("srun --mpi=list 2>&1", ok);
  if (!ok)
    Fail(fmt::format("--launch srun: `srun --mpi=list` failed: \"{}\"; expected Slurm", list));
  std::string pmi = PickPmi(list);
  if (pmi.empty()) {
    Fail(
        fmt::format("--launch srun: `srun --mpi=list` has no pmix, by which ranks of Open MPI "
                    "find one another: \"{}\"; expected a Slurm with its PMIx plugin, or --launch "
                    "mpirun within the allocation",
                    list));
  }
  return pmi;
}

Kind KindOf(const LaunchOptions& options) {
  if (options.launch.empty()) return options.hostfile.empty() ? Kind::kLocal : Kind::kMpirun;
  if (options.launch == "local") return Kind::kLocal;
  if (options.launch == "mpirun") return Kind::kMpirun;
  if (options.launch == "srun") return Kind::kSrun;
  if (options.launch.ends_with(".toml")) return Kind::kTemplate;
  Fail(
      fmt::format("--launch {}: expected local, mpirun, srun or the file of a template, "
                  "NAME.toml",
                  options.launch));
}

// A placeholder and its option are given together.
void CheckPlaceholder(const LaunchOptions& options, const LaunchTemplate& form,
                      const std::string& name, bool given, bool needed) {
  if (form.Uses(name) && !given) {
    Fail(fmt::format("{}: command has {{{}}}: expected --{}", options.launch, name, name));
  }
  if (given && needed && !form.Uses(name)) {
    Fail(fmt::format("--{} with {}: expected {{{}}} in its command", name, options.launch, name));
  }
}

}  // namespace

std::string PickPmi(const std::string& list) {
  constexpr std::string_view kVersioned = "pmix_v";
  std::string best;
  int newest = -1;
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    // "srun: pmix", "specific pmix plugin versions available: pmix_v3,pmix_v4"
    if (const auto colon = line.rfind(':'); colon != std::string::npos) line.erase(0, colon + 1);
    std::ranges::replace(line, ',', ' ');
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word == "pmix") return word;
      if (!word.starts_with(kVersioned)) continue;
      int version = 0;
      std::from_chars(word.data() + kVersioned.size(), word.data() + word.size(), version);
      if (version <= newest) continue;
      newest = version;
      best = word;
    }
  }
  return best;
}

LaunchMethod ReadLaunchMethod(const LaunchOptions& options) {
  LaunchMethod method;
  method.kind = KindOf(options);
  method.interface = options.interface;
  method.oversubscribe = options.oversubscribe;
  if (!options.hostfile.empty()) {
    if (method.kind == Kind::kLocal || method.kind == Kind::kSrun) {
      Fail(
          fmt::format("--hostfile {} with --launch {}: expected --launch mpirun or a template "
                      "that uses it",
                      options.hostfile.string(), options.launch));
    }
    if (!SomethingIsAt(options.hostfile))
      Fail(fmt::format("--hostfile {}: there is no such file", options.hostfile.string()));
    method.hostfile = fs::absolute(options.hostfile);
  }
  if (options.ship && method.kind != Kind::kSrun && method.kind != Kind::kMpirun) {
    Fail(
        fmt::format("--ship with --launch {}: expected --launch srun or mpirun, through which it "
                    "is sent",
                    options.launch.empty() ? "local" : options.launch));
  }
  if (!options.interface.empty()) NeedInterface(options.interface);
  if (method.kind == Kind::kSrun) method.pmi = PmiOfSrun();
  if (method.kind == Kind::kTemplate) {
    method.form = LaunchTemplate::Read(options.launch);
    CheckPlaceholder(options, method.form, "hostfile", !options.hostfile.empty(), true);
    CheckPlaceholder(options, method.form, "interface", !options.interface.empty(), false);
  }
  return method;
}

void CheckMayLaunch(const LaunchMethod& method) {
  if (method.kind == Kind::kSrun && std::getenv("SLURM_JOB_ID") == nullptr) {
    Fail(
        "--launch srun: SLURM_JOB_ID is not set: expected to be called within an allocation "
        "(salloc, or a script of sbatch)");
  }
}

}  // namespace sparfuse::harness
