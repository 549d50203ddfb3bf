// Calls the backend's own dense all-reduce, for measured mode. What it sends cannot be seen from
// outside: it is counted as a ring, which is the least that a bandwidth-optimal algorithm sends.
#include <array>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse {
namespace {

Task Run(Communicator& communicator, ExchangeBuffers& buffers, int /*tag*/) {
  if (!communicator.has_native_all_reduce()) {
    SPARFUSE_THROW(kUnsupported, "native-allreduce: transport \"" +
                                     std::string(communicator.backend()) +
                                     "\" has no all-reduce of its own; use ring-allreduce");
  }
  co_await Complete(communicator.NativeAllReduceSum(buffers.dense));
}

}  // namespace

Collective NativeAllReduce() {
  static constexpr std::array<std::string_view, 2> kBackends{"mpi", "nccl"};
  return {"native-allreduce",
          "the backend's own (MPI_Iallreduce, ncclAllReduce)",
          1,
          PayloadKind::kDense,
          true,
          &Run,
          &RingAllReduceRounds,
          kBackends};
}

}  // namespace sparfuse
