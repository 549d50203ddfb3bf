#include "harness/worker/fingerprint/single_operations.hpp"

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "core/device/matrix_product.hpp"
#include "core/device/runtime.hpp"
#include "core/feedback/norm/norm.hpp"
#include "harness/catalog/python_file.hpp"
#include "harness/worker/fingerprint/host_product.hpp"
#include "harness/worker/profiling/timed_kernels.hpp"
#include "harness/worker/rank/timing.hpp"

namespace sparfuse::harness {
namespace {

constexpr double kDensity = 0.01;

std::vector<float> Gaussian(std::size_t n, int rank) {
  std::mt19937_64 generator(1 + static_cast<std::uint64_t>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

double Operations(std::size_t side) { return 2 * std::pow(static_cast<double>(side), 3); }

// Top-k as profiles time it.
class TimedTopK {
 public:
  TimedTopK(const Rank& rank, std::size_t elements)
      : gradient_(Gaussian(elements, rank.rank())), kernels_(KernelsOfRank(rank, gradient_)) {
    const SparsifierDescriptor& descriptor = ResolveSparsifier("topk");
    topk_ = {&descriptor,
             descriptor.make(ResolveOptions(descriptor.name, descriptor.options, {}), 1),
             {kDensity}};
    select_ = kernels_->Select(topk_, {elements, {}}, kDensity);
  }
  double Seconds() const { return kernels_->Seconds(select_, 1).value; }

 private:
  std::vector<float> gradient_;
  std::unique_ptr<TimedKernels> kernels_;
  TimedSparsifier topk_;
  TimedKernels::Body select_;
};

class OnHost final : public SingleOperations {
 public:
  explicit OnHost(const Rank& rank)
      : pool_(rank.pool),
        read_(std::size_t{32} << 20, 1.0f),
        a_(Gaussian(kSide * kSide, rank.rank())),
        b_(a_),
        c_(kSide * kSide),
        topk_(rank, std::size_t{1} << 20) {}

  double ReadBytesPerSecond() override {
    double sum = 0;
    const double seconds = TimeOf([&] { sum += SumSquares(read_, pool_); }, 1).value;
    SPARFUSE_REQUIRE(sum > 0, "a sum of squares of ones is 0");  // and is not optimised away
    return static_cast<double>(read_.size() * sizeof(float)) / seconds;
  }
  double ProductOperationsPerSecond() override {
    return Operations(kSide) / TimeOf([&] { MultiplyOnHost(a_, b_, c_, kSide, pool_); }, 1).value;
  }
  double TopKSeconds() override { return topk_.Seconds(); }

 private:
  static constexpr std::size_t kSide = 384;
  ThreadPool& pool_;
  std::vector<float> read_, a_, b_, c_;
  TimedTopK topk_;
};

class OnCard final : public SingleOperations {
 public:
  explicit OnCard(const Rank& rank)
      : stream_(rank.compute),
        workspace_(stream_.device),
        read_(std::size_t{64} << 20, stream_.device, "what a fingerprint reads"),
        sum_(1, stream_.device),
        multiplier_(MakeMatrixMultiplier(stream_.device)),
        a_(kSide * kSide, stream_.device, "a fingerprint's matrix"),
        b_(kSide * kSide, stream_.device, "a fingerprint's matrix"),
        c_(kSide * kSide, stream_.device, "a fingerprint's matrix"),
        topk_(rank, std::size_t{1} << 24) {
    const std::vector<float> values = Gaussian(a_.size(), rank.rank());
    for (const Buffer<float>* matrix : {&a_, &b_})
      gpu::CopyAsync(stream_, matrix->data(), values.data(), values.size() * sizeof(float));
    gpu::Synchronize(stream_);
  }

  double ReadBytesPerSecond() override {
    const auto read = [&] {
      SumSquaresOnDevice(stream_, workspace_, {read_.data(), read_.size(), stream_}, sum_.data());
    };
    return static_cast<double>(read_.size() * sizeof(float)) / TimeOnDevice(stream_, read, 1).value;
  }
  double ProductOperationsPerSecond() override {
    MatrixProduct product{.m = kSide, .n = kSide, .k = kSide};
    product.a = a_.data();
    product.b = b_.data();
    product.c = c_.data();
    product.a_stride = product.b_stride = product.c_stride = kSide;
    return Operations(kSide) / TimeOnDevice(
                                   stream_, [&] { multiplier_->Multiply(stream_, product); }, 1)
                                   .value;
  }
  double TopKSeconds() override { return topk_.Seconds(); }

 private:
  static constexpr std::size_t kSide = 4096;
  const Stream stream_;
  DeviceWorkspace workspace_;
  Buffer<float> read_;
  Buffer<double> sum_;
  std::unique_ptr<MatrixMultiplier> multiplier_;
  Buffer<float> a_, b_, c_;
  TimedTopK topk_;
};

}  // namespace

std::unique_ptr<SingleOperations> SingleOperationsOf(const Rank& rank) {
  if (rank.device.kind == DeviceKind::kHost) return std::make_unique<OnHost>(rank);
  return std::make_unique<OnCard>(rank);
}

}  // namespace sparfuse::harness
