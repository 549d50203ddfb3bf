#include "harness/worker/rank/rank.hpp"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "core/base/cpu.hpp"
#include "core/collective/collective.hpp"
#include "core/device/card.hpp"
#include "core/device/device.hpp"
#include "core/transport/priority.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/container.hpp"
#include "harness/machine/nvml.hpp"
#include "harness/machine/system.hpp"
#include "harness/run/live/launch/launch_watch.hpp"

namespace sparfuse::harness {
namespace {

// World traffic outside steps; the channels of the engine have communicators of their own.
constexpr int kTag = 0;

}  // namespace

void Rank::BroadcastFromZero(std::span<std::byte> data) const {
  loop.RunBlocking([data](Communicator& world) { return Broadcast(world, data, 0, kTag); });
}

std::vector<std::int64_t> Rank::Max(std::vector<std::int64_t> values) const {
  loop.RunBlocking([&values](Communicator& world) { return AllReduceMax(world, values, kTag); });
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
  loop.RunBlocking([&](Communicator& world) { return AllGather(world, mine, all, kTag); });
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
  loop.RunBlocking([](Communicator& world) { return Barrier(world, kTag); });
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

void WriteOutcome(const std::filesystem::path& directory, const nlohmann::json& outcome) {
  WriteFileDurably(directory / "outcome.json", outcome.dump(1) + "\n");
  std::printf("%s%s\n", kResultLine, directory.filename().c_str());  // the controller follows
  std::fflush(stdout);
}

nlohmann::json MachineOf(const Rank& rank) {
  const auto placement = GatherJson(rank, HostName());
  CommunicationPriority priority{};
  const auto ask = [&priority](Communicator& world) {
    priority = ThisThreadPriority();
    return Barrier(world, kTag);
  };
  rank.loop.RunBlocking(ask);
  nlohmann::json machine = {{"placement", placement},
                            {"communication_threads", PriorityName(priority)},
                            {"cores", std::thread::hardware_concurrency()},
                            {"kernels", std::string(IsaName(ActiveIsa()))},
                            {"cuda_devices", CudaDeviceCount()}};
  if (rank.device.kind == DeviceKind::kCuda) {
    const Card card = CardOf(rank.device.index);
    machine["cards"] = GatherJson(rank, "cuda:" + std::to_string(card.index) + " " + card.name);
  }
  if (rank.device.kind == DeviceKind::kEmulated)
    machine["cards"] = {"the emulated device of tests"};
  // After the steps, while the clocks are still what they were under load.
  if (rank.rank() == 0 && rank.config.device == Place::kCuda)
    machine["gpus"] = DescribeGpus(ReadGpus());
  return machine;
}

nlohmann::json SoftwareOfWorker() {
  nlohmann::json software = {{"compiler", "g++ " __VERSION__}, {"cuda_build", CudaBuildInfo()}};
  if (std::string image = ContainerImage(); !image.empty())
    software["container"] = std::move(image);
  return software;
}

}  // namespace sparfuse::harness
