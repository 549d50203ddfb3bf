// Tells whether two forms of a trial, as they leave, are of one trial.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "harness/bundle/bundled_trial.hpp"

namespace sparfuse::harness {

// "" where they are of one trial, else the file that differs. Which names were removed depends on
// who knew them: HOST and USER stand for any word. Which keys left depends on the list: of two
// lists, what both let leave is compared. Results of others are one whatever file they were read
// from.
std::string WhatDiffers(const BundledTrial& here, const BundledTrial& there);

// The same of annotations.
bool AreOneAnnotation(const nlohmann::json& here, const nlohmann::json& there);

}  // namespace sparfuse::harness
