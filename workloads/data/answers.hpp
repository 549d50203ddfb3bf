// The questions of a prepared data set in SQuAD's form, and answers to them (test.json,
// predictions.json). harness/data/sparfuse_data/squad.py writes the first.
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

}  // namespace sparfuse::workloads
