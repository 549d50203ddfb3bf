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

}  // namespace sparfuse::workloads
