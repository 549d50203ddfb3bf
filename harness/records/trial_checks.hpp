// What of a trial.json and the files beside it is checked beside the types of its keys.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sparfuse::harness {

// Throws Error{kData} if a text of a record, or the name of one of its keys, is no plain text
// (harness/files/plain_text.hpp). TrialOf and AnnotationOf look themselves.
void RequirePlainText(const nlohmann::json& stored, std::string_view whole);

// "" or how config.json, with which a trial was started, and its trial.json contradict each other.
// Throws as CheckConfig. whole: what errors call config.json.
std::string WhatConfigContradicts(const nlohmann::json& config, const nlohmann::json& trial,
                                  std::string_view whole);

}  // namespace sparfuse::harness
