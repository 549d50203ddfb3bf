// Catches what a call throws, for tests of errors that a person reads.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/base/error.hpp"

namespace sparfuse::testing {

// The text of the Error of this kind that `call` throws; "no error" if it returns.
std::string ErrorOf(const auto& call, FailureKind kind = FailureKind::kConfig) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "no error";
}

inline void ExpectIn(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace sparfuse::testing

#define EXPECT_SAYS(text, part)                              \
  EXPECT_NE(std::string(text).find(part), std::string::npos) \
      << "in: " << (text) << "\nexpected: " << (part)
