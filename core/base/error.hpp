// Declares errors that may end a trial, and the kinds under which the store files them.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace sparfuse {

// Stored in trial.failure_kind by name; the names are part of the store's schema.
enum class FailureKind {
  kConfig,
  kUnsupported,
  kOutOfMemory,
  kTimeout,
  kComm,
  kNumeric,
  kData,
  kInternal
};

constexpr std::string_view FailureKindName(FailureKind kind) {
  switch (kind) {
    case FailureKind::kConfig:
      return "config";
    case FailureKind::kUnsupported:
      return "unsupported";
    case FailureKind::kOutOfMemory:
      return "out_of_memory";
    case FailureKind::kTimeout:
      return "timeout";
    case FailureKind::kComm:
      return "comm";
    case FailureKind::kNumeric:
      return "numeric";
    case FailureKind::kData:
      return "data";
    case FailureKind::kInternal:
      return "internal";
  }
  return "internal";
}

class Error : public std::runtime_error {
 public:
  Error(FailureKind kind, std::string_view what)
      : std::runtime_error(std::string(what)), kind_(kind) {}
  FailureKind kind() const noexcept { return kind_; }

 private:
  FailureKind kind_;
};

// The text of its parts, which are strings and numbers (std::to_string), one after another.
template <class... Parts>
std::string TextOf(const Parts&... parts) {
  std::string text;
  const auto add = [&text]<class Part>(const Part& part) {
    if constexpr (std::is_arithmetic_v<Part> && !std::is_same_v<Part, char>) {
      text += std::to_string(part);
    } else {
      text += part;
    }
  };
  (add(parts), ...);
  return text;
}

}  // namespace sparfuse

// Throws an Error whose text is that of the parts (TextOf).
#define SPARFUSE_THROW(kind, ...) \
  throw ::sparfuse::Error(::sparfuse::FailureKind::kind, ::sparfuse::TextOf(__VA_ARGS__))

// For mistakes a user can cause (bad shape, density out of range). Programmer errors use assert.
#define SPARFUSE_REQUIRE(condition, ...)                    \
  do {                                                      \
    if (!(condition)) SPARFUSE_THROW(kConfig, __VA_ARGS__); \
  } while (false)
