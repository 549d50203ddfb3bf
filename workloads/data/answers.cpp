#include "workloads/data/answers.hpp"

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"

namespace sparfuse::workloads {
namespace {

using nlohmann::json;

[[noreturn]] void Refuse(const std::string& why) {
  SPARFUSE_THROW(kData, "test.json of prepared questions: " + why + "; prepare them again");
}

QuestionContext ContextOf(const json& stored, std::size_t number) {
  QuestionContext context{stored.at("text"), stored.at("normal"), {}};
  for (const json& piece : stored.at("pieces")) {
    const TextPiece at{piece.at(0), piece.at(1), piece.at(2), piece.at(3)};
    if (at.begin > at.end || at.end > context.text.size() || at.normal_begin > at.normal_end ||
        at.normal_end > context.normal.size()) {
      Refuse("context " + std::to_string(number) + ": piece " +
             std::to_string(context.pieces.size()) + " lies outside the text");
    }
    context.pieces.push_back(at);
  }
  return context;
}

// The number of bytes of a UTF-8 character that begins with `first`.
std::size_t LengthOf(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

bool IsArticle(std::string_view word) { return word == "a" || word == "an" || word == "the"; }

}  // namespace

AnswerKey ReadAnswerKey(std::string_view test_json) {
  AnswerKey key;
  try {
    const json stored = json::parse(test_json);
    for (const json& context : stored.at("contexts"))
      key.contexts.push_back(ContextOf(context, key.contexts.size()));
    for (const json& question : stored.at("questions")) {
      key.questions.push_back({question.at("id"), question.at("context"), question.at("normal")});
      if (key.questions.back().context >= key.contexts.size()) {
        Refuse("question " + key.questions.back().id + " has context " +
               std::to_string(key.questions.back().context) + " of " +
               std::to_string(key.contexts.size()));
      }
    }
  } catch (const json::exception& error) {
    Refuse(error.what());
  }
  return key;
}

std::string PredictionsText(const std::map<std::string, std::string>& answers) {
  return json(answers).dump() + "\n";
}

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
