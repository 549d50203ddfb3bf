#include "baselines/arc-topk/arc_topk.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/base/random_stream.hpp"
#include "core/coding/quantizers/quantize_kernels.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::size_t kMostColumns = 32;

struct ArcOptions {
  std::size_t columns = 4;
  bool by_averages = false;  // memory "ef21m"
  float eta = 0.1f;
  std::uint64_t seed = 1;
};

ArcOptions ReadArcOptions(const Options& resolved) {
  return {.columns = static_cast<std::size_t>(IntOption(resolved, "sketch")),
          .by_averages = StringOption(resolved, "memory") == "ef21m",
          .eta = static_cast<float>(DoubleOption(resolved, "eta")),
          .seed = static_cast<std::uint64_t>(IntOption(resolved, "seed"))};
}

struct Part {
  ExchangedTensor tensor;
  RowShape rows;
};
std::vector<Part> PartsOf(const ExchangeShape& shape) {
  std::vector<Part> parts;
  for (const ExchangedTensor& tensor : TensorsOf(shape)) {
    parts.push_back({tensor, {tensor.shape, tensor.numel}});
  }
  return parts;
}

// Returns whether all rows are sent; they then need no sketch.
bool IsWhole(const RowShape& rows, double density) { return rows.Kept(density) == rows.rows; }

// Returns a number close to normal, of variance 1: a sum of eight numbers of 16 bits.
float NormalAt(const RandomStream& stream, std::size_t i) {
  std::int64_t sum = -4 * 65535;
  for (const std::uint64_t number : {stream.At(2 * i), stream.At(2 * i + 1)}) {
    for (int part = 0; part < 64; part += 16) {
      sum += static_cast<std::int64_t>((number >> part) & 0xffff);
    }
  }
  return static_cast<float>(static_cast<double>(sum) / 53509.9);  // sqrt(8 * 2^32 / 12)
}

// The state of one range on one rank.
class Rows final : public CollectiveState {
 public:
  Rows(const ExchangeShape& shape, const ArcOptions& options)
      : options_(options), parts_(PartsOf(shape)) {
    std::size_t rows = 0, longest = 0;
    for (const Part& part : parts_) {
      rows += part.rows.rows;
      longest = std::max(longest, part.rows.length);
    }
    sketch_ = Buffer<float>(rows * options.columns);
    columns_ = Buffer<float>(longest * options.columns);
    if (!options.by_averages) return;
    average_ = Buffer<float>(shape.elements);
    told_ = Buffer<float>(shape.elements);
    sum_ = Buffer<float>(shape.elements);
  }

  Arrays Kept() override {
    if (!options_.by_averages) return {};
    return {{"average", average_.host()}, {"sent", told_.host()}, {"sum", sum_.host()}};
  }
  bool begun() const override { return begun_; }
  void GoOn() override { begun_ = true; }
  std::span<float> sum() const { return sum_.host(); }
  std::span<float> sketch() const { return sketch_.host().first(sketched_); }
  ExchangeBuffers& values() { return values_; }

  // Sends everything: the averages begin as the gradients, and nothing is left as a residual.
  void Begin(std::span<float> gradient) {
    for (const auto& to : {average_.host(), told_.host(), sum_.host()}) {
      std::ranges::copy(gradient, to.begin());
    }
    std::ranges::fill(gradient, 0.0f);
    begun_ = true;
  }

  // x, or with averages the gradient. Overwrites it with the values to select from.
  void Sketch(std::span<float> x, const ExchangeShape& shape) {
    if (options_.by_averages) Advance(x);
    sketched_ = 0;
    for (const Part& part : parts_) {
      if (IsWhole(part.rows, shape.density())) continue;
      float* const to = sketch_.data() + sketched_;
      SketchOf(part, x.subspan(part.tensor.begin, part.tensor.numel), shape.step, to);
      sketched_ += part.rows.rows * options_.columns;
    }
  }

  // Takes the rows that all ranks select out of x; they are summed next. sketch(): already summed.
  void Select(std::span<float> x, double density) {
    if (!std::ranges::all_of(sketch(), [](float value) { return std::isfinite(value); })) {
      SPARFUSE_THROW(
          kNumeric,
          "arc-rows: a sketch of the accumulated gradient overflows; expected smaller gradients");
    }
    indices_.clear();
    const float* from = sketch_.data();
    for (const Part& part : parts_) {
      const std::size_t size = part.rows.rows * options_.columns;
      const std::size_t kept = part.rows.Kept(density);
      if (IsWhole(part.rows, density)) {
        for (std::size_t row = 0; row < part.rows.rows; ++row) AddRow(part, row);
        continue;
      }
      for (const std::uint32_t row : LargestRows({from, size}, options_.columns, kept)) {
        AddRow(part, row);
      }
      from += size;
    }
    const std::size_t bytes = indices_.size() * sizeof(std::uint32_t);
    if (payload_.size() < 2 * bytes) payload_ = Buffer<std::byte>(2 * bytes);
    std::memcpy(payload_.data(), indices_.data(), bytes);
    auto* const values = reinterpret_cast<float*>(payload_.data() + bytes);
    for (std::size_t i = 0; i < indices_.size(); ++i) {
      values[i] = std::exchange(x[indices_[i]], 0.0f);
      if (options_.by_averages) told_[indices_[i]] += values[i];
    }
    values_.own = payload_.host().first(2 * bytes);
    if (options_.by_averages) std::ranges::fill(x, 0.0f);  // unsent: not added to gradients
  }

  // Adds the summed rows to the sum of all.
  void Take() {
    for (const auto payload : values_.payloads) {
      const SparsePayload sums = ViewSparsePayload(payload);
      for (std::size_t i = 0; i < sums.indices.size(); ++i) {
        sum_[sums.indices[i]] += sums.values[i];
      }
    }
  }

 private:
  // x: in, gradients; out, the averages less their part already sent.
  void Advance(std::span<float> x) {
    const float keep = 1.0f - options_.eta;
    for (std::size_t i = 0; i < x.size(); ++i) {
      average_[i] = keep * average_[i] + options_.eta * x[i];
      x[i] = average_[i] - told_[i];
    }
  }

  void SketchOf(const Part& part, std::span<const float> x, std::uint64_t step, float* to) {
    const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
    const std::size_t columns = options_.columns, length = part.rows.length;
    for (std::size_t c = 0; c < columns; ++c) {
      const RandomStream stream(RandomStream(options_.seed, part.tensor.id, step).At(c),
                                part.tensor.id, step);
      for (std::size_t j = 0; j < length; ++j) columns_[c * length + j] = NormalAt(stream, j);
    }
    const double scale = 1 / std::sqrt(static_cast<double>(columns));
    for (std::size_t row = 0; row < part.rows.rows;) {
      const std::size_t size = part.rows.LengthOf(row);
      // Rows taken at once must have one length.
      std::size_t many = std::min(kLowRankRows, part.rows.rows - row);
      if (part.rows.LengthOf(row + many - 1) != size) many = 1;
      double sums[kLowRankRows * kMostColumns] = {};
      kernels.row_dots(x.data() + row * length, length, many, size, columns_.data(), length,
                       columns, sums);
      for (std::size_t i = 0; i < many * columns; ++i) {
        to[row * columns + i] = static_cast<float>(scale * sums[i]);
      }
      row += many;
    }
  }

  void AddRow(const Part& part, std::size_t row) {
    const std::size_t begin = part.tensor.begin + row * part.rows.length;
    for (std::size_t i = 0; i < part.rows.LengthOf(row); ++i) {
      indices_.push_back(static_cast<std::uint32_t>(begin + i));
    }
  }

  ArcOptions options_;
  std::vector<Part> parts_;
  Buffer<float> columns_;  // of V
  Buffer<float> sketch_;
  std::size_t sketched_ = 0;
  std::vector<std::uint32_t> indices_;
  Buffer<std::byte> payload_;
  ExchangeBuffers values_;
  bool begun_ = false;
  Buffer<float> average_, told_, sum_;  // of memory "ef21m"
};

class Arc final : public Collective {
 public:
  explicit Arc(const ArcOptions& options) : options_(options) {}

  std::unique_ptr<CollectiveState> MakeState(const ExchangeShape& shape,
                                             const Topology&) const override {
    return std::make_unique<Rows>(shape, options_);
  }

  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    auto& state = static_cast<Rows&>(*buffers.state);
    const double density = buffers.shape.density();
    if (options_.by_averages) {
      buffers.sums = state.sum();
      buffers.seen = {state.begun() ? 0u : 1u};
      if (!state.begun()) {
        state.Begin(buffers.accumulated);
        co_await RunRingAllReduce(communicator, state.sum(), tag);
        co_return;
      }
    }
    co_await OffThread(buffers, [&] { state.Sketch(buffers.accumulated, buffers.shape); });
    co_await RunRingAllReduce(communicator, state.sketch(), tag);
    co_await OffThread(buffers, [&] { state.Select(buffers.accumulated, density); });
    buffers.seen.push_back(state.values().own.size());
    co_await Values().Run(communicator, state.values(), tag + 1);
    if (!options_.by_averages) {
      buffers.payloads = state.values().payloads;
      co_return;
    }
    co_await OffThread(buffers, [&] { state.Take(); });
  }

  // Expects the largest payload; it is smaller if a shorter row is among the sent ones.
  void Expect(const OverlapModel& /*overlap*/, const Topology& /*topology*/,
              ExchangeSizes& sizes) const override {
    std::size_t sent = 0;
    const double density = sizes.shape.density();
    for (const Part& part : PartsOf(sizes.shape)) {
      sent += std::min(part.tensor.numel, part.rows.Kept(density) * part.rows.length);
    }
    std::vector<std::uint64_t> seen = {sent * kSparseElementBytes};
    if (options_.by_averages) {
      seen = sizes.shape.step == 0 ? std::vector<std::uint64_t>{1}
                                   : std::vector<std::uint64_t>{0, seen.front()};
    }
    sizes.seen.assign(sizes.payload_bytes.size(), seen);
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    if (sizes.seen.size() != static_cast<std::size_t>(topology.ranks)) {
      SPARFUSE_THROW(kInternal, "arc-rows: sizes of " + std::to_string(sizes.seen.size()) +
                                    " ranks: expected sizes of " + std::to_string(topology.ranks));
    }
    const std::vector<std::uint64_t>& seen = sizes.seen.front();
    if (options_.by_averages && seen.front() == 1) {
      return Dense(RingAllReduceRounds(sizes.shape.elements, topology), sizes);
    }
    std::size_t floats = 0, rows = 0, products = 0;
    for (const Part& part : PartsOf(sizes.shape)) {
      if (IsWhole(part.rows, sizes.shape.density())) continue;
      floats += part.rows.rows * options_.columns;
      products += part.tensor.numel * options_.columns;
      rows += part.rows.rows;
    }
    const std::uint64_t bytes = seen.back();
    RoundPlan plan;
    plan.per_rank.resize(static_cast<std::size_t>(topology.ranks));
    Round work{.messages = 0, .link = SlowestLink(topology)};
    work[Work::kMultiply] = products;
    plan.rounds.push_back(work);
    AddRounds(RingAllReduceRounds(floats, topology), plan);
    work.work = {};
    work[Work::kSelect] = rows;
    work[Work::kMerge] = bytes / kSparseElementBytes;
    plan.rounds.push_back(work);
    AddRounds(
        Values().Rounds(SizesOf(std::vector<std::uint64_t>(plan.per_rank.size(), bytes)), topology),
        plan);
    if (options_.by_averages) return Dense(std::move(plan), sizes);
    plan.sums = bytes / kSparseElementBytes;
    return plan;
  }

 private:
  static const Collective& Values() {
    static const auto kValues = CoreCollective("shared-indices-allreduce");
    return *kValues;
  }
  static RoundPlan Dense(RoundPlan plan, const ExchangeSizes& sizes) {
    plan.sums = sizes.shape.elements;
    plan.dense_sums = true;
    return plan;
  }

  ArcOptions options_;
};

}  // namespace

RowShape::RowShape(std::span<const std::int64_t> shape, std::size_t n) : elements(n) {
  if (n == 0) return;
  if (shape.size() < 2) {
    length = std::min(kRowOfVector, n);
    rows = (n + length - 1) / length;
    return;
  }
  rows = static_cast<std::size_t>(shape[0]);
  length = n / rows;
}

std::size_t RowShape::LengthOf(std::size_t row) const {
  return std::min(length, elements - row * length);
}

std::size_t RowShape::Kept(double density) const {
  // A density that makes a whole number of rows keeps that number; rounding must not add one.
  constexpr double kRounding = 1e-9;
  const double kept = std::ceil(density * static_cast<double>(rows) - kRounding);
  return std::clamp(static_cast<std::size_t>(std::max(kept, 1.0)), std::min<std::size_t>(1, rows),
                    rows);
}

std::vector<std::uint32_t> LargestRows(std::span<const float> sketch, std::size_t columns,
                                       std::size_t kept) {
  const std::size_t rows = sketch.size() / columns;
  std::vector<double> norms(rows);
  for (std::size_t i = 0; i < sketch.size(); ++i) {
    norms[i / columns] += static_cast<double>(sketch[i]) * static_cast<double>(sketch[i]);
  }
  std::vector<std::uint32_t> order(rows);
  std::iota(order.begin(), order.end(), 0u);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(std::min(kept, rows));
  const auto larger = [&](std::uint32_t a, std::uint32_t b) {
    return norms[a] != norms[b] ? norms[a] > norms[b] : a < b;
  };
  if (middle != order.end()) std::nth_element(order.begin(), middle, order.end(), larger);
  order.erase(middle, order.end());
  std::ranges::sort(order);
  return order;
}

CollectiveDescriptor ArcRows() {
  CollectiveDescriptor descriptor;
  descriptor.name = "arc-rows";
  descriptor.source = "ARC-Top-K, arXiv 2510.26709, and the published hooks";
  descriptor.revision = 2;
  descriptor.payload = PayloadKind::kSparse;
  descriptor.make = [](const Options& options) -> std::unique_ptr<Collective> {
    return std::make_unique<Arc>(ReadArcOptions(options));
  };
  descriptor.host_memory = true;
  descriptor.options = {
      WholeOption("sketch", 4, 1, kMostColumns, "columns of the sketch, by which rows are chosen"),
      ChoiceOption(
          "memory", "residual", {"residual", "ef21m"},
          "residual: rows that are not sent are added to the next gradient; ef21m: ranks send "
          "differences of averages of their gradients, and the sum of the differences is applied"),
      NumberOption("eta", 0.1, 0, 1, "with memory = \"ef21m\": h = (1 - eta) h + eta g"),
      WholeOption("seed", 1, 0, 1e9, "seed of the sketch, equal on all ranks")};
  descriptor.traits = [](const Options& resolved) {
    CollectiveTraits traits;
    traits.sums = traits.selects = traits.by_tensor = true;
    traits.begins_dense = StringOption(resolved, "memory") == "ef21m";
    traits.mass = traits.begins_dense ? Conservation::kLost : Conservation::kExact;
    return traits;
  };
  descriptor.summary = "all-reduce of rows, which all ranks choose by the sum of their sketches";
  descriptor.deviations =
      "A tensor of one dimension has rows of 256 elements. Random numbers of the sketch are sums "
      "of eight uniform numbers. Models assume that every row is sent as a whole one, even if it "
      "is shorter.";
  return descriptor;
}

}  // namespace sparfuse::baselines
