// Declares errors that may end a trial, and the kinds under which the store files them.
#pragma once

#include <cstddef>
#include <iterator>
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
  constexpr std::string_view kNames[] = {"config", "unsupported", "out_of_memory", "timeout",
                                         "comm",   "numeric",     "data",          "internal"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(FailureKind::kInternal) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

class Error : public std::runtime_error {
 public:
  Error(FailureKind kind, std::string_view what)
      : std::runtime_error(std::string(what)), kind_(kind) {}
  FailureKind kind() const noexcept { return kind_; }

 private:
  FailureKind kind_;
};

// Joins texts and numbers, which it writes as std::to_string does.
template <class... Parts>
std::string Concat(const Parts&... parts) {
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

// Throws an Error{kind} whose text is Concat of the other arguments.
#define SPARFUSE_THROW(kind, ...) \
  throw ::sparfuse::Error(::sparfuse::FailureKind::kind, ::sparfuse::Concat(__VA_ARGS__))

// For mistakes a user can cause (bad shape, density out of range). Programmer errors use assert.
#define SPARFUSE_REQUIRE(condition, ...)                    \
  do {                                                      \
    if (!(condition)) SPARFUSE_THROW(kConfig, __VA_ARGS__); \
  } while (false)
