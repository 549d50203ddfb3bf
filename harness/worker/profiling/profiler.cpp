#include "harness/worker/profiling/profiler.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "baselines/powersgd/powersgd.hpp"
#include "baselines/zen/hash_lists.hpp"
#include "core/coding/selection_coding.hpp"
#include "core/device/runtime.hpp"
#include "core/engine/live/live_engine.hpp"
#include "core/payload/accumulate.hpp"
#include "core/payload/sums.hpp"
#include "harness/clusters/profile_data.hpp"
#include "harness/worker/profiling/links.hpp"
#include "harness/worker/profiling/measurement.hpp"
#include "harness/worker/rank/timing.hpp"

namespace sparfuse::harness {
namespace {

using Clock = std::chrono::steady_clock;

// 64, 512, ... up to and including `largest`.
std::vector<std::size_t> Sizes(std::size_t largest) {
  std::vector<std::size_t> sizes;
  for (std::size_t n = 64; n < largest; n *= 8) sizes.push_back(n);
  sizes.push_back(largest);
  return sizes;
}

MeasuredCurve CurveOf(std::span<const std::size_t> sizes,
                      const std::function<Estimate(std::size_t)>& seconds) {
  MeasuredCurve points;
  for (const std::size_t n : sizes) points.push_back({n, seconds(n)});
  return points;
}

// Packs each tensor by itself. With a layout of tiny tensors, this measures the cost of a request.
class PackOnly final : public Strategy {
 public:
  void GradientReady(Engine& engine, std::size_t tensor) override {
    engine.Pack({.tensor = tensor});
  }
};

class Profiler {
 public:
  Profiler(const Rank& rank, const ProfileSubject& subject, const ProfileEffort& effort,
           const std::function<void(const std::string&)>& say)
      : rank_(rank), subject_(subject), effort_(effort), say_(say) {
    for (const std::size_t parameter : subject.ready_order) {
      const workloads::ParameterInfo& info = subject.workload.Parameters()[parameter];
      layout_.Add(info.name, info.shape, info.numel);
    }
    largest_ = std::max(layout_.numel(), effort.elements);
    gradient_ = Gaussian(largest_, 1 + static_cast<std::uint64_t>(rank.rank()));
    kernels_ = KernelsOfRank(rank, gradient_);
  }

  Profile Measure() {
    ProfileBackward(rank_, subject_.workload, subject_.ready_order, layout_, effort_.backward, say_,
                    profile_);
    say_("dispatch, copies and decompression");
    Dispatch();
    profile_.exchange_dispatch_seconds =
        measured_.Value("/exchange_dispatch_seconds", ExchangeDispatch(rank_, effort_.repeats));
    Copies();
    Decompression();
    profile_.selection = SelectionsBy(*kernels_, "selection");
    if (rank_.pool.threads() > 1 || rank_.device.kind != DeviceKind::kHost) {
      ThreadPool host(1);  // one thread, as in the host lane
      profile_.host_selection = SelectionsBy(*KernelsOnHost(gradient_, host), "host_selection");
      // A card's side lane is a stream. A host's side lane is a single thread, too.
      if (rank_.device.kind == DeviceKind::kHost) profile_.side_lane = "host";
    }
    Encodings();
    if (rank_.size() > 1) {
      say_("exchanges between ranks");
      Links();
    }
    return std::move(profile_);
  }

 private:
  void Links() {
    std::uint64_t step = 0;
    const Pass pass{[&] { PassWithoutHooks(rank_, subject_.workload, step++); },
                    *profile_.backward->all_ranks_seconds};
    ProfileLinks(rank_, effort_.repeats, profile_, effort_.beside ? &pass : nullptr);
  }

  Estimate MeanTimeOf(const std::function<void()>& body) const {
    return MeanOverRanks(rank_, TimeOf(body, effort_.repeats));
  }
  Estimate MeanTimeOf(const TimedKernels& kernels, const TimedKernels::Body& body) const {
    return MeanOverRanks(rank_, kernels.Seconds(body, effort_.repeats));
  }

  Estimate SecondsPerAnnouncement(std::unique_ptr<Strategy> strategy) {
    constexpr std::size_t kTensors = 256;
    GradientLayout tiny;
    for (std::size_t t = 0; t < kTensors; ++t) tiny.Add("t" + std::to_string(t), {1}, 1);
    const Buffer<float> gradient(1, rank_.device);  // outlives the streams that read it
    LiveEngine engine(MeasuringConfig(rank_, std::move(tiny), std::move(strategy)), rank_.loop,
                      rank_.pool);
    std::vector<double> times;
    for (int repeat = 0; repeat < effort_.repeats; ++repeat) {
      engine.BeginStep(static_cast<std::uint64_t>(repeat), false);
      const auto begin = Clock::now();
      for (std::size_t t = 0; t < kTensors; ++t) engine.AnnounceGradient(t, {gradient.data(), 1});
      times.push_back(SecondsSince(begin) / kTensors);
      engine.EndBackward();
      engine.BeginUpdate();
      engine.EndStep();  // on a device, requests may still be under way
    }
    return MedianEstimate(times);
  }

  void Dispatch() {
    rank_.Synchronise();
    const Estimate with = SecondsPerAnnouncement(std::make_unique<PackOnly>());
    rank_.Synchronise();
    const Estimate without = SecondsPerAnnouncement(std::make_unique<Idle>());
    profile_.dispatch_seconds =
        measured_.Value("/dispatch_seconds", MeanOverRanks(rank_, Excess(with, without)));
  }

  void Copies() {
    const std::vector<std::size_t> sizes = Sizes(largest_);
    rank_.Synchronise();
    const auto pack = [&](std::size_t n) { return MeanTimeOf(*kernels_, kernels_->Pack(n)); };
    const auto scale = [&](std::size_t n) { return MeanTimeOf(*kernels_, kernels_->Scale(n)); };
    profile_.pack = measured_.Curve("/pack", CurveOf(sizes, pack));
    profile_.scale = measured_.Curve("/scale", CurveOf(sizes, scale));
    // Times the sum that the communication thread computes on the host.
    const std::size_t added = std::min<std::size_t>(layout_.numel(), 262144);
    std::vector<float> work(added);
    const Estimate sum = MeanTimeOf([&] { AddInto(std::span(gradient_).first(added), work); });
    profile_.seconds_per_reduced_element =
        measured_.Value("/seconds_per_reduced_element", PerItem(sum, added));
    CollectiveWork();
    SelectionCoding();
  }

  // Times the work per element of collectives that sum on the way, on the host.
  void CollectiveWork() {
    constexpr std::size_t kAtMost = 131072;
    const std::size_t count = std::min(kAtMost, gradient_.size());
    SparseSums even, odd, merged;
    for (std::size_t i = 0; i < count; ++i) {
      // Every third index is in both selections.
      even.Add(static_cast<std::uint32_t>(3 * i), gradient_[i]);
      odd.Add(static_cast<std::uint32_t>(3 * i + (i % 3 == 0 ? 0 : 1)), gradient_[i]);
    }
    const Estimate merge = MeanTimeOf([&] { Merge(even.view(), odd.view(), merged); });
    Work("merge", PerItem(merge, 2 * count));
    const std::size_t servers = std::max<std::size_t>(2, static_cast<std::size_t>(rank_.size()));
    const baselines::Servers owners(3 * count, servers,
                                    baselines::SharedHashLists::Of(servers)->Covering(3 * count));
    const SparsePayload listed = even.view();
    std::vector<std::uint32_t> owner(count);
    baselines::Parts parts;
    const Estimate hash = MeanTimeOf([&] {
      owners.Find(listed.indices, owner);
      baselines::SplitByCounting(listed, owner, servers, parts);
    });
    Work("hash", PerItem(hash, count));
    float kth = 0;
    const Estimate select = MeanTimeOf(
        [&] { kth += KthMagnitude(std::span(gradient_).first(count), count / 100 + 1); });
    Work("select", PerItem(select, count));
    constexpr std::int64_t kSide = 256;
    constexpr int kFactorRank = 4;
    const std::vector<std::int64_t> shape = {kSide, kSide};
    PowerSgd factors(shape, kFactorRank, 1);
    const TensorInfo info{.name = {}, .shape = shape};
    ThreadPool alone(1);
    const QuantizeContext context{&alone, &workspace_, rank_.rank()};
    const std::vector<float> matrix(gradient_.begin(), gradient_.begin() + kSide * kSide);
    const SelectSource source{{matrix.data(), matrix.size(), {}}, {}};
    const Estimate multiply = MeanTimeOf([&] { factors.ComputeP(context, source, info); });
    Work("multiply", PerItem(multiply, kFactorRank * matrix.size()));
    if (rank_.device.kind != DeviceKind::kHost) HostCopies();
  }

  // Times filters and polynomials on the host.
  void SelectionCoding() {
    constexpr std::size_t kCoded = std::size_t{1} << 20;
    constexpr std::size_t kOneIn = 100;
    std::vector<std::uint32_t> indices;
    std::vector<float> values;
    std::mt19937_64 generator(1);
    for (std::size_t i = 0; i < kCoded; ++i) {
      if (generator() % kOneIn == 0) indices.push_back(static_cast<std::uint32_t>(i));
    }
    const BloomShape shape = BloomShapeOf(indices.size(), kCoded, 0);
    BloomFilter filter;
    const Estimate insert = MeanTimeOf([&] { filter.Build(shape, indices); });
    Coding("insert", PerItem(insert, shape.hashes * indices.size()));
    const Estimate query = MeanTimeOf([&] { filter.Positives(kCoded, kCoded, rank_.pool); });
    Coding("query", PerItem(query, kCoded));
    const std::vector<float> drawn = Gaussian(indices.size(), 2);
    SelectionCoder coder;
    const PayloadCoding fitted{ValueCoding::kFitted};
    std::vector<std::byte> coded(SelectionBytesBound(fitted, indices.size(), kCoded));
    const std::vector<float> source(kCoded);
    const Estimate fit = MeanTimeOf([&] {
      values = drawn;
      Slot slot{{indices.data(), indices.size(), {}},
                {values.data(), values.size(), {}},
                indices.size(),
                indices.size()};
      coder.Encode(fitted, source, {}, slot, coded, rank_.pool);
    });
    const Estimate restore =
        MeanTimeOf([&] { coder.Decode(coded, kCoded, indices, values, rank_.pool); });
    const PayloadCoding chunks{
        .values = ValueCoding::kCodes4, .indices = IndexCoding::kU12, .chunk = kMostOfChunk};
    coded.resize(ChunkCodedBytes(chunks, indices.size(), kCoded));
    const Estimate pack = MeanTimeOf([&] {
      values = drawn;
      EncodeChunks(chunks, indices, values, {}, kCoded, coded);
    });
    const Estimate unpack =
        MeanTimeOf([&] { DecodeChunks(chunks, coded, kCoded, indices, values); });
    Coding("pack", PerItem(pack, indices.size()));
    Coding("unpack", PerItem(unpack, indices.size()));
    Coding("fit", PerItem(fit, indices.size()));
    Coding("restore", PerItem(restore, indices.size()));
  }

  // Seconds per word of copies between the device and pinned memory of its host.
  void HostCopies() {
    const std::size_t count = gradient_.size();
    gpu::PinnedBuffer<float> host(count, rank_.device, "the buffer of timed copies");
    Buffer<float> device(count, rank_.device);
    const gpu::GpuStream stream(rank_.device);
    const auto copy = [&](void* to, const void* from) {
      return PerItem(MeanTimeOf([&] {
                       gpu::CopyAsync(stream.view(), to, from, count * sizeof(float));
                       gpu::Synchronize(stream.view());
                     }),
                     count);
    };
    Work("to_host", copy(host.data(), device.data()));
    Work("to_device", copy(device.data(), host.data()));
  }

  static Estimate PerItem(const Estimate& seconds, std::size_t items) {
    const auto n = static_cast<double>(items);
    return {seconds.value / n, seconds.standard_error / n};
  }

  void Work(const std::string& name, const Estimate& seconds) {
    profile_.collective_work[name] = measured_.Value("/collective_work/" + name, seconds);
  }
  void Coding(const std::string& name, const Estimate& seconds) {
    profile_.selection_coding[name] = measured_.Value("/selection_coding/" + name, seconds);
  }

  Selections SelectionsBy(TimedKernels& kernels, const std::string& place) {
    const std::vector<TimedShape> shapes = ShapesToTime(layout_, largest_);
    rank_.Synchronise();
    Selections selections;
    for (const TimedSparsifier& timed : subject_.sparsifiers) {
      const std::string sparsifier(timed.descriptor->name);
      auto& curves = selections[sparsifier];
      say_(place + " of " + sparsifier + ", " + std::to_string(selections.size()) + " of " +
           std::to_string(subject_.sparsifiers.size()));
      for (const double density : timed.densities) {
        MeasuredCurve points;
        for (const TimedShape& shape : shapes) {
          const auto select = kernels.Select(timed, shape, density);
          points.push_back({shape.numel, MeanTimeOf(kernels, select), shape.shape});
        }
        const auto at = nlohmann::json::json_pointer("/" + place) / sparsifier / curves.size();
        curves.push_back({density, measured_.Curve((at / "seconds").to_string(), points)});
      }
    }
    return selections;
  }

  // {quantizer: [[elements, seconds], ...]} with error feedback. Runs on the host, for devices too.
  void Encodings() {
    const QuantizeContext context{&rank_.pool, &workspace_, rank_.rank()};
    const std::vector<std::size_t> sizes = Sizes(std::max(LargestTensor(), effort_.elements));
    profile_.encode.emplace();
    for (const auto& quantizer : subject_.quantizers) {
      const std::string name(quantizer->name());
      say_("encoding by " + name);
      const auto encode = [&](std::size_t n) {
        Buffer<float> residual(n);
        Buffer<std::byte> out(quantizer->EncodedBytes(n));
        TensorInfo info{.name = "profile", .shape = {}};
        const SelectSource source{{gradient_.data(), n, {}}, residual.view()};
        return MeanTimeOf([&] {
          ++info.step;
          quantizer->Encode(context, source, info, out.host());
        });
      };
      (*profile_.encode)[name] = measured_.Curve("/encode/" + name, CurveOf(sizes, encode));
    }
  }

  std::size_t LargestTensor() const {
    std::size_t largest = 1;
    for (std::size_t t = 0; t < layout_.tensors(); ++t)
      largest = std::max(largest, layout_.tensor(t).numel);
    return largest;
  }

  // Time to decompress the payloads of all ranks, each of `density` and with at least one entry.
  Estimate DecompressSeconds(std::size_t n, double density) {
    const std::size_t count =
        std::max<std::size_t>(1, static_cast<std::size_t>(density * static_cast<double>(n)));
    std::vector<MadeUpPayload> payloads;
    for (int r = 0; r < std::max(2, rank_.size()); ++r) {
      std::mt19937_64 generator(static_cast<std::uint64_t>(r));
      MadeUpPayload drawn(count);
      for (auto& index : drawn) index = static_cast<std::uint32_t>(generator() % n);
      std::sort(drawn.begin(), drawn.end());
      drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
      payloads.push_back(std::move(drawn));
    }
    return MeanTimeOf(*kernels_, kernels_->Decompress(n, payloads));
  }

  void Decompression() {
    constexpr double kDense = 0.02;
    rank_.Synchronise();
    const auto clear = [&](std::size_t elements) { return DecompressSeconds(elements, 0); };
    profile_.clear = measured_.Curve("/clear", CurveOf(Sizes(largest_), clear));
    const std::size_t n = layout_.numel();
    const double entries = std::max(2, rank_.size()) * kDense * static_cast<double>(n);
    const Estimate adding = Excess(DecompressSeconds(n, kDense), DecompressSeconds(n, 0));
    profile_.seconds_per_entry =
        measured_.Value("/seconds_per_entry", PerItem(adding, static_cast<std::size_t>(entries)));
  }

  const Rank& rank_;
  const ProfileSubject& subject_;
  ProfileEffort effort_;
  const std::function<void(const std::string&)>& say_;
  GradientLayout layout_;
  std::size_t largest_ = 0;      // elements that kernels work on
  std::vector<float> gradient_;  // made-up values, [largest_]
  std::unique_ptr<TimedKernels> kernels_;
  Workspace workspace_;
  Profile profile_;
  const Measurement measured_{profile_};
};

}  // namespace

Profile MeasureProfile(const Rank& rank, const ProfileSubject& subject, const ProfileEffort& effort,
                       const std::function<void(const std::string&)>& say) {
  const auto begin = Clock::now();
  Profile profile = Profiler(rank, subject, effort, say).Measure();
  profile.seconds = MeanOverRanks(rank, SecondsSince(begin));
  return profile;
}

}  // namespace sparfuse::harness
