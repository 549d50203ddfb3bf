// Registers Zen: its options, its expected sizes and its rounds.
#include "baselines/zen/zen.hpp"

#include <string>

#include "baselines/zen/zen_exchange.hpp"
#include "baselines/zen/zen_sizes.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse::baselines {
namespace {

ZenOptions OptionsOf(const Options& resolved) {
  const std::string& form = StringOption(resolved, "index_form");
  ZenOptions options;
  options.balance =
      StringOption(resolved, "balance") == "ranges" ? ZenBalance::kRanges : ZenBalance::kHash;
  options.form = form == "bitmap" ? FormChoice::kBitmap
                 : form == "coo"  ? FormChoice::kCoo
                                  : FormChoice::kAuto;
  options.node_first = BoolOption(resolved, "node_first");
  options.hierarchical = StringOption(resolved, "partition") == "hierarchical";
  options.slots_per_element = DoubleOption(resolved, "slots_per_element");
  options.serial_part = DoubleOption(resolved, "serial_part");
  options.probes = static_cast<int>(IntOption(resolved, "probes"));
  return options;
}

class Zen final : public Collective {
 public:
  explicit Zen(const ZenOptions& options) : options_(options) {}

  // Makes the lists, too, as they take long for a long range.
  std::unique_ptr<CollectiveState> MakeState(const ExchangeShape& shape,
                                             const Topology& topology) const override {
    auto state = std::make_unique<ZenState>(options_, static_cast<std::size_t>(topology.ranks));
    if (topology.ranks > 1 && state->lists != nullptr) state->lists->Covering(shape.elements);
    return state;
  }

  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    CheckGatherBuffers("zen", buffers, ranks);
    if (ranks == 1) {
      ZenSizes sizes;
      sizes.node_sum = sizes.summed = buffers.own.size() / kSparseElementBytes;
      buffers.payloads.assign(1, buffers.own);
      buffers.seen = sizes.Words();
      co_return;
    }
    std::unique_ptr<ZenState> own;
    auto* state = static_cast<ZenState*>(buffers.state);
    if (state == nullptr) {
      own = std::make_unique<ZenState>(options_, ranks);
      state = own.get();
    }
    co_await RunZen(options_, communicator, buffers, *state, tag);
  }

  void Expect(const OverlapModel& overlap, const Topology& topology,
              ExchangeSizes& sizes) const override {
    const ZenGrid grid = ZenGrid::Of(options_.node_first, topology);
    for (const ZenSizes& rank :
         ExpectedZenSizes(sizes, overlap, topology, grid, options_.balance, options_.form)) {
      sizes.seen.push_back(rank.Words());
    }
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    return ZenRounds(options_, sizes, topology);
  }

 private:
  ZenOptions options_;
};

std::string RefusesZen(const Options& resolved, const Topology& topology) {
  const bool ragged = topology.nodes() > 1 && topology.ranks % topology.ranks_per_node != 0;
  if (!BoolOption(resolved, "node_first") || !ragged) return "";
  return "with node_first needs equally many ranks on every node: ranks of equal local rank sum "
         "one part of the elements, but the last node lacks some";
}

}  // namespace

CollectiveDescriptor ZenCollective() {
  const auto number = [](const char* name, OptionValue fallback, double min, double max,
                         const char* meaning) {
    return OptionSpec{name, std::move(fallback), min, max, {}, meaning};
  };
  const auto choice = [](const char* name, std::vector<std::string> choices, const char* meaning) {
    return OptionSpec{name, choices.front(), 0, 0, std::move(choices), meaning};
  };
  return {
      .name = "zen",
      .source = "Wang et al., Zen, OSDI 2025",
      .revision = 1,
      .payload = PayloadKind::kSparse,
      .make = [](const Options& resolved) -> std::unique_ptr<Collective> {
        return std::make_unique<Zen>(OptionsOf(resolved));
      },
      .host_memory = true,
      .options =
          {choice("balance", {"hash", "ranges"},
                  "server that sums an element: by a hash of its index, or by contiguous ranges, "
                  "as a sparse parameter server"),
           choice("index_form", {"auto", "bitmap", "coo"},
                  "code of the indices of a server's sums: a bitmap over its list, indices, or for "
                  "each server the smaller of the two"),
           choice("partition", {"counting", "hierarchical"},
                  "how a rank splits its elements: by counting, or by hierarchical hashing as on "
                  "a device; the parts are equal"),
           FlagOption("node_first", false, "the ranks of a node aggregate before servers do"),
           number("slots_per_element", 2.0, 0.1, 100,
                  "with hierarchical hashing: slots of a parallel region for each of its elements"),
           number("serial_part", 0.1, 0.001, 10,
                  "with hierarchical hashing: slots of a serial region for each slot of a parallel "
                  "region"),
           number("probes", std::int64_t{3}, 1, kMostProbes,
                  "with hierarchical hashing: slots that an element tries")},
      .traits = [](const Options&) { return CollectiveTraits{.sums = true}; },
      .refuses = RefusesZen,
      .summary = "balanced parallelism: servers by a hash of the index, hash bitmaps with the sums",
      .deviations =
          "Constants of the hierarchical hashing are options, with the paper's values as we "
          "remember them. On the host, parts are found by counting, which is faster. A serial "
          "region that overflows is doubled and the split done again, which the paper leaves open. "
          "The hash is simple tabulation; the paper asks for a universal one. A server's head and "
          "its values are two messages. A server sends a bitmap if it has sums for more than 1 of "
          "32 of its elements, else indices. Within nodes each rank sums a part by the same hash, "
          "sparse."};
}

}  // namespace sparfuse::baselines
