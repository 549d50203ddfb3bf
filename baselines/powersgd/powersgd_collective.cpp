// Makes PowerSGD a method: collectives that send two thin factors of each accumulated matrix, each
// factor summed by a dense all-reduce, of floats or of blocks that share a scale.
//
// Source:      T. Vogels, S. P. Karimireddy & M. Jaggi, PowerSGD, NeurIPS 2019, algorithms 1 and 2.
// Deviations:  stated in the descriptor.
//
// For every unit of a plan, with the accumulated x = gradient + residual of its tensors:
//
//   P = x Q of each matrix, side by side with all elements of the tensors that are no matrices
//   all-reduce of these; P becomes the mean, with orthonormal columns
//   Q = x' P of each matrix
//   all-reduce of Q; Q becomes the mean
//   applied: P Q', the same on all ranks; x - P Q' stays as the residual
//
// Both all-reduces are rings or of blocks (core/collective/block_allreduce.hpp), which give all
// ranks equal bits. The rounding error of a block of factors stays in the residual, for P Q' is of
// the factors as they arrived. The work on factors runs beside the communication thread.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "baselines/powersgd/powersgd.hpp"
#include "core/collective/algorithms.hpp"
#include "core/collective/block_allreduce.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse::baselines {
namespace {

// Floats of the two all-reduces, and number of multiplications.
struct Sizes {
  std::size_t first = 0;
  std::size_t second = 0;
  std::size_t products = 0;
};
Sizes FloatsOf(const ExchangeShape& shape, int rank) {
  Sizes sizes;
  for (const ExchangedTensor& tensor : TensorsOf(shape)) {
    if (!PowerSgd::Compresses(tensor.shape, rank)) {
      sizes.first += tensor.numel;
      continue;
    }
    const LowRankShape matrix = LowRankShapeOf(tensor.shape, rank);
    sizes.first += matrix.rank * matrix.rows;
    sizes.second += matrix.rank * matrix.cols;
    sizes.products += 3 * matrix.rank * tensor.numel;  // P, Q, and their product
    // Makes P's columns orthonormal: two norms and a scaling of each column, and twice a product
    // and a difference with each column before it.
    sizes.products += matrix.rank * (2 * matrix.rank + 1) * matrix.rows;
  }
  return sizes;
}

// The state of one range's tensors on one rank.
class Factors final : public CollectiveState {
 public:
  Factors(const ExchangeShape& shape, int rank, std::uint64_t seed)
      : sizes_(FloatsOf(shape, rank)),
        first_(sizes_.first),
        second_(sizes_.second),
        out_(shape.elements) {
    for (const ExchangedTensor& tensor : TensorsOf(shape)) {
      Part part{tensor, {}};
      if (PowerSgd::Compresses(tensor.shape, rank)) part.matrix.emplace(tensor.shape, rank, seed);
      parts_.push_back(std::move(part));
    }
  }

  // P is made anew from Q in each step.
  void Exchange(StateNumbers& numbers) override {
    for (const Part& part : parts_) {
      if (part.matrix) numbers.All(part.matrix->q());
    }
  }

  std::span<float> first() const { return first_.host(); }
  std::span<float> second() const { return second_.host(); }
  std::span<const float> out() const { return out_.host(); }

  void ComputeP(std::span<const float> x, std::uint64_t step) {
    float* to = first_.data();
    for (Part& part : parts_) {
      const std::span<const float> own = Of(x, part);
      if (!part.matrix) {
        to = std::copy(own.begin(), own.end(), to);
        continue;
      }
      part.matrix->ComputeP(
          context_, Source(own),
          {.id = part.tensor.id, .name = {}, .shape = part.tensor.shape, .step = step});
      to = std::copy(part.matrix->p().begin(), part.matrix->p().end(), to);
    }
  }

  void ComputeQ(std::span<const float> x, float ranks) {
    const float* from = first_.data();
    float* to = second_.data();
    for (Part& part : parts_) {
      if (!part.matrix) {
        std::copy_n(from, part.tensor.numel, out_.data() + part.tensor.begin);
        from += part.tensor.numel;
        continue;
      }
      from = TakeMean(from, part.matrix->p(), ranks);
      part.matrix->Orthonormalize();
      part.matrix->ComputeQ(context_, Source(Of(x, part)));
      to = std::copy(part.matrix->q().begin(), part.matrix->q().end(), to);
    }
  }

  // Leaves the residual in x.
  void Reconstruct(std::span<float> x, float ranks) {
    const float* from = second_.data();
    for (Part& part : parts_) {
      const std::span<float> rest = x.subspan(part.tensor.begin, part.tensor.numel);
      if (!part.matrix) {
        std::fill(rest.begin(), rest.end(), 0.0f);
        continue;
      }
      from = TakeMean(from, part.matrix->q(), ranks);
      const std::span<float> out = out_.host().subspan(part.tensor.begin, part.tensor.numel);
      part.matrix->Reconstruct(context_, Source(rest), out);
      for (std::size_t i = 0; i < rest.size(); ++i) {
        rest[i] -= out[i];
        out[i] *= ranks;  // collectives give sums
      }
    }
  }

 private:
  struct Part {
    ExchangedTensor tensor;
    std::optional<PowerSgd> matrix;  // nothing: the tensor is sent unfactored
  };

  static std::span<const float> Of(std::span<const float> x, const Part& part) {
    return x.subspan(part.tensor.begin, part.tensor.numel);
  }
  static SelectSource Source(std::span<const float> x) { return {{x.data(), x.size(), {}}, {}}; }
  static const float* TakeMean(const float* from, std::span<float> to, float ranks) {
    for (float& value : to) value = *from++ / ranks;
    return from;
  }

  std::vector<Part> parts_;
  Sizes sizes_;
  Buffer<float> first_, second_, out_;
  ThreadPool alone_{1};
  Workspace workspace_;
  QuantizeContext context_{&alone_, &workspace_, 0};
};

class Collecting final : public Collective {
 public:
  Collecting(int rank, std::uint64_t seed, const std::optional<BlockSum>& blocks)
      : rank_(rank), seed_(seed), blocks_(blocks) {}

  std::unique_ptr<CollectiveState> MakeState(const ExchangeShape& shape,
                                             const Topology&) const override {
    return std::make_unique<Factors>(shape, rank_, seed_);
  }

  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    auto& factors = static_cast<Factors&>(*buffers.state);
    const auto ranks = static_cast<float>(communicator.size());
    co_await OffThread(buffers, [&] { factors.ComputeP(buffers.accumulated, buffers.shape.step); });
    co_await Sum(communicator, buffers, factors.first(), tag);
    co_await OffThread(buffers, [&] { factors.ComputeQ(buffers.accumulated, ranks); });
    co_await Sum(communicator, buffers, factors.second(), tag + 4);
    co_await OffThread(buffers, [&] { factors.Reconstruct(buffers.accumulated, ranks); });
    buffers.sums = factors.out();
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    const Sizes floats = FloatsOf(sizes.shape, rank_);
    RoundPlan plan = SumRounds(floats.first, topology);
    AddRounds(SumRounds(floats.second, topology), plan);
    if (plan.rounds.empty()) {
      plan.rounds.push_back({.repeat = 1, .messages = 0, .link = SlowestLink(topology)});
    }
    plan.rounds.front()[Work::kMultiply] = floats.products;
    plan.sums = sizes.shape.elements;
    plan.dense_sums = true;
    return plan;
  }

 private:
  // Uses tags `tag` to `tag` + 3.
  Task Sum(Communicator& communicator, ExchangeBuffers& buffers, std::span<float> data,
           int tag) const {
    return blocks_ ? RunBlockAllReduce(*blocks_, communicator, buffers, data, tag)
                   : RunRingAllReduce(communicator, data, tag);
  }
  RoundPlan SumRounds(std::size_t floats, const Topology& topology) const {
    return blocks_ ? BlockAllReduceRounds(*blocks_, floats, topology)
                   : RingAllReduceRounds(floats, topology);
  }

  int rank_;
  std::uint64_t seed_;
  std::optional<BlockSum> blocks_;
};

BlockCode CodeOf(const std::string& name) {
  return name == "int8" ? BlockCode::kInt8 : name == "int4" ? BlockCode::kInt4 : BlockCode::kFp8;
}

CollectiveDescriptor DescriptorOf(std::string_view name, bool blocks) {
  CollectiveDescriptor descriptor;
  descriptor.name = name;
  descriptor.source = PowerSgdDescriptor().paper;
  descriptor.revision = PowerSgdDescriptor().revision;
  descriptor.payload = PayloadKind::kSparse;
  descriptor.make = [blocks](const Options& options) -> std::unique_ptr<Collective> {
    std::optional<BlockSum> sum;
    if (blocks) sum = BlockSumOf(CodeOf(StringOption(options, "codes")), options);
    return std::make_unique<Collecting>(static_cast<int>(IntOption(options, "rank")),
                                        static_cast<std::uint64_t>(IntOption(options, "seed")),
                                        sum);
  };
  descriptor.host_memory = true;
  descriptor.options = PowerSgdDescriptor().options;
  descriptor.options.push_back(
      WholeOption("seed", 1, 0, 1e9, "seed of the first Q, equal on all ranks"));
  descriptor.traits = [blocks](const Options&) {
    CollectiveTraits traits;
    traits.sums = traits.selects = traits.sizes_itself = traits.by_tensor = true;
    traits.mass = blocks ? Conservation::kLost : Conservation::kRounded;
    return traits;
  };
  return descriptor;
}

}  // namespace

CollectiveDescriptor PowerSgdFactors() {
  CollectiveDescriptor descriptor = DescriptorOf("powersgd-factors", false);
  descriptor.summary = "two thin factors of each matrix, each by a dense all-reduce";
  descriptor.deviations = PowerSgdDescriptor().deviations;
  return descriptor;
}

CollectiveDescriptor PowerSgdBlocks() {
  CollectiveDescriptor descriptor = DescriptorOf("powersgd-blocks", true);
  descriptor.options.push_back(ChoiceOption("codes", "int8", {"int8", "int4", "fp8"},
                                            "form of the values of blocks that share a scale"));
  std::ranges::move(BlockSumOptions(), std::back_inserter(descriptor.options));
  descriptor.refuses = WhyNoBlockSum;
  descriptor.summary = "two thin factors of each matrix, each by an all-reduce of blocks";
  static const std::string kDeviations =
      std::string(PowerSgdDescriptor().deviations) +
      " Factors, and tensors that are sent dense, travel in blocks that share a scale. The error "
      "of "
      "a factor's rounding stays in the residual; that of other tensors is lost.";
  descriptor.deviations = kDeviations;
  return descriptor;
}

}  // namespace sparfuse::baselines
