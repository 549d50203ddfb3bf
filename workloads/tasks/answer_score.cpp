#include "workloads/tasks/answer_score.hpp"

#include <algorithm>
#include <cstddef>
#include <map>

namespace sparfuse::workloads {
namespace {

// The number of bytes of a UTF-8 character that begins with `first`.
std::size_t LengthOf(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

bool IsArticle(std::string_view word) { return word == "a" || word == "an" || word == "the"; }

}  // namespace

std::vector<std::string> WordsThatCount(std::string_view normal) {
  std::vector<std::string> words(1);
  std::size_t run = 0;  // begin of the letters at the end of the last word
  // An article is removed, and separates its neighbours.
  const auto end_run = [&] {
    std::string& last = words.back();
    if (IsArticle(std::string_view(last).substr(run))) {
      last.resize(run);
      words.emplace_back();
    }
    run = words.back().size();
  };
  for (std::size_t at = 0; at < normal.size();) {
    if (normal[at] == ' ') {
      end_run();
      words.emplace_back();
      run = 0;
      ++at;
      continue;
    }
    const bool letter = normal[at] != kNoWord;
    if (!letter && ++at == normal.size()) break;
    const std::string_view character = normal.substr(at, LengthOf(normal[at]));
    if (!letter) end_run();
    words.back() += character;
    if (!letter) run = words.back().size();
    at += character.size();
  }
  end_run();
  std::erase(words, "");
  return words;
}

AnswerScore ScoreAnswer(const std::vector<std::string>& prediction,
                        const std::vector<std::string>& answer) {
  AnswerScore score{prediction == answer ? 1.0 : 0.0, 0};
  std::map<std::string_view, std::size_t> left;
  for (const std::string& word : answer) ++left[word];
  std::size_t same = 0;
  for (const std::string& word : prediction) {
    const auto found = left.find(word);
    if (found == left.end() || found->second == 0) continue;
    --found->second;
    ++same;
  }
  if (same == 0) return score;
  const double precision = static_cast<double>(same) / static_cast<double>(prediction.size());
  const double recall = static_cast<double>(same) / static_cast<double>(answer.size());
  score.f1 = 2 * precision * recall / (precision + recall);
  return score;
}

}  // namespace sparfuse::workloads
