#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baselines/demo/chunked_dct.hpp"
#include "baselines/demo/demo.hpp"
#include "baselines/sparcml/sparcml.hpp"
#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::size_t kIndexBits = 12;

struct DemoOptions {
  std::size_t kept = 32;
  std::size_t tile = 64;
  TileRule rule = TileRule::kShort;
  bool by_senders = false;
};

DemoOptions ReadDemoOptions(const Options& resolved) {
  return {
      .kept = static_cast<std::size_t>(IntOption(resolved, "k")),
      .tile = static_cast<std::size_t>(IntOption(resolved, "tile")),
      .rule = StringOption(resolved, "tiles") == "divisor" ? TileRule::kDivisor : TileRule::kShort,
      .by_senders = StringOption(resolved, "combine") == "senders"};
}

struct DemoPart {
  ExchangedTensor tensor;
  ChunkedDct dct;
};
std::vector<DemoPart> DemoPartsOf(const ExchangeShape& shape, const DemoOptions& options) {
  std::vector<DemoPart> parts;
  for (const ExchangedTensor& tensor : TensorsOf(shape)) {
    parts.push_back({tensor, {tensor.shape, tensor.numel, options.tile, options.rule}});
  }
  return parts;
}

std::size_t CountOf(std::span<const DemoPart> parts, std::size_t kept) {
  std::size_t count = 0;
  for (const DemoPart& part : parts) count += part.dct.Kept(kept);
  return count;
}

// Returns the bytes of the indices, after which the values begin.
std::size_t IndexBytes(std::size_t count) {
  return (count * kIndexBits + 31) / 32 * sizeof(std::uint32_t);
}

void PutIndex(std::span<std::byte> bits, std::size_t at, std::uint32_t index) {
  const std::size_t byte = at * kIndexBits / 8;
  const std::uint32_t shifted = index << (at % 2 * 4);
  bits[byte] |= static_cast<std::byte>(shifted & 0xff);
  bits[byte + 1] |= static_cast<std::byte>(shifted >> 8);
}

std::uint32_t GetIndex(std::span<const std::byte> bits, std::size_t at) {
  const std::size_t byte = at * kIndexBits / 8;
  const auto pair =
      static_cast<std::uint32_t>(bits[byte]) | static_cast<std::uint32_t>(bits[byte + 1]) << 8;
  return (pair >> (at % 2 * 4)) & 0xfff;
}

// The state of one range on one rank.
class Coefficients final : public CollectiveState {
 public:
  Coefficients(const ExchangeShape& shape, std::size_t ranks, const DemoOptions& options)
      : options_(options),
        parts_(DemoPartsOf(shape, options)),
        count_(CountOf(parts_, options.kept)),
        payloads_(ranks * CoefficientBytes(count_)),
        out_(shape.elements) {
    std::size_t largest = 0;
    for (const DemoPart& part : parts_) largest = std::max(largest, part.tensor.numel);
    transformed_ = Buffer<float>(largest);
    if (options.by_senders) senders_.resize(largest);
  }

  std::span<float> out() const { return out_.host(); }
  std::size_t payload_bytes() const { return CoefficientBytes(count_); }
  std::span<std::byte> payloads() const { return payloads_.host(); }

  // Writes this rank's payload and takes its coefficients out of x.
  void Select(std::span<float> x, std::size_t rank) {
    const auto payload = payloads().subspan(rank * payload_bytes(), payload_bytes());
    std::ranges::fill(payload, std::byte{0});
    const std::span<std::byte> bits = payload.first(IndexBytes(count_));
    std::byte* to = payload.data() + bits.size();
    std::size_t at = 0;
    for (const DemoPart& part : parts_) {
      const std::span<float> own = x.subspan(part.tensor.begin, part.tensor.numel);
      const std::span<float> coefficients = transformed_.host().first(own.size());
      part.dct.Forward(own, coefficients);
      part.dct.ForTiles([&](std::size_t begin, std::size_t size) {
        const auto tile = coefficients.subspan(begin, size);
        for (const std::uint32_t index : LargestOf(tile)) {
          PutIndex(bits, at++, index);
          to = std::copy_n(reinterpret_cast<const std::byte*>(&tile[index]), sizeof(float), to);
        }
      });
      const std::span<float> sent = out().subspan(part.tensor.begin, own.size());
      part.dct.Inverse(coefficients, sent);
      for (std::size_t i = 0; i < own.size(); ++i) own[i] -= sent[i];
    }
  }

  void Sum(std::size_t ranks) {
    std::size_t first = 0;
    for (const DemoPart& part : parts_) {
      const std::span<float> sums = transformed_.host().first(part.tensor.numel);
      std::ranges::fill(sums, 0.0f);
      std::ranges::fill(senders_, std::uint32_t{0});
      for (std::size_t rank = 0; rank < ranks; ++rank) Add(part, rank, first, sums);
      first += part.dct.Kept(options_.kept);
      for (std::size_t i = 0; options_.by_senders && i < sums.size(); ++i) {
        // collectives give sums: the mean over senders, times the number of ranks
        if (senders_[i] > 1) sums[i] /= static_cast<float>(senders_[i]);
        sums[i] *= static_cast<float>(ranks);
      }
      part.dct.Inverse(sums, out().subspan(part.tensor.begin, part.tensor.numel));
    }
  }

 private:
  // Returns the ascending indices of a tile's largest magnitudes; ties go to lower indices. Zeroes
  // the other elements.
  std::span<const std::uint32_t> LargestOf(std::span<float> tile) {
    const std::size_t kept = std::min(options_.kept, tile.size());
    keys_.resize(tile.size());
    for (std::size_t i = 0; i < tile.size(); ++i) {
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(std::fabs(tile[i]));
      keys_[i] = std::uint64_t{magnitude} << 32 | static_cast<std::uint32_t>(~i);
      if (std::isfinite(tile[i])) continue;
      SPARFUSE_THROW(kNumeric,
                     "demo-coefficients: the transform of a momentum overflows; expected smaller "
                     "gradients");
    }
    const auto middle = keys_.begin() + static_cast<std::ptrdiff_t>(kept);
    if (kept < keys_.size()) std::nth_element(keys_.begin(), middle, keys_.end(), std::greater<>());
    chosen_.clear();
    for (auto key = keys_.begin(); key != middle; ++key) {
      chosen_.push_back(~static_cast<std::uint32_t>(*key));
    }
    std::for_each(middle, keys_.end(),
                  [&](std::uint64_t key) { tile[~static_cast<std::uint32_t>(key)] = 0; });
    std::ranges::sort(chosen_);
    return chosen_;
  }

  // first: the number of the part's first element in a payload.
  void Add(const DemoPart& part, std::size_t rank, std::size_t first, std::span<float> sums) {
    const auto payload = payloads().subspan(rank * payload_bytes(), payload_bytes());
    const std::size_t values = IndexBytes(count_);
    std::size_t at = first;
    part.dct.ForTiles([&](std::size_t begin, std::size_t size) {
      std::uint32_t least = 0;
      for (std::size_t k = std::min(options_.kept, size); k > 0; --k, ++at) {
        const std::uint32_t index = GetIndex(payload, at);
        if (index < least || index >= size) {
          SPARFUSE_THROW(kComm, "demo-coefficients: payload of rank " + std::to_string(rank) +
                                    ": index " + std::to_string(index) + " in a tile of " +
                                    std::to_string(size) +
                                    " coefficients; expected ascending indices below that number");
        }
        least = index + 1;
        float value = 0;
        std::memcpy(&value, payload.data() + values + at * sizeof value, sizeof value);
        sums[begin + index] += value;
        if (options_.by_senders) ++senders_[begin + index];
      }
    });
  }

  DemoOptions options_;
  std::vector<DemoPart> parts_;
  std::size_t count_;
  Buffer<std::byte> payloads_;  // of all ranks
  Buffer<float> out_;
  Buffer<float> transformed_;           // of one tensor
  std::vector<std::uint32_t> senders_;  // of each coefficient
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> chosen_;
};

class Demo final : public Collective {
 public:
  explicit Demo(const DemoOptions& options) : options_(options) {}

  std::unique_ptr<CollectiveState> MakeState(const ExchangeShape& shape,
                                             const Topology& topology) const override {
    return std::make_unique<Coefficients>(shape, static_cast<std::size_t>(topology.ranks),
                                          options_);
  }

  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    auto& state = static_cast<Coefficients&>(*buffers.state);
    const auto ranks = static_cast<std::size_t>(communicator.size());
    co_await OffThread(buffers, [&] {
      state.Select(buffers.accumulated, static_cast<std::size_t>(communicator.rank()));
    });
    const std::vector<std::uint64_t> begins = EqualBlocks(ranks, state.payload_bytes());
    co_await GatherBlocks(communicator, state.payloads(), begins, tag);
    co_await OffThread(buffers, [&] { state.Sum(ranks); });
    buffers.sums = state.out();
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    const auto ranks = static_cast<std::size_t>(topology.ranks);
    const std::vector<DemoPart> parts = DemoPartsOf(sizes.shape, options_);
    const std::size_t count = CountOf(parts, options_.kept);
    Round work{.messages = 0, .link = SlowestLink(topology)};
    for (const DemoPart& part : parts) {
      work[Work::kMultiply] += part.dct.Products();
      work[Work::kSelect] += part.dct.elements();
    }
    RoundPlan plan;
    plan.per_rank.resize(ranks);
    plan.rounds.push_back(work);
    AddGatherRounds(EqualBlocks(ranks, CoefficientBytes(count)), topology, plan);
    work[Work::kMultiply] *= 2;  // the transforms back: the sent coefficients, and the sums
    work[Work::kSelect] = 0;
    work[Work::kMerge] = ranks * count;
    plan.rounds.push_back(work);
    plan.sums = sizes.shape.elements;
    plan.dense_sums = true;
    return plan;
  }

 private:
  DemoOptions options_;
};

}  // namespace

std::size_t CoefficientBytes(std::size_t count) {
  return IndexBytes(count) + count * sizeof(float);
}

CollectiveDescriptor DemoCoefficients() {
  CollectiveDescriptor descriptor;
  descriptor.name = "demo-coefficients";
  descriptor.source = "Peng, Quesnelle & Kingma, DeMo, arXiv 2411.19870, Algorithm 1";
  descriptor.revision = 1;
  descriptor.payload = PayloadKind::kSparse;
  descriptor.make = [](const Options& options) -> std::unique_ptr<Collective> {
    return std::make_unique<Demo>(ReadDemoOptions(options));
  };
  descriptor.host_memory = true;
  descriptor.options = {
      WholeOption("k", 32, 1, kMostOfTileSide * kMostOfTileSide,
                  "coefficients of a tile that are sent; all of a smaller tile"),
      WholeOption("tile", 64, 1, kMostOfTileSide,
                  "elements of a tile's side, or of the whole tile if a tensor has one dimension"),
      ChoiceOption("tiles", "short", {"short", "divisor"},
                   "how a dimension is cut: the last tile is shorter, or all are of the largest "
                   "size up to `tile` that divides it"),
      ChoiceOption("combine", "ranks", {"ranks", "senders"},
                   "divisor of a sum of coefficients: the number of ranks, or of ranks that sent "
                   "the coefficient")};
  descriptor.traits = [](const Options&) {
    CollectiveTraits traits;
    traits.sums = traits.selects = traits.sizes_itself = traits.by_tensor = true;
    // Mass is conserved up to the rounding of a transform, which scales with the largest elements
    // of a tile. Single elements do not show it.
    traits.mass = Conservation::kLost;
    return traits;
  };
  descriptor.summary =
      "the largest coefficients of cosine transforms, gathered by all ranks, which transform their "
      "sum back";
  descriptor.deviations =
      "Sums are divided by the ranks; combine = \"senders\" divides each coefficient by the number "
      "of ranks that sent it, as the published code does. The last tile of a dimension is shorter; "
      "tiles = \"divisor\" is the published code's rule. An index has 12 bits.";
  return descriptor;
}

}  // namespace sparfuse::baselines
