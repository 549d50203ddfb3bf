// Plays the NVML library with made-up cards: answers its calls from a list of cards in memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/machine/nvml_api.hpp"

namespace sparfuse::harness {

// The card answers kNotSupported for an empty field.
struct FakeCard {
  std::string name = "Card", uuid, bus_id;
  std::optional<std::pair<int, int>> capability;
  std::optional<nvml::MemoryV2> memory;
  std::map<int, unsigned> clock, max_clock, application_clock, default_application_clock;
  std::optional<unsigned long long> throttle_reasons, ecc_errors, ecc_errors_lifetime;
  std::optional<int> persistence, compute_mode, ecc, mig, display;
  std::optional<unsigned> temperature, power, power_limit, power_default;
  std::optional<nvml::Utilization> utilization;
  std::optional<unsigned long> cpus, nodes;
  std::vector<nvml::ProcessInfo> compute_processes, graphics_processes;
  std::vector<std::pair<int, std::string>> links;  // active: type of the peer, its bus id
};

struct FakeNvml {
  std::vector<FakeCard> cards;
  int init_status = nvml::kSuccess;
  int ancestor = nvml::kPxb;
  int cuda_version = 13000;
  int running = 0;  // calls of nvmlInit_v2 without their nvmlShutdown
};
inline FakeNvml fake;

namespace fake_nvml {

inline const FakeCard& Card(nvml::Device device) { return *static_cast<const FakeCard*>(device); }

template <class Known, class Value>
int Answer(const std::optional<Known>& known, Value* out) {
  if (!known) return nvml::kNotSupported;
  *out = static_cast<Value>(*known);
  return nvml::kSuccess;
}

inline int Answer(const std::map<int, unsigned>& known, int key, unsigned* out) {
  if (!known.contains(key)) return nvml::kNotSupported;
  *out = known.at(key);
  return nvml::kSuccess;
}

inline int Answer(const std::string& text, char* out, unsigned size) {
  if (text.empty()) return nvml::kNotSupported;
  if (text.size() >= size) return nvml::kInsufficientSize;
  std::strcpy(out, text.c_str());
  return nvml::kSuccess;
}

inline int Answer(const std::vector<nvml::ProcessInfo>& list, unsigned* count,
                  nvml::ProcessInfo* out) {
  const bool fits = list.size() <= *count;
  *count = static_cast<unsigned>(list.size());
  if (!fits) return nvml::kInsufficientSize;
  std::copy(list.begin(), list.end(), out);
  return nvml::kSuccess;
}

inline nvml::PciInfo Pci(const std::string& bus_id) {
  nvml::PciInfo info{};
  std::strcpy(info.bus_id, bus_id.c_str());
  return info;
}

inline int Affinity(const std::optional<unsigned long>& set, unsigned size, unsigned long* out) {
  if (size == 0) return nvml::kInsufficientSize;
  return Answer(set, out);
}

}  // namespace fake_nvml

inline nvml::Functions FakeFunctions() {
  using namespace fake_nvml;
  using nvml::Device;
  nvml::Functions f;
  f.nvmlInit_v2 = [] {
    fake.running += fake.init_status == nvml::kSuccess;
    return fake.init_status;
  };
  f.nvmlShutdown = [] {
    --fake.running;
    return 0;
  };
  f.nvmlSystemGetDriverVersion = [](char* out, unsigned size) {
    return Answer(std::string("580.159.04"), out, size);
  };
  f.nvmlSystemGetCudaDriverVersion_v2 = [](int* out) {
    *out = fake.cuda_version;
    return 0;
  };
  f.nvmlSystemGetProcessName = [](unsigned pid, char* out, unsigned size) {
    return Answer(pid == 4242 ? std::string("/usr/bin/train") : "", out, size);
  };
  f.nvmlDeviceGetCount_v2 = [](unsigned* out) {
    *out = static_cast<unsigned>(fake.cards.size());
    return 0;
  };
  f.nvmlDeviceGetHandleByIndex_v2 = [](unsigned i, Device* out) {
    *out = &fake.cards.at(i);
    return 0;
  };
  f.nvmlDeviceGetName = [](Device d, char* out, unsigned n) {
    return Answer(Card(d).name, out, n);
  };
  f.nvmlDeviceGetUUID = [](Device d, char* out, unsigned n) {
    return Answer(Card(d).uuid, out, n);
  };
  f.nvmlDeviceGetPciInfo_v3 = [](Device d, nvml::PciInfo* out) {
    *out = Pci(Card(d).bus_id);
    return Card(d).bus_id.empty() ? int{nvml::kNotSupported} : 0;
  };
  f.nvmlDeviceGetCudaComputeCapability = [](Device d, int* major, int* minor) {
    if (!Card(d).capability) return int{nvml::kNotSupported};
    std::tie(*major, *minor) = *Card(d).capability;
    return 0;
  };
  f.nvmlDeviceGetMemoryInfo_v2 = [](Device d, nvml::MemoryV2* out) {
    if (out->version != nvml::kMemoryV2) return 25;
    return Answer(Card(d).memory, out);
  };
  f.nvmlDeviceGetClockInfo = [](Device d, int k, unsigned* o) {
    return Answer(Card(d).clock, k, o);
  };
  f.nvmlDeviceGetMaxClockInfo = [](Device d, int k, unsigned* o) {
    return Answer(Card(d).max_clock, k, o);
  };
  f.nvmlDeviceGetApplicationsClock = [](Device d, int k, unsigned* o) {
    return Answer(Card(d).application_clock, k, o);
  };
  f.nvmlDeviceGetDefaultApplicationsClock = [](Device d, int k, unsigned* o) {
    return Answer(Card(d).default_application_clock, k, o);
  };
  f.nvmlDeviceGetCurrentClocksThrottleReasons = [](Device d, unsigned long long* o) {
    return Answer(Card(d).throttle_reasons, o);
  };
  f.nvmlDeviceGetPersistenceMode = [](Device d, int* o) { return Answer(Card(d).persistence, o); };
  f.nvmlDeviceGetComputeMode = [](Device d, int* o) { return Answer(Card(d).compute_mode, o); };
  f.nvmlDeviceGetEccMode = [](Device d, int* o, int* pending) {
    *pending = 0;
    return Answer(Card(d).ecc, o);
  };
  f.nvmlDeviceGetTotalEccErrors = [](Device d, int type, int counter, unsigned long long* o) {
    if (type != nvml::kUncorrected) return int{nvml::kNotSupported};
    return Answer(counter == nvml::kLifetime ? Card(d).ecc_errors_lifetime : Card(d).ecc_errors, o);
  };
  f.nvmlDeviceGetTemperature = [](Device d, int, unsigned* o) {
    return Answer(Card(d).temperature, o);
  };
  f.nvmlDeviceGetPowerUsage = [](Device d, unsigned* o) { return Answer(Card(d).power, o); };
  f.nvmlDeviceGetPowerManagementLimit = [](Device d, unsigned* o) {
    return Answer(Card(d).power_limit, o);
  };
  f.nvmlDeviceGetPowerManagementDefaultLimit = [](Device d, unsigned* o) {
    return Answer(Card(d).power_default, o);
  };
  f.nvmlDeviceGetMigMode = [](Device d, unsigned* o, unsigned* pending) {
    *pending = 0;
    return Answer(Card(d).mig, o);
  };
  f.nvmlDeviceGetUtilizationRates = [](Device d, nvml::Utilization* o) {
    return Answer(Card(d).utilization, o);
  };
  f.nvmlDeviceGetDisplayMode = [](Device d, int* o) { return Answer(Card(d).display, o); };
  f.nvmlDeviceGetDisplayActive = [](Device, int*) { return int{nvml::kNotSupported}; };
  f.nvmlDeviceGetCpuAffinity = [](Device d, unsigned n, unsigned long* o) {
    return Affinity(Card(d).cpus, n, o);
  };
  f.nvmlDeviceGetMemoryAffinity = [](Device d, unsigned n, unsigned long* o, unsigned) {
    return Affinity(Card(d).nodes, n, o);
  };
  f.nvmlDeviceGetTopologyCommonAncestor = [](Device, Device, int* o) {
    *o = fake.ancestor;
    return 0;
  };
  f.nvmlDeviceGetNvLinkState = [](Device d, unsigned link, int* o) {
    *o = link < Card(d).links.size();
    return 0;
  };
  f.nvmlDeviceGetNvLinkRemoteDeviceType = [](Device d, unsigned link, int* o) {
    *o = Card(d).links.at(link).first;
    return 0;
  };
  f.nvmlDeviceGetNvLinkRemotePciInfo_v2 = [](Device d, unsigned link, nvml::PciInfo* o) {
    *o = Pci(Card(d).links.at(link).second);
    return 0;
  };
  f.nvmlDeviceGetComputeRunningProcesses_v3 = [](Device d, unsigned* n, nvml::ProcessInfo* o) {
    return Answer(Card(d).compute_processes, n, o);
  };
  f.nvmlDeviceGetGraphicsRunningProcesses_v3 = [](Device d, unsigned* n, nvml::ProcessInfo* o) {
    return Answer(Card(d).graphics_processes, n, o);
  };
  return f;
}

}  // namespace sparfuse::harness
