#include "core/feedback/returned.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "core/base/error.hpp"

namespace sparfuse {

std::size_t AddReturned(const SparsePayload& returned, Range part, std::span<float> residual) {
  assert(returned.indices.size() == returned.values.size());
  assert(residual.empty() || residual.size() == part.size());
  const auto begin = returned.indices.begin();
  const auto first = std::lower_bound(begin, returned.indices.end(), part.begin);
  auto it = first;
  for (; it != returned.indices.end() && *it < part.end; ++it) {
    if (*it < part.begin || (it != first && *it <= it[-1])) {
      SPARFUSE_THROW(kComm, "returned elements: index " + std::to_string(*it) + " at place " +
                                std::to_string(it - begin) +
                                ": expected strictly increasing indices");
    }
    if (!residual.empty()) {
      residual[*it - part.begin] += returned.values[static_cast<std::size_t>(it - begin)];
    }
  }
  return static_cast<std::size_t>(it - first);
}

}  // namespace sparfuse
