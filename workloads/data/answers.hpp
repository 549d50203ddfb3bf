// The questions of a prepared data set in SQuAD's form, and answers to them (test.json,
// predictions.json). harness/data/sparfuse_data/squad.py writes the first. Answers are scored as
// SQuAD 1.1's own script does: words in lower case, without punctuation and articles.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::workloads {

// The place of a word piece, in bytes [begin, end) of its context and of its normal form.
struct TextPiece {
  std::size_t begin = 0, end = 0, normal_begin = 0, normal_end = 0;
};

struct QuestionContext {
  std::string text, normal;
  std::vector<TextPiece> pieces;
};

struct AskedQuestion {
  std::string id;
  std::size_t context = 0;           // in AnswerKey::contexts
  std::vector<std::string> answers;  // right ones, in normal form
};

struct AnswerKey {
  std::vector<QuestionContext> contexts;
  std::vector<AskedQuestion> questions;
};

// Throws kData, naming test.json and the question or context, unless every question has a context
// and every piece lies in its text.
AnswerKey ReadAnswerKey(std::string_view test_json);

// Of answers by the question's id: a JSON object, as SQuAD's own script reads it.
std::string PredictionsText(const std::map<std::string, std::string>& answers);

// In a normal form, precedes a character that stays although it is no part of a word.
inline constexpr char kNoWord = '\x01';

// The words of a part of a text that count. `normal` is its normal form: lower case, without ASCII
// punctuation, each white space a blank, kNoWord before other characters that are no letter, digit
// or underscore (harness/data/sparfuse_data/scoring.py makes it).
std::vector<std::string> WordsThatCount(std::string_view normal);

struct AnswerScore {
  double exact_match = 0;  // 0 or 1
  double f1 = 0;
};
// Of words as WordsThatCount gives them.
AnswerScore ScoreAnswer(const std::vector<std::string>& prediction,
                        const std::vector<std::string>& answer);

}  // namespace sparfuse::workloads
