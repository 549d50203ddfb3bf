// Starts sparfuse-worker TRIAL_DIRECTORY...: one rank of live trials (under mpirun), or all ranks
// as threads of one process.
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/device/card.hpp"
#include "core/device/runtime.hpp"
#include "core/transport/mpi.hpp"
#include "core/transport/nccl/nccl.hpp"
#include "core/transport/shaped/shaped.hpp"
#include "core/transport/sleep.hpp"
#include "core/transport/threads.hpp"
#include "core/transport/world/folder_meeting.hpp"
#include "core/transport/world/world_check.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/run/live/hosts/preflight.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "harness/run/live/launch/launch_watch.hpp"
#include "harness/run/plan/shared_launch.hpp"
#include "harness/worker/hosts/launch_record.hpp"
#include "harness/worker/launch.hpp"
#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {
namespace {

// Writes the file with which a rank reports its failure. The controller reads all of them.
void WriteFailure(const std::filesystem::path& directory, int rank, FailureKind kind,
                  const std::string& message) {
  std::ofstream(directory / ("failure-rank" + std::to_string(rank) + ".json")) << nlohmann::json{
      {"kind", FailureKindName(kind)}, {"message", message}, {"rank", rank}}.dump();
  std::fprintf(stderr, "%s\n", FailureLine(rank, FailureKindName(kind), message).c_str());
}

std::chrono::milliseconds Deadline(const CellConfig& config) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * config.deadline_seconds));
}

bool UsesMpi(const CellConfig& config) {
  return config.transport == Transport::kMpi || config.transport == Transport::kNccl;
}

// The trials of a launch: one trial, or several whose configurations MayShareALaunch.
struct LaunchedTrials {
  std::vector<std::filesystem::path> directories;
  std::vector<TrialConfig> trials;

  // The configuration of the process.
  const CellConfig& config() const { return trials.front().cell; }
};

// Runs one rank. Returns false after leaving a failure file.
bool RunRank(const LaunchedTrials& launched,
             const std::function<std::unique_ptr<Communicator>(Device)>& world, int expected_rank) {
  const CellConfig& config = launched.config();
  std::unique_ptr<ProgressLoop> loop;
  int rank = expected_rank;
  Turns turns(launched.directories);
  const auto fail = [&](FailureKind kind, const std::string& message) {
    for (const auto& directory : turns.Blamed()) WriteFailure(directory, rank, kind, message);
    // Other ranks notice at about the same time. A loop that still answers keeps them from blaming
    // this rank. The first rank to leave ends them all.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return false;
  };
  try {
    const Device device = ChooseDevice(config.device, LocalRank(expected_rank));
    gpu::GpuStream compute;
    if (device.kind != DeviceKind::kHost) compute = gpu::GpuStream(device);
    loop = std::make_unique<ProgressLoop>([&] { return world(device); }, Deadline(config));
    rank = loop->rank();
    ThreadPool pool(config.threads_per_worker);
    std::vector<Rank> ranks;
    for (std::size_t i = 0; i < launched.trials.size(); ++i) {
      const TrialConfig& trial = launched.trials[i];
      ranks.push_back(
          {trial.cell, trial.seed, launched.directories[i], *loop, pool, device, compute.view()});
    }
    LaunchRecord record(ranks.front());
    for (Rank& each : ranks) each.record = &record;
    if (config.is_profile() || config.is_fingerprint()) {
      RunProfile(ranks.front());
    } else {
      RunTrainings(ranks, turns);
    }
    record.Finish();
    ranks.front().Synchronise();
    if (UsesMpi(config)) FinalizeMpiOnClose();
    return true;
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(FailureKind::kOutOfMemory, "out of memory");
  } catch (const std::exception& error) {
    return fail(FailureKind::kInternal, error.what());
  }
}

std::unique_ptr<Communicator> Shape(const CellConfig& config, std::unique_ptr<Communicator> world) {
  if (!config.link) return world;
  const LinkShape& link = *config.link;
  NetworkShape shape{{link.gbps, link.alpha_us / 1e6}};
  if (link.has_within()) shape.within = {link.intra_node_gbps, link.intra_node_us / 1e6};
  return MakeShaped(std::move(world), shape, Deadline(config));
}

std::unique_ptr<Communicator> OverNccl(const CellConfig& config, std::unique_ptr<Communicator> host,
                                       Device device) {
  NcclSetup setup;
  setup.host = std::move(host);
  setup.device = device;
  setup.card = CardOf(device.index).uuid;
  setup.deadline = Deadline(config);
  return MakeNcclWorld(LinkedNccl(), std::move(setup));
}

std::unique_ptr<Communicator> OverTcp(const std::filesystem::path& folder, const CellConfig& config,
                                      const ExpectedWorld& expected, int rank) {
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");  // set by --interface
  return MeetInFolder(folder, expected, rank, config.ranks_per_node,
                      interface == nullptr ? "" : interface, Deadline(config));
}

int RunThreads(const LaunchedTrials& launched) {
  const CellConfig& config = launched.config();
  const int ranks = config.workers;
  auto worlds = MakeThreadsWorld(ranks, config.ranks_per_node);
  std::vector<std::thread> threads;
  std::vector<char> passed(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    try {
      threads.emplace_back([&, rank] {
        auto& world = worlds[static_cast<std::size_t>(rank)];
        passed[static_cast<std::size_t>(rank)] = RunRank(
            launched, [&](Device) { return Shape(config, std::move(world)); }, rank);
      });
    } catch (const std::system_error& error) {
      for (const auto& directory : launched.directories) {
        WriteFailure(directory, rank, FailureKind::kUnsupported,
                     "the thread of rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                         " cannot be started (" + error.what() + "); expected fewer workers");
      }
      worlds[static_cast<std::size_t>(rank)].reset();  // the others notice that it is lost
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const char each : passed) {
    if (!each) return 1;
  }
  return 0;
}

LaunchedTrials ReadTrials(std::vector<std::filesystem::path> directories) {
  LaunchedTrials launched{std::move(directories), {}};
  for (const auto& directory : launched.directories) {
    const std::filesystem::path file = directory / "config.json";
    launched.trials.push_back(TrialConfigOf(ReadJsonFile(file), file.string()));
    for (const auto& [name, source] : ReadPrivateFacts(directory).python_files)
      KnowPartFile(name, source);
    if (!MayShareALaunch(launched.config(), launched.trials.back().cell)) {
      SPARFUSE_THROW(kInternal, directory.string() + " needs another process than " +
                                    launched.directories.front().string());
    }
  }
  return launched;
}

// The world of a rank that no launcher started: it is alone or started by hand, with as many ranks
// as the trial wants.
ExpectedWorld WorldOf(const CellConfig& config) {
  return WorldOfEnvironment().value_or(ExpectedWorld{config.workers, "none"});
}

int Run(const std::vector<std::filesystem::path>& directories) {
  const int rank = RankOfEnvironment();
  const auto fail = [&](FailureKind kind, const std::string& message) {
    for (const auto& directory : directories) WriteFailure(directory, rank, kind, message);
    return 1;
  };
  LaunchedTrials launched;
  try {
    launched = ReadTrials(directories);
  } catch (const std::exception& error) {
    return fail(FailureKind::kData, error.what());
  }
  const CellConfig& config = launched.config();
  const bool threads = config.transport == Transport::kThreads;
  WatchPythonParts({Deadline(config), threads ? "" : "rank " + std::to_string(rank)});
  if (threads) return RunThreads(launched);
  ExpectedWorld expected;
  try {
    expected = WorldOf(config);
    if (UsesMpi(config)) {
      CheckLauncherOf(expected);
    } else if (expected.ranks > 1) {
      NeedRankOfEnvironment();
    }
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  }
  const bool passed = RunRank(
      launched,
      [&](Device device) {
        std::unique_ptr<Communicator> world =
            UsesMpi(config) ? MakeMpiWorld(config.ranks_per_node)
                            : OverTcp(launched.directories.front(), config, expected, rank);
        if (UsesMpi(config)) CheckWorld(*world, expected, Deadline(config));
        if (world->rank() == 0) {
          std::printf("%s%d\n", kMetLine, world->size());
          std::fflush(stdout);
        }
        if (config.transport == Transport::kNccl) return OverNccl(config, std::move(world), device);
        return Shape(config, std::move(world));
      },
      rank);
  if (passed) return 0;
  // exit() would run MPI's and LibTorch's destructors, which wait for stuck or lost ranks.
  std::fflush(nullptr);
  std::_Exit(1);
}

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{5};

[[noreturn]] void BeRank(int rank, const std::vector<std::string>& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv(kRankVariable, std::to_string(rank).c_str(), 1);
  std::vector<char*> argv = {const_cast<char*>("sparfuse-worker")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  std::fprintf(stderr, "rank %d cannot be started: %s\n", rank, std::strerror(errno));
  std::_Exit(1);
}

// Runs this program once a rank with these arguments, and waits for all of them. If a rank fails
// the others have some seconds to say so. Returns 0 if all ended well. To be called before there
// are threads.
int StartRanks(int ranks, const std::vector<std::string>& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::map<pid_t, int> running;
  bool passed = true;
  for (int rank = 0; rank < ranks && passed; ++rank) {
    const pid_t child = fork();
    if (child == 0) BeRank(rank, arguments);
    if (child < 0)
      std::fprintf(stderr, "rank %d cannot be started: %s\n", rank, std::strerror(errno));
    passed = child > 0;
    if (passed) running[child] = rank;
  }
  std::optional<Clock::time_point> end;
  if (!passed) end = Clock::now();
  while (!running.empty()) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, end ? WNOHANG : 0);
    if (ended > 0 && running.contains(ended)) {
      if (WIFSIGNALED(status)) {  // in mpirun's form, which the controller reads
        std::fprintf(stderr, "process rank %d with PID %d exited on signal %d (%s)\n",
                     running[ended], ended, WTERMSIG(status), strsignal(WTERMSIG(status)));
      }
      running.erase(ended);
      if (status != 0) {
        passed = false;
        if (!end) end = Clock::now() + kGrace;
      }
    } else if (end && Clock::now() > *end) {
      for (const auto& [process, rank] : running) kill(process, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } else if (end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  return passed ? 0 : 1;
}

// Starts a process that kills this one, stopped or not, when its time is up (kLifetimeVariable,
// harness/run/live/launch/launch_command.hpp), and that ends with it. Does nothing where the
// variable is not set. To be called before there are threads.
void StartGuardian() {
  const char* text = std::getenv(kLifetimeVariable);
  const long seconds = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  if (seconds <= 0) return;
  const pid_t rank = ::getpid();
  if (::fork() != 0) return;  // without a guardian, only the launcher ends the rank
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A launcher waits until no process has the rank's output open.
  ::close_range(0, ~0U, 0);
  for (unsigned left = static_cast<unsigned>(seconds); left > 0 && ::getppid() == rank;)
    left = ::sleep(left);
  if (::getppid() == rank) ::kill(rank, SIGKILL);
  ::_exit(0);
}

}  // namespace
}  // namespace sparfuse::harness

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: sparfuse-worker [--ranks N] TRIAL_DIRECTORY... (made by sparfuse run)\n");
    return 2;
  }
  if (argc > 3 && std::string_view(argv[1]) == sparfuse::harness::kRanksArgument)
    return sparfuse::harness::StartRanks(std::atoi(argv[2]), {argv + 3, argv + argc});
  // Streams that share one of CUDA's queues wait for one another. The engine, LibTorch and NCCL
  // together have more streams than the 8 queues that CUDA makes by default; it makes at most 32.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // The allocator keeps its memory. Giving memory back to the kernel and faulting it in again would
  // cost a tenth of a training step's time. When that happens depends on which thread frees memory
  // when, so equal methods would seem to differ.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
  // Makes the launch's own folder for shared memory segments. Hosts other than the launcher's lack
  // it.
  for (const char* name :
       {"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"}) {
    if (const char* folder = std::getenv(name)) mkdir(folder, 0700);
  }
  // If the launcher is killed, nobody would collect the trial.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sparfuse::harness::StartGuardian();
  if (std::getenv(sparfuse::harness::kPreflightVariable) != nullptr)
    return sparfuse::harness::TellFacts(argv[1]);
  sparfuse::PreferCommunication();
  return sparfuse::harness::Run({argv + 1, argv + argc});
}
