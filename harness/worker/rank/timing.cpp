#include "harness/worker/rank/timing.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <future>
#include <memory>
#include <vector>

#include "core/device/runtime.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

using Clock = std::chrono::steady_clock;

// The number of calls that are long enough for the clock, if one call takes `once_seconds`.
int BatchOf(double once_seconds) {
  return std::max(1, static_cast<int>(2e-4 / std::max(1e-7, once_seconds)));
}

// Runs both and waits for the later one, because the task refers to objects of the caller.
void RunBeside(ProgressLoop& loop, const ProgressLoop::Make& task,
               const std::function<void()>& compute) {
  const auto ended = std::make_shared<std::promise<void>>();
  loop.Start(task, [ended](const std::exception_ptr& error) {
    error ? ended->set_exception(error) : ended->set_value();
  });
  std::exception_ptr failed;
  try {
    compute();
  } catch (...) {
    failed = std::current_exception();
  }
  ended->get_future().get();
  if (failed) std::rethrow_exception(failed);
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
  Estimate sum;
  for (const std::vector<double>& theirs :
       GatherValues<double>(rank, std::array{own.value, own.standard_error})) {
    sum.value += theirs[0];
    sum.standard_error += theirs[1];
  }
  return {sum.value / rank.size(), sum.standard_error / rank.size()};
}

Estimate Excess(const Estimate& a, const Estimate& b) {
  return {std::max(0.0, a.value - b.value), std::hypot(a.standard_error, b.standard_error)};
}

ExchangeTime TimeExchange(const Rank& rank, const ProgressLoop::Make& task, int repeats) {
  std::vector<double> wall;
  std::vector<double> cpu;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    rank.Synchronise();
    const double cpu_begin = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
    const auto begin = Clock::now();
    rank.loop.RunBlocking(task);
    wall.push_back(SecondsSince(begin));
    cpu.push_back(CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin);
  }
  return {MeanOverRanks(rank, MedianEstimate(wall)), MeanOverRanks(rank, Median(cpu))};
}

double CpuSecondsBeside(const Rank& rank, const Pass& pass, int passes,
                        const ProgressLoop::Make& task, int repeats) {
  const auto compute = [&] {
    for (int i = 0; i < passes; ++i) pass.run();
  };
  std::vector<double> more;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    rank.Synchronise();
    const double begin = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
    compute();
    const double alone = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - begin;
    rank.Synchronise();
    const double second_begin = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
    RunBeside(rank.loop, task, compute);
    more.push_back(CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - second_begin - alone);
  }
  return std::max(0.0, MeanOverRanks(rank, Median(more)));
}

}  // namespace sparfuse::harness
