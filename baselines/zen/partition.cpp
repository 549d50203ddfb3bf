#include "baselines/zen/partition.hpp"

#include <algorithm>
#include <bit>

#include "core/base/random_stream.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::uint32_t kEmpty = 0;  // a slot holds an element's number + 1

// h_1, h_2, ...: stream(x) of an index x, uniform and independent of h0.
constexpr RandomStream kProbes[kMostProbes] = {{0, 1, 0}, {0, 2, 0}, {0, 3, 0}, {0, 4, 0},
                                               {0, 5, 0}, {0, 6, 0}, {0, 7, 0}, {0, 8, 0}};

// False where a serial region overflows.
bool Place(const SparsePayload& from, std::span<const std::uint32_t> part_of, std::size_t parts,
           const HashRegions& regions, std::vector<std::uint32_t>& slots, HashingReport& report) {
  const std::size_t region = regions.parallel + regions.serial;
  slots.assign(parts * region, kEmpty);
  std::vector<std::size_t> serial(parts, 0);
  report = {.passes = report.passes + 1};
  for (std::size_t i = 0; i < from.indices.size(); ++i) {
    const auto element = static_cast<std::uint32_t>(i + 1);
    std::uint32_t* const slot = slots.data() + part_of[i] * region;
    int probe = 0;
    for (; probe < regions.probes; ++probe) {
      std::uint32_t& at = slot[kProbes[probe].Below(regions.parallel, from.indices[i])];
      if (at != kEmpty) continue;
      at = element;
      ++report.found[static_cast<std::size_t>(probe)];
      break;
    }
    if (probe < regions.probes) continue;
    std::size_t& used = serial[part_of[i]];
    if (used == regions.serial) return false;
    slot[regions.parallel + used++] = element;
    ++report.serial;
    report.most_serial = std::max(report.most_serial, used);
  }
  return true;
}

}  // namespace

void Parts::Reset(std::span<const std::size_t> counts) {
  begins_.assign(1, 0);
  for (const std::size_t count : counts) begins_.push_back(begins_.back() + count);
  if (words_.size() < 2 * begins_.back()) words_.resize(2 * begins_.back());
}

void Parts::Set(std::size_t part, std::size_t at, std::uint32_t index, float value) {
  std::uint32_t* const words = Words(part);
  words[at] = index;
  words[Count(part) + at] = std::bit_cast<std::uint32_t>(value);
}

void SplitByCounting(const SparsePayload& from, std::span<const std::uint32_t> part_of,
                     std::size_t parts, Parts& out) {
  std::vector<std::size_t> counts(parts, 0);
  for (const std::uint32_t part : part_of) ++counts[part];
  out.Reset(counts);
  std::vector<std::size_t> at(parts, 0);
  for (std::size_t i = 0; i < part_of.size(); ++i) {
    out.Set(part_of[i], at[part_of[i]]++, from.indices[i], from.values[i]);
  }
}

HashRegions HashRegions::For(std::size_t elements, std::size_t parts, double slots_per_element,
                             double serial_part, int probes) {
  const double parallel =
      slots_per_element * static_cast<double>(elements) / static_cast<double>(parts);
  HashRegions regions;
  regions.parallel = std::max<std::size_t>(1, static_cast<std::size_t>(parallel));
  regions.serial = std::max<std::size_t>(
      1, static_cast<std::size_t>(serial_part * static_cast<double>(regions.parallel)));
  regions.probes = probes;
  return regions;
}

HashingReport SplitByHashing(const SparsePayload& from, std::span<const std::uint32_t> part_of,
                             std::size_t parts, HashRegions regions,
                             std::vector<std::uint32_t>& slots, Parts& out) {
  HashingReport report;
  while (!Place(from, part_of, parts, regions, slots, report)) regions.serial *= 2;

  // Compaction: the slots that are not empty to the front of each part's, in order of elements.
  const std::size_t region = regions.parallel + regions.serial;
  std::vector<std::size_t> counts;
  for (std::size_t p = 0; p < parts; ++p) {
    const auto begin = slots.begin() + static_cast<std::ptrdiff_t>(p * region);
    const auto end = std::remove(begin, begin + static_cast<std::ptrdiff_t>(region), kEmpty);
    std::sort(begin, end);
    counts.push_back(static_cast<std::size_t>(end - begin));
  }
  out.Reset(counts);
  for (std::size_t p = 0; p < parts; ++p) {
    for (std::size_t at = 0; at < counts[p]; ++at) {
      const std::size_t i = slots[p * region + at] - 1;
      out.Set(p, at, from.indices[i], from.values[i]);
    }
  }
  return report;
}

}  // namespace sparfuse::baselines
