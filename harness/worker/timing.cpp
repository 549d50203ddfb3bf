#include "harness/worker/timing.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <vector>

#include "harness/statistics.hpp"

namespace sparfuse {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double ProcessCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

double TimeOf(const std::function<void()>& body, int repeats) {
  body();
  const auto probe = Clock::now();
  body();
  const double once = std::max(1e-7, SecondsSince(probe));
  const int batch = std::max(1, static_cast<int>(2e-4 / once));
  std::vector<double> times;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto begin = Clock::now();
    for (int i = 0; i < batch; ++i) body();
    times.push_back(SecondsSince(begin) / batch);
  }
  return Median(times);
}

double MeanOverRanks(const Rank& rank, double own) {
  double sum = 0;
  for (const auto& bytes : rank.Gather(std::as_bytes(std::span(&own, 1)))) {
    double value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    sum += value;
  }
  return sum / rank.size();
}

ExchangeTime TimeExchange(const Rank& rank, const ProgressLoop::Make& task, int repeats) {
  std::vector<double> wall;
  std::vector<double> cpu;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    rank.Synchronise();
    const double cpu_begin = ProcessCpuSeconds();
    const auto begin = Clock::now();
    rank.loop.RunBlocking(task);
    wall.push_back(SecondsSince(begin));
    cpu.push_back(ProcessCpuSeconds() - cpu_begin);
  }
  return {MeanOverRanks(rank, Median(wall)), MeanOverRanks(rank, Median(cpu))};
}

}  // namespace sparfuse
