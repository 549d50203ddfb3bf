// Declares errors that may end a trial, and the kinds under which the store files them.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

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

}  // namespace sparfuse

#define SPARFUSE_THROW(kind, what) throw ::sparfuse::Error(::sparfuse::FailureKind::kind, (what))

// For mistakes a user can cause (bad shape, density out of range). Programmer errors use assert.
#define SPARFUSE_REQUIRE(condition, what)              \
  do {                                                 \
    if (!(condition)) SPARFUSE_THROW(kConfig, (what)); \
  } while (false)
