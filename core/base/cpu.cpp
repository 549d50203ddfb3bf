#include "core/base/cpu.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <string>
#include <thread>

#include "core/base/error.hpp"
#include "core/base/options.hpp"

namespace sparfuse {
namespace {

// Keys, payloads and files are machine words in memory order.
static_assert(std::endian::native == std::endian::little, "sparfuse needs a little-endian machine");

constexpr Isa kAll[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kNeon};
constexpr int kNone = -1;
std::atomic<int> forced{kNone};

bool Supported(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
             __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt") &&
             __builtin_cpu_supports("f16c");
    case Isa::kAvx512:
      return Supported(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
    case Isa::kNeon:
      return false;
  }
  return false;
#elif defined(__aarch64__)
  return isa == Isa::kPortable || isa == Isa::kNeon;  // every AArch64 machine has NEON
#else
  return isa == Isa::kPortable;
#endif
}

std::string SupportedNames() {
  std::string names;
  for (const Isa isa : SupportedIsas()) {
    names += (names.empty() ? "" : ", ") + std::string(IsaName(isa));
  }
  return names;
}

}  // namespace

int Processors() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

std::string_view IsaName(Isa isa) {
  constexpr std::string_view kNames[] = {"portable", "avx2", "avx512", "neon"};
  static_assert(std::size(kNames) == std::size(kAll));
  return kNames[static_cast<std::size_t>(isa)];
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> supported;
  std::copy_if(std::begin(kAll), std::end(kAll), std::back_inserter(supported), Supported);
  return supported;
}

Isa IsaFromEnvironment() {
  const char* wanted = std::getenv("SPARFUSE_ISA");
  if (wanted == nullptr || *wanted == '\0') return SupportedIsas().back();
  std::vector<std::string> known;
  for (const Isa isa : kAll) {
    known.emplace_back(IsaName(isa));
    if (known.back() != wanted) continue;
    if (Supported(isa)) return isa;
    SPARFUSE_THROW(kUnsupported, "SPARFUSE_ISA=", known.back(),
                   ": this machine lacks it; it has: ", SupportedNames());
  }
  SPARFUSE_THROW(kConfig, "SPARFUSE_ISA=", wanted, ": unknown instruction set",
                 Suggestion(wanted, known));
}

Isa ActiveIsa() {
  const int isa = forced.load(std::memory_order_relaxed);
  if (isa != kNone) return static_cast<Isa>(isa);
  static const Isa chosen = IsaFromEnvironment();
  return chosen;
}

ScopedIsa::ScopedIsa(Isa isa) : previous_(forced.load()) {
  if (!Supported(isa)) {
    SPARFUSE_THROW(kUnsupported, "instruction set ", IsaName(isa),
                   ": this machine lacks it; it has: ", SupportedNames());
  }
  forced.store(static_cast<int>(isa));
}

ScopedIsa::~ScopedIsa() { forced.store(previous_); }

}  // namespace sparfuse
