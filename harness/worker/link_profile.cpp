#include "harness/worker/link_profile.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "harness/worker/timing.hpp"

namespace sparfuse {
namespace {

using nlohmann::json;

constexpr int kTag = 16;
constexpr std::size_t kLargestBytes = 4u << 20;

// `rounds` times: every rank sends to the next and receives from the one before.
Task RingRounds(Communicator& world, std::span<std::byte> out, std::span<std::byte> in,
                int rounds) {
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  for (int round = 0; round < rounds; ++round) {
    co_await Complete(world.Irecv(previous, kTag, in), world.Isend(next, kTag, out));
  }
}

// `messages` small ones to the next rank at once.
Task Burst(Communicator& world, std::span<std::byte> out, std::span<std::byte> in, int messages) {
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  std::vector<std::unique_ptr<Request>> requests;
  for (int m = 0; m < messages; ++m) {
    requests.push_back(world.Irecv(previous, kTag, in.subspan(8 * static_cast<std::size_t>(m), 8)));
    requests.push_back(world.Isend(next, kTag, out.first(8)));
  }
  co_await Complete(std::move(requests));
}

Task NativeAllReduce(Communicator& world, std::span<float> data) {
  co_await Complete(world.NativeAllReduceSum(data));
}

Task Nothing() { co_return; }

class LinkProfile {
 public:
  LinkProfile(const Rank& rank, int repeats)
      : rank_(rank), repeats_(repeats), out_(kLargestBytes), in_(kLargestBytes) {}

  // From an exchange of `rounds` rounds, without what the exchange costs once.
  json RoundSeconds(double dispatch) {
    json points = json::array();
    for (std::size_t bytes = 0; bytes <= kLargestBytes; bytes = bytes == 0 ? 1024 : bytes * 4) {
      const int rounds = bytes >= 262144 ? 2 : 10;
      points.push_back(
          {bytes, std::max(0.0, TimeRing(bytes, rounds).wall_seconds - dispatch) / rounds});
    }
    return points;
  }

  double SecondsPerExtraMessage() {
    constexpr int kBurst = 16;
    const auto burst = [&](int messages) {
      const auto task = [&, messages](Communicator& world) {
        return Burst(world, out_, in_, messages);
      };
      return TimeExchange(rank_, task, repeats_).wall_seconds;
    };
    return std::max(0.0, (burst(kBurst) - burst(1)) / (kBurst - 1));
  }

  // Processor time of an exchange: once + a round + a fraction of the time under way; from a short
  // exchange, one of many rounds, and a long one.
  void AddCpuSeconds(json& link) {
    constexpr int kRounds = 16;
    const ExchangeTime one = TimeRing(0, 1);
    const ExchangeTime many = TimeRing(0, kRounds);
    const ExchangeTime large = TimeRing(kLargestBytes, 1);
    const double longer = large.wall_seconds - one.wall_seconds;
    const double fraction =
        longer <= 0 ? 0 : std::max(0.0, (large.cpu_seconds - one.cpu_seconds) / longer);
    const auto busy = [&](const ExchangeTime& time) {
      return time.cpu_seconds - fraction * time.wall_seconds;
    };
    const double round = std::max(0.0, (busy(many) - busy(one)) / (kRounds - 1));
    link["cpu_seconds"] = std::max(0.0, busy(one) - round);
    link["round_cpu_seconds"] = round;
    link["cpu_fraction"] = fraction;
  }

  // Null where the backend has none.
  json NativeAllReduceSeconds(double dispatch) {
    bool native = false;
    rank_.loop.RunBlocking([&native](Communicator& world) {
      native = world.has_native_all_reduce();
      return Nothing();
    });
    if (!native) return nullptr;
    std::vector<float> data(kLargestBytes / sizeof(float));
    json points = json::array();
    for (std::size_t bytes = 1024; bytes <= kLargestBytes; bytes *= 4) {
      const auto task = [&](Communicator& world) {
        return NativeAllReduce(world, std::span(data).first(bytes / sizeof(float)));
      };
      const ExchangeTime time = TimeExchange(rank_, task, repeats_);
      points.push_back({bytes, std::max(0.0, time.wall_seconds - dispatch)});
    }
    return points;
  }

 private:
  ExchangeTime TimeRing(std::size_t bytes, int rounds) {
    const auto task = [this, bytes, rounds](Communicator& world) {
      return RingRounds(world, std::span(out_).first(bytes), std::span(in_).first(bytes), rounds);
    };
    return TimeExchange(rank_, task, repeats_);
  }

  const Rank& rank_;
  int repeats_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
};

}  // namespace

void ProfileLinks(const Rank& rank, int repeats, json& profile) {
  const double dispatch = profile.at("exchange_dispatch_seconds");
  LinkProfile measured(rank, repeats);
  json& link = profile["link"];
  link["round_seconds"] = measured.RoundSeconds(dispatch);
  link["seconds_per_extra_message"] = measured.SecondsPerExtraMessage();
  measured.AddCpuSeconds(link);
  json native = measured.NativeAllReduceSeconds(dispatch);
  if (!native.is_null()) profile["native_all_reduce"] = std::move(native);
}

}  // namespace sparfuse
