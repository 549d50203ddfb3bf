// Maps memory that the ranks of a host share.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include "core/transport/communicator.hpp"

namespace sparfuse {

// Has no name in any file system: it ends with the last process that has it mapped, however that
// ends, and leaves nothing behind.
class SharedMemory {
 public:
  // Collective over `world`, whose ranks may be threads or processes, and blocking: `deadline`
  // bounds each wait. Zeroed; rank 0 calls `prepare` on it before others see it. Throws
  // Error{kUnsupported} on all ranks where one cannot map the memory of rank 0 (another host, or a
  // container of its own), Error{kTimeout} for a rank that does not arrive.
  SharedMemory(Communicator& world, std::size_t bytes,
               const std::function<void(std::byte*)>& prepare, std::chrono::milliseconds deadline);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  void Offer(Communicator& world, const std::function<void(std::byte*)>& prepare,
             std::chrono::milliseconds deadline);
  void Take(Communicator& world, std::chrono::milliseconds deadline);

  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace sparfuse
