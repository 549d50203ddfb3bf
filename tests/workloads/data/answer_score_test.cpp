// Tests the words of an answer that count, and the comparison of two answers. The numbers follow
// SQuAD 1.1's rule, worked out by hand.
#include "workloads/tasks/answer_score.hpp"

#include <gtest/gtest.h>

namespace sparfuse::workloads {
namespace {

using Words = std::vector<std::string>;

TEST(AnswerScore, ArticlesGoAndDivide) {
  EXPECT_EQ(WordsThatCount("the river"), (Words{"river"}));
  EXPECT_EQ(WordsThatCount("  a   an the "), Words());
  EXPECT_EQ(WordsThatCount("theory another a1"), (Words{"theory", "another", "a1"}));
  EXPECT_EQ(WordsThatCount("\x01“the\x01” end"), (Words{"“", "”", "end"}));
  EXPECT_EQ(WordsThatCount("x\x01—the"), (Words{"x—"}));
  EXPECT_EQ(WordsThatCount("the_end"), (Words{"the_end"}));
  EXPECT_EQ(WordsThatCount("a\x01\u0301"
                           "b"),
            (Words{"\u0301b"}));  // a letter and its accent
  EXPECT_EQ(WordsThatCount("é\x01"), (Words{"é"}));
  EXPECT_EQ(WordsThatCount(""), Words());
}

TEST(AnswerScore, WordsCountAsOftenAsBothHaveThem) {
  const AnswerScore equal = ScoreAnswer({"x", "y"}, {"x", "y"});
  EXPECT_EQ(equal.exact_match, 1);
  EXPECT_EQ(equal.f1, 1);
  const AnswerScore turned = ScoreAnswer({"y", "x"}, {"x", "y"});
  EXPECT_EQ(turned.exact_match, 0);
  EXPECT_EQ(turned.f1, 1);
  EXPECT_DOUBLE_EQ(ScoreAnswer({"x", "x", "z"}, {"x"}).f1, 2 * (1.0 / 3) / (1.0 / 3 + 1));
  EXPECT_EQ(ScoreAnswer({"x"}, {"y"}).f1, 0);
  EXPECT_EQ(ScoreAnswer({}, {}).exact_match, 1);
  EXPECT_EQ(ScoreAnswer({}, {}).f1, 0);
}

}  // namespace
}  // namespace sparfuse::workloads
