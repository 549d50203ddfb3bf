// Declares the part of NVML's C interface that is used, as libnvidia-ml.so.1 exports it.
//
// Source: NVML API reference, version 12.9 (functions, values and layouts of nvml.h).
#pragma once

#include <cstdint>

namespace sparfuse::harness::nvml {

// A handle, a status (0 is success) and plain structures.
using Device = void*;

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;  // kMemoryV2
  unsigned long long total, reserved, free, used;
};
inline constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | 2u << 24;
struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;  // all ones: unknown
  unsigned gpu_instance, compute_instance;
};
struct Utilization {
  unsigned gpu, memory;
};

enum Status {
  kSuccess = 0,
  kNotSupported = 3,
  kInsufficientSize = 7,
  kFunctionNotFound = 13,
};
enum Clock { kSm = 1, kMemoryClock = 2 };
enum ComputeMode { kShared = 0, kProhibited = 2, kExclusiveProcess = 3 };
enum EccError { kUncorrected = 1 };
enum EccCounter { kSinceDriverLoad = 0, kLifetime = 1 };
enum Ancestor { kSameBoard = 0, kPix = 10, kPxb = 20, kPhb = 30, kNode = 40, kSys = 50 };
enum LinkPeer { kToGpu = 0, kToSwitch = 2 };
inline constexpr unsigned kMaxLinks = 18;
inline constexpr unsigned kAffinityOfNode = 0;

// Why clocks are not at their maximum: a set of bits.
inline constexpr std::uint64_t kIdle = 0x1;
inline constexpr std::uint64_t kApplicationClocks = 0x2;

// The functions, by the names that the library exports.
#define SPARFUSE_NVML_FUNCTIONS(FUNCTION)                                              \
  FUNCTION(nvmlInit_v2, ())                                                            \
  FUNCTION(nvmlShutdown, ())                                                           \
  FUNCTION(nvmlSystemGetDriverVersion, (char*, unsigned))                              \
  FUNCTION(nvmlSystemGetCudaDriverVersion_v2, (int*))                                  \
  FUNCTION(nvmlSystemGetProcessName, (unsigned, char*, unsigned))                      \
  FUNCTION(nvmlDeviceGetCount_v2, (unsigned*))                                         \
  FUNCTION(nvmlDeviceGetHandleByIndex_v2, (unsigned, Device*))                         \
  FUNCTION(nvmlDeviceGetName, (Device, char*, unsigned))                               \
  FUNCTION(nvmlDeviceGetUUID, (Device, char*, unsigned))                               \
  FUNCTION(nvmlDeviceGetPciInfo_v3, (Device, PciInfo*))                                \
  FUNCTION(nvmlDeviceGetCudaComputeCapability, (Device, int*, int*))                   \
  FUNCTION(nvmlDeviceGetMemoryInfo, (Device, Memory*))                                 \
  FUNCTION(nvmlDeviceGetMemoryInfo_v2, (Device, MemoryV2*))                            \
  FUNCTION(nvmlDeviceGetClockInfo, (Device, int, unsigned*))                           \
  FUNCTION(nvmlDeviceGetMaxClockInfo, (Device, int, unsigned*))                        \
  FUNCTION(nvmlDeviceGetApplicationsClock, (Device, int, unsigned*))                   \
  FUNCTION(nvmlDeviceGetDefaultApplicationsClock, (Device, int, unsigned*))            \
  FUNCTION(nvmlDeviceGetCurrentClocksThrottleReasons, (Device, unsigned long long*))   \
  FUNCTION(nvmlDeviceGetPersistenceMode, (Device, int*))                               \
  FUNCTION(nvmlDeviceGetComputeMode, (Device, int*))                                   \
  FUNCTION(nvmlDeviceGetEccMode, (Device, int*, int*))                                 \
  FUNCTION(nvmlDeviceGetTotalEccErrors, (Device, int, int, unsigned long long*))       \
  FUNCTION(nvmlDeviceGetTemperature, (Device, int, unsigned*))                         \
  FUNCTION(nvmlDeviceGetPowerUsage, (Device, unsigned*))                               \
  FUNCTION(nvmlDeviceGetPowerManagementLimit, (Device, unsigned*))                     \
  FUNCTION(nvmlDeviceGetPowerManagementDefaultLimit, (Device, unsigned*))              \
  FUNCTION(nvmlDeviceGetMigMode, (Device, unsigned*, unsigned*))                       \
  FUNCTION(nvmlDeviceGetUtilizationRates, (Device, Utilization*))                      \
  FUNCTION(nvmlDeviceGetDisplayMode, (Device, int*))                                   \
  FUNCTION(nvmlDeviceGetDisplayActive, (Device, int*))                                 \
  FUNCTION(nvmlDeviceGetCpuAffinity, (Device, unsigned, unsigned long*))               \
  FUNCTION(nvmlDeviceGetMemoryAffinity, (Device, unsigned, unsigned long*, unsigned))  \
  FUNCTION(nvmlDeviceGetTopologyCommonAncestor, (Device, Device, int*))                \
  FUNCTION(nvmlDeviceGetNvLinkState, (Device, unsigned, int*))                         \
  FUNCTION(nvmlDeviceGetNvLinkRemotePciInfo_v2, (Device, unsigned, PciInfo*))          \
  FUNCTION(nvmlDeviceGetNvLinkRemoteDeviceType, (Device, unsigned, int*))              \
  FUNCTION(nvmlDeviceGetComputeRunningProcesses_v3, (Device, unsigned*, ProcessInfo*)) \
  FUNCTION(nvmlDeviceGetGraphicsRunningProcesses_v3, (Device, unsigned*, ProcessInfo*))

// A function is null if an older library lacks it; its values are then unknown.
struct Functions {
#define SPARFUSE_NVML_MEMBER(name, arguments) int(*name) arguments = nullptr;
  SPARFUSE_NVML_FUNCTIONS(SPARFUSE_NVML_MEMBER)
#undef SPARFUSE_NVML_MEMBER
};

}  // namespace sparfuse::harness::nvml
