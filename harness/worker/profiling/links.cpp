#include "harness/worker/profiling/links.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/base/clock.hpp"
#include "core/cost/fit.hpp"
#include "core/transport/communicator.hpp"
#include "core/transport/task.hpp"
#include "core/transport/topology.hpp"
#include "harness/worker/profiling/measurement.hpp"

namespace sparfuse::harness {
namespace {

constexpr int kRingTag = 16;
constexpr std::size_t kLargestBytes = 4u << 20;
constexpr int kBurst = 16;  // messages at once

// The neighbours in a ring of the `count` ranks from `first` on.
RingNeighbours InRing(int rank, int first, int count) {
  return {first + (rank - first + count - 1) % count, first + (rank - first + 1) % count};
}

// Null if the backend has no ring step of its own. A backend cannot send nothing, so one byte is
// sent instead. out, in: at least a byte.
std::unique_ptr<Request> NativeStep(Communicator& world, RingNeighbours ring,
                                    std::span<std::byte> out, std::span<std::byte> in,
                                    int messages) {
  if (out.empty()) return world.NativeRingStep(ring, {out.data(), 1}, {in.data(), 1}, messages);
  return world.NativeRingStep(ring, out, in, messages);
}

// Runs `rounds` rounds: every rank sends to the next and receives from the previous one.
Task RingRounds(Communicator& world, RingNeighbours ring, std::span<std::byte> out,
                std::span<std::byte> in, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    if (auto step = NativeStep(world, ring, out, in, 1)) {
      co_await Complete(std::move(step));
    } else {
      co_await Complete(world.Irecv(ring.previous, kRingTag, in),
                        world.Isend(ring.next, kRingTag, out));
    }
  }
}

// Sends `messages` small messages to the next rank at once.
Task Burst(Communicator& world, RingNeighbours ring, std::span<std::byte> out,
           std::span<std::byte> in, int messages) {
  const std::size_t bytes = 8 * static_cast<std::size_t>(messages);
  if (auto step = NativeStep(world, ring, out.first(bytes), in.first(bytes), messages)) {
    co_await Complete(std::move(step));
    co_return;
  }
  std::vector<std::unique_ptr<Request>> requests;
  for (int m = 0; m < messages; ++m) {
    requests.push_back(
        world.Irecv(ring.previous, kRingTag, in.subspan(8 * static_cast<std::size_t>(m), 8)));
    requests.push_back(world.Isend(ring.next, kRingTag, out.first(8)));
  }
  co_await Complete(std::move(requests));
}

Task Nothing() { co_return; }

Device WhereMessagesLie(const Rank& rank) {
  Device device;
  rank.loop.RunBlocking([&device](Communicator& world) {
    device = world.stream().device;
    return Nothing();
  });
  return device;
}

// Nothing if too few of the times are above 0, as with a transport without start-up time.
std::optional<LinkFit> FitOf(const MeasuredCurve& rounds) {
  std::vector<TimedTransfer> transfers;
  for (const MeasuredPoint& point : rounds) {
    if (point.seconds.value > 0)
      transfers.push_back({static_cast<double>(point.size), point.seconds.value});
  }
  if (transfers.size() < 3) return std::nullopt;
  const AlphaBeta fit = FitAlphaBeta(transfers);
  LinkFit made{.alpha_seconds = fit.alpha_seconds,
               .alpha_standard_error = fit.alpha_standard_error,
               .seconds_per_byte = fit.seconds_per_byte,
               .seconds_per_byte_standard_error = fit.seconds_per_byte_standard_error,
               .points = static_cast<int>(transfers.size()),
               .relative_residuals = {},
               .rms_relative_residual = fit.rms_relative_residual,
               .worst_relative_residual = fit.worst_relative_residual,
               .r_squared = fit.r_squared};
  for (std::size_t i = 0; i < transfers.size(); ++i)
    made.relative_residuals.push_back({transfers[i].bytes, fit.relative_residuals[i]});
  return made;
}

// Measures one class of links.
class RingProfile {
 public:
  // messages: the memory of the transport's messages.
  RingProfile(const Rank& rank, Device messages, RingNeighbours neighbours, int repeats,
              double dispatch, const Pass* beside)
      : rank_(rank),
        neighbours_(neighbours),
        repeats_(repeats),
        dispatch_(dispatch),
        beside_(beside),
        out_(kLargestBytes, messages),
        in_(kLargestBytes, messages) {}

  MeasuredLink Measure(LinkClass link_class, const std::string& place,
                       const Measurement& measured) {
    const MeasuredCurve rounds = RoundSeconds();
    MeasuredLink link;
    link.link_class = LinkClassName(link_class);
    link.round_seconds = measured.CurveWithErrors(place + "/round_seconds", rounds);
    link.fit = FitOf(rounds);
    link.seconds_per_extra_message =
        measured.Value(place + "/seconds_per_extra_message", SecondsPerExtraMessage());
    MeasureCpu(link);
    return link;
  }

 private:
  // Processor time of an exchange: once + a round + a further message of a round + a fraction of
  // the transfer time. Measured from a short exchange, one of many rounds, one of many messages at
  // once and a long one. All but the first run beside computation, if there is some.
  void MeasureCpu(MeasuredLink& link) {
    constexpr int kMany = 16;
    const ExchangeTime one = TimeRing(0, 1);
    const ExchangeTime many = TimeRing(0, kMany);
    const ExchangeTime large = TimeRing(kLargestBytes, 1);
    const ExchangeTime burst = TimeBurst(kBurst);
    const double longer = large.wall.value - one.wall.value;
    const double a_round = (many.wall.value - one.wall.value) / (kMany - 1);
    double round = (many.cpu_seconds - one.cpu_seconds) / (kMany - 1);
    double more = large.cpu_seconds - one.cpu_seconds;
    const ExchangeTime single = TimeBurst(1);
    double further = burst.cpu_seconds - single.cpu_seconds;
    const double once = one.cpu_seconds - round;
    if (beside_ != nullptr) {
      round = CpuBeside(a_round, Rounds(0));
      more = CpuBeside(large.wall.value, Rounds(kLargestBytes)) - round;
      further = CpuBeside(burst.wall.value, Bursts()) - round;
    }
    const double fraction = longer <= 0 ? 0 : std::max(0.0, more / longer);
    link.cpu_seconds = std::max(0.0, once);
    link.round_cpu_seconds = std::max(0.0, round - fraction * a_round);
    further -= fraction * (burst.wall.value - single.wall.value);
    link.message_cpu_seconds = std::max(0.0, further / (kBurst - 1));
    link.cpu_fraction = fraction;
  }

  // Times an exchange of several rounds, less the cost of an exchange itself.
  MeasuredCurve RoundSeconds() {
    MeasuredCurve points;
    for (std::size_t bytes = 0; bytes <= kLargestBytes; bytes = bytes == 0 ? 1024 : bytes * 4) {
      const int rounds = bytes >= 262144 ? 2 : 10;
      const Estimate wall = TimeRing(bytes, rounds).wall;
      points.push_back(
          {bytes, {std::max(0.0, wall.value - dispatch_) / rounds, wall.standard_error / rounds}});
    }
    return points;
  }

  Estimate SecondsPerExtraMessage() {
    const Estimate more = Excess(TimeBurst(kBurst).wall, TimeBurst(1).wall);
    return {more.value / (kBurst - 1), more.standard_error / (kBurst - 1)};
  }

  using Repeated = std::function<Task(Communicator&, int times)>;
  Repeated Rounds(std::size_t bytes) {
    return [this, bytes](Communicator& world, int times) {
      return RingRounds(world, neighbours_, All(out_).first(bytes), All(in_).first(bytes), times);
    };
  }
  Repeated Bursts() {
    return [this](Communicator& world, int times) -> Task {
      for (int i = 0; i < times; ++i)
        co_await Burst(world, neighbours_, All(out_), All(in_), kBurst);
    };
  }

  // Processor seconds of one exchange, from as many exchanges as fill half of a pass if nothing
  // else runs. `wall`: seconds of one such exchange.
  double CpuBeside(double wall, const Repeated& exchange) {
    constexpr int kRepeats = 3;
    constexpr double kMost = 400;
    const double least = std::max(wall, 1e-6);
    const int times = static_cast<int>(std::clamp(0.5 * beside_->seconds / least, 1.0, kMost));
    const int passes =
        std::max(1, static_cast<int>(std::ceil(1.5 * times * wall / beside_->seconds)));
    const auto task = [&](Communicator& world) { return exchange(world, times); };
    return CpuSecondsBeside(rank_, *beside_, passes, task, kRepeats) / times;
  }

  ExchangeTime TimeBurst(int messages) {
    const auto task = [this, messages](Communicator& world) {
      return Burst(world, neighbours_, All(out_), All(in_), messages);
    };
    return TimeExchange(rank_, task, repeats_);
  }

  ExchangeTime TimeRing(std::size_t bytes, int rounds) {
    const auto task = [this, bytes, rounds](Communicator& world) {
      return RingRounds(world, neighbours_, All(out_).first(bytes), All(in_).first(bytes), rounds);
    };
    return TimeExchange(rank_, task, repeats_);
  }

  static std::span<std::byte> All(const Buffer<std::byte>& buffer) {
    return {buffer.data(), buffer.size()};
  }

  const Rank& rank_;
  RingNeighbours neighbours_;
  int repeats_;
  double dispatch_;
  const Pass* beside_;
  Buffer<std::byte> out_;
  Buffer<std::byte> in_;
};

// By bytes. Empty if the backend has no all-reduce of its own.
MeasuredCurve NativeAllReduceSeconds(const Rank& rank, int repeats, double dispatch) {
  bool native = false;
  rank.loop.RunBlocking([&native](Communicator& world) {
    native = world.has_native_all_reduce();
    return Nothing();
  });
  MeasuredCurve points;
  if (!native) return points;
  const Buffer<float> data(kLargestBytes / sizeof(float), WhereMessagesLie(rank));
  for (std::size_t bytes = 1024; bytes <= kLargestBytes; bytes *= 4) {
    const auto task = [&](Communicator& world) -> Task {
      co_await Complete(world.NativeAllReduceSum({data.data(), bytes / sizeof(float)}));
    };
    const Estimate wall = TimeExchange(rank, task, repeats).wall;
    points.push_back({bytes, {std::max(0.0, wall.value - dispatch), wall.standard_error}});
  }
  return points;
}

constexpr std::size_t kSmallBytes = 8;
constexpr std::size_t kLargeBytes = 4u << 20;
constexpr int kSmallRounds = 20;
constexpr int kLargeRounds = 2;

// Seconds of a round. Timing begins when both ranks are there.
Task TimedRounds(Communicator& world, RingNeighbours pair, std::span<std::byte> out,
                 std::span<std::byte> in, int rounds, double& seconds) {
  co_await RingRounds(world, pair, out.first(kSmallBytes), in.first(kSmallBytes), 1);
  const auto begin = std::chrono::steady_clock::now();
  co_await RingRounds(world, pair, out, in, rounds);
  seconds = SecondsSince(begin) / rounds;
}

}  // namespace

Estimate ExchangeDispatch(const Rank& rank, int repeats) {
  rank.Synchronise();
  return MeanOverRanks(
      rank,
      TimeOf([&rank] { rank.loop.RunBlocking([](Communicator&) { return Nothing(); }); }, repeats));
}

void ProfileLinks(const Rank& rank, int repeats, Profile& profile, const Pass* beside) {
  const Measurement measured(profile);
  const double dispatch = *profile.exchange_dispatch_seconds;
  const Topology topology{rank.size(), rank.config.ranks_per_node};
  const bool several_nodes = topology.nodes() > 1;

  const Device messages = WhereMessagesLie(rank);
  RingProfile all(rank, messages, InRing(rank.rank(), 0, rank.size()), repeats, dispatch, beside);
  profile.link =
      all.Measure(several_nodes ? LinkClass::kInterNode : LinkClass::kIntraNode, "/link", measured);

  const int in_node = topology.ranks_per_node;
  if (several_nodes && in_node > 1) {
    const int first = topology.NodeOf(rank.rank()) * in_node;
    RingProfile within(rank, messages, InRing(rank.rank(), first, in_node), repeats, dispatch,
                       beside);
    profile.node_link = within.Measure(LinkClass::kIntraNode, "/node_link", measured);
  }

  const MeasuredCurve native = NativeAllReduceSeconds(rank, repeats, dispatch);
  if (!native.empty())
    profile.native_all_reduce = measured.CurveWithErrors("/native_all_reduce", native);
}

PairLinks::PairLinks(const Rank& rank)
    : rank_(rank),
      phases_(PhasesOf({rank.size(), rank.config.ranks_per_node})),
      out_(kLargeBytes, WhereMessagesLie(rank)),
      in_(kLargeBytes, out_.device()) {}

std::optional<RankPair> PairLinks::Own(std::size_t phase) const {
  for (const RankPair& pair : phases_[phase]) {
    if (pair.lower == rank_.rank() || pair.upper == rank_.rank()) return pair;
  }
  return std::nullopt;
}

std::optional<PairSample> PairLinks::Measure(std::size_t phase) {
  rank_.Synchronise();
  const auto pair = Own(phase);
  if (!pair) return std::nullopt;
  const int other = pair->lower == rank_.rank() ? pair->upper : pair->lower;
  const auto exchange = [&](std::size_t bytes, int rounds) {
    double seconds = 0;
    rank_.loop.RunBlocking([&](Communicator& world) {
      return TimedRounds(world, {other, other}, {out_.data(), bytes}, {in_.data(), bytes}, rounds,
                         seconds);
    });
    return seconds;
  };
  const double small = exchange(kSmallBytes, kSmallRounds);
  const double large = exchange(kLargeBytes, kLargeRounds);
  if (large <= small) return std::nullopt;
  return PairSample{small, 8e-9 * static_cast<double>(kLargeBytes - kSmallBytes) / (large - small)};
}

}  // namespace sparfuse::harness
