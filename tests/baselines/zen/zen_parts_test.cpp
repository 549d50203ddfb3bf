// Tests Zen's hash, lists, splits and bitmaps against their definitions and the published numbers
// of the data structure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "baselines/zen/hash_lists.hpp"
#include "core/base/error.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse {
namespace {

using baselines::FormChoice;
using baselines::HashingReport;
using baselines::HashLists;
using baselines::HashRegions;
using baselines::IndexForm;
using baselines::Parts;
using baselines::ServerOf;
using baselines::Servers;
using baselines::SharedHashLists;

using Indices = std::vector<std::uint32_t>;

Indices RandomIndices(std::size_t n, std::size_t k, unsigned seed) {
  std::mt19937 random(seed);
  std::set<std::uint32_t> drawn;
  while (drawn.size() < k) drawn.insert(static_cast<std::uint32_t>(random() % n));
  return {drawn.begin(), drawn.end()};
}

// Supports of about k indices that hashes may meet: random ones, runs like embedding rows, strides
// like columns.
std::vector<Indices> Supports(std::size_t k) {
  std::vector<Indices> supports = {RandomIndices(100 * k, k, 1)};
  for (const std::uint32_t stride : {1u, 2u, 7u, 64u, 1000u, 4096u, 65536u}) {
    Indices indices;
    for (std::uint32_t i = 0; i < k && i < 0xffffffffu / stride; ++i)
      indices.push_back(5 + i * stride);
    supports.push_back(std::move(indices));
  }
  Indices rows;
  for (const std::uint32_t row : RandomIndices(k, k / 300 + 1, 2)) {
    for (std::uint32_t i = 0; i < 300; ++i) rows.push_back(row * 300 + i);
  }
  supports.push_back(std::move(rows));
  return supports;
}

TEST(ZenHash, NeverChanges) {
  // Stored trials depend on the hash: another hash needs another revision of the collective.
  EXPECT_EQ(baselines::IndexHash(0), 2984689915u);
  EXPECT_EQ(baselines::IndexHash(123'456'789), 3618588349u);
  EXPECT_EQ(ServerOf(123'456'789, 8), 6u);
}

TEST(ZenHash, BalancesWhateverIsSelected) {
  for (const auto& [k, servers] : std::vector<std::pair<std::size_t, std::uint32_t>>{
           {10'000, 8}, {100'000, 16}, {40'000, 16}, {10'000, 3}, {50'000, 64}}) {
    for (const Indices& support : Supports(k)) {
      std::vector<double> loads(servers, 0);
      for (const std::uint32_t index : support) ++loads[ServerOf(index, servers)];
      const auto size = static_cast<double>(support.size());
      const double p = servers;
      const double largest = *std::max_element(loads.begin(), loads.end()) / (size / p);
      EXPECT_LT(largest, 1 + 3 * std::sqrt(p * std::log(p) / size))
          << servers << " servers, " << size << " indices from " << support.front() << ", "
          << support[1];
      EXPECT_GE(largest, 1);
    }
  }
}

TEST(ZenLists, HaveEveryElementOnceInOrder) {
  for (const std::size_t servers : {2, 3, 7, 8, 64}) {
    const HashLists lists(20'011, servers);
    for (const std::size_t n : {0, 1, 5, 100, 4096, 20'011}) {  // prefixes of the longer lists
      const Servers found(n, servers, std::make_shared<HashLists>(lists));
      std::vector<Indices> expected(servers);
      for (std::uint32_t i = 0; i < n; ++i) {
        expected[ServerOf(i, static_cast<std::uint32_t>(servers))].push_back(i);
      }
      for (std::size_t s = 0; s < servers; ++s) {
        ASSERT_EQ(found.Size(s), expected[s].size()) << servers << " " << n << " " << s;
        Indices positions = expected[s];
        found.ToPositions(s, positions);
        for (std::size_t t = 0; t < positions.size(); ++t) {
          ASSERT_EQ(positions[t], t);
          ASSERT_EQ(found.IndexAt(s, t), expected[s][t]);
        }
      }
    }
  }
}

TEST(ZenLists, AreSharedByRangesAndOutgrown) {
  const auto shared = SharedHashLists::Of(5);
  const auto lists = shared->Covering(1000);
  EXPECT_EQ(SharedHashLists::Of(5), shared);
  EXPECT_NE(SharedHashLists::Of(6), shared);
  EXPECT_EQ(shared->Covering(10), lists);
  EXPECT_EQ(shared->Covering(1000), lists);
  EXPECT_EQ(shared->Covering(1001)->elements(), 1001u);
  EXPECT_EQ(lists->elements(), 1000u);  // earlier ranges still hold them
}

TEST(ZenRanges, AreContiguousAndOfEqualSize) {
  for (const auto& [n, servers] :
       std::vector<std::pair<std::size_t, std::size_t>>{{1000, 7}, {3, 8}, {0, 2}, {64, 8}}) {
    const Servers ranges(n, servers, nullptr);
    std::uint32_t next = 0;
    for (std::size_t s = 0; s < servers; ++s) {
      EXPECT_LE(ranges.Size(s), n / servers + 1);
      EXPECT_GE(ranges.Size(s), n / servers);
      for (std::size_t t = 0; t < ranges.Size(s); ++t) {
        EXPECT_EQ(ranges.IndexAt(s, t), next);
        Indices index = {next++};
        Indices server(1);
        ranges.Find(index, server);
        EXPECT_EQ(server[0], s);
        ranges.ToPositions(s, index);
        EXPECT_EQ(index[0], t);
      }
    }
    EXPECT_EQ(next, n);
  }
}

TEST(ZenServers, RefuseWhatIsNotTheirs) {
  const auto refused = [](const Servers& servers, std::size_t server, std::uint32_t index) {
    Indices indices = {index};
    return testing::ErrorOf([&] { servers.ToPositions(server, indices); }, FailureKind::kComm);
  };
  const Servers hashed(1000, 2, std::make_shared<HashLists>(2000, 2));
  const std::uint32_t own = hashed.IndexAt(1, 3);
  EXPECT_EQ(refused(hashed, 1, own), "no error");
  EXPECT_EQ(refused(hashed, 0, own),
            "zen: server 0 got index " + std::to_string(own) +
                " of a range of 1000 elements; another server sums that index");
  EXPECT_NE(refused(hashed, ServerOf(1000, 2), 1000),
            "no error");  // in the lists, not in the range
  const Servers ranges(1000, 2, nullptr);
  EXPECT_EQ(refused(ranges, 1, 999), "no error");
  EXPECT_NE(refused(ranges, 1, 499), "no error");
  EXPECT_NE(refused(ranges, 1, 1000), "no error");
}

// --- splits ---

struct Payload {
  Indices indices;
  std::vector<float> values;
  SparsePayload view() const { return {indices, values}; }
};

Payload PayloadOf(Indices indices) {
  Payload payload{std::move(indices), {}};
  for (std::size_t i = 0; i < payload.indices.size(); ++i) {
    payload.values.push_back(0.5f * static_cast<float>(i) - 3);
  }
  return payload;
}

Indices PartsOf(const Indices& indices, std::uint32_t parts) {
  Indices part_of;
  for (const std::uint32_t index : indices) part_of.push_back(ServerOf(index, parts));
  return part_of;
}

void ExpectSplit(const Parts& parts, const Payload& from, const Indices& part_of, std::size_t count,
                 const std::string& where) {
  for (std::size_t p = 0; p < count; ++p) {
    Payload expected;
    for (std::size_t i = 0; i < part_of.size(); ++i) {
      if (part_of[i] != p) continue;
      expected.indices.push_back(from.indices[i]);
      expected.values.push_back(from.values[i]);
    }
    const SparsePayload part = parts.View(p);
    ASSERT_EQ(parts.Count(p), expected.indices.size()) << where << " part " << p;
    ASSERT_TRUE(std::ranges::equal(part.indices, expected.indices)) << where << " part " << p;
    ASSERT_TRUE(std::ranges::equal(part.values, expected.values)) << where << " part " << p;
    const SparsePayload wire = ViewSparsePayload(parts.Bytes(p));
    ASSERT_TRUE(std::ranges::equal(wire.indices, expected.indices)) << where << " part " << p;
    ASSERT_TRUE(std::ranges::equal(wire.values, expected.values)) << where << " part " << p;
  }
}

TEST(ZenSplits, AreTheSameBothWaysAndLoseNothing) {
  Parts counted;
  Parts hashed;
  std::vector<std::uint32_t> slots;
  for (const std::size_t k : {0, 1, 2, 40, 5000}) {  // the memory is reused
    for (const std::uint32_t count : {1u, 2u, 5u, 32u}) {
      for (const bool one_part : {false, true}) {
        const Payload from = PayloadOf(RandomIndices(1'000'000, k, 3));
        const Indices part_of = one_part ? Indices(k, count - 1) : PartsOf(from.indices, count);
        const std::string where = std::to_string(k) + " in " + std::to_string(count);
        SplitByCounting(from.view(), part_of, count, counted);
        ExpectSplit(counted, from, part_of, count, where + " counted");
        SplitByHashing(from.view(), part_of, count, HashRegions::For(k, count), slots, hashed);
        ExpectSplit(hashed, from, part_of, count, where + " hashed");
      }
    }
  }
}

// The specification's numbers for r1 = 2 k / P and T = 3.
TEST(ZenHierarchicalHashing, PlacesAsPublished) {
  Parts parts;
  std::vector<std::uint32_t> slots;
  for (const auto& [k, count] : std::vector<std::pair<std::size_t, std::uint32_t>>{
           {80'000, 8}, {100'000, 16}, {40'000, 4}}) {
    const Payload from = PayloadOf(RandomIndices(100 * k, k, 4));
    const HashRegions regions = HashRegions::For(k, count);
    EXPECT_EQ(regions.parallel, 2 * k / count);
    EXPECT_EQ(regions.serial, 2 * k / count / 10);
    EXPECT_EQ(regions.probes, 3);
    const HashingReport report =
        SplitByHashing(from.view(), PartsOf(from.indices, count), count, regions, slots, parts);
    const auto percent = [&](std::size_t elements) {
      return 100 * static_cast<double>(elements) / static_cast<double>(k);
    };
    EXPECT_EQ(report.passes, 1);
    EXPECT_NEAR(percent(report.found[0]), 75.5, 0.5);
    EXPECT_NEAR(percent(report.found[1]), 16.5, 0.4);
    EXPECT_NEAR(percent(report.found[2]), 5.0, 0.3);
    EXPECT_NEAR(percent(report.serial), 3.0, 0.25);
    EXPECT_EQ(report.found[0] + report.found[1] + report.found[2] + report.serial, k);
    const double occupied =
        static_cast<double>(report.most_serial) / static_cast<double>(regions.parallel);
    EXPECT_GT(occupied, 0.014);
    EXPECT_LT(occupied, 0.022);
  }
}

TEST(ZenHierarchicalHashing, DoesNotOverflowFromAThousandElementsAPartOn) {
  Parts parts;
  std::vector<std::uint32_t> slots;
  for (const std::uint32_t count : {1u, 4u, 16u, 32u}) {
    for (const Indices& support : Supports(1000 * count)) {
      const HashingReport report =
          SplitByHashing(PayloadOf(support).view(), PartsOf(support, count), count,
                         HashRegions::For(support.size(), count), slots, parts);
      EXPECT_EQ(report.passes, 1) << count << " parts, from " << support.front();
    }
  }
}

TEST(ZenHierarchicalHashing, DoublesSerialRegionsThatOverflow) {
  Parts parts;
  std::vector<std::uint32_t> slots;
  const Payload from = PayloadOf(RandomIndices(100'000, 900, 5));
  const Indices part_of(900, 2);  // all in part 2 of four
  // Of 450 slots at most all are taken: 450 or more elements are left, and 45 2^i holds them for i
  // = 4.
  const HashingReport report =
      SplitByHashing(from.view(), part_of, 4, HashRegions::For(900, 4), slots, parts);
  EXPECT_GE(report.serial, 450u);
  EXPECT_EQ(report.passes, 5);
  ExpectSplit(parts, from, part_of, 4, "doubled");
}

TEST(ZenHierarchicalHashing, TakesItsConstantsAsOptions) {
  const HashRegions regions = HashRegions::For(1000, 4, 4, 0.2, 1);
  EXPECT_EQ(regions.parallel, 1000u);
  EXPECT_EQ(regions.serial, 200u);
  Parts parts;
  std::vector<std::uint32_t> slots;
  const Payload from = PayloadOf(RandomIndices(100'000, 1000, 6));
  const HashingReport report =
      SplitByHashing(from.view(), PartsOf(from.indices, 4), 4, regions, slots, parts);
  EXPECT_EQ(report.found[1], 0u);
  EXPECT_GT(report.serial, 0u);
  // In the end a quarter of the slots is taken: about one element of eight collides.
  EXPECT_NEAR(static_cast<double>(report.serial), 1000 * (1 - 4 * (1 - std::exp(-0.25))), 40);
}

// --- bitmaps ---

TEST(ZenBitmaps, OfAllServersHaveABitForEachElement) {
  constexpr std::size_t kElements = 1'000'000;
  constexpr std::size_t kServers = 8;
  const Servers servers(kElements, kServers, SharedHashLists::Of(kServers)->Covering(kElements));
  std::vector<Indices> selected(kServers);
  for (const std::uint32_t index : RandomIndices(kElements, 10'000, 7)) {
    selected[ServerOf(index, kServers)].push_back(index);
  }
  std::size_t lists = 0;
  std::size_t bytes = 0;
  for (std::size_t s = 0; s < kServers; ++s) {
    const std::size_t list = servers.Size(s);
    lists += list;
    Payload positions = PayloadOf(selected[s]);
    servers.ToPositions(s, positions.indices);
    RangeSums sums;
    sums.Reset(0, list);
    sums.Add(positions.view());
    std::vector<std::byte> room(baselines::HeadBytes(IndexForm::kBitmap, list));
    const std::size_t count = selected[s].size();
    const auto head = baselines::WriteHead(IndexForm::kBitmap, list, count, sums.added(), room);
    EXPECT_EQ(head.size(), 8 + (list + 7) / 8);
    bytes += head.size() - 8;
    const baselines::SumsHead read = baselines::ReadHead(head, s, list);
    EXPECT_EQ(read.form, IndexForm::kBitmap);
    ASSERT_EQ(read.count, count);
    Indices decoded(count);
    baselines::DecodeBitmap(read.bitmap, servers, s, decoded);
    EXPECT_EQ(decoded, selected[s]);
  }
  EXPECT_EQ(lists, kElements);
  EXPECT_GE(bytes, kElements / 8);
  EXPECT_LE(bytes, kElements / 8 + kServers);
}

TEST(ZenBitmaps, AreChosenFromThreePercentOn) {
  // 3,200 elements: 400 bytes, as many as 100 indices, 3.1 %.
  EXPECT_EQ(baselines::FormOf(FormChoice::kAuto, 3200, 100), IndexForm::kCoo);
  EXPECT_EQ(baselines::FormOf(FormChoice::kAuto, 3200, 101), IndexForm::kBitmap);
  EXPECT_EQ(baselines::FormOf(FormChoice::kAuto, 0, 0), IndexForm::kCoo);
  EXPECT_EQ(baselines::FormOf(FormChoice::kCoo, 3200, 3200), IndexForm::kCoo);
  EXPECT_EQ(baselines::FormOf(FormChoice::kBitmap, 3200, 0), IndexForm::kBitmap);
}

TEST(ZenBitmaps, ThatAreMalformedAreRefused) {
  const auto refused = [](std::vector<std::uint32_t> words, std::size_t bytes, std::size_t list) {
    return testing::ErrorOf(
        [&] { baselines::ReadHead(std::as_bytes(std::span(words)).first(bytes), 3, list); },
        FailureKind::kComm);
  };
  EXPECT_EQ(refused({1, 3, 0b10011}, 9, 5), "no error");
  EXPECT_EQ(refused({0, 5}, 8, 5), "no error");
  EXPECT_EQ(refused({0, 5}, 7, 5),
            "zen: the sums of server 3 begin with 7 bytes: expected a header");
  EXPECT_SAYS(refused({2, 3, 0b10011}, 9, 5), "in form 2: expected 0 or 1");
  EXPECT_SAYS(refused({0, 6}, 8, 5), "are 6 of 5 elements");
  EXPECT_SAYS(refused({1, 3, 0b10011}, 10, 5), "as a bitmap");
  EXPECT_SAYS(refused({1, 2, 0b10011}, 9, 5), "3 bits for 2 of 5");
  EXPECT_SAYS(refused({1, 3, 0b110010}, 9, 5), "3 bits for 3 of 5");
}

}  // namespace
}  // namespace sparfuse
