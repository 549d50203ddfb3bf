// Tests which stores' trials over several hosts are systems of their own.
#include <gtest/gtest.h>

#include <fstream>

#include "harness/report/machines.hpp"
#include "harness/store/origin.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ExpectIn;

const std::string kHash(64, 'a');

TrialRow Row(const std::string& origin, const std::vector<std::string>& hosts,
             const std::string& mode = "measured") {
  TrialRow row;
  row.mode = mode;
  row.system_hash = kHash;
  row.origin = origin;
  row.provenance = StoredJson(json{{"machine", {{"placement", hosts}}}});
  row.system = StoredJson(json{{"cpu_model", "Cpu"}, {"cores", 2}, {"memory_gib", 4}});
  return row;
}

std::vector<std::string> Apart(std::vector<TrialRow> rows, const std::filesystem::path& results) {
  TellStoresApart(rows, results);
  std::vector<std::string> found;
  for (const TrialRow& row : rows) found.push_back(row.system_hash.substr(kHash.size()));
  return found;
}

using Words = std::vector<std::string>;

TEST(StoresApart, AreOthersWithTrialsOverSeveralHosts) {
  // With the same store's trials on one host, which belong to its experiments, too.
  EXPECT_EQ(Apart({Row("one", {"a", "b"}), Row("one", {"a"}), Row("two", {"a", "a"})}, ""),
            (Words{"@one", "@one", ""}));
  EXPECT_EQ(Apart({Row("", {"a", "b"}), Row("three", {"a", "b"}, "modelled"),
                   Row("four", {"a", "b"}, "imported")},
                  ""),
            (Words{"", "", ""}));
}

TEST(StoresApart, AreNotTheStoresOwn) {
  const TemporaryFolder folder;
  std::string own;
  {
    const StoreLock lock(folder.path());
    own = OriginOf(lock, folder.path(), kHash);
  }
  EXPECT_EQ(Apart({Row(own, {"a", "b"}), Row("other", {"a", "b"})}, folder.path()),
            (Words{"", "@other"}));
}

// An identifier for the block of each row.
std::vector<int> Blocks(std::vector<TrialRow> rows, const std::filesystem::path& results) {
  TellStoresApart(rows, results);
  std::vector<int> blocks;
  for (const TrialRow& row : rows) blocks.push_back(row.paired_block());
  return blocks;
}

TrialRow Block(int block, TrialRow row) {
  row.block = block;
  return row;
}

TEST(StoresApart, HaveBlocksOfTheirOwnOnMachinesThatAreAlike) {
  const auto block = [](int number, const std::string& origin, const char* mode = "measured") {
    return Block(number, Row(origin, {"a"}, mode));
  };
  EXPECT_EQ(Blocks({block(0, "one"), block(3, "one"), block(0, "two"), block(1, "two")}, ""),
            (std::vector<int>{0, 3, 1, 2}));
  EXPECT_EQ(Blocks({block(0, "two"), block(7, "two")}, ""), (std::vector<int>{0, 7}));
  // Every store computes the same model.
  EXPECT_EQ(Blocks({block(0, "one", "modelled"), block(0, "two", "modelled")}, ""),
            (std::vector<int>{0, 0}));
  const TemporaryFolder folder;
  std::string own;
  {
    const StoreLock lock(folder.path());
    own = OriginOf(lock, folder.path(), kHash);
  }
  // Older trials of the store itself do not name their store, but belong to it.
  EXPECT_EQ(Blocks({block(0, "!"), block(0, ""), block(1, own)}, folder.path()),
            (std::vector<int>{2, 0, 1}));
}

TEST(StoresApart, EarlyTrialsThatWereMergedAreOfAnother) {
  const auto early = [](int number, const std::string& original) {
    TrialRow row = Block(number, Row("", {"a"}));
    row.original_id = original;
    return row;
  };
  EXPECT_EQ(Blocks({Block(0, Row("", {"a"})), early(0, "x-b0-1"), early(0, "y-b0-1")}, ""),
            (std::vector<int>{0, 1, 1}));
}

TEST(StoresApart, AreFoundByHashAndOrigin) {
  std::vector<TrialRow> rows = {Row("one", {"a", "b"}), Row("two", {"a", "b"}), Row("", {"a"})};
  rows[1].system_hash = std::string(64, 'b');
  TellStoresApart(rows, "");
  const auto machines = MachinesOf(rows);
  ASSERT_EQ(machines.size(), 3U);
  EXPECT_EQ(ShownMachine(NeedMachine(machines, "aaa@o", "x")), "aaaaaaaaaaaa@one");
  EXPECT_EQ(ShownMachine(NeedMachine(machines, "bb", "x")), "bbbbbbbbbbbb@two");
  EXPECT_EQ(NeedMachine(machines, "aaa", "x"), kHash);  // the store's own system
  ExpectIn("no system of x begins with \"aaa@two\"",
           testing::ErrorOf([&] { NeedMachine(machines, "aaa@two", "x"); }, FailureKind::kConfig));
  ExpectIn("x has several systems: expected the head of the hash of one of",
           testing::ErrorOf([&] { NeedMachine(machines, "", "x"); }, FailureKind::kConfig));
  ExpectIn("x: expected trials that ran on a system, measured or emulated; it has none",
           testing::ErrorOf([&] { NeedMachine({}, "", "x"); }, FailureKind::kConfig));
  ExpectIn("aaaaaaaaaaaa@one  Cpu, 2 cores, 4 GiB; several hosts, of another results folder",
           ListOf(machines));
}

}  // namespace
}  // namespace sparfuse::harness
