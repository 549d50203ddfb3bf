// Times one exchange step of a gradient: the time that a rank waits between backward and optimizer.
//
//   step_bench [--gbps X]... [--elements N] [--density D] [--repetitions N]
//   mpirun -np P step_bench --gbps X ...     over MPI, on the existing network
//
// Without mpirun, two ranks are threads of this process, and their link is emulated at X Gbit/s.
// With mpirun, X states the network's rate for the table, and MPI's own all-reduce is another row.
// Each rank has one thread. The gradient is one tensor, or 16 tensors sent one by one. Steps:
//
//   sparse    top-k with error feedback, all-gather, decompression and average: a LiveEngine's step
//   dense     checked copy, all-reduce and average: the same engine's
//   powersgd  rank 4 with error feedback on a matrix of as many elements: the steps of PowerSgd
//             with two all-reduces of its factors between them
//
// A repetition runs every step once, in its own order. Prints Markdown: the minimum and the median
// time (a repetition's time is its slowest rank's), the fastest dense step's time over a step's,
// and a step's over PowerSGD's. Both ratios are given for minimum and median times.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "baselines/powersgd/powersgd.hpp"
#include "core/engine/live/live_engine.hpp"
#include "core/engine/unit_strategy.hpp"
#include "core/payload/accumulate.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "core/transport/shaped/shaped.hpp"
#include "tests/bench/kernel_bench.hpp"
#include "tests/support/run_ranks.hpp"
#ifdef SPARFUSE_BENCH_MPI
#include "core/transport/mpi.hpp"
#endif

namespace sparfuse::bench {
namespace {

using testing::kDeadline;

constexpr int kTag = 16;
constexpr int kLowRank = 4;
constexpr int kWarmUp = 30;  // steps in which a residual settles
constexpr std::size_t kManyTensors = 16;

struct Settings {
  std::vector<double> gbps;
  std::size_t elements = 25'600'000;
  double density = 0.01;
  int repetitions = 15;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// One rank's part of a step.
struct Step {
  std::string name;
  int warm_up = 2;
  std::function<void()> run;
};

// The gradient as `tensors` tensors of equal size, each its own unit.
std::shared_ptr<LiveEngine> MakeEngine(const Settings& settings, std::size_t tensors, bool sparse,
                                       PayloadCoding coding, const char* dense, ProgressLoop& loop,
                                       ThreadPool& pool) {
  LiveConfig config;
  config.topology = {loop.size(), 1};
  for (std::size_t t = 0; t < tensors; ++t) {
    const std::size_t begin = settings.elements * t / tensors;
    const std::size_t n = settings.elements * (t + 1) / tensors - begin;
    config.layout.Add("tensor" + std::to_string(t), {static_cast<std::int64_t>(n)}, n);
    config.plan.units.push_back({t, t + 1, sparse ? Sparsified::kAhead : Sparsified::kNever,
                                 sparse ? settings.density : 1.0});
  }
  config.strategy = std::make_unique<UnitStrategy>();
  if (sparse) {
    const SparsifierDescriptor& topk = FindSparsifier("topk");
    config.sparsifier = topk.make(ResolveOptions("topk", topk.options, {}), 1);
    config.feedback.kind = FeedbackKind::kResidual;
  }
  config.dense_collective = CoreCollective(dense);
  config.sparse_collective = CoreCollective("sparse-allgather");
  config.coding = coding;
  config.deadline = kDeadline;
  return std::make_shared<LiveEngine>(std::move(config), loop, pool);
}

Step EngineStep(std::string name, std::shared_ptr<LiveEngine> engine, const Floats& gradient,
                int warm_up) {
  const auto run = [engine, &gradient, step = std::uint64_t{0}]() mutable {
    engine->BeginStep(step++, false);
    engine->BeginForward();
    engine->EndForward();
    for (std::size_t t = 0; t < engine->layout().tensors(); ++t) {
      const TensorEntry& tensor = engine->layout().tensor(t);
      engine->AnnounceGradient(t, std::span(gradient).subspan(tensor.offset, tensor.numel));
    }
    engine->EndBackward();
    engine->FinishStep();
    engine->BeginUpdate();
    engine->EndStep();
  };
  return {std::move(name), warm_up, run};
}

// The sides of the most nearly square matrix with `elements` elements.
std::vector<std::int64_t> MatrixOf(std::size_t elements) {
  auto rows = static_cast<std::int64_t>(std::sqrt(static_cast<double>(elements)));
  while (static_cast<std::int64_t>(elements) % rows != 0) --rows;
  return {rows, static_cast<std::int64_t>(elements) / rows};
}

Step PowerSgdStep(const Settings& settings, const Floats& gradient, ProgressLoop& loop,
                  ThreadPool& pool) {
  struct State {
    std::vector<std::int64_t> shape;
    PowerSgd method;
    Floats residual, out;
    Workspace workspace;
    std::uint64_t step = 0;
  };
  const std::vector<std::int64_t> shape = MatrixOf(settings.elements);
  if (!PowerSgd::Compresses(shape, kLowRank)) {
    SPARFUSE_THROW(kConfig, "--elements " + std::to_string(settings.elements) +
                                ": expected a number that is the product of two similar ones");
  }
  const auto state = std::make_shared<State>(State{shape,
                                                   PowerSgd(shape, kLowRank, 1),
                                                   Floats(settings.elements),
                                                   Floats(settings.elements),
                                                   {}});
  const auto run = [state, &gradient, &loop, &pool] {
    const QuantizeContext context{&pool, &state->workspace, loop.rank()};
    const SelectSource source{{gradient.data(), gradient.size(), {}},
                              {state->residual.data(), state->residual.size(), {}}};
    const auto average = [&](std::span<float> factor) {
      ExchangeBuffers buffers;
      buffers.dense = factor;
      loop.RunBlocking([&](Communicator& world) {
        return CoreCollective("ring-allreduce")->Run(world, buffers, kTag);
      });
      ScaleDense(factor, 1.0f / static_cast<float>(loop.size()), factor, pool);
    };
    state->method.ComputeP(context, source, {0, "tensor0", state->shape, state->step++});
    average(state->method.p());
    state->method.Orthonormalize();
    state->method.ComputeQ(context, source);
    average(state->method.q());
    state->method.Reconstruct(context, source, state->out);
  };
  return {"powersgd, rank " + std::to_string(kLowRank), 2, run};
}

Step LimitStep(const Settings& settings, const Floats& gradient) {
  const auto residual = std::make_shared<Floats>(settings.elements);
  const auto average = std::make_shared<Floats>(settings.elements);
  const auto run = [residual, average, &gradient] {
    AddOnce(gradient.data(), gradient.size(), residual->data());
    std::memset(average->data(), 0, average->size() * sizeof(float));
    ::benchmark::DoNotOptimize(residual->data());
    ::benchmark::DoNotOptimize(average->data());
    ::benchmark::ClobberMemory();
  };
  return {"limit: r += g, memset", 2, run};
}

std::vector<Step> MakeSteps(const Settings& settings, const Floats& gradient, bool native,
                            ProgressLoop& loop, ThreadPool& pool) {
  std::vector<Step> steps;
  const PayloadCoding shorter{ValueCoding::kF16, IndexCoding::kDelta};
  for (const std::size_t tensors : {std::size_t{1}, kManyTensors}) {
    const std::string shape = tensors == 1 ? ", 1 tensor" : ", " + std::to_string(tensors);
    const auto add = [&](const std::string& name, bool sparse, PayloadCoding coding,
                         const char* dense) {
      steps.push_back(EngineStep(name + shape,
                                 MakeEngine(settings, tensors, sparse, coding, dense, loop, pool),
                                 gradient, sparse ? kWarmUp : 2));
    };
    add("sparse", true, {}, "ring-allreduce");
    add("sparse, halves and gaps", true, shorter, "ring-allreduce");
    add("dense, ring", false, {}, "ring-allreduce");
    if (native) add("dense, MPI's own", false, {}, "native-allreduce");
  }
  steps.push_back(PowerSgdStep(settings, gradient, loop, pool));
  steps.push_back(LimitStep(settings, gradient));
  return steps;
}

using Times = std::map<std::string, std::vector<double>>;  // seconds, by step

// Runs the steps on one rank; all ranks run them in the same order. Times are equal on all ranks.
Times Measure(const Settings& settings, bool native, ProgressLoop& loop) {
  ThreadPool pool(1);
  const Floats gradient = Gaussian(settings.elements, 1 + static_cast<std::uint64_t>(loop.rank()));
  std::vector<Step> steps = MakeSteps(settings, gradient, native, loop, pool);
  const auto barrier = [&] {
    loop.RunBlocking([](Communicator& world) { return Barrier(world, kTag); });
  };
  for (const Step& step : steps) {
    for (int i = 0; i < step.warm_up; ++i) step.run();
  }
  Times times;
  std::mt19937 random(1);
  for (int repetition = 0; repetition < settings.repetitions; ++repetition) {
    std::shuffle(steps.begin(), steps.end(), random);
    for (const Step& step : steps) {
      barrier();
      const auto begin = std::chrono::steady_clock::now();
      step.run();
      std::int64_t taken = (std::chrono::steady_clock::now() - begin).count();
      loop.RunBlocking([&](Communicator& world) { return AllReduceMax(world, {&taken, 1}, kTag); });
      times[step.name].push_back(static_cast<double>(taken) * 1e-9);
    }
  }
  barrier();  // no rank leaves before all ranks have their times
  return times;
}

void Print(const Settings& settings, const std::string& link, int ranks, const Times& times) {
  struct Figures {
    double least = HUGE_VAL;
    double median = HUGE_VAL;
  };
  Figures dense;
  Figures powersgd;
  std::map<std::string, Figures> all;
  for (const auto& [name, seconds] : times) {
    const Figures figures{*std::min_element(seconds.begin(), seconds.end()), Median(seconds)};
    all[name] = figures;
    if (name.starts_with("dense")) {
      dense = {std::min(dense.least, figures.least), std::min(dense.median, figures.median)};
    }
    if (name.starts_with("powersgd")) powersgd = figures;
  }
  std::printf("\n%zu elements, density %g, %d ranks, %s, %d repetitions\n\n", settings.elements,
              settings.density, ranks, link.c_str(), settings.repetitions);
  std::printf(
      "| %-34s | min ms | median ms | dense / it: min, median | it / powersgd: min, median |\n",
      "step");
  std::printf("|%s|--------|-----------|-------------------------|----------------------------|\n",
              std::string(36, '-').c_str());
  for (const auto& [name, figures] : all) {
    std::printf("| %-34s | %6.1f | %9.1f | %15.2f, %6.2f | %18.2f, %6.2f |\n", name.c_str(),
                figures.least * 1e3, figures.median * 1e3, dense.least / figures.least,
                dense.median / figures.median, figures.least / powersgd.least,
                figures.median / powersgd.median);
  }
  std::fflush(stdout);
}

void RunEmulated(const Settings& settings) {
  constexpr int kRanks = 2;
  for (const double gbps : settings.gbps) {
    Times times;
    testing::RunRanks(
        kRanks, 1, kDeadline,
        [&](ProgressLoop& loop) {
          Times of_rank = Measure(settings, false, loop);
          if (loop.rank() == 0) times = std::move(of_rank);
        },
        [&](std::unique_ptr<Communicator> world) {
          return MakeShaped(std::move(world), {{.gbps = gbps, .alpha_seconds = 100e-6}}, kDeadline);
        });
    Print(settings, "a link of " + Number(gbps) + " Gbit/s and 100 us, emulated", kRanks, times);
  }
}

#ifdef SPARFUSE_BENCH_MPI
void RunOverMpi(const Settings& settings) {
  ProgressLoop loop([] { return MakeMpiWorld(1); }, kDeadline);
  const Times times = Measure(settings, true, loop);
  if (loop.rank() == 0) {
    Print(settings, "MPI over a network of " + Number(settings.gbps.front()) + " Gbit/s",
          loop.size(), times);
  }
  FinalizeMpiOnClose();
}
#endif

template <class T>
T ParseNumber(const std::string& option, const char* text) {
  T number{};
  const char* const end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || !(number > 0)) {
    SPARFUSE_THROW(kConfig, option + " " + text + ": expected a number above 0");
  }
  return number;
}

Settings ParseSettings(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) SPARFUSE_THROW(kConfig, option + ": expected a value after it");
    const char* const value = argv[i + 1];
    if (option == "--gbps") {
      settings.gbps.push_back(ParseNumber<double>(option, value));
    } else if (option == "--elements") {
      settings.elements = ParseNumber<std::size_t>(option, value);
    } else if (option == "--density") {
      settings.density = ParseNumber<double>(option, value);
    } else if (option == "--repetitions") {
      settings.repetitions = ParseNumber<int>(option, value);
    } else {
      SPARFUSE_THROW(kConfig, "unknown option " + option +
                                  "; known: --gbps, --elements, --density, --repetitions");
    }
  }
  if (settings.gbps.empty()) settings.gbps = {1, 10};
  return settings;
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  try {
    const Settings settings = ParseSettings(argc, argv);
#ifdef SPARFUSE_BENCH_MPI
    if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {
      RunOverMpi(settings);
      return 0;
    }
#endif
    RunEmulated(settings);
  } catch (const sparfuse::Error& error) {
    std::fprintf(stderr, "step_bench: %s\n", error.what());
    return error.kind() == sparfuse::FailureKind::kConfig ? 2 : 1;
  }
  return 0;
}
