#include "harness/run/live/hosts/preflight.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/collective/collective.hpp"
#include "core/device/card.hpp"
#include "core/transport/mpi.hpp"
#include "core/transport/nccl/api.hpp"
#include "core/transport/progress.hpp"
#include "core/transport/world/clocks.hpp"
#include "core/transport/world/world_check.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/binding.hpp"
#include "harness/machine/network.hpp"
#include "harness/machine/nvml.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/record.hpp"
#include "harness/systems/detected_node.hpp"
#include "harness/worker/launch.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr auto kDeadline = std::chrono::seconds(20);
constexpr int kClockRounds = 32;

void Tell(const json& facts) {
  // Written in one piece, because ranks write at the same time.
  const std::string line =
      kFactsLine + facts.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// An id of a library's file: the linker's note or, without one, the size.
std::string IdOf(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const auto& header = object.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const std::byte*>(object.dlpi_addr + header.p_vaddr);
    const auto* end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) < end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const auto* name = at + sizeof note;
      const auto* content = name + (note.n_namesz + 3) / 4 * 4;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          std::memcmp(name, "GNU", 4) == 0) {
        std::string id;
        for (unsigned b = 0; b < note.n_descsz && b < 6; ++b)
          id += fmt::format("{:02x}", static_cast<unsigned>(content[b]));
        return id;
      }
      at = content + (note.n_descsz + 3) / 4 * 4;
    }
  }
  std::error_code none;
  return fmt::format("{} bytes", fs::file_size(object.dlpi_name, none));
}

// The loaded libraries that affect measurements: "libmpi.so.40" and its id.
std::map<std::string, std::string> LoadedLibraries() {
  std::map<std::string, std::string> libraries;
  const auto visit = [](dl_phdr_info* object, std::size_t, void* data) {
    const std::string name = fs::path(object->dlpi_name).filename().string();
    for (const std::string_view begin : {"libmpi.", "libopen-", "libtorch", "libc10", "libnccl",
                                         "libcudart", "libcublas", "libcudnn"}) {
      if (name.starts_with(begin))
        (*static_cast<std::map<std::string, std::string>*>(data))[name] = IdOf(*object);
    }
    return 0;
  };
  dl_iterate_phdr(visit, &libraries);
  return libraries;
}

// The interfaces that are up, except for the loopback.
std::vector<std::string> InterfacesThatAreUp() {
  std::vector<std::string> names;
  for (const fs::path& entry : EntriesOf(kInterfaces)) {
    const std::string name = entry.filename().string();
    // operstate follows it a second late; unreadable if down
    if (name != "lo" && FirstLine(entry / "carrier") == "1") names.push_back(name);
  }
  return names;
}

std::optional<std::uint64_t> MemlockBytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

double ShmFreeBytes() {
  struct statvfs space {};
  if (statvfs("/dev/shm", &space) != 0) return 0;
  return static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
}

bool SeesResults(const fs::path& folder, const std::string& nonce, int rank) {
  try {
    if (ReadFile(folder / kPreflightSeen) != nonce) return false;
    const fs::path own = folder / fmt::format("rank{}", rank);
    return std::ofstream(own).put('x').flush().good();
  } catch (const Error&) {
    return false;
  }
}

std::optional<int> NcclVersion() {
  if (!WhyNoCuda().empty()) return std::nullopt;
  int version = 0;
  return LinkedNccl().get_version(&version) == 0 ? std::optional(version) : std::nullopt;
}

HostFacts FactsOfHost(const fs::path& folder, const std::string& nonce, int rank) {
  HostFacts facts;
  static_cast<RankBinding&>(facts) = BindingOfThisProcess();
  facts.rank = rank;
  facts.worker = ShortHash(ReadFile("/proc/self/exe"));
  facts.mpi = MpiLibraryVersion();
  facts.libraries = LoadedLibraries();
  const int runtime = CudaVersions().runtime;
  if (runtime != 0) facts.cuda = DottedVersion(runtime);
  facts.nccl = NcclVersion();
  facts.node = DescribeNode(PinnedInterface());
  facts.cpu = facts.node->processor;
  facts.cards = ToJson(*facts.node).at("gpus");
  facts.driver = ReadGpus().driver_version;
  facts.memlock_bytes = MemlockBytes();
  facts.shm_free_bytes = ShmFreeBytes();
  facts.interfaces = InterfacesThatAreUp();
  std::error_code none;
  facts.rdma = !fs::is_empty("/sys/class/infiniband", none) && !none;
  facts.sees_results = SeesResults(folder, nonce, rank);
  return facts;
}

// Compares every rank's wall clock with rank 0's.
json MeetOthers(const ExpectedWorld& expected) {
  ProgressLoop loop(
      [&] {
        auto world = MakeMpiWorld(1);
        CheckWorld(*world, expected, kDeadline);
        return world;
      },
      kDeadline);
  std::vector<int> others(static_cast<std::size_t>(loop.size() - 1));
  std::iota(others.begin(), others.end(), 1);
  ClockReading reading;
  const ClockSource clock = WallSeconds;
  loop.RunBlocking([&](Communicator& world) {
    return CompareClocks(world, others, kClockRounds, 0, clock, reading);
  });
  loop.RunBlocking([](Communicator& world) { return Barrier(world, 0); });
  FinalizeMpiOnClose();
  return {{"rank", loop.rank()},
          {"clock_ahead_seconds", 0 - reading.offset_seconds},
          {"clock_uncertainty_seconds", reading.uncertainty_seconds}};
}

}  // namespace

int TellFacts(const fs::path& folder) {
  const int rank = RankOfEnvironment();
  try {
    const auto expected = WorldOfEnvironment();
    if (!expected) SPARFUSE_THROW(kConfig, std::string(kWorldVariable) + " is not set");
    Tell(WriteRecord(FactsOfHost(folder, expected->nonce, rank)));
    CheckLauncherOf(*expected);
    Tell(MeetOthers(*expected));
    return 0;
  } catch (const std::exception& error) {
    Tell({{"rank", rank}, {"error", fmt::format("rank {}: {}", rank, error.what())}});
    std::_Exit(1);  // not exit(): MPI's destructors would wait for ranks that are gone
  }
}

}  // namespace sparfuse::harness
