// Tests users' regular expressions: matches, refusals with their reasons, and bounded run time.
#include "core/base/expression.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"

namespace sparfuse {
namespace {

std::string ErrorOf(const std::string& expression) {
  try {
    Expression(expression, "m.toml:3: patterns[0]");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(Expression, IsFoundAnywhereAndTellsItsGroups) {
  const Expression expression("(a|b)+ step=([0-9]+)(,)?", "here");
  std::vector<std::string_view> groups;
  ASSERT_TRUE(expression.Find("-- ab step=12 rest", groups));
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups[0], "ab step=12");
  EXPECT_EQ(groups[1], "b");  // the last repetition of a group
  EXPECT_EQ(groups[2], "12");
  EXPECT_EQ(groups[3].data(), nullptr);  // the group matched nothing
  EXPECT_FALSE(expression.Find("step=12", groups));
  EXPECT_TRUE(expression.FoundIn("a step=0"));
  EXPECT_FALSE(expression.FoundIn(""));
  EXPECT_TRUE(Expression("", "here").FoundIn(""));
}

TEST(Expression, TakesTheFirstAlternativeAndBytesAsTheyAre) {
  std::vector<std::string_view> groups;
  ASSERT_TRUE(Expression("(a|ab)(c|bcd)?", "here").Find("abcd", groups));
  EXPECT_EQ(groups[0], "abcd");
  EXPECT_EQ(groups[1], "a");
  // No text is invalid: one Latin-1 byte is a character, the two bytes of a UTF-8 one are two.
  EXPECT_TRUE(Expression("^.$", "here").FoundIn("\xe9"));
  EXPECT_TRUE(Expression("^..$", "here").FoundIn("\u00e9"));
  EXPECT_TRUE(Expression("\u00b1 [0-9]", "here").FoundIn("1 \u00b1 2"));
}

TEST(Expression, SaysWhatIsWrong) {
  EXPECT_EQ(ErrorOf("^a$"), "no error");
  EXPECT_NE(
      ErrorOf("(").find("m.toml:3: patterns[0]: expected a regular expression as RE2 reads it: "
                        "missing )"),
      std::string::npos)
      << ErrorOf("(");
  EXPECT_NE(ErrorOf(R"((a)\1)").find("back references are not supported"), std::string::npos)
      << ErrorOf(R"((a)\1)");
  for (const char* around : {"a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b"}) {
    EXPECT_NE(ErrorOf(around).find("looking ahead or behind is not supported"), std::string::npos)
        << ErrorOf(around);
  }
}

// A library that backtracks takes 2^4000 steps, or 4000^4, for these.
TEST(Expression, HasNoExponentialCases) {
  const std::string text(4000, 'a');
  for (const char* expression :
       {"^(a+)+$", "(a|aa)*b", "(.*)*x", "(a*)*b", ".*.*.*=", "(a?){500}b"}) {
    const Expression made(expression, "here");
    std::vector<std::string_view> groups;
    for (int line = 0; line < 20; ++line) EXPECT_FALSE(made.Find(text + "!", groups)) << expression;
  }
}

}  // namespace
}  // namespace sparfuse
