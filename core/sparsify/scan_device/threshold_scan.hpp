// Prepares the scans of threshold sparsifiers on a device (device_scan.hpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/sparsify/scan/corrected.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {

// For a pass that measures and collects nothing.
inline ScanOptions NothingCollected() {
  ScanOptions options;
  options.lo = kInfinityKey;
  options.capacity = 1;
  return options;
}

// How many candidates to collect so that what any threshold selects, if its count is k to within
// CountTolerance, is among them.
inline std::size_t NeededToCorrect(std::size_t n, std::size_t k) {
  return std::min(k + CountTolerance(k) + 1, n);
}

// For a scan after which SendReaching sends what is above an estimate if that is k to within
// CountTolerance, else the k largest.
inline ScanOptions Correcting(std::size_t n, std::size_t k, WarmWords* warm) {
  const std::size_t tolerance = CountTolerance(k);
  ScanOptions options;
  options.wanted = NeededToCorrect(n, k);
  options.warm = warm;
  options.capacity = CandidateCapacity(n, options.wanted);
  options.least = static_cast<std::uint32_t>(k - tolerance);
  options.most = static_cast<std::uint32_t>(k + tolerance);
  options.estimate_may_miss = true;
  return options;
}

// For a scan after which SendReaching sends everything that reaches a key, unless that is nothing
// or more than the slot holds.
inline ScanOptions Reaching(std::size_t n, std::size_t k, std::uint32_t key,
                            const DeviceSlot& slot) {
  ScanOptions options;
  options.lo = key;
  options.key = key;
  options.capacity = std::min(n, std::max(slot.capacity, CandidateCapacity(n, k)));
  options.least = 1;
  options.most = static_cast<std::uint32_t>(slot.capacity);
  return options;
}

// The same where the key is a word on the device.
inline ScanOptions Reaching(std::size_t n, std::size_t k, const std::uint32_t* key,
                            const DeviceSlot& slot) {
  ScanOptions options = Reaching(n, k, 0u, slot);
  options.bound = key;
  return options;
}

}  // namespace sparfuse
