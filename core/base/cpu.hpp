// Counts the machine's processors, and chooses the kernels' instruction set once at run time, so
// that one binary serves every x86-64 machine, and another every AArch64 machine.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace sparfuse {

// At least 1, also if the system does not say.
int Processors();

enum class Isa : std::uint8_t { kPortable, kAvx2, kAvx512, kNeon };

std::string_view IsaName(Isa isa);  // "portable", "avx2", "avx512", "neon"

// The instruction sets that this machine and this build support, slowest first; never empty.
std::vector<Isa> SupportedIsas();

// The fastest supported instruction set, or the one that the environment variable SPARFUSE_ISA
// names. Throws Error{kConfig} for an unknown name, Error{kUnsupported} for one the machine lacks.
Isa IsaFromEnvironment();

// The kernels' current instruction set: IsaFromEnvironment() of the first call, unless a ScopedIsa
// is alive.
Isa ActiveIsa();

// Internal use only: runs the enclosed scope, on all threads, on a given instruction set. Lets a
// test compare the implementations within one process. Throws Error{kUnsupported}.
class ScopedIsa {
 public:
  explicit ScopedIsa(Isa isa);
  ~ScopedIsa();
  ScopedIsa(const ScopedIsa&) = delete;
  ScopedIsa& operator=(const ScopedIsa&) = delete;

 private:
  int previous_;
};

}  // namespace sparfuse
