// Declares the communicator behind nccl.hpp; only its own sources include this.
//
//   nccl.cpp           sets it up
//   communicator.cpp   what callers do (post, wait, split, give up), and what then happens
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/device/runtime.hpp"
#include "core/transport/nccl/control.hpp"
#include "core/transport/nccl/handle.hpp"
#include "core/transport/nccl/nccl.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {

struct NcclOperation {
  enum class Kind : std::uint8_t { kAllReduce, kAllGather, kRingStep };
  Kind kind;
  std::byte* data = nullptr;  // given; of an all-reduce also the result
  std::size_t bytes = 0;      // of `data`
  std::uint64_t number = 0;   // counts what was posted
  std::span<std::byte> received{};
  std::size_t capacity = 0;                                    // all-gather: of each rank
  std::vector<std::span<const std::byte>>* by_rank = nullptr;  // all-gather
  RingNeighbours ring{};
  int messages = 0;  // ring step
  bool complete = false;
};

// What a world and the communicators split from it share: Idle of one of them waits for all.
struct NcclSession {
  int in_flight = 0;                                  // launches
  std::int64_t last_change = MonotonicNanoseconds();  // launch or completion
};

class NcclCommunicator final : public Communicator {
 public:
  using Operation = NcclOperation;

  NcclCommunicator(const NcclApi& api, std::shared_ptr<NcclSession> session, NcclSetup setup,
                   std::unique_ptr<Communicator> control);
  ~NcclCommunicator() override;

  // Blocks until NCCL's communicator is made.
  void Connect(const NcclUniqueId& id);

  std::string_view backend() const noexcept override { return "nccl"; }
  int rank() const noexcept override { return setup_.host->rank(); }
  int size() const noexcept override { return setup_.host->size(); }
  const Topology& topology() const noexcept override { return setup_.host->topology(); }
  Stream stream() const noexcept override { return stream_.view(); }
  Communicator& host() noexcept override { return *setup_.host; }

  std::unique_ptr<Request> Isend(int destination, int tag,
                                 std::span<const std::byte> data) override;
  std::unique_ptr<Request> Irecv(int source, int tag, std::span<std::byte> buffer) override;
  std::unique_ptr<Request> NativeAllReduceSum(std::span<float> buffer) override;
  bool has_native_all_reduce() const noexcept override { return true; }
  std::unique_ptr<Request> NativeAllGather(
      std::span<const std::byte> own, std::span<std::byte> gathered, std::size_t capacity_bytes,
      std::vector<std::span<const std::byte>>& by_rank) override;
  bool has_native_all_gather() const noexcept override { return true; }
  std::unique_ptr<Request> NativeRingStep(RingNeighbours ring, std::span<const std::byte> out,
                                          std::span<std::byte> in, int messages) override;

  void Idle(std::chrono::nanoseconds limit) override;
  void Wake() noexcept override { control_.host().Wake(); }
  std::unique_ptr<Communicator> Split(int color, int key,
                                      std::chrono::milliseconds deadline) override;
  const TrafficByLink& traffic() const noexcept override { return traffic_; }

  // Starts and ends what can be. Throws the error that broke the communicator.
  void Advance();
  // The rank in the world that it waits for, or -1.
  int WaitsFor(const Operation& operation) const;
  // An unfinished request is destroyed; what it holds must not be touched any more.
  void GiveUp(const Operation& operation) noexcept;

 private:
  using Counts = std::vector<std::optional<std::uint64_t>>;  // by rank
  struct Launch {
    Operation* operation;
    gpu::GpuEvent end;
  };

  std::unique_ptr<Request> Post(Operation operation);
  void Take(int peer, const Notice& notice, std::string_view text);
  void Progress();
  bool LaunchNext();
  bool LaunchAllGather(Operation& gather);
  void LaunchRingStep(const Operation& step);
  void Launched();
  void FinishLaunches();
  void Finish(Operation& operation);
  void CheckLost() const;
  void Fail(const Error& error, bool tell) noexcept;
  void WaitUntilSettled(const std::string& what);
  std::string UnderWay() const;
  std::string RankName(int peer) const;
  Counts& CountsOf(std::uint64_t number);

  const NcclApi& api_;
  std::shared_ptr<NcclSession> session_;
  NcclSetup setup_;
  NcclControl control_;
  gpu::GpuStream stream_;
  NcclHandle handle_;
  std::optional<Error> failure_;

  // Operations belong to their requests, which leave when complete or break the communicator. They
  // go from posted_ through issuing_ to running_, in the order of their numbers.
  std::uint64_t next_number_ = 0;
  std::deque<Operation*> posted_;
  Operation* issuing_ = nullptr;  // NCCL is busy with it
  std::deque<Launch> running_;
  std::map<std::uint64_t, Counts> counts_;  // of all-gathers that are not issued
  std::vector<gpu::GpuEvent> spare_events_;

  std::int64_t served_ = 0;
  TrafficByLink traffic_{};  // nothing counts in it
};

// Collective over setup.host, up to the deadline (nccl.hpp).
std::unique_ptr<Communicator> MakeNcclGroup(const NcclApi& api,
                                            std::shared_ptr<NcclSession> session, NcclSetup setup);

}  // namespace sparfuse
