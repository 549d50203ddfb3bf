// Scores answers to questions as SQuAD 1.1's own script does: words in lower case, without
// punctuation and articles. No LibTorch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::workloads {

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
