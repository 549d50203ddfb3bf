#include "harness/machine/reference_loop.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>

namespace sparfuse::harness {
namespace {

constexpr int kRuns = 5;
constexpr int kRounds = 60'000;

std::uint64_t Mix(std::uint64_t x) {  // xorshift
  x ^= x << 13;
  x ^= x >> 7;
  return x ^ x << 17;
}

[[gnu::noinline]] std::uint64_t Loop(std::uint64_t seed) {
  std::uint64_t a = seed + 1, b = seed + 2, c = seed + 3, d = seed + 4;
  std::uint64_t e = seed + 5, f = seed + 6, g = seed + 7, h = seed + 8;
  for (int round = 0; round < kRounds; ++round) {
    a = Mix(a), b = Mix(b), c = Mix(c), d = Mix(d);
    e = Mix(e), f = Mix(f), g = Mix(g), h = Mix(h);
  }
  return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
}

double ThreadCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

double ReferenceLoopSeconds() {
  std::array<double, kRuns> seconds{};
  volatile std::uint64_t kept = 0;  // so that the loop is computed
  for (double& each : seconds) {
    const double begin = ThreadCpuSeconds();
    kept = Loop(kept);
    each = ThreadCpuSeconds() - begin;
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRuns / 2];
}

}  // namespace sparfuse::harness
