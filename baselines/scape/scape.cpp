#include "baselines/scape/scape.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/random_stream.hpp"
#include "core/base/thread_pool.hpp"
#include "core/collective/algorithms.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse::baselines {
namespace {

struct MaskOptions {
  float beta = 0.9f;
  double random = 0.1;
  std::uint64_t seed = 1;
};

MaskOptions ReadMaskOptions(const Options& resolved) {
  return {.beta = static_cast<float>(DoubleOption(resolved, "beta")),
          .random = DoubleOption(resolved, "random"),
          .seed = static_cast<std::uint64_t>(IntOption(resolved, "seed"))};
}

const Sparsifier& TopK() {
  static const auto kTopK = [] {
    const SparsifierDescriptor& found = FindSparsifier("topk");
    return found.make(ResolveOptions("sparsifier topk", found.options, {}), 0);
  }();
  return *kTopK;
}

// The state of one range on one rank.
class Masked final : public CollectiveState {
 public:
  Masked(const ExchangeShape& shape, int ranks, const MaskOptions& options)
      : options_(options), ranks_(ranks), moment_(shape.elements) {}

  Arrays Kept() override { return {{"moment", moment_.host()}}; }
  bool begun() const override { return begun_; }
  void GoOn() override { begun_ = true; }  // the next run makes its mask from the moment
  ExchangeBuffers& values() { return values_; }

  // Takes the elements of the mask out of x; they are summed next.
  void Take(std::span<float> x, const ExchangeShape& shape) {
    MakeMask(shape.kept, shape.step);
    const std::size_t bytes = mask_.size() * sizeof(std::uint32_t);
    if (payload_.size() < 2 * bytes) payload_ = Buffer<std::byte>(2 * bytes);
    std::memcpy(payload_.data(), mask_.data(), bytes);
    auto* const values = reinterpret_cast<float*>(payload_.data() + bytes);
    for (std::size_t i = 0; i < mask_.size(); ++i) values[i] = std::exchange(x[mask_[i]], 0.0f);
    values_.own = payload_.host().first(2 * bytes);
  }

  // Advances the moment by sums of all elements, [n], and makes the next step's mask.
  void AdvanceBy(std::span<const float> sums, const ExchangeShape& shape) {
    const float weight = Weight();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      moment_[i] = options_.beta * moment_[i] + weight * sums[i];
    }
    begun_ = true;
    MakeMask(shape.kept, shape.step + 1);
  }
  // The same by the sums of the mask's elements.
  void AdvanceByMask(const ExchangeShape& shape) {
    const float weight = Weight();
    for (float& value : moment_.host()) value *= options_.beta;
    for (const auto payload : values_.payloads) {
      const SparsePayload sums = ViewSparsePayload(payload);
      for (std::size_t i = 0; i < sums.indices.size(); ++i) {
        moment_[sums.indices[i]] += weight * sums.values[i];
      }
    }
    MakeMask(shape.kept, shape.step + 1);
  }

 private:
  float Weight() const { return (1.0f - options_.beta) / static_cast<float>(ranks_); }

  // Makes the mask of a step, unless it is made already.
  void MakeMask(std::size_t kept, std::uint64_t step) {
    if (made_for_ == std::pair(kept, step)) return;
    const std::size_t n = moment_.size();
    const std::size_t drawn = kept < n ? DrawnInStep(kept, options_.random, step) : 0;
    const std::size_t largest = kept - drawn;
    mask_.resize(largest);
    if (largest > 0) {
      values_room_.resize(largest);
      SelectCounters counters;
      const SelectContext context{&pool_, &workspace_, &counters, {}};
      Slot slot{{mask_.data(), largest, {}}, {values_room_.data(), largest, {}}, largest, 0};
      // A fraction that gives exactly so many elements.
      const double density =
          std::min(1.0, (static_cast<double>(largest) + 0.5) / static_cast<double>(n));
      TopK().Select(context, {{moment_.data(), n, {}}, {}}, density,
                    {0, "the moment of a unit", {}, step}, nullptr, slot);
      assert(slot.count == largest);
    }
    AddRandomPositions(n, drawn, options_.seed, step, mask_);
    made_for_ = {kept, step};
  }

  MaskOptions options_;
  int ranks_;
  Buffer<float> moment_;
  bool begun_ = false;
  std::vector<std::uint32_t> mask_;
  std::pair<std::size_t, std::uint64_t> made_for_{0, 0};  // elements, step; none are kept: no mask
  std::vector<float> values_room_;
  Buffer<std::byte> payload_;
  ExchangeBuffers values_;
  ThreadPool pool_{1};
  Workspace workspace_;
};

class Mask final : public Collective {
 public:
  explicit Mask(const MaskOptions& options) : options_(options) {}

  std::unique_ptr<CollectiveState> MakeState(const ExchangeShape& shape,
                                             const Topology& topology) const override {
    return std::make_unique<Masked>(shape, topology.ranks, options_);
  }

  // Notes whether everything was sent.
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    auto& state = static_cast<Masked&>(*buffers.state);
    const ExchangeShape shape = buffers.shape;
    buffers.seen = {state.begun() ? 0u : 1u};
    if (!state.begun()) {
      const std::span<std::byte> room = buffers.Keep(shape.elements * sizeof(float));
      const std::span<float> sums(reinterpret_cast<float*>(room.data()), shape.elements);
      std::ranges::copy(buffers.accumulated, sums.begin());
      std::ranges::fill(buffers.accumulated, 0.0f);
      co_await RunRingAllReduce(communicator, sums, tag);
      buffers.sums = sums;
      co_await OffThread(buffers, [&] { state.AdvanceBy(sums, shape); });
      co_return;
    }
    co_await OffThread(buffers, [&] { state.Take(buffers.accumulated, shape); });
    co_await Values().Run(communicator, state.values(), tag);
    buffers.payloads = state.values().payloads;
    co_await OffThread(buffers, [&] { state.AdvanceByMask(shape); });
  }

  void Expect(const OverlapModel& /*overlap*/, const Topology& /*topology*/,
              ExchangeSizes& sizes) const override {
    const std::vector<std::uint64_t> seen = {sizes.shape.step == 0 ? 1u : 0u};
    sizes.seen.assign(sizes.payload_bytes.size(), seen);
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    if (sizes.seen.size() != static_cast<std::size_t>(topology.ranks)) {
      SPARFUSE_THROW(kInternal, "moment-mask: sizes of " + std::to_string(sizes.seen.size()) +
                                    " ranks: expected sizes of " + std::to_string(topology.ranks));
    }
    const bool first = sizes.seen.front().front() == 1;
    const std::size_t n = sizes.shape.elements, kept = sizes.shape.kept;
    RoundPlan plan;
    plan.per_rank.resize(static_cast<std::size_t>(topology.ranks));
    Round work{.messages = 0, .link = SlowestLink(topology)};
    if (first) {
      AddRounds(RingAllReduceRounds(n, topology), plan);
    } else {
      work[Work::kMerge] = kept;
      plan.rounds.push_back(work);
      const std::vector<std::uint64_t> bytes(plan.per_rank.size(), kept * kSparseElementBytes);
      AddRounds(Values().Rounds(SizesOf(bytes), topology), plan);
      work.work = {};
    }
    work[Work::kAdd] = n;
    work[Work::kSelect] = n;
    plan.rounds.push_back(work);
    plan.sums = first ? n : kept;
    plan.dense_sums = first;
    return plan;
  }

 private:
  static const Collective& Values() {
    static const auto kValues = CoreCollective("shared-indices-allreduce");
    return *kValues;
  }

  MaskOptions options_;
};

}  // namespace

std::size_t DrawnInStep(std::size_t kept, double share, std::uint64_t step) {
  const double each = share * static_cast<double>(kept);
  const auto until = [&](std::uint64_t steps) {
    return static_cast<std::size_t>(each * static_cast<double>(steps));
  };
  return std::min(kept, until(step + 1) - until(step));
}

void AddRandomPositions(std::size_t n, std::size_t drawn, std::uint64_t seed, std::uint64_t step,
                        std::vector<std::uint32_t>& positions) {
  if (drawn == 0) return;
  constexpr std::size_t kWordBits = 64;
  std::vector<std::uint64_t> taken((n + kWordBits - 1) / kWordBits);
  const auto take = [&](std::uint64_t at) {  // whether it was free
    const std::uint64_t bit = std::uint64_t{1} << (at % kWordBits);
    std::uint64_t& word = taken[at / kWordBits];
    const bool free = (word & bit) == 0;
    word |= bit;
    return free;
  };
  for (const std::uint32_t position : positions) take(position);
  const RandomStream stream(seed, n, step);
  for (std::uint64_t draw = 0; drawn > 0; ++draw) {
    if (take(stream.Below(n, draw))) --drawn;
  }
  positions.clear();
  for (std::size_t word = 0; word < taken.size(); ++word) {
    for (std::uint64_t bits = taken[word]; bits != 0; bits &= bits - 1) {
      positions.push_back(static_cast<std::uint32_t>(word * kWordBits) +
                          static_cast<std::uint32_t>(std::countr_zero(bits)));
    }
  }
}

CollectiveDescriptor MomentMask() {
  CollectiveDescriptor descriptor;
  descriptor.name = "moment-mask";
  descriptor.source = "SCAPE, arXiv 2607.01678";
  descriptor.revision = 1;
  descriptor.payload = PayloadKind::kSparse;
  descriptor.make = [](const Options& options) -> std::unique_ptr<Collective> {
    return std::make_unique<Mask>(ReadMaskOptions(options));
  };
  descriptor.host_memory = true;
  descriptor.options = {
      NumberOption("beta", 0.9, 0, 0.99999, "the moment: m = beta m + (1 - beta) average"),
      NumberOption("random", 0.1, 0, 1,
                   "share of the selected elements that are drawn at random; 0: an element that "
                   "is not selected may never be sent again"),
      WholeOption("seed", 1, 0, 1e9, "seed of the drawn elements, equal on all ranks")};
  descriptor.traits = [](const Options&) {
    CollectiveTraits traits;
    traits.sums = traits.selects = traits.begins_dense = true;
    return traits;
  };
  descriptor.summary =
      "all-reduce of the elements whose averages have the largest first moments, which all ranks "
      "know";
  descriptor.deviations =
      "Each rank makes the mask of a unit by itself, at the end of the exchange of the step "
      "before. "
      "The first step is dense. A share of the elements is drawn at random.";
  return descriptor;
}

}  // namespace sparfuse::baselines
