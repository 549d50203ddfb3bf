// Checks a trial.json and its files beyond the types of keys.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sparfuse::harness {

// Throws Error{kData} if a text of a record, or the name of one of its keys, is no plain text
// (harness/files/plain_text.hpp). TrialOf and AnnotationOf look themselves.
void RequirePlainText(const nlohmann::json& stored, std::string_view whole);

// "" or the contradiction between config.json, with which a trial was started, and its trial.json.
// Throws as CheckConfig. whole: the name of config.json in errors.
std::string WhatConfigContradicts(const nlohmann::json& config, const nlohmann::json& trial,
                                  std::string_view whole);

}  // namespace sparfuse::harness
