// Holds the common parts of Ok-Topk's tests.
#pragma once

#include <cstdint>
#include <memory>

#include "baselines/registry.hpp"
#include "core/payload/payload.hpp"

namespace sparfuse::testing {

inline constexpr std::uint64_t kBytes = kSparseElementBytes;

inline std::unique_ptr<Collective> OkTopk(const Options& options = {}) {
  return MakeCollective(FindCollective("oktopk"), options);
}

}  // namespace sparfuse::testing
