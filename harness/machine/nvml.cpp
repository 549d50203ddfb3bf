#include "harness/machine/nvml.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "harness/machine/binding.hpp"
#include "harness/machine/nvml_api.hpp"

namespace sparfuse::harness {
namespace {

using nvml::Device;
using nvml::Functions;

static_assert(sizeof(nvml::PciInfo) == 68 && sizeof(nvml::ProcessInfo) == 24 &&
                  nvml::kMemoryV2 == 0x02000028,
              "layouts of nvml.h");

// Calls `function` if the library has it. The caller owns `out` values.
template <class Function, class... Arguments>
bool Ask(Function function, Arguments... arguments) {
  return function != nullptr && function(arguments...) == nvml::kSuccess;
}

// The value that `function(before..., &value)` writes.
template <class Value, class Function, class... Before>
std::optional<Value> Get(Function function, Before... before) {
  Value value{};
  if (!Ask(function, before..., &value)) return std::nullopt;
  return value;
}

template <class Function, class... Before>
std::optional<bool> GetSwitch(Function function, Before... before) {
  const auto state = Get<int>(function, before...);
  if (!state) return std::nullopt;
  return *state != 0;
}

template <class Function, class... Before>
std::string GetText(Function function, Before... before) {
  std::array<char, 256> text{};
  if (!Ask(function, before..., text.data(), static_cast<unsigned>(text.size() - 1))) return "";
  return text.data();
}

template <class Function>
std::optional<double> GetWatts(Function function, Device card) {
  const auto milliwatts = Get<unsigned>(function, card);
  if (!milliwatts) return std::nullopt;
  return *milliwatts / 1000.0;
}

// Writes a set of bits as in "0-3,8".
std::string Ranges(std::span<const unsigned long> set) {
  constexpr std::size_t kBits = std::numeric_limits<unsigned long>::digits;
  std::vector<int> numbers;
  for (std::size_t i = 0; i < set.size() * kBits; ++i) {
    if ((set[i / kBits] >> (i % kBits) & 1) != 0) numbers.push_back(static_cast<int>(i));
  }
  return WriteRanges(numbers);
}

CardClock ReadClock(const Functions& nvml, Device card, nvml::Clock domain) {
  CardClock clock;
  clock.now_mhz = Get<unsigned>(nvml.nvmlDeviceGetClockInfo, card, domain);
  clock.max_mhz = Get<unsigned>(nvml.nvmlDeviceGetMaxClockInfo, card, domain);
  const auto set = Get<unsigned>(nvml.nvmlDeviceGetApplicationsClock, card, domain);
  const auto usual = Get<unsigned>(nvml.nvmlDeviceGetDefaultApplicationsClock, card, domain);
  if (set && usual && *set != *usual) clock.application_mhz = set;
  return clock;
}

void ReadMemory(const Functions& nvml, Device card, GpuCard& out) {
  nvml::MemoryV2 memory{};
  memory.version = nvml::kMemoryV2;
  if (Ask(nvml.nvmlDeviceGetMemoryInfo_v2, card, &memory)) {
    out.total_bytes = memory.total;
    out.free_bytes = memory.free;
    out.used_bytes = memory.used;
  } else if (const auto older = Get<nvml::Memory>(nvml.nvmlDeviceGetMemoryInfo, card)) {
    // The older call counts the driver's share as used, and does not state that share.
    out.total_bytes = older->total;
    out.free_bytes = older->free;
  }
}

template <class Function>
void AddProcesses(const Functions& nvml, Function list, Device card,
                  std::vector<GpuProcess>& processes) {
  if (list == nullptr) return;
  std::vector<nvml::ProcessInfo> found(64);
  for (int attempt = 0; attempt < 4; ++attempt) {  // more processes may start between two calls
    auto count = static_cast<unsigned>(found.size());
    const int status = list(card, &count, found.data());
    if (status == nvml::kInsufficientSize) {
      found.resize(std::max<std::size_t>(count, found.size()) * 2);
      continue;
    }
    found.resize(status == nvml::kSuccess ? std::min<std::size_t>(count, found.size()) : 0);
    break;
  }
  for (const nvml::ProcessInfo& info : found) {
    const bool known = std::any_of(processes.begin(), processes.end(),
                                   [&](const GpuProcess& one) { return one.pid == info.pid; });
    if (info.pid == 0 || known || info.pid == static_cast<unsigned>(getpid())) continue;
    GpuProcess process{info.pid, GetText(nvml.nvmlSystemGetProcessName, info.pid), {}};
    if (info.used_bytes != ~0ULL) process.bytes = info.used_bytes;
    processes.push_back(std::move(process));
  }
}

GpuCard ReadCard(const Functions& nvml, Device card) {
  GpuCard out;
  out.name = GetText(nvml.nvmlDeviceGetName, card);
  out.uuid = GetText(nvml.nvmlDeviceGetUUID, card);
  if (const auto pci = Get<nvml::PciInfo>(nvml.nvmlDeviceGetPciInfo_v3, card))
    out.bus_id = pci->bus_id;
  if (int major = 0, minor = 0;
      Ask(nvml.nvmlDeviceGetCudaComputeCapability, card, &major, &minor)) {
    out.compute_capability = 10 * major + minor;
  }
  ReadMemory(nvml, card, out);
  out.sm = ReadClock(nvml, card, nvml::kSm);
  out.memory = ReadClock(nvml, card, nvml::kMemoryClock);
  out.throttle_reasons =
      Get<unsigned long long>(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, card);
  out.persistence = GetSwitch(nvml.nvmlDeviceGetPersistenceMode, card);
  out.compute_mode = Get<int>(nvml.nvmlDeviceGetComputeMode, card);
  if (int now = 0, pending = 0; Ask(nvml.nvmlDeviceGetEccMode, card, &now, &pending))
    out.ecc = now != 0;
  const auto errors = [&](nvml::EccCounter counter) {
    return Get<unsigned long long>(nvml.nvmlDeviceGetTotalEccErrors, card, nvml::kUncorrected,
                                   counter);
  };
  out.ecc_errors = errors(nvml::kSinceDriverLoad);
  out.ecc_errors_lifetime = errors(nvml::kLifetime);
  out.temperature_celsius = Get<unsigned>(nvml.nvmlDeviceGetTemperature, card, 0);
  out.power_watts = GetWatts(nvml.nvmlDeviceGetPowerUsage, card);
  out.power_limit_watts = GetWatts(nvml.nvmlDeviceGetPowerManagementLimit, card);
  out.power_default_watts = GetWatts(nvml.nvmlDeviceGetPowerManagementDefaultLimit, card);
  if (unsigned now = 0, pending = 0; Ask(nvml.nvmlDeviceGetMigMode, card, &now, &pending))
    out.mig = now != 0;
  if (const auto busy = Get<nvml::Utilization>(nvml.nvmlDeviceGetUtilizationRates, card)) {
    out.busy_percent = busy->gpu;
    out.memory_busy_percent = busy->memory;
  }
  const auto attached = GetSwitch(nvml.nvmlDeviceGetDisplayMode, card);
  const auto active = GetSwitch(nvml.nvmlDeviceGetDisplayActive, card);
  if (attached || active) out.display = attached.value_or(false) || active.value_or(false);
  std::array<unsigned long, 64> set{};
  const auto size = static_cast<unsigned>(set.size());
  if (Ask(nvml.nvmlDeviceGetCpuAffinity, card, size, set.data())) out.cpus = Ranges(set);
  set = {};
  if (Ask(nvml.nvmlDeviceGetMemoryAffinity, card, size, set.data(), nvml::kAffinityOfNode))
    out.numa_nodes = Ranges(set);
  AddProcesses(nvml, nvml.nvmlDeviceGetComputeRunningProcesses_v3, card, out.processes);
  AddProcesses(nvml, nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, card, out.processes);
  return out;
}

// The active NVLink links of a card: the number that end at a switch, and the cards at the ends of
// the others.
struct ActiveLinks {
  int to_switches = 0;
  std::vector<std::string> peers;  // PCI bus ids
};

ActiveLinks ReadLinks(const Functions& nvml, Device card) {
  ActiveLinks links;
  for (unsigned i = 0; i < nvml::kMaxLinks; ++i) {
    if (!GetSwitch(nvml.nvmlDeviceGetNvLinkState, card, i).value_or(false)) continue;
    if (Get<int>(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, card, i) == nvml::kToSwitch) {
      ++links.to_switches;
    } else if (const auto peer =
                   Get<nvml::PciInfo>(nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2, card, i)) {
      links.peers.emplace_back(peer->bus_id);
    }
  }
  return links;
}

std::string LinkKind(const ActiveLinks& a, const ActiveLinks& b, const std::string& bus_of_b,
                     std::optional<int> ancestor) {
  const auto direct = std::count(a.peers.begin(), a.peers.end(), bus_of_b);
  const auto links = direct > 0 ? direct : std::min(a.to_switches, b.to_switches);
  if (links > 0) return fmt::format("NV{}", links);
  if (!ancestor) return "";
  constexpr std::pair<int, const char*> kNames[] = {
      {nvml::kSameBoard, "board"}, {nvml::kPix, "PIX"},   {nvml::kPxb, "PXB"},
      {nvml::kPhb, "PHB"},         {nvml::kNode, "NODE"}, {nvml::kSys, "SYS"}};
  for (const auto& [value, name] : kNames) {
    if (value == *ancestor) return name;
  }
  return "";
}

struct Session {
  const Functions& nvml;
  ~Session() { Ask(nvml.nvmlShutdown); }
};

// The meaning of NVML's status if it does not start (nvmlReturn_t).
std::string StatusText(int status) {
  switch (status) {
    case 4:
      return "this user may not ask the driver";
    case 9:
      return "the driver is not loaded";
    case 15:
      return "a card is lost (it fell off the bus)";
    case 17:
      return "the operating system or a container blocks the card";
    case 18:
      return "the driver's kernel module and its libraries are of different versions (was it "
             "updated "
             "without a restart?)";
    default:
      return fmt::format("status {}", status);
  }
}

}  // namespace

bool IsCard(const GpuCard& card, const std::string& uuid) {
  const auto digits = [](std::string text) {
    std::erase_if(text, [](unsigned char c) { return std::isxdigit(c) == 0; });
    std::ranges::transform(text, text.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
  };
  return !uuid.empty() && digits(card.uuid).ends_with(digits(uuid));
}

GpuReport ReadGpus(const Functions& nvml) {
  GpuReport report;
  report.driver_found = true;
  if (nvml.nvmlInit_v2 == nullptr || nvml.nvmlDeviceGetCount_v2 == nullptr ||
      nvml.nvmlDeviceGetHandleByIndex_v2 == nullptr) {
    report.problem = "the driver's libnvidia-ml.so.1 is too old: it lacks nvmlInit_v2 and its kind";
    return report;
  }
  if (const int status = nvml.nvmlInit_v2(); status != nvml::kSuccess) {
    report.problem = "NVML does not start: " + StatusText(status);
    return report;
  }
  const Session session{nvml};
  report.driver_version = GetText(nvml.nvmlSystemGetDriverVersion);
  report.cuda_version = Get<int>(nvml.nvmlSystemGetCudaDriverVersion_v2);
  std::vector<Device> cards;
  const unsigned count = Get<unsigned>(nvml.nvmlDeviceGetCount_v2).value_or(0);
  for (unsigned i = 0; i < count; ++i) {
    Device card = nullptr;
    const int status = nvml.nvmlDeviceGetHandleByIndex_v2(i, &card);
    if (status != nvml::kSuccess) {
      report.problem = fmt::format("card {}: {}", i, StatusText(status));
      continue;
    }
    cards.push_back(card);
    report.cards.push_back(ReadCard(nvml, card));
    report.cards.back().index = static_cast<int>(i);
  }
  std::vector<ActiveLinks> links;
  for (const Device card : cards) links.push_back(ReadLinks(nvml, card));
  for (std::size_t b = 1; b < cards.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      report.links.push_back(
          {report.cards[a].index, report.cards[b].index,
           LinkKind(links[a], links[b], report.cards[b].bus_id,
                    Get<int>(nvml.nvmlDeviceGetTopologyCommonAncestor, cards[a], cards[b]))});
    }
  }
  return report;
}

GpuReport ReadGpus(const std::string& library) {
  const std::unique_ptr<void, int (*)(void*)> handle(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL),
                                                     dlclose);
  if (handle == nullptr) {
    GpuReport report;
    report.problem = library + " is not found: no NVIDIA driver";
    return report;
  }
  Functions functions;
#define SPARFUSE_NVML_LOAD(name, arguments) \
  functions.name = reinterpret_cast<decltype(functions.name)>(dlsym(handle.get(), #name));
  SPARFUSE_NVML_FUNCTIONS(SPARFUSE_NVML_LOAD)
#undef SPARFUSE_NVML_LOAD
  return ReadGpus(functions);
}

std::vector<std::string> ThrottleWords(std::uint64_t reasons) {
  constexpr std::string_view kWords[] = {"idle",
                                         "application clocks",
                                         "power cap",
                                         "hardware slowdown",
                                         "sync boost with other cards",
                                         "hot (software slowdown)",
                                         "hot (hardware slowdown)",
                                         "power brake",
                                         "display clocks"};
  std::vector<std::string> words;
  for (std::size_t bit = 0; bit < 64; ++bit) {
    if ((reasons >> bit & 1) == 0) continue;
    words.push_back(bit < std::size(kWords) ? std::string(kWords[bit])
                                            : fmt::format("reason {:#x}", std::uint64_t{1} << bit));
  }
  return words;
}

}  // namespace sparfuse::harness
