#include "harness/worker/profiling/link_profile.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/cost/fit.hpp"
#include "core/device/device.hpp"
#include "core/transport/topology.hpp"
#include "harness/worker/profiling/ring_rounds.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using nlohmann::operator""_json_pointer;
using Place = ProfileRecord::Place;

constexpr std::size_t kLargestBytes = 4u << 20;
constexpr int kBurst = 16;  // messages at once

// `messages` small ones to the next rank at once.
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

Task NativeAllReduce(Communicator& world, std::span<float> data) {
  co_await Complete(world.NativeAllReduceSum(data));
}

Task Nothing() { co_return; }

// Null where too few of the times are above 0, which a transport without start-up time may cause.
json FitOf(const std::vector<CurvePoint>& rounds) {
  std::vector<TimedTransfer> transfers;
  for (const CurvePoint& point : rounds) {
    if (point.seconds.value > 0)
      transfers.push_back({static_cast<double>(point.size), point.seconds.value});
  }
  if (transfers.size() < 3) return nullptr;
  const AlphaBeta fit = FitAlphaBeta(transfers);
  json residuals = json::array();
  for (std::size_t i = 0; i < transfers.size(); ++i)
    residuals.push_back({transfers[i].bytes, fit.relative_residuals[i]});
  return {{"alpha_seconds", fit.alpha_seconds},
          {"alpha_standard_error", fit.alpha_standard_error},
          {"seconds_per_byte", fit.seconds_per_byte},
          {"seconds_per_byte_standard_error", fit.seconds_per_byte_standard_error},
          {"points", transfers.size()},
          {"relative_residuals", std::move(residuals)},
          {"rms_relative_residual", fit.rms_relative_residual},
          {"worst_relative_residual", fit.worst_relative_residual},
          {"r_squared", fit.r_squared}};
}

// Of one class of links.
class LinkProfile {
 public:
  // messages: where the transport's messages lie.
  LinkProfile(const Rank& rank, Device messages, RingNeighbours neighbours, int repeats,
              double dispatch, const Pass* beside)
      : rank_(rank),
        neighbours_(neighbours),
        repeats_(repeats),
        dispatch_(dispatch),
        beside_(beside),
        out_(kLargestBytes, messages),
        in_(kLargestBytes, messages) {}

  void Measure(LinkClass link_class, const Place& place, ProfileRecord& record) {
    const std::vector<CurvePoint> rounds = RoundSeconds();
    record.Set(place / "class", LinkClassName(link_class));
    record.CurveWithErrors(place / "round_seconds", rounds);
    record.Set(place / "fit", FitOf(rounds));
    record.Number(place / "seconds_per_extra_message", SecondsPerExtraMessage());
  }

  // Processor time of an exchange: once + a round + a further message of a round + a fraction of
  // the time under way; from a short exchange, one of many rounds, one of many messages at once and
  // a long one. All but the first beside computation where there is some.
  void MeasureCpu(const Place& place, ProfileRecord& record) {
    constexpr int kRounds = 16;
    const ExchangeTime one = TimeRing(0, 1);
    const ExchangeTime many = TimeRing(0, kRounds);
    const ExchangeTime large = TimeRing(kLargestBytes, 1);
    const ExchangeTime burst = TimeBurst(kBurst);
    const double longer = large.wall.value - one.wall.value;
    const double a_round = (many.wall.value - one.wall.value) / (kRounds - 1);
    double round = (many.cpu_seconds - one.cpu_seconds) / (kRounds - 1);
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
    record.Set(place / "cpu_seconds", std::max(0.0, once));
    record.Set(place / "round_cpu_seconds", std::max(0.0, round - fraction * a_round));
    further -= fraction * (burst.wall.value - single.wall.value);
    record.Set(place / "message_cpu_seconds", std::max(0.0, further / (kBurst - 1)));
    record.Set(place / "cpu_fraction", fraction);
  }

 private:
  // From an exchange of `rounds` rounds, without what the exchange costs once.
  std::vector<CurvePoint> RoundSeconds() {
    std::vector<CurvePoint> points;
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
    return [this](Communicator& world, int times) { return ManyBursts(world, times); };
  }
  Task ManyBursts(Communicator& world, int times) {
    for (int i = 0; i < times; ++i) co_await Burst(world, neighbours_, All(out_), All(in_), kBurst);
  }

  // Of one, from as many as take half of a pass where nothing else runs. `wall`: of one, there.
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

// By bytes; empty where the backend has none.
std::vector<CurvePoint> NativeAllReduceSeconds(const Rank& rank, int repeats, double dispatch) {
  bool native = false;
  Device messages;
  rank.loop.RunBlocking([&](Communicator& world) {
    native = world.has_native_all_reduce();
    messages = world.stream().device;
    return Nothing();
  });
  std::vector<CurvePoint> points;
  if (!native) return points;
  const Buffer<float> data(kLargestBytes / sizeof(float), messages);
  for (std::size_t bytes = 1024; bytes <= kLargestBytes; bytes *= 4) {
    const auto task = [&](Communicator& world) {
      return NativeAllReduce(world, std::span(data.data(), bytes / sizeof(float)));
    };
    const Estimate wall = TimeExchange(rank, task, repeats).wall;
    points.push_back({bytes, {std::max(0.0, wall.value - dispatch), wall.standard_error}});
  }
  return points;
}

}  // namespace

void ProfileLinks(const Rank& rank, int repeats, ProfileRecord& record, const Pass* beside) {
  const double dispatch = record.at("/exchange_dispatch_seconds"_json_pointer);
  const Topology topology{rank.size(), rank.config.ranks_per_node};
  const bool several_nodes = topology.nodes() > 1;

  Device messages;
  rank.loop.RunBlocking([&messages](Communicator& world) {
    messages = world.stream().device;
    return Nothing();
  });
  LinkProfile all(rank, messages, InRing(rank.rank(), 0, rank.size()), repeats, dispatch, beside);
  all.Measure(several_nodes ? LinkClass::kInterNode : LinkClass::kIntraNode, "/link"_json_pointer,
              record);
  all.MeasureCpu("/link"_json_pointer, record);

  const int in_node = topology.ranks_per_node;
  if (several_nodes && in_node > 1) {
    const int first = topology.NodeOf(rank.rank()) * in_node;
    LinkProfile within(rank, messages, InRing(rank.rank(), first, in_node), repeats, dispatch,
                       beside);
    within.Measure(LinkClass::kIntraNode, "/node_link"_json_pointer, record);
    within.MeasureCpu("/node_link"_json_pointer, record);
  }

  const std::vector<CurvePoint> native = NativeAllReduceSeconds(rank, repeats, dispatch);
  if (!native.empty()) record.CurveWithErrors("/native_all_reduce"_json_pointer, native);
}

}  // namespace sparfuse::harness
