// Tests the reader of prepared questions and the form of answers.
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
  std::string text = kWhole;
  text.replace(text.find(old), old.size(), now);
  return testing::ErrorOf([&] { ReadAnswerKey(text); }, FailureKind::kData);
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

}  // namespace
}  // namespace sparfuse::workloads
