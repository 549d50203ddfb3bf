// Puts mistakes into texts and catches the errors of a call, for tests of messages that a person
// reads.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <source_location>
#include <string>

#include "core/base/error.hpp"

namespace sparfuse::testing {

// The text of the Error of this kind that `call` throws; "no error" if it returns.
std::string ErrorOf(const auto& call, FailureKind kind = FailureKind::kConfig) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(FailureKindName(error.kind()), FailureKindName(kind)) << error.what();
    return error.what();
  }
  return "no error";
}

// `text` with its first `old`, which must exist, replaced by `now`.
inline std::string Replaced(std::string text, const std::string& old, const std::string& now) {
  const auto at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return at == std::string::npos ? text : text.replace(at, old.size(), now);
}

inline void ExpectIn(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

#define EXPECT_SAYS(text, part)                              \
  EXPECT_NE(std::string(text).find(part), std::string::npos) \
      << "in: " << (text) << "\nexpected: " << (part)

// Expects that `call` throws an Error of this kind whose text contains each of `parts`.
void ExpectError(FailureKind kind, std::initializer_list<std::string> parts, const auto& call,
                 std::source_location where = std::source_location::current()) {
  const ::testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()),
                                     FailureKindName(kind));
  const std::string text = ErrorOf(call, kind);
  EXPECT_NE(text, "no error");
  for (const std::string& part : parts) EXPECT_SAYS(text, part);
}

}  // namespace sparfuse::testing
