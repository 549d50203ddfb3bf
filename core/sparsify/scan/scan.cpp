#include "core/sparsify/scan/scan.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <span>

#include "core/base/cpu.hpp"
#include "core/base/stream_store.hpp"
#include "core/sparsify/scan/statistics.hpp"

namespace sparfuse {
namespace {

// Per worker, a cache line apart: the histogram, the largest key that the worker saw, and whether
// the histogram is in use.
constexpr std::size_t kHistogramStride = kBins + 16;
constexpr std::size_t kHistogramMax = kBins + 1;
constexpr std::size_t kHistogramUsed = kBins + 2;

constexpr std::size_t kLineBytes = 64;

// A worker takes its part of the candidate arrays in pieces of so many entries: an atomic addition
// for each block would wait for the streamed stores before it.
constexpr std::size_t kPiece = kBlock;

// The rest of a worker's piece, and all candidates that it found.
struct alignas(kLineBytes) Share {
  std::size_t next = 0;
  std::size_t end = 0;
  std::size_t count = 0;
};

void AddToHistogram(std::uint32_t key, const Candidates& candidates, std::uint32_t* histogram) {
  ++histogram[std::min<std::uint32_t>((key - candidates.lo) >> candidates.shift, kBins)];
}

}  // namespace

SelectInput BeginSelect(std::string_view sparsifier, const SelectContext& context,
                        const SelectSource& source, double density, const TensorInfo& info,
                        const Slot& slot) {
  CheckSelectArguments(sparsifier, source, density, info);
  const auto on_host = [](const Stream& stream) { return stream.device.kind == DeviceKind::kHost; };
  if (!on_host(context.stream) || !on_host(source.gradient.stream) ||
      !on_host(source.residual.stream) || !on_host(slot.indices.stream) ||
      !on_host(slot.values.stream)) {
    SPARFUSE_THROW(kUnsupported, sparsifier, ": ", Describe(info),
                   ": memory on a device; Select works on the host");
  }
  ++context.counters->selections;
  const bool feedback = source.residual.size != 0;
  return {source.gradient.data, feedback ? source.residual.data : nullptr, source.gradient.size,
          feedback, source.updated.size != 0 ? source.updated.data : nullptr};
}

void ThrowNotFinite(const SelectInput& input, const TensorInfo& info) {
  std::size_t i = 0;
  while (i < input.n && std::isfinite(input.At(i))) ++i;
  SPARFUSE_THROW(kNumeric, Describe(info), ": element ", i, " of ", input.n, " is ", input.At(i),
                 "; expected a finite gradient");
}

void AddPending(const SelectContext& context, SelectInput& input, const TensorInfo& info) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  input.BringOver();
  const std::size_t chunk_size = ChunkSize(input.n);
  float* residual = input.pending ? input.residual : nullptr;
  const float* from = input.pending ? input.gradient : input.x();
  std::atomic<bool> finite{true};
  context.pool->ParallelFor((input.n + chunk_size - 1) / chunk_size, [&](std::size_t c, int) {
    const std::size_t begin = c * chunk_size;
    const std::size_t size = std::min(chunk_size, input.n - begin);
    const std::uint32_t largest =
        kernels.add(from + begin, residual == nullptr ? nullptr : residual + begin, size);
    if (largest >= kInfinityKey) finite.store(false, std::memory_order_relaxed);
  });
  input.pending = false;
  if (!finite) ThrowNotFinite(input, info);
}

void RequireFinite(ThreadPool& pool, std::span<const float> gradient, const TensorInfo& info) {
  SelectInput input{gradient.data(), nullptr, gradient.size(), false};
  AddPending({&pool, nullptr, nullptr, {}}, input, info);
}

void SelectAll(const SelectContext& context, SelectInput& input, const TensorInfo& info,
               Slot& slot) {
  AddPending(context, input, info);
  const std::size_t chunk_size = ChunkSize(input.n);
  context.pool->ParallelFor((input.n + chunk_size - 1) / chunk_size, [&](std::size_t c, int) {
    const std::size_t begin = c * chunk_size;
    const std::size_t end = std::min(input.n, begin + chunk_size);
    for (std::size_t i = begin; i < end; ++i) {
      slot.indices.data[i] = static_cast<std::uint32_t>(i);
    }
    std::copy(input.x() + begin, input.x() + end, slot.values.data + begin);
    if (input.residual != nullptr) std::fill(input.residual + begin, input.residual + end, 0.0f);
  });
  slot.count = input.n;
}

Candidates Collect(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                   std::uint32_t lo, int shift, std::size_t capacity, Statistics* statistics,
                   std::uint32_t clear_from) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  Workspace& workspace = *context.workspace;
  const std::size_t chunk_size = ChunkSize(input.n);
  const std::size_t chunks = (input.n + chunk_size - 1) / chunk_size;
  const auto workers = static_cast<std::size_t>(context.pool->threads());

  Candidates found;
  found.lo = lo;
  found.shift = shift;
  found.cleared = input.residual == nullptr ? kNoKey : std::max(clear_from, lo);
  // As many as fit if each worker leaves all but an entry of its last piece.
  found.room = capacity == 0 ? 0 : capacity + workers * kPiece;
  found.indices = WorkspaceArray<std::uint32_t>(workspace, kUseIndices, found.room).data();
  found.values = WorkspaceArray<float>(workspace, kUseValues, found.room).data();
  // The runs and then the table of chunks share one buffer: both are small. The candidates of a
  // block lie in two pieces at most.
  const std::size_t chunk_runs = std::min(kMostRuns, 2 * ((chunk_size + kBlock - 1) / kBlock));
  const std::size_t segment_bytes = chunks * chunk_runs * sizeof(CandidateSegment);
  const std::span<std::byte> tables =
      workspace.Get(kUseSegments, segment_bytes + chunks * sizeof(CandidateChunk));
  auto* segments = reinterpret_cast<CandidateSegment*>(tables.data());
  found.chunks = {reinterpret_cast<CandidateChunk*>(tables.data() + segment_bytes), chunks};
  const auto histograms =
      WorkspaceArray<std::uint32_t>(workspace, kUseHistograms, workers * kHistogramStride);
  for (std::size_t w = 0; w < workers; ++w) {
    histograms[w * kHistogramStride + kHistogramMax] = 0;
    histograms[w * kHistogramStride + kHistogramUsed] = 0;
  }
  const auto offsets = WorkspaceArray<std::uint16_t>(workspace, kUseOffsets, workers * kOffsetRoom);

  const float* const residual = input.pending ? input.residual : nullptr;
  const float* const from = input.pending ? input.gradient : input.x();
  float* const apart = input.pending ? input.updated : nullptr;
  float* const sums = apart != nullptr ? apart : input.residual;
  // The scan itself writes the sums past the caches, unless they are measured too.
  const bool at_once = apart != nullptr && statistics == nullptr && StreamingPays(input.n) &&
                       reinterpret_cast<std::uintptr_t>(apart) % kLineBytes == 0;
  // Found elements are read again in L1, where two large arrays that begin alike have little room.
  const std::size_t block = at_once ? kBlock / 2 : kBlock;
  std::atomic<std::size_t> taken{0};  // entries of all pieces
  const std::span<Share> shares = WorkspaceArray<Share>(workspace, kUseShares, workers);
  std::ranges::fill(shares, Share());
  // All elements are measured, none are added, and no finite one reaches the bound.
  const bool skip = statistics != nullptr && residual == nullptr && lo > kInfinityKey;
  std::span<Statistics> parts;  // added up in index order, whichever worker measures them
  if (statistics != nullptr) parts = WorkspaceArray<Statistics>(workspace, kUseChunkParts, chunks);

  context.pool->ParallelFor(chunks, [&](std::size_t c, int worker) {
    const auto w = static_cast<std::size_t>(worker);
    std::uint32_t* const histogram = histograms.data() + w * kHistogramStride;
    std::uint16_t* const at = offsets.data() + w * kOffsetRoom;
    CandidateChunk chunk{segments + c * chunk_runs, 0};
    Share share = shares[w];
    std::uint32_t largest = 0;
    // Counts found elements of a block for which no piece is left.
    const auto count_only = [&](const float* x, std::size_t begin,
                                std::span<const std::uint16_t> places) {
      if (histogram[kHistogramUsed]++ == 0) std::fill_n(histogram, kBins + 1, 0u);
      for (const std::uint16_t place : places) {
        const std::size_t i = begin + place;
        if (x == nullptr) apart[i] = from[i] + residual[i];
        const std::uint32_t key = KeyOf(x == nullptr ? apart[i] : x[place]);
        largest = std::max(largest, key);
        AddToHistogram(key, found, histogram);
      }
    };
    // Keeps the `count` found elements of a block. `x` points to them, or is null: then the sums
    // have bypassed the caches, except those cleared here.
    const auto keep = [&](const float* x, std::size_t begin, std::size_t count) {
      share.count += count;
      for (std::size_t j = 0; j < count;) {
        // Timing decides which worker gets which piece. It changes neither a block's elements, nor
        // the order in which blocks are read back, nor the total.
        if (share.next == share.end) {
          const std::size_t offset = taken.fetch_add(kPiece, std::memory_order_relaxed);
          if (offset + kPiece > found.room) {
            count_only(x, begin, {at + j, count - j});
            return;
          }
          share.next = offset;
          share.end = offset + kPiece;
        }
        const std::size_t some = std::min(count - j, share.end - share.next);
        std::uint32_t* const indices = found.indices + share.next;
        float* const values = found.values + share.next;
        const auto base = static_cast<std::uint32_t>(begin);
        largest = std::max(largest, x == nullptr
                                        ? kernels.gather_sums(from + begin, residual + begin,
                                                              at + j, some, base, indices, values)
                                        : kernels.gather(x, at + j, some, base, indices, values));
        CandidateSegment* const last =
            chunk.segment_count == 0 ? nullptr : chunk.segments + chunk.segment_count - 1;
        if (last != nullptr && last->offset + last->count == share.next) {
          last->count += static_cast<std::uint32_t>(some);
        } else {
          chunk.segments[chunk.segment_count++] = {share.next, static_cast<std::uint32_t>(some), 0,
                                                   0};
        }
        if (x != nullptr && found.cleared != kNoKey) {
          kernels.clear(at + j, values, some, found.cleared, sums + begin);
        }
        share.next += some;
        j += some;
      }
    };
    if (statistics != nullptr) parts[c] = *statistics;
    const std::size_t end = std::min(input.n, (c + 1) * chunk_size);
    for (std::size_t begin = c * chunk_size; begin < end; begin += block) {
      const std::size_t size = std::min(block, end - begin);
      if (at_once) {
        const std::size_t count = kernels.scan_apart(from + begin, residual + begin, size, lo,
                                                     found.cleared, at, apart + begin);
        if (count > 0) keep(nullptr, begin, count);
        continue;
      }
      const float* const x = sums != nullptr ? sums + begin : from + begin;
      const std::size_t count =
          skip ? 0
               : kernels.scan(from + begin, residual == nullptr ? nullptr : residual + begin,
                              residual == nullptr ? nullptr : sums + begin, size, lo, at);
      if (statistics != nullptr) MeasureBlock(kernels, x, size, parts[c]);
      if (count > 0) keep(x, begin, count);
    }
    if (at_once) EndStreaming();
    found.chunks[c] = chunk;
    shares[w] = share;
    histogram[kHistogramMax] = std::max(histogram[kHistogramMax], largest);
  });

  input.Added();
  std::uint32_t largest = 0;
  for (std::size_t w = 0; w < workers; ++w) {
    largest = std::max(largest, histograms[w * kHistogramStride + kHistogramMax]);
  }
  for (const Statistics& part : parts) {
    AddStatistics(part, *statistics);
    largest = std::max(largest, part.max_key);
  }
  // An element that is not finite has a key above any bound, so it is among the candidates.
  if (largest >= kInfinityKey) {
    Restore(input, found);
    ThrowNotFinite(input, info);
  }
  found.largest = largest;
  for (const Share& share : shares) found.count += share.count;
  found.stored = found.count <= capacity;
  context.counters->candidates += found.count;
  if (found.stored) return found;

  Restore(input, found);
  found.cleared = kNoKey;
  const std::span<std::uint32_t> total = histograms.first(kBins + 1);
  if (histograms[kHistogramUsed] == 0) std::fill(total.begin(), total.end(), 0u);
  for (std::size_t w = 1; w < workers; ++w) {
    const std::uint32_t* const other = histograms.data() + w * kHistogramStride;
    if (other[kHistogramUsed] == 0) continue;
    for (std::size_t b = 0; b <= kBins; ++b) total[b] += other[b];
  }
  for (const CandidateSegment& run : found.runs()) {
    for (const float value : std::span(found.values + run.offset, run.count)) {
      AddToHistogram(KeyOf(value), found, total.data());
    }
  }
  found.histogram = total.data();
  return found;
}

bool MoreReach(const SelectInput& input, std::uint32_t key, std::size_t many) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  std::uint32_t keys[kCountedKeys];
  std::fill(std::begin(keys), std::end(keys), kInfinityKey);
  keys[0] = key;
  std::size_t counts[kCountedKeys] = {};
  for (std::size_t begin = 0; begin < input.n && counts[0] <= many; begin += kBlock) {
    kernels.count_reaching(input.x() + begin, std::min(kBlock, input.n - begin), keys, counts);
  }
  return counts[0] > many;
}

void Settle(const SelectInput& input, const Candidates& candidates, const CandidateSegment& run,
            std::uint32_t key, std::size_t begin) {
  if (input.residual == nullptr || key == candidates.cleared) return;
  const bool zero = key < candidates.cleared;
  SelectKernelsFor(ActiveIsa())
      .put(candidates.indices + run.offset + begin, candidates.values + run.offset + begin,
           run.count - begin, std::min(key, candidates.cleared), std::max(key, candidates.cleared),
           zero, input.residual);
}

void Restore(const SelectInput& input, const Candidates& candidates) {
  for (const CandidateSegment& run : candidates.runs()) Settle(input, candidates, run, kNoKey);
}

void TakeFirst(const SelectInput& input, const Candidates& candidates, std::size_t limit,
               Slot& slot) {
  std::size_t taken = 0;
  for (const CandidateSegment& run : candidates.runs()) {
    const std::size_t count = std::min<std::size_t>(run.count, limit - taken);
    std::copy_n(candidates.indices + run.offset, count, slot.indices.data + taken);
    std::copy_n(candidates.values + run.offset, count, slot.values.data + taken);
    taken += count;
    if (count < run.count) Settle(input, candidates, run, kNoKey, count);
  }
  slot.count = taken;
  if (input.residual == nullptr || candidates.cleared <= candidates.lo) return;
  for (std::size_t i = 0; i < taken; ++i) input.residual[slot.indices.data[i]] = 0.0f;
}

Cut FindCut(const SelectKernels& kernels, std::span<const std::uint32_t> keys, std::size_t rank,
            std::uint32_t base, int bits, int coarse) {
  Cut cut{base, keys.size()};  // the count is corrected below unless the base itself is the cut
  bool counted = false;
  for (int bit = bits - 1; bit >= coarse; --bit) {
    const std::uint32_t key = cut.key + (1u << bit);
    if (key > kAbsMask) continue;  // above every key
    const std::size_t count = kernels.count_at_least(keys.data(), keys.size(), key);
    if (count < rank) continue;
    cut = {key, count};
    counted = true;
    if (count == rank) return cut;
  }
  if (!counted) cut.count = kernels.count_at_least(keys.data(), keys.size(), base);
  return cut;
}

}  // namespace sparfuse
