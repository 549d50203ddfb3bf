// sparfuse-worker TRIAL_DIRECTORY: one rank of a live trial (started by mpirun), or all of them as
// threads of one process.
#include <malloc.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <thread>

#include "core/device/card.hpp"
#include "core/device/runtime.hpp"
#include "core/transport/mpi.hpp"
#include "core/transport/nccl/nccl.hpp"
#include "core/transport/priority.hpp"
#include "core/transport/shaped.hpp"
#include "core/transport/threads.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/worker/rank/card.hpp"
#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {
namespace {

// What a rank that failed leaves behind; the controller reads all of them.
void WriteFailure(const std::filesystem::path& directory, int rank, FailureKind kind,
                  const std::string& message) {
  std::fprintf(stderr, "rank %d: %s error: %s\n", rank, std::string(FailureKindName(kind)).c_str(),
               message.c_str());
  std::ofstream(directory / ("failure-rank" + std::to_string(rank) + ".json")) << nlohmann::json{
      {"kind", FailureKindName(kind)}, {"message", message}, {"rank", rank}}.dump();
}

std::chrono::milliseconds Deadline(const nlohmann::json& config) {
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(1000 * config.at("deadline_seconds").get<double>()));
}

// Runs one rank. Returns false after leaving a failure file.
bool RunRank(const nlohmann::json& config, const std::filesystem::path& directory,
             const std::function<std::unique_ptr<Communicator>(Device)>& world, int expected_rank) {
  std::unique_ptr<ProgressLoop> loop;
  int rank = expected_rank;
  const auto fail = [&](FailureKind kind, const std::string& message) {
    WriteFailure(directory, rank, kind, message);
    // Others find out at about the same time; a loop that still answers keeps them from blaming
    // this rank, and the first to leave ends them all.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return false;
  };
  try {
    const Device device = ChooseDevice(config, LocalRank(expected_rank));
    gpu::GpuStream compute;
    if (device.kind != DeviceKind::kHost) compute = gpu::GpuStream(device);
    loop = std::make_unique<ProgressLoop>([&] { return world(device); }, Deadline(config));
    rank = loop->rank();
    ThreadPool pool(config.at("threads_per_worker"));
    const Rank context{config, directory, *loop, pool, device, compute.view()};
    if (config.at("kind") == "profile") {
      RunProfile(context);
    } else {
      RunTraining(context);
    }
    context.Synchronise();
    if (config.at("transport") != "threads") FinalizeMpiOnClose();
    return true;
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(FailureKind::kOutOfMemory, "out of memory");
  } catch (const std::exception& error) {
    return fail(FailureKind::kInternal, error.what());
  }
}

std::unique_ptr<Communicator> Shape(const nlohmann::json& config,
                                    std::unique_ptr<Communicator> world) {
  if (config.at("link").is_null()) return world;
  const auto& link = config.at("link");
  return MakeShaped(std::move(world), {link.at("gbps"), link.at("alpha_us").get<double>() / 1e6});
}

std::unique_ptr<Communicator> OverNccl(const nlohmann::json& config,
                                       std::unique_ptr<Communicator> host, Device device) {
  NcclSetup setup;
  setup.host = std::move(host);
  setup.device = device;
  setup.card = CardOf(device.index).uuid;
  setup.deadline = Deadline(config);
  return MakeNcclWorld(LinkedNccl(), std::move(setup));
}

int RunThreads(const nlohmann::json& config, const std::filesystem::path& directory) {
  const int ranks = config.at("workers");
  auto worlds = MakeThreadsWorld(ranks, config.at("ranks_per_node"));
  std::vector<std::thread> threads;
  std::vector<char> passed(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto& world = worlds[static_cast<std::size_t>(rank)];
      passed[static_cast<std::size_t>(rank)] = RunRank(
          config, directory, [&](Device) { return Shape(config, std::move(world)); }, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const char each : passed) {
    if (!each) return 1;
  }
  return 0;
}

int Run(const std::filesystem::path& directory) {
  const char* launched = std::getenv("OMPI_COMM_WORLD_RANK");
  const int rank = launched == nullptr ? 0 : std::atoi(launched);
  nlohmann::json config;
  try {
    config = ReadJsonFile(directory / "config.json");
  } catch (const std::exception& error) {
    WriteFailure(directory, rank, FailureKind::kData, error.what());
    return 1;
  }
  if (config.at("transport") == "threads") return RunThreads(config, directory);
  const int ranks_per_node = config.at("ranks_per_node");
  const bool passed = RunRank(
      config, directory,
      [&](Device device) {
        std::unique_ptr<Communicator> world = MakeMpiWorld(ranks_per_node);
        if (config.at("transport") == "nccl") return OverNccl(config, std::move(world), device);
        return Shape(config, std::move(world));
      },
      rank);
  if (passed) return 0;
  // Not exit(): MPI's and LibTorch's destructors would wait for ranks that are stuck or gone.
  std::fflush(nullptr);
  std::_Exit(1);
}

}  // namespace
}  // namespace sparfuse::harness

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: sparfuse-worker TRIAL_DIRECTORY (made by sparfuse run)\n");
    return 2;
  }
  // Streams that share one of CUDA's queues wait for one another. The engine, LibTorch and NCCL
  // have more of them together than the 8 queues that CUDA makes by default; 32 is its most.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // The allocator keeps what it has got. Giving memory back to the kernel and faulting it in again
  // would cost a step of training a tenth of its time, at moments that depend on which thread frees
  // when: methods would seem to differ that do not.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
  // Nobody would collect the trial of a launcher that was killed.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sparfuse::PreferCommunication();
  return sparfuse::harness::Run(argv[1]);
}
