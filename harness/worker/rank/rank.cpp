#include "harness/worker/rank/rank.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/collective/collective.hpp"
#include "core/device/backend.hpp"
#include "core/device/card.hpp"
#include "core/device/device.hpp"
#include "core/transport/sleep.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/nvml.hpp"
#include "harness/machine/system.hpp"
#include "harness/run/live/launch/launch_watch.hpp"

namespace sparfuse::harness {
namespace {

// World traffic outside steps. The engine's channels have their own communicators.
constexpr int kRankTag = 0;

}  // namespace

int LocalRank(int rank) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "FLUX_TASK_LOCAL_ID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return rank;
}

Device ChooseDevice(Place place, int local_rank) {
  if (place == Place::kCpu) {
    return {gpu::HasEmulatedDevice() ? DeviceKind::kEmulated : DeviceKind::kHost, 0};
  }
  const std::string why = WhyNoCuda();
  if (!why.empty()) SPARFUSE_THROW(kUnsupported, "this machine has no CUDA device: " + why);
  return {DeviceKind::kCuda, local_rank % CudaDeviceCount()};
}

void Rank::BroadcastFromZero(std::span<std::byte> data) const {
  loop.RunBlocking([data](Communicator& world) { return Broadcast(world, data, 0, kRankTag); });
}

std::vector<std::int64_t> Rank::Max(std::vector<std::int64_t> values) const {
  loop.RunBlocking(
      [&values](Communicator& world) { return AllReduceMax(world, values, kRankTag); });
  return values;
}

std::vector<std::vector<std::byte>> Rank::Gather(std::span<const std::byte> own) const {
  const auto longest = static_cast<std::size_t>(Max({static_cast<std::int64_t>(own.size())})[0]);
  const std::size_t block = sizeof(std::uint64_t) + longest;
  std::vector<std::byte> mine(block);
  const std::uint64_t length = own.size();
  std::memcpy(mine.data(), &length, sizeof length);
  std::memcpy(mine.data() + sizeof length, own.data(), own.size());
  std::vector<std::byte> all(block * static_cast<std::size_t>(size()));
  loop.RunBlocking([&](Communicator& world) { return AllGather(world, mine, all, kRankTag); });
  std::vector<std::vector<std::byte>> by_rank;
  for (std::size_t r = 0; r < static_cast<std::size_t>(size()); ++r) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, all.data() + r * block, sizeof bytes);
    const std::byte* begin = all.data() + r * block + sizeof bytes;
    by_rank.emplace_back(begin, begin + bytes);
  }
  return by_rank;
}

void Rank::Synchronise() const {
  loop.RunBlocking([](Communicator& world) { return Barrier(world, kRankTag); });
}

std::vector<nlohmann::json> GatherJson(const Rank& rank, const nlohmann::json& own) {
  const std::string text = own.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::vector<nlohmann::json> values;
  for (const auto& bytes : rank.Gather(std::as_bytes(std::span(text)))) {
    const auto* characters = reinterpret_cast<const char*>(bytes.data());
    values.push_back(nlohmann::json::parse(characters, characters + bytes.size()));
  }
  return values;
}

std::vector<std::string> GatherTexts(const Rank& rank, const std::string& own) {
  const auto texts = GatherJson(rank, own);
  return {texts.begin(), texts.end()};
}

void SayMeasuring(const Rank& rank, const std::string& what) {
  if (rank.rank() != 0) return;
  std::printf("%s%s\n", kMeasuringLine, what.c_str());
  std::fflush(stdout);
}

void WriteOutcome(const std::filesystem::path& directory, const nlohmann::json& outcome,
                  PrivateFacts facts) {
  facts.python_files = ReadPrivateFacts(directory).python_files;
  WritePrivateFacts(directory, facts);
  WriteFileDurably(directory / "outcome.json", outcome.dump(1) + "\n");
  std::printf("%s%s\n", kResultLine, directory.filename().c_str());  // the controller follows
  std::fflush(stdout);
}

Machine MachineOf(const Rank& rank, PrivateFacts& facts) {
  Machine machine;
  machine.placement = GatherTexts(rank, HostName());
  CommunicationPriority priority{};
  const auto ask = [&priority](Communicator& world) {
    priority = ThisThreadPriority();
    return Barrier(world, kRankTag);
  };
  rank.loop.RunBlocking(ask);
  machine.communication_threads = PriorityName(priority);
  machine.cores = std::thread::hardware_concurrency();
  machine.kernels = IsaName(ActiveIsa());
  machine.cuda_devices = CudaDeviceCount();
  if (rank.device.kind == DeviceKind::kCuda) {
    const Card card = CardOf(rank.device.index);
    machine.cards = GatherTexts(rank, "cuda:" + std::to_string(card.index) + " " + card.name);
  }
  if (rank.device.kind == DeviceKind::kEmulated) machine.cards = {"the emulated device of tests"};
  // After the steps, the clocks are still at their values under load.
  if (rank.rank() == 0 && rank.config.device == Place::kCuda)
    machine.gpus = DescribeGpus(ReadGpus());
  TakeNames(machine, facts);
  return machine;
}

Software SoftwareOfWorker() { return {"g++ " __VERSION__, CudaBuildInfo(), ContainerImage()}; }

}  // namespace sparfuse::harness
