#include "baselines/zen/hash_lists.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <string>

#include "core/base/error.hpp"
#include "core/base/random_stream.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::uint32_t kEmpty = 0;  // a slot holds an element's number + 1

// h_1, h_2, ...: stream(x) of an index x, uniform and independent of h0.
constexpr RandomStream kProbes[kMostProbes] = {{0, 1, 0}, {0, 2, 0}, {0, 3, 0}, {0, 4, 0},
                                               {0, 5, 0}, {0, 6, 0}, {0, 7, 0}, {0, 8, 0}};

// Returns false if a serial region overflows.
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

constexpr std::size_t kPerBlock = 16;  // approximate number of a list's entries in a block

static_assert(std::endian::native == std::endian::little, "bit t is bit t % 8 of byte t / 8");

// Calls each(base, word) for the words of a bitmap. The last word is filled up with zeros.
template <class Each>
void ForWords(std::span<const std::byte> bitmap, const Each& each) {
  for (std::size_t at = 0; at < bitmap.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bitmap.data() + at, std::min(sizeof word, bitmap.size() - at));
    each(8 * at, word);
  }
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

  // Compacts: moves the filled slots to the front of each part's region, in order of elements.
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

HashLists::HashLists(std::size_t elements, std::size_t servers)
    : elements_(elements),
      block_bits_(static_cast<unsigned>(std::bit_width(kPerBlock * servers - 1))),
      blocks_((elements >> block_bits_) + 1),
      indices_(elements),
      begins_(servers + 1, 0),
      directory_(servers * (blocks_ + 1)) {
  const auto count = static_cast<std::uint32_t>(servers);
  const std::size_t block = std::size_t{1} << block_bits_;
  std::vector<std::uint32_t> before(servers, 0);
  for (std::size_t b = 0; b <= blocks_; ++b) {
    for (std::size_t s = 0; s < servers; ++s) directory_[s * (blocks_ + 1) + b] = before[s];
    const std::size_t end = std::min(elements, (b + 1) * block);
    for (std::size_t i = b * block; i < end; ++i) {
      ++before[ServerOf(static_cast<std::uint32_t>(i), count)];
    }
  }
  for (std::size_t s = 0; s < servers; ++s) begins_[s + 1] = begins_[s] + before[s];
  std::vector<std::size_t> at(begins_.begin(), begins_.end() - 1);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto index = static_cast<std::uint32_t>(i);
    indices_[at[ServerOf(index, count)]++] = index;
  }
}

std::size_t HashLists::CountBelow(std::size_t server, std::size_t index) const {
  const std::size_t block = index >> block_bits_;
  const std::uint32_t* const entry = directory_.data() + server * (blocks_ + 1) + block;
  const std::uint32_t* const list = indices_.data() + begins_[server];
  std::size_t position = entry[0];
  while (position < entry[1] && list[position] < index) ++position;
  return position;
}

std::shared_ptr<SharedHashLists> SharedHashLists::Of(std::size_t servers) {
  static std::mutex mutex;
  static std::map<std::size_t, std::weak_ptr<SharedHashLists>> all;
  const std::lock_guard lock(mutex);
  std::shared_ptr<SharedHashLists> found = all[servers].lock();
  if (found == nullptr) all[servers] = found = std::make_shared<SharedHashLists>(servers);
  return found;
}

std::shared_ptr<const HashLists> SharedHashLists::Covering(std::size_t elements) {
  const std::lock_guard lock(mutex_);
  if (lists_ == nullptr || lists_->elements() < elements) {
    lists_ = std::make_shared<const HashLists>(elements, servers_);
  }
  return lists_;
}

void Servers::Find(std::span<const std::uint32_t> indices, std::span<std::uint32_t> servers) const {
  const auto count = static_cast<std::uint32_t>(servers_);
  if (lists_ != nullptr) {
    for (std::size_t i = 0; i < indices.size(); ++i) servers[i] = ServerOf(indices[i], count);
    return;
  }
  // If indices increase, so do the servers: the index seldom leaves the range.
  std::size_t server = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < Begin(server)) server = 0;
    while (server + 1 < servers_ && indices[i] >= Begin(server + 1)) ++server;
    servers[i] = static_cast<std::uint32_t>(server);
  }
}

void Servers::ToPositions(std::size_t server, std::span<std::uint32_t> indices) const {
  const std::size_t begin = lists_ == nullptr ? Begin(server) : 0;
  const std::size_t end = lists_ == nullptr ? Begin(server + 1) : elements_;
  for (std::uint32_t& index : indices) {
    bool own = index >= begin && index < end;
    std::size_t position = index - begin;
    if (own && lists_ != nullptr) {
      own = ServerOf(index, static_cast<std::uint32_t>(servers_)) == server;
      if (own) position = lists_->CountBelow(server, index);
    }
    if (!own) {
      SPARFUSE_THROW(kComm, "zen: server " + std::to_string(server) + " got index " +
                                std::to_string(index) + " of a range of " +
                                std::to_string(elements_) +
                                " elements; another server sums that index");
    }
    index = static_cast<std::uint32_t>(position);
  }
}

IndexForm FormOf(FormChoice choice, std::size_t list, std::size_t count) {
  if (choice == FormChoice::kBitmap) return IndexForm::kBitmap;
  if (choice == FormChoice::kCoo) return IndexForm::kCoo;
  return BitmapBytes(list) < count * sizeof(std::uint32_t) ? IndexForm::kBitmap : IndexForm::kCoo;
}

std::span<std::byte> WriteHead(IndexForm form, std::size_t list, std::size_t count,
                               std::span<const std::uint64_t> added, std::span<std::byte> room) {
  const std::uint32_t header[] = {static_cast<std::uint32_t>(form),
                                  static_cast<std::uint32_t>(count)};
  std::memcpy(room.data(), header, sizeof header);
  const std::span<std::byte> head = room.first(HeadBytes(form, list));
  const std::size_t bitmap = head.size() - kSumsHeaderBytes;
  if (bitmap > 0) std::memcpy(head.data() + kSumsHeaderBytes, added.data(), bitmap);
  return head;
}

SumsHead ReadHead(std::span<const std::byte> head, std::size_t server, std::size_t list) {
  const auto malformed = [&](const std::string& what) {
    SPARFUSE_THROW(kComm, "zen: the sums of server " + std::to_string(server) + " begin with " +
                              std::to_string(head.size()) + " bytes" + what);
  };
  std::uint32_t header[2] = {};
  if (head.size() < sizeof header) malformed(": expected a header");
  std::memcpy(header, head.data(), sizeof header);
  const auto form = static_cast<IndexForm>(header[0]);
  const std::size_t count = header[1];
  if (form != IndexForm::kCoo && form != IndexForm::kBitmap) {
    malformed(", in form " + std::to_string(header[0]) + ": expected 0 or 1");
  }
  if (count > list || head.size() != HeadBytes(form, list)) {
    malformed(" and are " + std::to_string(count) + " of " + std::to_string(list) + " elements" +
              (form == IndexForm::kBitmap ? ", as a bitmap" : ""));
  }
  const SumsHead read{form, count, head.subspan(kSumsHeaderBytes)};
  if (form == IndexForm::kCoo) return read;
  std::size_t bits = 0;
  std::uint64_t last = 0;
  ForWords(read.bitmap, [&](std::size_t base, std::uint64_t word) {
    bits += static_cast<std::size_t>(std::popcount(word));
    if (word != 0) last = base + static_cast<std::size_t>(std::bit_width(word));
  });
  if (bits != count || last > list) {
    malformed(", " + std::to_string(bits) + " bits for " + std::to_string(count) + " of " +
              std::to_string(list) + " elements");
  }
  return read;
}

void DecodeBitmap(std::span<const std::byte> bitmap, const Servers& servers, std::size_t server,
                  std::span<std::uint32_t> out) {
  std::size_t to = 0;
  ForWords(bitmap, [&](std::size_t base, std::uint64_t word) {
    for (; word != 0; word &= word - 1) {
      out[to++] = servers.IndexAt(server, base + static_cast<std::size_t>(std::countr_zero(word)));
    }
  });
}

}  // namespace sparfuse::baselines
