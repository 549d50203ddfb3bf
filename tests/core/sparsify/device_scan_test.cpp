// Checks the building blocks of sparsifiers on devices: collecting, measuring, and sending by
// device words.
#include "core/sparsify/scan_device/device_scan.hpp"

#include <gtest/gtest.h>

#include "core/device/emulated/emulated_launch.hpp"
#include "core/sparsify/scan/sample.hpp"
#include "core/sparsify/scan_device/collect_kernels.hpp"
#include "core/sparsify/scan_device/send_kernels.hpp"
#include "tests/support/devices/device_selection.hpp"

namespace sparfuse {
namespace {

using testing::LargestByDefinition;
using testing::MakeData;
using testing::Selected;
using testing::ToDevice;
using testing::ToHost;

constexpr Device kEmulated{DeviceKind::kEmulated, 0};

Selected Reaching(const std::vector<float>& x, std::uint32_t key, std::size_t limit) {
  Selected selected = testing::Where(x, [key](float v) { return KeyOf(v) >= key; });
  selected.indices.resize(std::min(limit, selected.indices.size()));
  selected.values.resize(selected.indices.size());
  return selected;
}

// Sets the words of a control, as a sparsifier's kernel would.
struct SetWords {
  static constexpr int kThreads = 32;
  ScanControl* control;
  std::uint32_t lo;  // kNoKey: unchanged
  std::uint32_t key;
  std::uint32_t least;
  std::uint32_t most;
  std::uint32_t first;
  bool recollect = false;

  SPARFUSE_DEVICE void operator()(auto& block, gpu::NoShared&) const {
    if (recollect) gpu::WantRecollected(block, control, lo);
    if (block.thread() != 0) return;
    if (lo != kNoKey) control->lo = lo;
    control->key = key;
    control->least = least;
    control->most = most;
    control->first = first;
  }
};

// Copies a sample, in its order.
struct CopySample {
  static constexpr int kThreads = 64;
  static constexpr unsigned kEach = 3;
  struct Shared {
    std::uint32_t lines[40];
  };
  DeviceInput source;
  RandomStream stream;
  std::uint32_t lines;
  float* to;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    gpu::FindSampledLines(block, stream, source.n, lines, shared.lines);
    for (unsigned s = block.thread(); s < lines * kLine; s += kEach * kThreads) {
      float x[kEach];
      const auto at = [&](unsigned e) {
        const unsigned i = s + e * kThreads < lines * kLine ? s + e * kThreads : s;
        return gpu::SampledElement(shared.lines, i);
      };
      source.Load<kEach>(at, x);
      for (unsigned e = 0; e < kEach; ++e) {
        if (s + e * kThreads < lines * kLine) to[s + e * kThreads] = x[e];
      }
    }
  }
};

}  // namespace
SPARFUSE_KERNEL_OF_A_TEST(SetWords)
SPARFUSE_KERNEL_OF_A_TEST(CopySample)
namespace {

// A scan of x, and its sent elements.
class Scan {
 public:
  Scan(const std::vector<float>& x, std::size_t k, std::size_t capacity)
      : x_(ToDevice(stream_.view(), x)),
        indices_(capacity, kEmulated),
        values_(capacity, kEmulated),
        report_(1, kEmulated),
        slot_{indices_.data(), values_.data(), capacity, report_.data()},
        input_{x_.data(), nullptr, x.size(), false},
        k_(k) {}

  DeviceScan Prepare(const ScanOptions& options) {
    return PrepareScan(context_, input_, {7, "conv1.weight", {}, 0}, k_, slot_, options);
  }
  ScanControl Control(const DeviceScan& scan) { return ToHost(stream_.view(), scan.control, 1)[0]; }
  Selected Sent() {
    const std::size_t count = Report().count;
    return {ToHost(stream_.view(), indices_.data(), count),
            ToHost(stream_.view(), values_.data(), count)};
  }
  SlotReport Report() { return ToHost(stream_.view(), report_.data(), 1)[0]; }

  const DeviceContext& context() const { return context_; }
  const DeviceSlot& slot() const { return slot_; }

 private:
  gpu::GpuStream stream_{kEmulated};
  DeviceWorkspace workspace_{kEmulated};
  DeviceContext context_{stream_.view(), &workspace_, nullptr, nullptr};
  Buffer<float> x_;
  Buffer<std::uint32_t> indices_;
  Buffer<float> values_;
  Buffer<SlotReport> report_;
  DeviceSlot slot_;
  DeviceInput input_;
  std::size_t k_;
};

TEST(DeviceScan, SamplesTheLinesThatTheHostSamples) {
  const std::vector<float> gradient = MakeData("gaussian", 1234, 1);
  const std::vector<float> residual = MakeData("laplace", 1234, 2);
  const TensorInfo info{7, "conv1.weight", {}, 3};
  const gpu::GpuStream stream(kEmulated);
  const Buffer<float> g = ToDevice(stream.view(), gradient);
  Buffer<float> r = ToDevice(stream.view(), residual);
  for (const std::uint32_t lines : {1u, 37u, 40u}) {
    for (const bool pending : {false, true}) {
      std::vector<float> expected(lines * kLine);
      ForSampledLines(gradient.size(), lines, info, [&](std::size_t i, std::size_t at) {
        for (std::size_t j = 0; j < kLine; ++j) {
          expected[i * kLine + j] =
              pending ? gradient[at + j] + residual[at + j] : residual[at + j];
        }
      });
      const Buffer<float> sample(expected.size(), kEmulated);
      gpu::Launch(stream.view(), 1,
                  CopySample{{g.data(), r.data(), gradient.size(), pending},
                             RandomStream(0, info.id, info.step),
                             lines,
                             sample.data()});
      EXPECT_EQ(ToHost(stream.view(), sample.data(), sample.size()), expected)
          << lines << " lines" << (pending ? ", pending" : "");
    }
  }
}

TEST(DeviceScan, PlansFollowFromSizeAndAddress) {
  alignas(16) static float x[8];
  EXPECT_EQ(PlanScan({x, nullptr, 1, false}).spans, 1u);
  EXPECT_EQ(PlanScan({x, nullptr, kScanChunk, false}).chunks, 1u);
  const ScanPlan shifted = PlanScan({x + 3, nullptr, kScanChunk, false});
  EXPECT_EQ(shifted.shift, 3u);
  EXPECT_EQ(shifted.chunks, 2u);
  // The written array decides the alignment.
  EXPECT_EQ(PlanScan({x + 3, x + 1, 10, true}).shift, 1u);
  const ScanPlan large = PlanScan({x, nullptr, 110'000'000, false});
  EXPECT_LE(large.spans, kMostSpans);
  EXPECT_GE(large.spans * large.chunks_per_span, large.chunks);
  EXPECT_LT((large.spans - 1) * large.chunks_per_span, large.chunks);
  EXPECT_LE(PlanScan({x, nullptr, (std::size_t{1} << 32) - 1, false}).spans, kMostSpans);
}

TEST(DeviceScan, TheBoundIsReachedByAsManyAsWantedAndNotManyMore) {
  const auto x = MakeData("gaussian", 60'000, 1);
  for (const std::size_t wanted : {20u, 600u, 12'000u}) {
    Scan scan(x, wanted, 60'000);
    const DeviceScan prepared = scan.Prepare({.wanted = wanted});
    const std::uint32_t lo = scan.Control(prepared).lo;
    const std::size_t reaching = Reaching(x, lo, x.size()).indices.size();
    EXPECT_GE(reaching, wanted);
    EXPECT_LE(reaching, 2 * wanted + 100);
  }
}

TEST(DeviceScan, CandidatesAreCountedExactlyWhetherTheyFitOrNot) {
  const auto x = MakeData("gaussian", 30'001, 1);
  const std::size_t reaching = Reaching(x, KeyOf(1.0f), x.size()).indices.size();
  for (const std::size_t capacity : {reaching + 1, reaching, reaching - 1, std::size_t{1}}) {
    Scan scan(x, 10, 10);
    DeviceScan prepared = scan.Prepare({.capacity = capacity});
    gpu::Launch(scan.context().stream, 1, SetWords{prepared.control, KeyOf(1.0f), 0, 0, 0, 0});
    CollectOnDevice(scan.context(), prepared);
    const ScanControl control = scan.Control(prepared);
    EXPECT_EQ(control.count, reaching);
    std::size_t in_bins = 0;
    for (const std::uint32_t bin : control.bins) in_bins += bin;
    EXPECT_EQ(in_bins, reaching);
    // Sends the 10 largest in either case; if they are not stored, by the exact passes.
    Send(scan.context(), prepared, scan.slot());
    EXPECT_EQ(scan.Sent().indices, LargestByDefinition(x, 10).indices);
    EXPECT_EQ(scan.Report().fallbacks, capacity < reaching ? 1u : 0u);
    EXPECT_EQ(scan.Report().candidates, reaching);
  }
}

// SendReaching with the key of 2, among candidates that reach `lo`.
void ExpectReaching(float lo, std::uint32_t least, std::uint32_t most, std::uint32_t first,
                    std::size_t capacity, bool as_they_are, std::uint32_t fallbacks,
                    std::uint32_t overflows) {
  const auto x = MakeData("gaussian", 30'001, 1);
  constexpr std::size_t kK = 500;
  Scan scan(x, kK, capacity);
  DeviceScan prepared = scan.Prepare({});
  const std::uint32_t key = KeyOf(2.0f);
  gpu::Launch(scan.context().stream, 1,
              SetWords{prepared.control, KeyOf(lo), key, least, most, first});
  CollectOnDevice(scan.context(), prepared);
  SendReaching(scan.context(), prepared, scan.slot());
  const Selected expected =
      as_they_are ? Reaching(x, key, first == 0 ? x.size() : first) : LargestByDefinition(x, kK);
  EXPECT_TRUE(testing::Same(scan.Sent(), expected)) << "lo " << lo << " least " << least;
  EXPECT_EQ(scan.Report().fallbacks, fallbacks);
  EXPECT_EQ(scan.Report().overflows, overflows);
}

std::uint32_t CountReachingTwo() {
  const auto reaching = Reaching(MakeData("gaussian", 30'001, 1), KeyOf(2.0f), 30'001);
  return static_cast<std::uint32_t>(reaching.indices.size());
}

TEST(DeviceScan, SendsWhatReachesAKeyOfTheDevice) {
  const std::uint32_t count = CountReachingTwo();
  ExpectReaching(2.0f, 1, count, 0, count, true, 0, 0);
  ExpectReaching(1.5f, 1, count, 0, count, true, 0, 0);
  ExpectReaching(1.5f, count, count, 0, 5000, true, 0, 0);
  ExpectReaching(1.5f, 1, count, 100, 5000, true, 0, 0);
}

TEST(DeviceScan, SendsTheLargestWhereThatIsTooFewOrTooMany) {
  const std::uint32_t count = CountReachingTwo();
  ExpectReaching(1.5f, count + 1, 5000, 0, 5000, false, 0, 0);
  ExpectReaching(1.5f, 1, count - 1, 0, 5000, false, 0, 0);
  ExpectReaching(1.5f, 1, 5000, 0, count - 1, false, 0, 1);  // more than the slot holds
  ExpectReaching(2.5f, 1, 5000, 0, 5000, false, 1, 0);       // a key below lo: too few candidates
}

TEST(DeviceScan, SendsTheLargestWhereNothingReachesTheKey) {
  const auto x = MakeData("gaussian", 30'001, 1);
  for (const float lo : {2.0f, 100.0f}) {
    Scan scan(x, 100, 1000);
    DeviceScan prepared = scan.Prepare({});
    gpu::Launch(scan.context().stream, 1,
                SetWords{prepared.control, KeyOf(lo), KeyOf(100.0f), 0, 1000, 0});
    CollectOnDevice(scan.context(), prepared);
    SendReaching(scan.context(), prepared, scan.slot());
    EXPECT_EQ(scan.Sent().indices, LargestByDefinition(x, 100).indices);
    EXPECT_EQ(scan.Report().fallbacks, 1u);
  }
}

TEST(DeviceScan, CollectsOnceMoreWhereAKernelAsks) {
  const auto x = MakeData("gaussian", 30'001, 1);
  for (const bool recollect : {false, true}) {
    Scan scan(x, 100, 5000);
    DeviceScan prepared = scan.Prepare({.wanted = 100});
    CollectOnDevice(scan.context(), prepared);
    SetWords words{prepared.control, KeyOf(2.0f), KeyOf(2.0f), 1, 5000, 0, true};
    if (recollect) gpu::Launch(scan.context().stream, 1, words);
    RecollectOnDevice(scan.context(), prepared);
    if (recollect) {
      SendReaching(scan.context(), prepared, scan.slot());
      EXPECT_EQ(scan.Sent().indices, Reaching(x, KeyOf(2.0f), x.size()).indices);
    } else {
      Send(scan.context(), prepared, scan.slot());
      EXPECT_EQ(scan.Sent().indices, LargestByDefinition(x, 100).indices);
    }
  }
}

struct CountAndSum {
  struct Part {
    std::uint64_t count = 0;
    double sum = 0;
  };
  Part* parts;  // [spans]
  SPARFUSE_DEVICE Part Begin() const { return {}; }
  SPARFUSE_DEVICE void Add(Part& part, float x, std::uint32_t key) const {
    ++part.count;
    part.sum += key == (testing::Bits(x) & kAbsMask) ? x : 1e30;
  }
  SPARFUSE_DEVICE void Store(auto& block, const Part& part, unsigned span) const {
    const std::uint64_t count = block.Sum(part.count);
    const double sum = block.Sum(part.sum);
    if (block.thread() == 0) parts[span] = {count, sum};
  }
};

}  // namespace
SPARFUSE_KERNEL_OF_A_TEST(gpu::Collect<CountAndSum>)
namespace {

TEST(DeviceScan, MeasuresEveryElementOnceInThePassThatCollects) {
  const auto x = MakeData("gaussian", 30'001, 1);
  Scan scan(x, 100, 100);
  DeviceScan prepared = scan.Prepare({.wanted = 100});
  const Buffer<CountAndSum::Part> parts(prepared.plan.spans, kEmulated);
  CollectWithMeasure(scan.context(), prepared, CountAndSum{parts.data()});
  std::uint64_t count = 0;
  double sum = 0;
  for (const auto& part : ToHost(scan.context().stream, parts.data(), parts.size())) {
    count += part.count;
    sum += part.sum;
  }
  double expected = 0;
  for (const float value : x) expected += value;
  EXPECT_EQ(count, x.size());
  EXPECT_NEAR(sum, expected, 1e-9 * static_cast<double>(x.size()));
}

}  // namespace
}  // namespace sparfuse
