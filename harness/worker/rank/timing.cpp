#include "harness/worker/rank/timing.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <vector>

#include "core/device/runtime.hpp"

namespace sparfuse::harness {
namespace {

using Clock = std::chrono::steady_clock;

// Calls that last long enough for the clock, where one lasts so long.
int BatchOf(double once_seconds) {
  return std::max(1, static_cast<int>(2e-4 / std::max(1e-7, once_seconds)));
}

double ProcessCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

Estimate TimeOf(const std::function<void()>& body, int repeats) {
  body();
  const auto probe = Clock::now();
  body();
  const int batch = BatchOf(SecondsSince(probe));
  std::vector<double> times;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto begin = Clock::now();
    for (int i = 0; i < batch; ++i) body();
    times.push_back(SecondsSince(begin) / batch);
  }
  return MedianEstimate(times);
}

Estimate TimeOnDevice(const Stream& stream, const std::function<void()>& body, int repeats) {
  body();
  gpu::Synchronize(stream);
  const auto probe = Clock::now();
  body();
  gpu::Synchronize(stream);
  const int batch = BatchOf(SecondsSince(probe));
  gpu::GpuEvent begin(stream.device);
  gpu::GpuEvent end(stream.device);
  std::vector<double> times;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    begin.Record(stream);
    for (int i = 0; i < batch; ++i) body();
    end.Record(stream);
    end.Wait();
    times.push_back(end.SecondsSince(begin) / batch);
  }
  return MedianEstimate(times);
}

double MeanOverRanks(const Rank& rank, double own) {
  return MeanOverRanks(rank, Estimate{own, 0}).value;
}

Estimate MeanOverRanks(const Rank& rank, const Estimate& own) {
  const std::array<double, 2> mine = {own.value, own.standard_error};
  std::array<double, 2> sum = {};
  for (const auto& bytes : rank.Gather(std::as_bytes(std::span(mine)))) {
    std::array<double, 2> theirs = {};
    std::memcpy(theirs.data(), bytes.data(), sizeof theirs);
    sum[0] += theirs[0];
    sum[1] += theirs[1];
  }
  return {sum[0] / rank.size(), sum[1] / rank.size()};
}

Estimate Excess(const Estimate& a, const Estimate& b) {
  return {std::max(0.0, a.value - b.value), std::hypot(a.standard_error, b.standard_error)};
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
  return {MeanOverRanks(rank, MedianEstimate(wall)), MeanOverRanks(rank, Median(cpu))};
}

}  // namespace sparfuse::harness
