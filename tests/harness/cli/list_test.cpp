// Tests the listings of `sparfuse list`, and the steps and bytes of collectives that it prints.
#include "harness/cli/list/list.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/harness_fixture.hpp"
#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

class List : public ::testing::Test {
 protected:
  const TemporaryFolder results_;
  Program program_{{.root = testing::SourceDirectory(),
                    .results = results_.path(),
                    .worker = {},
                    .own = {},
                    .plugins = {}}};

  json Rounds(const std::string& collective) {
    for (const json& entry : Listing(program_, {"collectives", true})) {
      if (entry["name"] == collective) return entry["rounds"];
    }
    return nullptr;
  }
};

TEST_F(List, EveryEntryHasANameOfItsOwnAndASummary) {
  for (const std::string& what : Listings()) {
    const json entries = Listing(program_, {what});
    if (what == "parts") continue;  // depends on this machine's folders and packages
    ASSERT_FALSE(entries.empty()) << what;
    std::set<std::string> names;
    for (const json& entry : entries) {
      EXPECT_TRUE(names.insert(entry.value("table", "") + entry["name"].get<std::string>()).second)
          << what << ": " << entry["name"];
      EXPECT_NE(entry["summary"], "") << what << ": " << entry["name"];
      EXPECT_NE(ListText(what, entries).find(entry["name"].get<std::string>()), std::string::npos);
    }
  }
}

TEST_F(List, TheNearestNameIsOffered) {
  try {
    Listing(program_, {"quantisers"});
    FAIL() << "an unknown listing was made";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"quantizers\"?"), std::string::npos);
  }
  EXPECT_THROW(Listing(program_, {"methods", true}), Error);  // only collectives have rounds
}

TEST_F(List, RoundsOfARingAreThoseOfItsFormula) {
  for (const json& row : Rounds("ring-allreduce")) {
    const double ranks = row["ranks"], bytes = row["payload_bytes"];
    EXPECT_EQ(row["steps"], 2 * (ranks - 1));
    EXPECT_NEAR(row["sent_bytes"].get<double>(), 2 * (ranks - 1) * bytes / ranks, 8 * ranks)
        << "chunks differ by an element";
  }
  for (const json& row : Rounds("sparse-allgather")) {
    const std::uint64_t ranks = row["ranks"], bytes = row["payload_bytes"];
    EXPECT_EQ(row["steps"], ranks - 1);
    EXPECT_EQ(row["sent_bytes"], (ranks - 1) * bytes);
    EXPECT_EQ(row["worked_elements"], 0);
  }
}

}  // namespace
}  // namespace sparfuse::harness
