// Tests the reader of prepared questions, the form of answers, their words that count and the
// comparison of two answers.
#include "workloads/data/answers.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::workloads {
namespace {

constexpr const char* kWhole = R"({
  "contexts": [{"text": "A river.", "normal": "a river", "pieces": [[0, 1, 0, 1], [2, 7, 2, 7]]}],
  "questions": [{"id": "q1", "context": 0, "normal": ["a river", "river"]}]})";

std::string ErrorWith(const std::string& old, const std::string& now) {
  return testing::ErrorOf([&] { ReadAnswerKey(testing::Replaced(kWhole, old, now)); },
                          FailureKind::kData);
}

TEST(Answers, QuestionsHaveContextsAndPieces) {
  const AnswerKey key = ReadAnswerKey(kWhole);
  ASSERT_EQ(key.questions.size(), 1u);
  EXPECT_EQ(key.questions[0].id, "q1");
  EXPECT_EQ(key.questions[0].answers, (std::vector<std::string>{"a river", "river"}));
  const QuestionContext& context = key.contexts.at(key.questions[0].context);
  EXPECT_EQ(context.text, "A river.");
  ASSERT_EQ(context.pieces.size(), 2u);
  EXPECT_EQ(context.pieces[1].begin, 2u);
  EXPECT_EQ(context.pieces[1].normal_end, 7u);
}

TEST(Answers, AKeyThatContradictsItselfIsRefused) {
  EXPECT_SAYS(ErrorWith("[2, 7, 2, 7]", "[2, 9, 2, 7]"),
              "context 0: piece 1 lies outside the text");
  EXPECT_SAYS(ErrorWith("[2, 7, 2, 7]", "[7, 2, 2, 7]"),
              "context 0: piece 1 lies outside the text");
  EXPECT_SAYS(ErrorWith("[2, 7, 2, 7]", "[2, 7, 2, 8]"),
              "context 0: piece 1 lies outside the text");
  EXPECT_SAYS(ErrorWith("[2, 7, 2, 7]", "[2, 7]"), "test.json of prepared questions");
  EXPECT_SAYS(ErrorWith("\"context\": 0", "\"context\": 1"), "question q1 has context 1 of 1");
  EXPECT_SAYS(ErrorWith("\"q1\"", "7"), "prepare them again");
  EXPECT_SAYS(ErrorWith("]}", ""), "prepare them again");
}

TEST(Answers, AreAnObjectByQuestion) {
  EXPECT_EQ(PredictionsText({{"b", "say \"x\""}, {"a", ""}}),
            "{\"a\":\"\",\"b\":\"say \\\"x\\\"\"}\n");
}

// The numbers follow SQuAD 1.1's rule, worked out by hand.
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
