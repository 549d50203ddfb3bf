#include "harness/worker/profiling/timed_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "core/base/error.hpp"
#include "core/device/matrix_product.hpp"
#include "core/device/runtime.hpp"
#include "core/feedback/norm/norm.hpp"
#include "core/payload/accumulate.hpp"
#include "core/payload/accumulate_device.hpp"
#include "harness/worker/profiling/host_product.hpp"
#include "harness/worker/rank/timing.hpp"

namespace sparfuse::harness {
namespace {

constexpr float kScale = 0.5f;
constexpr std::size_t kHostRead = std::size_t{32} << 20, kDeviceRead = std::size_t{64} << 20;
constexpr std::size_t kHostSide = 384, kDeviceSide = 4096;

double OperationsOf(std::size_t side) { return 2 * std::pow(static_cast<double>(side), 3); }

std::size_t CapacityOf(const TimedSparsifier& timed, const TimedShape& shape, double density) {
  return SlotCapacityFor(*timed.descriptor, *timed.sparsifier, shape.numel, shape.shape, density);
}

class HostKernels final : public TimedKernels {
 public:
  HostKernels(std::span<const float> gradient, ThreadPool& pool)
      : gradient_(gradient), pool_(pool), work_(gradient.size()) {}

  double read_bytes() const override { return kHostRead * sizeof(float); }
  double product_operations() const override { return OperationsOf(kHostSide); }
  Body Read() override {
    return [this, read = std::vector<float>(kHostRead, 1.0f)] {
      SPARFUSE_REQUIRE(SumSquares(read, pool_) > 0,
                       "a sum of squares of ones is 0");  // this use keeps the sum
    };
  }
  Body Multiply() override {
    const std::vector<float> matrix = Gaussian(kHostSide * kHostSide, 1);
    return [this, a = matrix, b = matrix, c = matrix]() mutable {
      MultiplyOnHost(a, b, c, kHostSide, pool_);
    };
  }

  Body Pack(std::size_t n) override {
    return [this, n] { CopyFinite(gradient_.first(n), std::span(work_).first(n), pool_); };
  }

  Body Scale(std::size_t n) override {
    return [this, n] { ScaleDense(gradient_.first(n), kScale, std::span(work_).first(n), pool_); };
  }

  Body Select(const TimedSparsifier& timed, const TimedShape& shape, double density) override {
    struct Selection {
      Buffer<float> residual;
      Buffer<std::uint32_t> indices;
      Buffer<float> values;
      std::unique_ptr<SparsifierState> state;
      std::vector<std::int64_t> shape;
      TensorInfo info;
      SelectCounters counters;
    };
    const std::size_t n = shape.numel;
    const std::size_t capacity = CapacityOf(timed, shape, density);
    const auto made = std::make_shared<Selection>();  // a std::function must be copyable
    made->residual = Buffer<float>(n);
    made->indices = Buffer<std::uint32_t>(capacity);
    made->values = Buffer<float>(capacity);
    made->state = timed.sparsifier->MakeState(n);
    made->shape = shape.shape;
    made->info.name = "profile";
    made->info.shape = made->shape;
    return [this, made, n, capacity, density, sparsifier = timed.sparsifier.get()] {
      const SelectContext context{&pool_, &workspace_, &made->counters, {}};
      Slot slot{made->indices.view(), made->values.view(), capacity, 0};
      ++made->info.step;
      sparsifier->Select(context, {{gradient_.data(), n, {}}, made->residual.view()}, density,
                         made->info, made->state.get(), slot);
    };
  }

  Body Decompress(std::size_t n, const std::vector<MadeUpPayload>& payloads) override {
    return [this, payloads, values = ValuesOf(payloads), out = std::vector<float>(n)]() mutable {
      std::vector<SparsePayload> views;
      for (const MadeUpPayload& indices : payloads)
        views.push_back({indices, std::span(values).first(indices.size())});
      AccumulateSparse(views, kScale, out, pool_);
    };
  }

  Estimate Seconds(const Body& body, int repeats) const override { return TimeOf(body, repeats); }

 private:
  static std::vector<float> ValuesOf(const std::vector<MadeUpPayload>& payloads) {
    std::size_t most = 0;
    for (const MadeUpPayload& indices : payloads) most = std::max(most, indices.size());
    return std::vector<float>(most, 1.0f);
  }

  const std::span<const float> gradient_;
  ThreadPool& pool_;
  std::vector<float> work_;
  Workspace workspace_;
};

class DeviceKernels final : public TimedKernels {
 public:
  DeviceKernels(const Rank& rank, std::span<const float> gradient)
      : stream_(rank.compute),
        pool_(rank.pool),
        gradient_(OnDevice(gradient)),
        work_(gradient.size(), stream_.device, "the profile's gradient"),
        workspace_(stream_.device),
        not_finite_(1, stream_.device) {}

  double read_bytes() const override { return kDeviceRead * sizeof(float); }
  double product_operations() const override { return OperationsOf(kDeviceSide); }
  Body Read() override {
    struct Reading {
      Buffer<float> values;
      Buffer<double> sum;
    };
    const auto made = std::make_shared<Reading>();
    made->values =
        Buffer<float>(kDeviceRead, stream_.device, "the memory that a fingerprint reads");
    made->sum = Buffer<double>(1, stream_.device);
    return [this, made] {
      SumSquaresOnDevice(stream_, workspace_, {made->values.data(), kDeviceRead, stream_},
                         made->sum.data());
    };
  }
  Body Multiply() override {
    struct Matrices {
      std::unique_ptr<MatrixMultiplier> multiplier;
      Buffer<float> a, b, c;
    };
    const auto made = std::make_shared<Matrices>();
    const std::vector<float> values = Gaussian(kDeviceSide * kDeviceSide, 1);
    made->multiplier = MakeMatrixMultiplier(stream_.device);
    made->a = OnDevice(std::span(values));
    made->b = OnDevice(std::span(values));
    made->c = Buffer<float>(values.size(), stream_.device, "a fingerprint's matrix");
    return [this, made] {
      MatrixProduct product{.m = kDeviceSide, .n = kDeviceSide, .k = kDeviceSide};
      product.a = made->a.data();
      product.b = made->b.data();
      product.c = made->c.data();
      product.a_stride = product.b_stride = product.c_stride = kDeviceSide;
      made->multiplier->Multiply(stream_, product);
    };
  }

  Body Pack(std::size_t n) override {
    return [this, n] {
      CopyFiniteOnDevice(stream_, Gradient(n), {work_.data(), n, stream_}, not_finite_.data());
    };
  }

  Body Scale(std::size_t n) override {
    return [this, n] {
      ScaleDenseOnDevice(stream_, Gradient(n), kScale, {work_.data(), n, stream_});
    };
  }

  Body Select(const TimedSparsifier& timed, const TimedShape& shape, double density) override {
    struct Selection {
      Buffer<float> residual;
      Buffer<std::uint32_t> indices;
      Buffer<float> values;
      Buffer<SlotReport> report;
      std::unique_ptr<SparsifierState> state;
      std::vector<std::int64_t> shape;
      TensorInfo info;
      SelectCounters counters;
      Workspace staging;
    };
    const std::size_t n = shape.numel;
    const std::size_t capacity = CapacityOf(timed, shape, density);
    const auto made = std::make_shared<Selection>();
    made->residual = Buffer<float>(n, stream_.device);
    made->indices = Buffer<std::uint32_t>(capacity, stream_.device);
    made->values = Buffer<float>(capacity, stream_.device);
    made->report = Buffer<SlotReport>(1, stream_.device);
    made->state = timed.sparsifier->MakeDeviceState(n, stream_.device);
    made->shape = shape.shape;
    made->info.name = "profile";
    made->info.shape = made->shape;
    return [this, made, n, capacity, density, sparsifier = timed.sparsifier.get()] {
      const SelectContext host{&pool_, &made->staging, &made->counters, {}};
      const DeviceContext context{stream_, &workspace_, nullptr, &host};
      DeviceSlot slot{made->indices.data(), made->values.data(), capacity, made->report.data()};
      gpu::FillAsync(stream_, slot.report, 0, sizeof(SlotReport));
      ++made->info.step;
      sparsifier->SelectOnDevice(context, {Gradient(n), {made->residual.data(), n, stream_}},
                                 density, made->info, made->state.get(), slot);
    };
  }

  // Writes into an output that records the touched elements, as an engine's does.
  Body Decompress(std::size_t n, const std::vector<MadeUpPayload>& payloads) override {
    struct Received {
      std::vector<Buffer<std::uint32_t>> indices;
      Buffer<float> values;
      Buffer<float> out;
      Buffer<std::uint64_t> fault;
      Buffer<std::uint32_t> touched;  // unused: the output is zero
    };
    const auto made = std::make_shared<Received>();
    std::size_t most = 0;
    for (const MadeUpPayload& indices : payloads) {
      made->indices.push_back(OnDevice(std::span(indices)));
      most = std::max(most, indices.size());
    }
    const std::vector<float> ones(most, 1.0f);
    made->values = OnDevice(std::span(ones));
    made->out = Buffer<float>(n, stream_.device);
    made->fault = Buffer<std::uint64_t>(1, stream_.device);
    made->touched = Buffer<std::uint32_t>(TouchedWords(n), stream_.device);
    return [this, made, n] {
      std::vector<DevicePayload> received;
      for (const Buffer<std::uint32_t>& indices : made->indices)
        received.push_back({indices.data(), made->values.data(), indices.size()});
      AccumulateSparseOnDevice(stream_, workspace_, received, {0, n}, kScale,
                               {made->out.data(), n, stream_}, made->fault.data(),
                               made->touched.data());
    };
  }

  Estimate Seconds(const Body& body, int repeats) const override {
    return TimeOnDevice(stream_, body, repeats);
  }

 private:
  template <class T>
  Buffer<T> OnDevice(std::span<const T> host) const {
    Buffer<T> copy(host.size(), stream_.device, "the made-up data of a profile");
    gpu::CopyAsync(stream_, copy.data(), host.data(), host.size_bytes());
    gpu::Synchronize(stream_);
    return copy;
  }
  DeviceSpan<const float> Gradient(std::size_t n) const { return {gradient_.data(), n, stream_}; }

  const Stream stream_;
  ThreadPool& pool_;
  Buffer<float> gradient_;
  Buffer<float> work_;
  DeviceWorkspace workspace_;
  Buffer<std::uint32_t> not_finite_;
};

}  // namespace

std::vector<float> Gaussian(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

std::unique_ptr<TimedKernels> KernelsOnHost(std::span<const float> gradient, ThreadPool& pool) {
  return std::make_unique<HostKernels>(gradient, pool);
}

std::unique_ptr<TimedKernels> KernelsOfRank(const Rank& rank, std::span<const float> gradient) {
  if (rank.device.kind == DeviceKind::kHost) return KernelsOnHost(gradient, rank.pool);
  return std::make_unique<DeviceKernels>(rank, gradient);
}

}  // namespace sparfuse::harness
