#include "core/feedback/returned.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "core/base/error.hpp"
#include "core/device/launch.hpp"
#include "core/feedback/returned_kernels.hpp"

namespace sparfuse {

std::size_t AddReturned(const SparsePayload& returned, Range part, std::span<float> residual) {
  assert(returned.indices.size() == returned.values.size());
  assert(residual.empty() || residual.size() == part.size());
  const auto begin = returned.indices.begin();
  const auto first = std::lower_bound(begin, returned.indices.end(), part.begin);
  auto it = first;
  for (; it != returned.indices.end() && *it < part.end; ++it) {
    if (*it < part.begin || (it != first && *it <= it[-1])) {
      SPARFUSE_THROW(kComm, "returned elements: index ", *it, " at place ", it - begin,
                     ": expected strictly increasing indices");
    }
    if (!residual.empty()) {
      residual[*it - part.begin] += returned.values[static_cast<std::size_t>(it - begin)];
    }
  }
  return static_cast<std::size_t>(it - first);
}

void AddReturnedOnDevice(const Stream& stream, const DevicePayload& returned, Range part,
                         DeviceSpan<float> residual, std::uint32_t* taken, std::uint64_t* fault) {
  assert(residual.size == 0 || residual.size == part.size());
  using Kernel = gpu::AddReturnedElements;
  Kernel kernel{{},    part.begin, part.end, residual.size == 0 ? nullptr : residual.data,
                taken, fault};
  kernel.payload.size = 1;
  kernel.payload.indices[0] = returned.indices;
  kernel.payload.values[0] = returned.values;
  kernel.payload.counts[0] = static_cast<std::uint32_t>(returned.count);
  kernel.payload.count_words[0] = returned.count_word;
  gpu::Launch(stream, (returned.count + Kernel::kPerBlock - 1) / Kernel::kPerBlock, kernel);
}

}  // namespace sparfuse
