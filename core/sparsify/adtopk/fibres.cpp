// Selects the top k of each fibre along one axis of a tensor, on the host.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "core/base/cpu.hpp"
#include "core/sparsify/adtopk/adtopk.hpp"
#include "core/sparsify/adtopk/fibre_kernels.hpp"

namespace sparfuse {
namespace {

constexpr int kKeyBits = 31;
constexpr std::size_t kSide = 64;          // most adjacent fibres scanned together
constexpr std::size_t kSample = 1024;      // elements of a fibre sampled for its bound
constexpr std::int64_t kOctave = 1 << 23;  // key distance of a factor of 2 in magnitude
constexpr std::int64_t kMinMargin = kOctave / 1024;
constexpr std::uint32_t kAllTies = ~0u;

// Computes the remainder by a fixed divisor in two multiplications, exactly for 32-bit numbers.
// Source: D. Lemire, O. Kaser, N. Kurz, "Faster remainder by direct computation", 2019.
class Remainder {
 public:
  explicit Remainder(std::uint32_t divisor)
      : divisor_(divisor), inverse_(~std::uint64_t{0} / divisor + 1) {}

  std::uint32_t operator()(std::uint32_t x) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint32_t>((static_cast<Wide>(inverse_ * x) * divisor_) >> 64);
  }

 private:
  std::uint64_t divisor_;
  std::uint64_t inverse_;  // 2^64 / divisor, rounded up; 0 for 1, which gives remainder 0 as well
};

// Adjacent fibres scanned together: element c of fibre f is at begin + c * inner + f.
struct Block {
  std::size_t begin = 0;
  std::size_t side = 0;
};

// The candidates of a fibre to keep: the keys above `key` and the first `ties` that equal it.
struct Verdict {
  std::uint32_t key;
  std::uint32_t ties;
};

// One worker's scratch memory. Lies in the workspace.
struct Scratch {
  std::uint32_t bounds[kSide + kScanLanes];  // of the fibres of a block, repeating
  std::size_t side;                          // period of the bounds; 0: no bounds yet
  std::int64_t kth[kSide];                   // running mean of the k-th largest keys
  std::int64_t margin;                       // distance from kth down to the bound
  std::size_t counts[kSide];                 // number of candidates per fibre
  Verdict verdicts[kSide];
  std::uint64_t fallbacks;
  std::uint64_t candidates;
  bool finite;
  // Candidates of a block in index order, the fibre of each, and their values grouped by fibre. The
  // values of fibre f start at packed + f * stride.
  std::uint32_t* indices;
  float* values;
  std::uint8_t* columns;
  float* packed;
  std::size_t stride;
  std::uint32_t* keys;  // [length + 1]
};

class FibreSelection {
 public:
  FibreSelection(const SelectInput& input, const Fibres& fibres, std::size_t k)
      : fibre_kernels_(FibreKernelsFor(ActiveIsa())),
        kernels_(SelectKernelsFor(ActiveIsa())),
        input_(input),
        fibres_(fibres),
        k_(k),
        column_(static_cast<std::uint32_t>(fibres.inner)) {}

  // Selects k of each fibre of the block: k * side elements to `indices` and `values`, by index.
  void Select(Scratch& s, const Block& block, std::uint32_t* indices, float* values) const {
    if (s.side != block.side) Begin(s, block);
    std::size_t count = 0;
    int look = 0;
    do {
      std::uint32_t largest = 0;
      count = Scan(s, block, input_.pending && look == 0, &largest);
      if (largest >= kInfinityKey) {
        s.finite = false;
        return;
      }
      s.candidates += count;
      Sort(s, block, count);
    } while (LowerShortBounds(s, block, ++look));
    const bool ties = JudgeAll(s);
    Emit(s, count, ties, indices, values);
    Steer(s, count, look);
    if (input_.residual == nullptr) return;
    for (std::size_t i = 0; i < k_ * s.side; ++i) input_.residual[indices[i]] = 0.0f;
  }

 private:
  // Starts with the first block, or with one of another side: no earlier block gives bounds.
  void Begin(Scratch& s, const Block& block) const {
    s.side = block.side;
    // In Gaussian data the k-th magnitude of a fibre varies by about 1 / (8 sqrt(k)).
    s.margin = static_cast<std::int64_t>(0.4 * static_cast<double>(kOctave) /
                                         std::sqrt(static_cast<double>(k_)));
    for (std::size_t f = 0; f < s.side; ++f) {
      s.bounds[f] = SampleBound(s, block, f, input_.pending);
      s.kth[f] = s.bounds[f];
    }
    Repeat(s);
  }

  static void Repeat(Scratch& s) {
    if (s.side == 1) {  // copying one by one would wait for each store
      std::fill_n(s.bounds, kScanLanes, s.bounds[0]);
      return;
    }
    for (std::size_t i = s.side; i < s.side + kScanLanes; ++i) s.bounds[i] = s.bounds[i - s.side];
  }

  static std::uint32_t ToKey(std::int64_t key) {
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(key, 0, kInfinityKey));
  }

  // Returns a key that k elements of a fibre reach: certainly if the whole fibre is sampled, else
  // most likely.
  std::uint32_t SampleBound(Scratch& s, const Block& block, std::size_t fibre, bool pending) const {
    const std::size_t size = std::min(fibres_.length, kSample);
    const std::size_t stride = fibres_.length / size * fibres_.inner;
    std::size_t at = block.begin + fibre;
    if (stride == 1 && !pending) {
      kernels_.make_keys(input_.x() + at, size, s.keys);
    } else {
      for (std::size_t i = 0; i < size; ++i, at += stride) {
        s.keys[i] = KeyOf(pending ? input_.gradient[at] + input_.residual[at] : input_.x()[at]);
      }
    }
    double rank = static_cast<double>(k_);
    if (size < fibres_.length) {
      rank *= static_cast<double>(size) / static_cast<double>(fibres_.length);
      rank += 4 * std::sqrt(rank) + 4;
    }
    if (rank >= static_cast<double>(size)) return 0;
    return ToKey(
        FindCut(kernels_, {s.keys, size}, static_cast<std::size_t>(rank), 0, kKeyBits).key);
  }

  std::size_t Scan(Scratch& s, const Block& block, bool add, std::uint32_t* largest) const {
    FibreScan scan{add ? input_.gradient + block.begin : input_.x() + block.begin,
                   add ? input_.residual + block.begin : nullptr,
                   fibres_.length * block.side,
                   s.bounds,
                   block.side,
                   kPrefetchPays ? std::size_t{512} : 0,  // 2 KB
                   static_cast<std::uint32_t>(block.begin),
                   s.indices,
                   s.values};
    if (block.side == fibres_.inner) return fibre_kernels_.scan(scan, largest);
    // Scans a few elements of each row of a wider tensor: prefetching must run rows ahead.
    scan.n = block.side;
    scan.ahead = 8 * fibres_.inner;
    std::size_t count = 0;
    for (std::size_t c = 0; c < fibres_.length; ++c) {
      const std::size_t found = fibre_kernels_.scan(scan, largest);
      count += found;
      scan.gradient += fibres_.inner;
      if (add) scan.residual += fibres_.inner;
      scan.base += static_cast<std::uint32_t>(fibres_.inner);
      scan.indices += found;
      scan.values += found;
    }
    return count;
  }

  // Sorts the candidates by fibre, in index order within each.
  void Sort(Scratch& s, const Block& block, std::size_t count) const {
    if (s.side == 1) {
      s.counts[0] = count;
      return;
    }
    // The counts lie on the stack, where writes through a byte pointer cannot alias them.
    std::size_t counts[kSide] = {};
    const std::uint32_t* const indices = s.indices;
    const float* const values = s.values;
    std::uint8_t* const columns = s.columns;
    float* const packed = s.packed;
    const std::size_t stride = s.stride;
    const auto begin = static_cast<std::uint32_t>(block.begin);
    for (std::size_t j = 0; j < count; ++j) {
      const std::uint32_t f = column_(indices[j] - begin);
      columns[j] = static_cast<std::uint8_t>(f);
      packed[f * stride + counts[f]++] = values[j];
    }
    std::copy_n(counts, s.side, s.counts);
  }

  // Lowers the bounds that fewer than k elements reach, further at every look. Returns whether any
  // bound was lowered.
  bool LowerShortBounds(Scratch& s, const Block& block, int looks) const {
    bool any = false;
    for (std::size_t f = 0; f < s.side; ++f) {
      if (s.counts[f] >= k_) continue;
      any = true;
      if (looks == 1) {
        s.bounds[f] = ToKey(s.bounds[f] - 3 * s.margin);
      } else {
        s.bounds[f] = looks == 2 ? SampleBound(s, block, f, false) : 0;
      }
    }
    if (!any) return false;
    Repeat(s);
    ++s.fallbacks;
    return true;
  }

  // Returns whether any fibre has ties to break.
  bool JudgeAll(Scratch& s) const {
    bool ties = false;
    for (std::size_t f = 0; f < s.side; ++f) {
      const float* const of_fibre = s.side == 1 ? s.values : s.packed + f * s.stride;
      s.verdicts[f] = Judge(s, of_fibre, s.counts[f], s.bounds[f]);
      ties |= s.verdicts[f].ties != kAllTies;
    }
    return ties;
  }

  Verdict Judge(Scratch& s, const float* values, std::size_t count, std::uint32_t bound) const {
    Cut cut{bound, count};
    if (count <= kRankRoom) {
      cut.key = fibre_kernels_.rank(values, count, k_, &cut.count);
    } else if (count > k_) {
      const std::uint32_t largest = kernels_.make_keys(values, count, s.keys);
      // Ties at the bound itself, above all at zero, are frequent enough to be tested first.
      if (kernels_.count_at_least(s.keys, count, bound + 1) >= k_) {
        cut = FindCut(kernels_, {s.keys, count}, k_, bound, std::bit_width(largest - bound));
      }
    }
    if (cut.count == k_) return {cut.key, kAllTies};
    const auto above =
        std::count_if(values, values + count, [&](float x) { return KeyOf(x) > cut.key; });
    return {cut.key, static_cast<std::uint32_t>(k_ - static_cast<std::size_t>(above))};
  }

  // Sets the bounds for the next block from the k-th keys of this one. The margin grows if the
  // block was scanned again and shrinks else, so that one block in thirty is scanned again.
  void Steer(Scratch& s, std::size_t count, int looks) const {
    const bool many = count > (8 * k_ + 64) * s.side;
    if (looks > 1) {
      s.margin += s.margin / 4;
    } else {
      s.margin -= s.margin / (many ? 8 : 128);
    }
    s.margin = std::clamp(s.margin, kMinMargin, kOctave);
    for (std::size_t f = 0; f < s.side; ++f) {
      const std::int64_t kth = s.verdicts[f].key;
      if (many || (looks > 1 && kth < s.kth[f])) {
        s.kth[f] = kth;
      } else {
        s.kth[f] += (kth - s.kth[f]) / 8;
      }
      s.bounds[f] = ToKey(s.kth[f] - s.margin);
    }
    Repeat(s);
  }

  void Emit(Scratch& s, std::size_t count, bool ties, std::uint32_t* indices, float* values) const {
    if (s.side == 1 && !ties) {
      kernels_.emit(s.indices, s.values, count, s.verdicts[0].key, k_, indices, values);
      return;
    }
    const std::size_t total = k_ * s.side;
    std::size_t taken = 0;
    if (!ties) {
      for (std::size_t j = 0; taken < total; ++j) {
        indices[taken] = s.indices[j];
        values[taken] = s.values[j];
        taken += static_cast<std::size_t>(KeyOf(s.values[j]) >= s.verdicts[s.columns[j]].key);
      }
      return;
    }
    for (std::size_t j = 0; taken < total; ++j) {
      Verdict& verdict = s.verdicts[s.side == 1 ? 0 : s.columns[j]];
      const std::uint32_t key = KeyOf(s.values[j]);
      indices[taken] = s.indices[j];
      values[taken] = s.values[j];
      bool kept = key >= verdict.key;
      if (key == verdict.key && verdict.ties != kAllTies) {
        kept = verdict.ties > 0;
        verdict.ties -= static_cast<std::uint32_t>(kept);
      }
      taken += static_cast<std::size_t>(kept);
    }
    assert(taken == total);
  }

  const FibreKernels& fibre_kernels_;
  const SelectKernels& kernels_;
  SelectInput input_;
  Fibres fibres_;
  std::size_t k_;
  Remainder column_;
};

// Sorts by index the selections of one slice's blocks, each in index order. It sorts by row, since
// within a row blocks follow one another. cursors: [length + 1], scratch.
void MergeRows(const Fibres& fibres, std::size_t begin, std::span<const std::uint32_t> indices,
               const float* values, std::uint32_t* cursors, std::uint32_t* out_indices,
               float* out_values) {
  const auto row = [&](std::uint32_t i) { return (i - begin) / fibres.inner; };
  std::fill_n(cursors, fibres.length + 1, 0u);
  for (const std::uint32_t i : indices) ++cursors[row(i) + 1];
  for (std::size_t c = 0; c < fibres.length; ++c) cursors[c + 1] += cursors[c];
  for (std::size_t j = 0; j < indices.size(); ++j) {
    const std::uint32_t at = cursors[row(indices[j])]++;
    out_indices[at] = indices[j];
    out_values[at] = values[j];
  }
}

std::span<Scratch> MakeScratch(Workspace& workspace, const Fibres& fibres, std::size_t side,
                               std::size_t workers) {
  const std::size_t stride = fibres.length + 16;  // avoids strides that share cache sets
  const std::size_t room = stride * side;
  const auto all = WorkspaceArray<Scratch>(workspace, kUseFibres, workers);
  const auto indices = WorkspaceArray<std::uint32_t>(workspace, kUseIndices, workers * room);
  const auto values = WorkspaceArray<float>(workspace, kUseValues, workers * room);
  const auto columns = WorkspaceArray<std::uint8_t>(workspace, kUseFibreColumns, workers * room);
  const auto packed = WorkspaceArray<float>(workspace, kUseFibreValues, workers * room);
  const std::size_t key_room = fibres.length + 1;
  const auto keys = WorkspaceArray<std::uint32_t>(workspace, kUseKeys, workers * key_room);
  for (std::size_t w = 0; w < workers; ++w) {
    Scratch& s = all[w];
    s.side = 0;
    s.fallbacks = 0;
    s.candidates = 0;
    s.finite = true;
    s.indices = indices.data() + w * room;
    s.values = values.data() + w * room;
    s.columns = columns.data() + w * room;
    s.packed = packed.data() + w * room;
    s.stride = stride;
    s.keys = keys.data() + w * key_room;
  }
  return all;
}

}  // namespace

Fibres FibresOf(std::size_t n, std::span<const std::int64_t> shape, FibreAxis axis) {
  if (shape.size() < 2) return {1, n, 1};
  const auto first = static_cast<std::size_t>(shape[0]);
  const auto second = static_cast<std::size_t>(shape[1]);
  if (axis == FibreAxis::kFirst || (axis == FibreAxis::kLongest && first > second)) {
    return {1, first, n / first};
  }
  return {first, second, n / first / second};
}

void SelectFibres(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Fibres& fibres, std::size_t k, Slot& slot) {
  Workspace& workspace = *context.workspace;
  const FibreSelection selection(input, fibres, k);
  const bool whole_rows = fibres.inner <= kSide;
  const std::size_t side = whole_rows ? fibres.inner : kSide;
  const auto scratch =
      MakeScratch(workspace, fibres, side, static_cast<std::size_t>(context.pool->threads()));
  // Blocks that are parts of rows select into scratch memory, and are then merged into the slot.
  std::uint32_t* indices = slot.indices.data;
  float* values = slot.values.data;
  const std::size_t total = fibres.count() * k;
  if (!whole_rows) {
    indices = WorkspaceArray<std::uint32_t>(workspace, kUseUnmergedIndices, total).data();
    values = WorkspaceArray<float>(workspace, kUseUnmergedValues, total).data();
  }

  const std::size_t row_blocks = (fibres.inner + side - 1) / side;
  const std::size_t blocks = fibres.outer * row_blocks;
  const std::size_t in_chunk = input.n < kParallelElements
                                   ? blocks
                                   : std::max<std::size_t>(1, kChunk / (fibres.length * side));
  context.pool->ParallelFor((blocks + in_chunk - 1) / in_chunk, [&](std::size_t c, int worker) {
    Scratch& s = scratch[static_cast<std::size_t>(worker)];
    for (std::size_t b = c * in_chunk; b < std::min(blocks, (c + 1) * in_chunk); ++b) {
      const std::size_t outer = b / row_blocks;
      const std::size_t first = b % row_blocks * side;
      const std::size_t at = (outer * fibres.inner + first) * k;
      selection.Select(
          s, {outer * fibres.length * fibres.inner + first, std::min(side, fibres.inner - first)},
          indices + at, values + at);
    }
  });
  input.pending = false;
  bool finite = true;
  for (const Scratch& s : scratch) {
    finite &= s.finite;
    context.counters->fallbacks += s.fallbacks;
    context.counters->candidates += s.candidates;
  }
  if (!finite) ThrowNotFinite(input, info);
  if (!whole_rows) {
    context.pool->ParallelFor(fibres.outer, [&](std::size_t o, int worker) {
      const std::size_t slice = fibres.inner * k;
      MergeRows(fibres, o * fibres.length * fibres.inner, {indices + o * slice, slice},
                values + o * slice, scratch[static_cast<std::size_t>(worker)].keys,
                slot.indices.data + o * slice, slot.values.data + o * slice);
    });
  }
  slot.count = total;
}

}  // namespace sparfuse
