// Selects by MSTopK: bisection between the mean and the maximum magnitude brackets the k-th one.
// The elements above the bracket are sent, and elements inside it fill up to k.
//
// Source:      S. Shi et al., "Towards scalable distributed training of deep learning on public
//              cloud clusters", MLSys 2021, algorithm 1.
// Deviations:  the run of elements inside the bracket wraps around: after the last element it goes
//              on at the first. More than 2k + 65536 elements at or above the bracket become an
//              exact top-k.
//
// With the mean M and the maximum X of a = |x|, `iterations` times, r starting in [0, 1]:
//   bisection  t = M + r (X - M), with r the middle of its range. If at most k elements have
//              a >= t, t is the new upper end th1 and r decreases. Else t is the new lower end th2,
//              and r increases.
//   selection  all a >= th1, then consecutive elements, by index, of th2 <= a < th1 from a random
//              start.
//
// A count shows only on which side of the (k + 1)-th magnitude t lies. That magnitude is found
// among the candidates of a single pass, and the bisection reads no data at all.
#include <algorithm>

#include "core/base/random_stream.hpp"
#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/mstopk/mstopk_kernels.hpp"
#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/scan_sparsifier.hpp"

namespace sparfuse {
namespace {

// Sends all candidates from `upper` on, and of those inside the bracket the positions
// [start, start + wanted) modulo `inside`.
void SendBracket(const SelectInput& input, const Candidates& candidates, const Bracket& bracket,
                 std::size_t inside, std::size_t start, std::size_t wanted, Slot& slot) {
  std::size_t position = 0;
  std::size_t taken = 0;
  for (const CandidateSegment& run : candidates.runs()) {
    Settle(input, candidates, run, bracket.upper);
    for (std::size_t i = run.offset; i < run.offset + run.count; ++i) {
      const float value = candidates.values[i];
      const std::uint32_t key = KeyOf(value);
      if (key < bracket.lower) continue;
      if (key < bracket.upper) {
        const std::size_t turn = (position++ + inside - start) % inside;
        if (turn >= wanted) continue;
      }
      slot.indices.data[taken] = candidates.indices[i];
      slot.values.data[taken++] = value;
      if (key < bracket.upper && input.residual != nullptr) {
        input.residual[candidates.indices[i]] = 0.0f;
      }
    }
  }
  slot.count = taken;
}

class MsTopK final : public WarmSparsifier {
 public:
  MsTopK(std::int64_t iterations, std::uint64_t seed) : iterations_(iterations), seed_(seed) {}

  std::string_view name() const noexcept override { return "mstopk"; }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* state, Slot& slot) const override {
    const std::size_t k = aim.k;
    WarmBound* const bound = BoundOf(state);
    Statistics statistics;
    statistics.moments = kWantAbs;
    const Candidates first = CollectAndMeasure(context, input, info, k, bound, &statistics);
    Candidates candidates = first;
    if (first.stored) {
      const std::uint32_t next =
          first.count > k ? KeyOfRank(context, first, k + 1) : first.lo - 1;  // the crowd's key
      const Bracket bracket = Bisect(statistics.MeanAbs(), statistics.MaxAbs(), next, iterations_);
      if (bracket.lower < first.lo && first.ties_below == 0) {
        Restore(input, first);
        candidates =
            Collect(context, input, info, bracket.lower, kFineShift, CandidateCapacity(input.n, k));
      }
      if (candidates.stored && candidates.lo <= bracket.lower) {
        Learn(first, next, k, bound);
        const std::size_t reach = CountCandidates(context, candidates, bracket.lower);
        const std::size_t sure = CountCandidates(context, candidates, bracket.upper);
        if (sure == k) {
          SendCandidates(context, input, candidates, bracket.upper, slot);
        } else {
          const std::size_t start = RandomStream(seed_, info.id, info.step).Below(reach - sure, 0);
          SendBracket(input, candidates, bracket, reach - sure, start, k - sure, slot);
        }
        return;
      }
    }
    ++context.counters->fallbacks;
    const std::uint32_t key = SelectLargestAmong(context, input, info, candidates, k, slot);
    Learn(first, key, k, bound);
  }

  std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t /*n*/,
                                                   Device /*device*/) const override {
    return nullptr;
  }

  // Each step takes its bound from a sample: a warm bound that is too high would change the
  // selection, not only the time.
  //
  // Cost: one pass over x, and a second one if the bracket reaches below the candidates.
  void SelectPartOnDevice(const DeviceContext& context, const DeviceInput& input,
                          const TensorInfo& info, const Aim& aim, SparsifierState* /*state*/,
                          DeviceSlot& slot) const override {
    auto* const step = context.workspace->Get<gpu::MsTopKStep>(context.stream, kUseStep, 1);
    ScanOptions options = Correcting(input.n, aim.k, nullptr);
    options.own = &step->counts.listed;
    options.own_size = sizeof(step->counts) / sizeof(std::uint32_t);
    DeviceScan scan = PrepareScan(context, input, info, aim.k, slot, options);
    CollectAndMeasureOnDevice<false>(context, scan, gpu::NoteRange{step});

    const gpu::CandidateArrays candidates = gpu::CandidatesOf(scan);
    const auto count = static_cast<std::uint32_t>(aim.k);
    const std::size_t blocks = std::clamp<std::size_t>(scan.capacity / 4096, 1, kMostCounting);
    gpu::Launch(context.stream, blocks,
                gpu::FindBracket{iterations_, count, scan.control, candidates, scan.list, step},
                scan.active());
    RecollectOnDevice(context, scan);
    gpu::Launch(context.stream, blocks,
                gpu::CountBracket{RandomStream(seed_, info.id, info.step), count,
                                  static_cast<std::uint32_t>(CandidateCapacity(input.n, aim.k)),
                                  scan.control, candidates, step, slot.report},
                scan.active());
    gpu::Launch(context.stream, scan.plan.spans,
                gpu::SendBracket{count, static_cast<std::uint32_t>(scan.plan.chunks),
                                 static_cast<std::uint32_t>(scan.plan.chunks_per_span),
                                 scan.control, candidates, step, gpu::TargetOf(input, slot)},
                &step->counts.send);
    Send(context, scan, slot);
  }

 private:
  std::int64_t iterations_;
  std::uint64_t seed_;
};

}  // namespace

SparsifierDescriptor MsTopKDescriptor() {
  return {.name = "mstopk",
          .paper = "Shi et al., MLSys 2021",
          .revision = 2,
          .exact_count = true,
          .contraction = KeptFraction,
          .deviations =
              "The run of elements from inside the bracket wraps around from the bracket's last "
              "element to its first. More than 2k + 65536 elements at or above the bracket become "
              "an exact top-k.",
          .options = {WholeOption("iterations", 30, 1, 64,
                                  "halvings of the range between mean and maximum magnitude")},
          .make = [](const Options& resolved, std::uint64_t seed) -> std::unique_ptr<Sparsifier> {
            return std::make_unique<MsTopK>(IntOption(resolved, "iterations"), seed);
          }};
}

}  // namespace sparfuse
