// Tests the reading of files: truncated ends, and JSON from elsewhere.
#include "harness/files/durable_file.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

std::string Nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(DurableFile, ReadsTheEndOfAFile) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "file";
  std::ofstream(file) << "abcdef";
  EXPECT_EQ(ReadEndOfFile(file, 2), "ef");
  EXPECT_EQ(ReadEndOfFile(file, 100), "abcdef");
  EXPECT_THROW(ReadEndOfFile(folder.path() / "none", 2), Error);
}

// Writing such a value again would take a stack frame a level.
TEST(DurableFile, JsonIsNotReadDeeperThanItCanBeWritten) {
  EXPECT_EQ(ParseJson(Nested(200), "x").dump(), Nested(200));
  EXPECT_NO_THROW(ParseJson("\"" + std::string(1000, '[') + "\\\"[\"", "x"));
  for (const std::size_t depth : {201, 1'000'000}) {
    EXPECT_EQ(testing::ErrorOf([&] { ParseJson(Nested(depth), "x.json"); }, FailureKind::kData),
              "x.json: nested deeper than 200 levels");
  }
}

TEST(ParseJson, LeavesOutAMemberOfTheOutermostObject) {
  EXPECT_EQ(ParseJson(R"({"a": {"b": 1}, "b": [1, {"a": 2}], "c": 3})", "x", "b").dump(),
            R"({"a":{"b":1},"c":3})");
  EXPECT_EQ(ParseJson(R"(["b"])", "x", "b").dump(), R"(["b"])");
}

TEST(DurableFile, JsonThatIsNoneIsNamed) {
  for (const char* text : {"", "{", "[1e999]", "nan", "\"\xff\"", "{\"a\":1}}"}) {
    const std::string said =
        testing::ErrorOf([&] { ParseJson(text, "x.json"); }, FailureKind::kData);
    EXPECT_TRUE(said.starts_with("x.json: not valid JSON")) << said;
  }
}

TEST(SomethingIsAt, ALinkToItselfIsThereAndIsNamedWhereItIsRead) {
  const TemporaryFolder folder;
  const auto loop = folder.path() / "loop.json";
  std::filesystem::create_symlink("loop.json", loop);
  EXPECT_TRUE(SomethingIsAt(loop));
  EXPECT_TRUE(SomethingIsAt(folder.path()));
  EXPECT_FALSE(SomethingIsAt(folder.path() / "nothing"));
  testing::ExpectError(FailureKind::kData, {loop.string()}, [&] { ReadJsonFile(loop); });
}

}  // namespace
}  // namespace sparfuse::harness
