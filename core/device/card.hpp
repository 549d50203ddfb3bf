// Lists the CUDA devices that this process can use, or says why it can use none.
#pragma once

#include <cstddef>
#include <string>

namespace sparfuse {

// Versions in CUDA's notation: 13000 is 13.0. 0: there is none.
struct CudaVersionPair {
  int driver = 0;   // the newest runtime that the installed driver serves
  int runtime = 0;  // the runtime that this process has loaded
};
CudaVersionPair CudaVersions() noexcept;  // both 0 in a build without CUDA
std::string DottedVersion(int version);   // "13.0"

// "" if there is a device, else the reason: a build without CUDA, no driver, a driver too old for
// the runtime (with both versions), no card, or no card that CUDA_VISIBLE_DEVICES leaves visible.
std::string WhyNoCuda();

// WhyNoCuda for given facts: the versions, the status of cudaGetDeviceCount and its text, the
// number of devices that it counted, and the value of CUDA_VISIBLE_DEVICES (null: not set).
std::string WhyNoCuda(const CudaVersionPair& versions, int status, const std::string& text,
                      int devices, const char* visible);

struct Card {
  int index = 0;  // among the visible ones
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  std::size_t memory_bytes = 0;
  std::string uuid;  // 32 hexadecimal digits: tells cards of all hosts apart
};

// Throws Error{kUnsupported}, "this machine has no CUDA device: ...", if no device has that index.
Card CardOf(int index);

}  // namespace sparfuse
