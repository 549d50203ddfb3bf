// Tells whether two forms of a trial, as they leave, are of one trial.
#pragma once

#include <string>

#include "harness/bundle/bundled_trial.hpp"

namespace sparfuse::harness {

// "" where they are of one trial, else the file that differs. Which names were removed depends on
// who knew them: HOST and USER stand for any word. Results of others are one whatever file they
// were read from.
std::string WhatDiffers(const BundledTrial& here, const BundledTrial& there);

// The same of annotations.
bool AreOneAnnotation(const Annotation& here, const Annotation& there);

}  // namespace sparfuse::harness
