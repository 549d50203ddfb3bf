// Calls the backend's own dense all-reduce, for measured mode. Its traffic cannot be observed from
// outside. It is counted as a ring, the least traffic of a bandwidth-optimal algorithm.
#include <array>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse {
namespace {

class Native final : public CountedAsRing {
 public:
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int /*tag*/) const override {
    if (!communicator.has_native_all_reduce()) {
      SPARFUSE_THROW(kUnsupported, "native-allreduce: transport \"", communicator.backend(),
                     "\" has no all-reduce of its own; use ring-allreduce");
    }
    co_await Complete(communicator.NativeAllReduceSum(buffers.dense));
  }
};

}  // namespace

CollectiveDescriptor NativeAllReduce() {
  static constexpr std::array<std::string_view, 2> kBackends{"mpi", "nccl"};
  return {.name = "native-allreduce",
          .source = "the backend's own (MPI_Iallreduce, ncclAllReduce)",
          .revision = 1,
          .payload = PayloadKind::kDense,
          .make = MakePlain<Native>,
          .native = true,
          .backends = kBackends,
          .of_library = true,
          .summary = "dense sums by the backend's own all-reduce"};
}

}  // namespace sparfuse
