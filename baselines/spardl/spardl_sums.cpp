#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "baselines/spardl/spardl.hpp"
#include "core/base/error.hpp"

namespace sparfuse::baselines {
namespace {

std::int64_t LeastOf(std::size_t kept, std::size_t teams) {
  return static_cast<std::int64_t>(std::max<std::size_t>(1, kept / teams));
}

constexpr double kMostTeams = 1 << 16;

// Finds values by indices that are requested in increasing order.
class Reader {
 public:
  explicit Reader(const SparsePayload& from) : from_(from) {}
  // Returns null if there is none.
  const float* Find(std::uint32_t index) {
    while (at_ < from_.indices.size() && from_.indices[at_] < index) ++at_;
    const bool found = at_ < from_.indices.size() && from_.indices[at_] == index;
    return found ? &from_.values[at_] : nullptr;
  }

 private:
  SparsePayload from_;
  std::size_t at_ = 0;
};

}  // namespace

SpardlBlocks::SpardlBlocks(const ExchangeShape& shape, std::size_t count)
    : elements_(shape.elements),
      count_(count),
      width_(std::max<std::size_t>(1, (shape.elements + count - 1) / count)),
      kept_(std::max<std::size_t>(
          1, width_ * shape.kept / std::max<std::size_t>(1, shape.elements))) {}

std::size_t SpardlBlocks::KeptBelow(std::size_t block) const {
  const std::size_t whole = std::min(block, elements_ / width_);
  const std::size_t rest = block > whole ? elements_ - whole * width_ : 0;
  return whole * kept_ + std::min(kept_, rest);
}

std::size_t SpardlBlocks::KeptOf(std::size_t first, std::size_t blocks) const {
  const std::size_t last = first + blocks;
  const std::size_t around = last > count_ ? KeptBelow(last - count_) : 0;
  return KeptBelow(std::min(last, count_)) - KeptBelow(first) + around;
}

std::vector<SpardlStep> SpardlScatterSteps(std::size_t ranks) {
  std::vector<SpardlStep> steps;
  if (ranks <= 1) return steps;
  // The first step folds the ranks beyond a power of two.
  std::size_t gap = std::bit_ceil(ranks) / 2;
  steps.push_back({gap, ranks - gap});
  while (gap > 1) {
    gap /= 2;
    steps.push_back({gap, gap});
  }
  return steps;
}

std::vector<SpardlStep> BruckSteps(std::size_t ranks) {
  std::vector<SpardlStep> steps;
  for (std::size_t gap = 1; gap < ranks; gap *= 2) {
    steps.push_back({gap, std::min(2 * gap, ranks) - gap});
  }
  return steps;
}

std::size_t SpardlCount::Next(std::size_t kept, std::size_t teams) {
  if (kept == 0) return 0;
  const std::int64_t least = LeastOf(kept, teams);
  const auto most = static_cast<std::int64_t>(kept);
  if (count_ == 0) {
    count_ = least;
    step_ = std::max<std::int64_t>(1, (most - least) / 100);
  }
  return static_cast<std::size_t>(std::clamp(count_, least, most));
}

void SpardlCount::Learn(std::size_t merged, std::size_t kept, std::size_t teams) {
  if (kept == 0) return;
  const auto most = static_cast<std::int64_t>(kept);
  if ((merged > kept) != (step_ > 0)) {
    if (again_) step_ = std::clamp(2 * step_, -most, most);
    again_ = !again_;
  } else {
    step_ = step_ > 1 || step_ < -1 ? -step_ / 2 : -step_;
    again_ = false;
  }
  const auto used = static_cast<std::int64_t>(Next(kept, teams));
  count_ = std::clamp(used + step_, LeastOf(kept, teams), most);
}

std::vector<OptionSpec> SpardlOptions() {
  return {
      WholeOption("teams", 1, 1, kMostTeams,
                  "teams of neighbouring ranks, each of which reduces the whole range before they "
                  "compare their blocks; must divide the ranks"),
      ChoiceOption(
          "cut", "lazy", {"lazy", "eager"},
          "values from which a block is cut before it is sent: the arrived sums and the rank's "
          "accumulated gradient, or the arrived sums and the sparsifier's selection"),
      ChoiceOption(
          "sag", "bruck", {"bruck", "recursive-doubling"},
          "how teams compare their blocks: lists of an adapted number of elements are gathered, or "
          "lists of k_b elements are added pair by pair, for which the number of teams must be a "
          "power of two"),
      FlagOption(
          "serial_blocks", false,
          "blocks are exchanged one after another, as by the published code, instead of in one "
          "message a step")};
}

SpardlForm FormOf(const Options& options) {
  return {.teams = static_cast<std::size_t>(IntOption(options, "teams")),
          .lazy = StringOption(options, "cut") == "lazy",
          .doubling = StringOption(options, "sag") == "recursive-doubling",
          .serial_blocks = BoolOption(options, "serial_blocks")};
}

std::string SpardlRefuses(const SpardlForm& form, const Topology& topology) {
  const std::string teams = std::to_string(form.teams);
  if (form.doubling && !std::has_single_bit(form.teams)) {
    return "doubles teams pair by pair, and teams = " + teams + " is no power of two";
  }
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  if (ranks % form.teams == 0) return "";
  std::string divisors;
  for (std::size_t d = 1; d <= ranks; ++d) {
    if (ranks % d == 0) divisors += (d == 1 ? "" : ", ") + std::to_string(d);
  }
  return "takes teams of equal size, and teams = " + teams + " does not divide " +
         std::to_string(ranks) + " ranks; expected one of " + divisors;
}

SpardlSums::SpardlSums() : select_(FindSparsifier("topk").make({}, 0)) {}

void SpardlSums::Begin(const SpardlBlocks& blocks) {
  blocks_ = blocks;
  accumulated_ = {};
  own_ = {};
  parts_.resize(blocks.count());
  for (Part& part : parts_) {
    for (SparseSums* sums : {&part.sums, &part.cut, &part.rest, &part.dropped}) sums->Clear();
  }
}

void SpardlSums::BeginLazy(const SpardlBlocks& blocks, std::span<const float> accumulated,
                           std::uint64_t step) {
  Begin(blocks);
  lazy_ = true;
  accumulated_ = accumulated;
  step_ = step;
}

void SpardlSums::BeginEager(const SpardlBlocks& blocks, const SparsePayload& own) {
  Begin(blocks);
  lazy_ = false;
  own_ = own;
  for (std::size_t b = 0; b < blocks.count(); ++b) {
    const SparsePayload part = Slice(own, blocks.begin(b), blocks.end(b));
    parts_[b].sums.indices.assign(part.indices.begin(), part.indices.end());
    parts_[b].sums.values.assign(part.values.begin(), part.values.end());
  }
}

void SpardlSums::Add(std::size_t block, const SparsePayload& arrived) {
  SparseSums& sums = parts_[block].sums;
  Merge(sums.view(), arrived, merged_);
  std::swap(sums, merged_);
}

void SpardlSums::Cut(std::size_t block, std::size_t most) {
  Part& part = parts_[block];
  if (lazy_) {
    CutAccumulated(block, most);
  } else {
    KeepLargest(part.sums.view(), most, part.cut, part.rest);
  }
}

// Keeps at most the `most` largest. Those without an added sum are among the accumulated elements'
// largest `most + part.sums.size()`.
void SpardlSums::CutAccumulated(std::size_t block, std::size_t most) {
  Part& part = parts_[block];
  if (most == 0) return;
  SelectOf(block, std::min(blocks_.size(block), most + part.sums.size()));
  if (part.sums.size() == 0) {
    std::swap(part.cut, found_);
    return;
  }
  AddAccumulated(part.sums);
  KeepLargest(candidates_.view(), most, part.cut, rest_);
}

void SpardlSums::SelectOf(std::size_t block, std::size_t count) {
  Part& part = parts_[block];
  const std::size_t begin = blocks_.begin(block);
  const std::size_t size = blocks_.size(block);
  if (part.state == nullptr) part.state = select_->MakeState(size);
  found_.indices.resize(count);
  found_.values.resize(count);
  // This rounding makes trunc(density * size) equal count.
  const double density =
      count == size ? 1.0 : (static_cast<double>(count) + 0.5) / static_cast<double>(size);
  Slot slot{{found_.indices.data(), count, {}}, {found_.values.data(), count, {}}, count, 0};
  select_->Select(
      {&pool_, &workspace_, &counters_, {}}, {{accumulated_.data() + begin, size, {}}, {}}, density,
      {static_cast<std::uint32_t>(block), "a block of the accumulated gradient", {}, step_},
      part.state.get(), slot);
  for (std::uint32_t& index : found_.indices) index += static_cast<std::uint32_t>(begin);
}

// Sets candidates_ to found_ and all arrived sums, plus the accumulated values.
void SpardlSums::AddAccumulated(const SparseSums& sums) {
  candidates_.Clear();
  std::size_t from = 0;
  const auto take = [&](std::uint64_t end) {
    for (; from < found_.size() && found_.indices[from] < end; ++from) {
      candidates_.Add(found_.indices[from], found_.values[from]);
    }
  };
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::uint32_t index = sums.indices[i];
    take(index);
    from += from < found_.size() && found_.indices[from] == index;
    candidates_.Add(index, accumulated_[index] + sums.values[i]);
  }
  take(std::numeric_limits<std::uint64_t>::max());
}

void SpardlSums::Keep(std::size_t block, const SparsePayload& dropped) {
  SparseSums& kept = parts_[block].dropped;
  Merge(kept.view(), dropped, merged_);
  std::swap(kept, merged_);
}

void SpardlSums::AppendReturned(std::size_t block, const SparsePayload& applied,
                                SparseSums& out) const {
  const Part& part = parts_[block];
  const SparsePayload own = Slice(own_, blocks_.begin(block), blocks_.end(block));
  std::size_t at = 0;
  const auto give_back = [&](std::uint64_t end) {  // returns the own elements that are not applied
    for (; at < own.indices.size() && own.indices[at] < end; ++at) {
      out.Add(own.indices[at], own.values[at]);
    }
  };
  Reader cut(part.cut.view());
  Reader left((lazy_ ? part.sums : part.rest).view());
  Reader dropped(part.dropped.view());
  for (const std::uint32_t index : applied.indices) {
    give_back(index);
    at += at < own.indices.size() && own.indices[at] == index;
    const float* kept = left.Find(index);
    float back = kept == nullptr ? 0.0f : *kept;
    bool any = kept != nullptr;
    if (lazy_ && cut.Find(index) != nullptr) {  // all of its value was passed on
      back = -accumulated_[index];
      any = true;
    }
    if (const float* more = dropped.Find(index)) {
      back += *more;
      any = true;
    }
    if (any) out.Add(index, back);
  }
  give_back(std::numeric_limits<std::uint64_t>::max());
}

std::span<std::byte> RoomFor(std::size_t elements, std::vector<std::byte>& memory) {
  const std::size_t bytes = elements * kSparseElementBytes;
  if (memory.size() < bytes) memory.resize(bytes);
  return std::span(memory).first(bytes);
}

std::span<std::byte> Join(std::span<const SparsePayload> parts, std::span<std::byte> out) {
  std::size_t count = 0;
  for (const SparsePayload& part : parts) count += part.indices.size();
  std::byte* indices = out.data();
  std::byte* values = out.data() + count * sizeof(std::uint32_t);
  for (const SparsePayload& part : parts) {
    if (part.indices.empty()) continue;
    std::memcpy(indices, part.indices.data(), part.indices.size_bytes());
    std::memcpy(values, part.values.data(), part.values.size_bytes());
    indices += part.indices.size_bytes();
    values += part.values.size_bytes();
  }
  return out.first(count * kSparseElementBytes);
}

std::span<const std::byte> SpardlExchange::Pack(std::span<const SparsePayload> by_block,
                                                std::size_t first, std::size_t count) const {
  std::vector<SparsePayload> parts;
  blocks.ForEach(first, count, [&](std::size_t b) { parts.push_back(by_block[b]); });
  return Join(parts, RoomFor(blocks.KeptOf(first, count), state.out));
}

void SpardlExchange::Unpack(std::span<const std::byte> message, std::size_t first,
                            std::size_t count, std::span<SparsePayload> by_block) const {
  const SparsePayload all = ViewSparsePayload(message);
  std::size_t found = 0;
  blocks.ForEach(first, count, [&](std::size_t b) {
    by_block[b] = Slice(all, blocks.begin(b), blocks.end(b));
    found += by_block[b].indices.size();
  });
  if (message.size() == found * kSparseElementBytes) return;
  SPARFUSE_THROW(kComm, "spardl: a message of " + std::to_string(message.size()) + " bytes with " +
                            std::to_string(found) + " elements of the " + std::to_string(count) +
                            " blocks from block " + std::to_string(first) +
                            " on: expected 8 bytes an element and nothing else");
}

}  // namespace sparfuse::baselines
