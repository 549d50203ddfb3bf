// Asks NVIDIA's management library about the cards of this machine. The library comes with the
// driver; it is loaded by name at run time, so that every build, with a CUDA toolkit or without,
// asks it and none needs it.
//
// Source: NVML API reference, version 12.9 (functions, values and layouts of nvml.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/records/machine.hpp"

namespace sparfuse::harness {

namespace nvml {
struct Functions;
}

struct GpuProcess {
  unsigned pid = 0;
  std::string name;                    // "" unknown
  std::optional<std::uint64_t> bytes;  // of the card's memory
  bool operator==(const GpuProcess&) const = default;
};

// A member is empty if the card, its driver or the user's rights do not give it.
struct GpuCard {
  int index = 0;  // NVML's
  std::string name, uuid, bus_id;
  std::optional<int> compute_capability;  // 90 is 9.0
  std::optional<std::uint64_t> total_bytes, free_bytes;
  std::optional<std::uint64_t> used_bytes;  // without the driver's reserve
  CardClock sm, memory;
  std::optional<std::uint64_t> throttle_reasons;
  std::optional<bool> persistence, ecc, mig, display;
  std::optional<int> compute_mode;
  std::optional<std::uint64_t> ecc_errors, ecc_errors_lifetime;  // uncorrected
  std::optional<unsigned> temperature_celsius;
  std::optional<double> power_watts, power_limit_watts, power_default_watts;
  std::optional<unsigned> busy_percent, memory_busy_percent;
  std::string cpus, numa_nodes;       // nearest, as "0-15,32"; "" unknown
  std::vector<GpuProcess> processes;  // without this one
};

// Whether CUDA calls the card `uuid`: hexadecimal digits, which NVML writes with "GPU-" and dashes.
bool IsCard(const GpuCard& card, const std::string& uuid);

// The path between the cards of index a < b: "NV4" (four active NVLink links, to the other card or
// to switches), "PIX" (one PCIe switch), "PXB" (several), "PHB" (a host bridge), "NODE" (host
// bridges of a NUMA node), "SYS" (between NUMA nodes), "board"; "" unknown.
struct GpuLink {
  int a = 0, b = 0;
  std::string kind;
};

struct GpuReport {
  std::string problem;  // "", or why nothing below is known
  bool driver_found = false;
  std::string driver_version;
  std::optional<int> cuda_version;  // the newest that the driver runs; 13000 is 13.0
  std::vector<GpuCard> cards;
  std::vector<GpuLink> links;
};

// Reads only. `library`: a name for the dynamic loader, or a path.
// Cost: nothing without a driver, up to seconds if the driver has to wake the cards first.
GpuReport ReadGpus(const std::string& library = "libnvidia-ml.so.1");
GpuReport ReadGpus(const nvml::Functions& functions);  // a null function: its values are unknown

// The reasons in words: "power cap", "hot", ...; empty for none.
std::vector<std::string> ThrottleWords(std::uint64_t reasons);

}  // namespace sparfuse::harness
