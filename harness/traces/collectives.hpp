// Tells collectives and types of values by their names in the profiler's fields and in kernels.
#pragma once

#include <optional>
#include <string_view>

namespace sparfuse::harness {

// Bytes of a value of the profiler's or gloo's type; none for an unknown one.
std::optional<int> BytesOfType(std::string_view type);

// Whether a kernel of this name is a collective of NCCL, RCCL or MSCCL.
bool IsCollectiveKernel(std::string_view name);

// The collective of a kernel, called as in the profiler's fields, for events without these fields;
// "" if its name has none.
const char* CollectiveOfKernel(std::string_view name);

bool IsBroadcast(std::string_view collective);

// No gradient has such a type; DDP's map of the parameters that were used has.
bool IsWhole(std::string_view type);

// Treats "allreduce", "all_reduce" and "allreduce_coalesced" as one collective.
bool IsAllReduce(std::string_view collective);

// Whether the collective shows a model that is sharded or split over ranks.
bool IsSharded(std::string_view collective);

// The collective of an operator on the host: "_reduce_scatter_base_" of
// "c10d::_reduce_scatter_base_".
std::string_view CollectiveOfCall(std::string_view name);

}  // namespace sparfuse::harness
