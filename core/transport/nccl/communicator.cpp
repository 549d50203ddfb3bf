// Implements the communicator behind nccl.hpp: its set-up, the callers' operations and their
// progress.
#include <sched.h>

#include <algorithm>
#include <array>
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
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/device/runtime.hpp"
#include "core/transport/group.hpp"
#include "core/transport/nccl/handle.hpp"
#include "core/transport/nccl/nccl.hpp"
#include "core/transport/nccl/notices.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kIdle{1};
// A rank that the host transport has lost may have done its part of running operations: these get
// this long to end.
constexpr std::chrono::milliseconds kLostGrace{500};
// Interval for reading notices while nothing waits for them: a peer may have given up.
constexpr std::int64_t kServiceNanoseconds = 1'000'000;
// Padded payloads begin at multiples of this, as far as the capacity allows.
constexpr std::size_t kAlignment = 16;

struct NcclOperation {
  enum class Kind : std::uint8_t { kAllReduce, kAllGather, kRingStep };
  Kind kind;
  std::byte* data = nullptr;  // input; of an all-reduce also the result
  std::size_t bytes = 0;      // of `data`
  std::uint64_t number = 0;   // in the order of posting
  std::span<std::byte> received{};
  std::size_t capacity = 0;                                    // all-gather: of each rank
  std::vector<std::span<const std::byte>>* by_rank = nullptr;  // all-gather
  RingNeighbours ring{};
  int messages = 0;  // ring step
  bool complete = false;
};

// The state that a world and the communicators split from it share: Idle of one of them waits for
// all.
struct NcclSession {
  int in_flight = 0;                                  // launches
  std::int64_t last_change = MonotonicNanoseconds();  // launch or completion
};

class NcclCommunicator;

class NcclRequest final : public Request {
 public:
  NcclRequest(NcclCommunicator& communicator, NcclOperation operation)
      : communicator_(communicator), operation_(std::move(operation)) {}
  ~NcclRequest() override;
  bool Test() override;
  std::size_t bytes() const noexcept override { return operation_.bytes; }
  int peer() const noexcept override;

  NcclOperation& operation() { return operation_; }

 private:
  NcclCommunicator& communicator_;
  NcclOperation operation_;
};

using Kind = NcclOperation::Kind;

bool IsKnown(const std::optional<std::uint64_t>& count) { return count.has_value(); }

std::string Describe(const NcclOperation& operation) {
  const std::string bytes = std::to_string(operation.bytes) + " bytes";
  switch (operation.kind) {
    case Kind::kAllReduce:
      return "an all-reduce of " + bytes;
    case Kind::kAllGather:
      return "an all-gather of " + bytes;
    case Kind::kRingStep:
      return "a ring step of " + bytes;
  }
  return "";
}

[[noreturn]] void RefuseMessages() {
  SPARFUSE_THROW(
      kUnsupported,
      "nccl: single messages go through host memory, over host(); the device has collectives only");
}

// Collective over setup.host, up to the deadline (nccl.hpp).
std::unique_ptr<Communicator> MakeNcclGroup(const NcclApi& api,
                                            std::shared_ptr<NcclSession> session, NcclSetup setup);

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclApi& api, std::shared_ptr<NcclSession> session, NcclSetup setup,
                   std::unique_ptr<Communicator> control)
      : api_(api),
        session_(std::move(session)),
        setup_(std::move(setup)),
        control_(std::move(control)),
        stream_(setup_.device, gpu::Priority::kHigh),
        handle_(api) {}
  ~NcclCommunicator() override {
    try {
      if (!failure_ && handle_.comm() != nullptr) {
        handle_.Finalize();
        WaitUntilSettled("the end");
        handle_.Destroy();
      }
    } catch (const Error& error) {
      Fail(error, true);
    }
    handle_.Abort();  // before the stream is destroyed, which waits for its work
  }

  // Blocks until NCCL's communicator is made.
  void Connect(const NcclUniqueId& id) {
    try {
      handle_.Init(size(), id, rank(), setup_.device.index);
      WaitUntilSettled("the set-up among " + std::to_string(size()) + " ranks");
    } catch (const Error& error) {
      Fail(error, true);
      throw;
    }
  }

  std::string_view backend() const noexcept override { return "nccl"; }
  int rank() const noexcept override { return setup_.host->rank(); }
  int size() const noexcept override { return setup_.host->size(); }
  const Topology& topology() const noexcept override { return setup_.host->topology(); }
  Stream stream() const noexcept override { return stream_.view(); }
  Communicator& host() noexcept override { return *setup_.host; }

  std::unique_ptr<Request> Isend(int, int, std::span<const std::byte>) override {
    RefuseMessages();
  }

  std::unique_ptr<Request> Irecv(int, int, std::span<std::byte>) override { RefuseMessages(); }

  std::unique_ptr<Request> NativeAllReduceSum(std::span<float> buffer) override {
    return Post({.kind = Kind::kAllReduce,
                 .data = reinterpret_cast<std::byte*>(buffer.data()),
                 .bytes = buffer.size_bytes()});
  }

  bool has_native_all_reduce() const noexcept override { return true; }

  std::unique_ptr<Request> NativeAllGather(
      std::span<const std::byte> own, std::span<std::byte> gathered, std::size_t capacity_bytes,
      std::vector<std::span<const std::byte>>& by_rank) override {
    if (own.size() > capacity_bytes ||
        gathered.size() < static_cast<std::size_t>(size()) * capacity_bytes) {
      SPARFUSE_THROW(kInternal, "nccl: all-gather of ", own.size(), " bytes with room for ",
                     gathered.size(), ": expected at most ", capacity_bytes,
                     " bytes, and room for as many from each of ", size(), " ranks");
    }
    const std::uint64_t number = next_number_;
    auto request = Post({.kind = Kind::kAllGather,
                         .data = const_cast<std::byte*>(own.data()),
                         .bytes = own.size(),
                         .received = gathered,
                         .capacity = capacity_bytes,
                         .by_rank = &by_rank});
    CountsOf(number)[static_cast<std::size_t>(rank())] = own.size();
    control_.SendAll({Notice::Kind::kCount, number, own.size()});
    return request;
  }

  bool has_native_all_gather() const noexcept override { return true; }

  std::unique_ptr<Request> NativeRingStep(RingNeighbours ring, std::span<const std::byte> out,
                                          std::span<std::byte> in, int messages) override {
    const auto parts = static_cast<std::size_t>(messages);
    if (messages < 1 || out.empty() || out.size() != in.size() || out.size() % parts != 0 ||
        ring.previous == rank() || ring.next == rank()) {
      SPARFUSE_THROW(kInternal, "nccl: ring step of ", out.size(), " and ", in.size(), " bytes in ",
                     messages,
                     " messages: expected arrays of equal sizes in equal parts, and "
                     "other ranks as neighbours");
    }
    return Post({.kind = Kind::kRingStep,
                 .data = const_cast<std::byte*>(out.data()),
                 .bytes = out.size(),
                 .received = in,
                 .ring = ring,
                 .messages = messages});
  }

  void Idle(std::chrono::nanoseconds limit) override {
    Communicator& host = control_.host();
    if (session_->in_flight == 0) return host.Idle(limit);  // the next event is a notice
    const std::int64_t sleep =
        PollingSleepNanoseconds(MonotonicNanoseconds() - session_->last_change);
    if (sleep == 0) {
      sched_yield();
      return;
    }
    host.Idle(std::min(limit, std::chrono::nanoseconds(sleep)));
  }

  void Wake() noexcept override { control_.host().Wake(); }

  std::unique_ptr<Communicator> Split(int color, int key,
                                      std::chrono::milliseconds deadline) override {
    if (failure_) throw Error(*failure_);
    NcclSetup setup{setup_.host->Split(color, key, deadline), setup_.device, setup_.card, deadline,
                    setup_.links};
    return MakeNcclGroup(api_, session_, std::move(setup));
  }

  const TrafficByLink& traffic() const noexcept override { return traffic_; }

  // Starts and completes all operations that can. Throws the error that broke the communicator.
  void Advance() {
    if (failure_) throw Error(*failure_);
    try {
      Progress();
    } catch (const Error& error) {
      Fail(error, true);
      throw Error(*failure_);
    }
  }

  // The world rank that the operation waits for, or -1.
  int WaitsFor(const NcclOperation& operation) const {
    if (operation.kind == Kind::kRingStep) return control_.WorldRank(operation.ring.previous);
    const auto counts = counts_.find(operation.number);
    if (operation.complete || counts == counts_.end()) return -1;
    for (int peer = 0; peer < size(); ++peer) {
      if (!counts->second[static_cast<std::size_t>(peer)]) return control_.WorldRank(peer);
    }
    return -1;
  }

  // Called when an unfinished request is destroyed; its buffers must not be accessed any more.
  void GiveUp(const NcclOperation& operation) noexcept {
    Fail(Error(FailureKind::kComm, Describe(operation) + " was given up"), true);
  }

 private:
  using Counts = std::vector<std::optional<std::uint64_t>>;  // by rank
  struct Launch {
    NcclOperation* operation;
    gpu::GpuEvent end;
  };

  std::unique_ptr<Request> Post(NcclOperation operation) {
    if (failure_) throw Error(*failure_);
    operation.number = next_number_++;
    auto request = std::make_unique<NcclRequest>(*this, std::move(operation));
    NcclOperation& posted = request->operation();
    posted_.push_back(&posted);
    const auto counts = counts_.find(posted.number);
    if (posted.kind != Kind::kAllGather && counts != counts_.end()) {
      const auto gathering = std::ranges::find_if(counts->second, IsKnown);
      Fail(OutOfOrder(static_cast<int>(gathering - counts->second.begin())), true);
    }
    return request;
  }

  Error OutOfOrder(int gathering) const {
    return Error(FailureKind::kComm,
                 Concat("nccl: ", RankName(gathering),
                        " gathers while this rank does not: all ranks must post collectives in "
                        "the same order"));
  }

  void TakeNotices() {
    control_.Service([this](int peer, const Notice& notice, std::string_view text) {
      Take(peer, notice, text);
    });
  }

  void Take(int peer, const Notice& notice, std::string_view text) {
    if (notice.kind == Notice::Kind::kGaveUp) {
      Fail(Error(FailureKind::kComm, RankName(peer) + " gave up: " + std::string(text)), false);
      throw Error(*failure_);
    }
    const bool posted = notice.number < next_number_;
    if (posted && !counts_.contains(notice.number)) throw OutOfOrder(peer);
    CountsOf(notice.number)[static_cast<std::size_t>(peer)] = notice.bytes;
  }

  void Progress() {
    const std::int64_t now = MonotonicNanoseconds();
    if (!posted_.empty() || now - served_ > kServiceNanoseconds) {
      served_ = now;
      TakeNotices();
    }
    bool settled = false;
    try {
      settled = handle_.Settled();
    } catch (const Error& error) {
      throw Error(error.kind(), error.what() + UnderWay());
    }
    if (settled && issuing_ != nullptr) Launched();
    FinishLaunches();
    while (settled && issuing_ == nullptr && LaunchNext()) settled = handle_.Settled();
    if (control_.any_lost()) CheckLost();
  }

  // Returns false if nothing can start now.
  bool LaunchNext() {
    if (posted_.empty()) return false;
    NcclOperation& operation = *posted_.front();
    bool moves = operation.bytes > 0;
    if (operation.kind == Kind::kAllGather) {
      if (!std::ranges::all_of(counts_.at(operation.number), IsKnown)) return false;
      moves = LaunchAllGather(operation);
    } else if (operation.kind == Kind::kRingStep) {
      LaunchRingStep(operation);
    } else if (moves) {
      handle_.Check(api_.all_reduce_sum(reinterpret_cast<float*>(operation.data),
                                        operation.bytes / sizeof(float), handle_.comm(),
                                        stream_.view().native),
                    "ncclAllReduce");
    }
    posted_.pop_front();
    if (!moves) {
      Finish(operation);
      return true;
    }
    issuing_ = &operation;
    ++session_->in_flight;
    session_->last_change = MonotonicNanoseconds();
    if (handle_.Settled()) Launched();
    return true;
  }

  // Returns false if there is nothing to move.
  bool LaunchAllGather(NcclOperation& gather) {
    const auto ranks = static_cast<std::size_t>(size());
    const auto own = static_cast<std::size_t>(rank());
    std::vector<std::uint64_t> sizes;
    const auto counts = counts_.extract(gather.number);
    for (const auto& count : counts.mapped()) sizes.push_back(*count);
    const auto largest = std::ranges::max_element(sizes);
    if (*largest > gather.capacity) {
      SPARFUSE_THROW(kComm, "all-gather: payload of ", *largest, " bytes from ",
                     RankName(static_cast<int>(largest - sizes.begin())), ": expected at most ",
                     gather.capacity);
    }
    // The sizes alone decide the places of payloads, so that padded blocks meet.
    const std::size_t padded = (*largest + kAlignment - 1) / kAlignment * kAlignment;
    const std::size_t stride = std::min(padded, gather.capacity);
    gather.by_rank->resize(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      (*gather.by_rank)[r] = r == own ? std::span<const std::byte>(gather.data, gather.bytes)
                                      : gather.received.subspan(r * stride, sizes[r]);
    }
    if (ranks == 1 || *largest == 0) return false;

    const Stream stream = stream_.view();
    if (CheaperAllGather(sizes, topology(), setup_.links) == AllGatherAlgorithm::kPadded) {
      std::byte* const place = gather.received.data() + own * stride;
      if (gather.bytes > 0) gpu::CopyAsync(stream, place, gather.data, gather.bytes);
      handle_.Check(
          api_.all_gather(place, gather.received.data(), stride, handle_.comm(), stream.native),
          "ncclAllGather");
      return true;
    }
    handle_.Group("NCCL's all-gather", [&] {
      for (std::size_t r = 0; r < ranks; ++r) {
        if (r == own) continue;
        const int peer = static_cast<int>(r);
        if (gather.bytes > 0) {
          handle_.Check(api_.send(gather.data, gather.bytes, peer, handle_.comm(), stream.native),
                        "ncclSend");
        }
        if (sizes[r] > 0) {
          handle_.Check(api_.receive(gather.received.data() + r * stride, sizes[r], peer,
                                     handle_.comm(), stream.native),
                        "ncclRecv");
        }
      }
    });
    return true;
  }

  void LaunchRingStep(const NcclOperation& step) {
    const Stream stream = stream_.view();
    const std::size_t bytes = step.bytes / static_cast<std::size_t>(step.messages);
    handle_.Group("NCCL's ring step", [&] {
      for (std::size_t at = 0; at < step.bytes; at += bytes) {
        handle_.Check(
            api_.send(step.data + at, bytes, step.ring.next, handle_.comm(), stream.native),
            "ncclSend");
        handle_.Check(api_.receive(step.received.data() + at, bytes, step.ring.previous,
                                   handle_.comm(), stream.native),
                      "ncclRecv");
      }
    });
  }

  // Records that NCCL has enqueued issuing_ on the stream.
  void Launched() {
    if (spare_events_.empty()) spare_events_.emplace_back(setup_.device);
    running_.push_back({std::exchange(issuing_, nullptr), std::move(spare_events_.back())});
    spare_events_.pop_back();
    running_.back().end.Record(stream_.view());
  }

  void FinishLaunches() {
    while (!running_.empty() && running_.front().end.Done()) {
      Finish(*running_.front().operation);
      spare_events_.push_back(std::move(running_.front().end));
      running_.pop_front();
      --session_->in_flight;
    }
  }

  void Finish(NcclOperation& operation) {
    operation.complete = true;
    session_->last_change = MonotonicNanoseconds();
  }

  void CheckLost() const {
    const auto now = NcclControl::Clock::now();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank() || !control_.lost(peer)) continue;
      const auto& lost = *control_.lost(peer);
      const auto concerns = [&](const NcclOperation* operation) {
        return operation->kind != Kind::kRingStep || operation->ring.previous == peer ||
               operation->ring.next == peer;
      };
      bool waits =
          std::ranges::any_of(posted_, concerns) || (issuing_ != nullptr && concerns(issuing_));
      if (now - lost.since > kLostGrace) {
        waits = waits || std::ranges::any_of(running_, concerns, &Launch::operation);
      }
      if (waits) SPARFUSE_THROW(kComm, lost.what);
    }
  }

  void Fail(const Error& error, bool tell) noexcept {
    if (failure_) return;
    failure_ = error;
    handle_.Abort();
    session_->in_flight -= static_cast<int>(running_.size()) + (issuing_ == nullptr ? 0 : 1);
    posted_.clear();
    issuing_ = nullptr;
    running_.clear();
    counts_.clear();
    if (tell) control_.SendAll({Notice::Kind::kGaveUp, 0, 0}, error.what());
  }

  void WaitUntilSettled(const std::string& what) {
    const auto expires = Clock::now() + setup_.deadline;
    while (!handle_.Settled()) {
      TakeNotices();
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != rank() && control_.lost(peer)) {
          SPARFUSE_THROW(kComm, "nccl: ", what, ": ", control_.lost(peer)->what);
        }
      }
      if (Clock::now() > expires) {
        SPARFUSE_THROW(kTimeout, "nccl: ", what, " is not complete after ", setup_.deadline.count(),
                       " ms");
      }
      control_.host().Idle(kIdle);
    }
  }

  std::string UnderWay() const {
    std::string text;
    for (const Launch& launch : running_) {
      text += (text.empty() ? "; under way: " : ", ") + Describe(*launch.operation);
    }
    return text;
  }

  std::string RankName(int peer) const {
    return "rank " + std::to_string(peer == rank() ? peer : control_.WorldRank(peer));
  }

  Counts& CountsOf(std::uint64_t number) {
    Counts& counts = counts_[number];
    counts.resize(static_cast<std::size_t>(size()));
    return counts;
  }

  const NcclApi& api_;
  std::shared_ptr<NcclSession> session_;
  NcclSetup setup_;
  NcclControl control_;
  gpu::GpuStream stream_;
  NcclHandle handle_;
  std::optional<Error> failure_;

  // Requests own the operations. A request ends when it is complete, or breaks the communicator.
  // Operations go from posted_ through issuing_ to running_, in the order of their numbers.
  std::uint64_t next_number_ = 0;
  std::deque<NcclOperation*> posted_;
  NcclOperation* issuing_ = nullptr;  // NCCL is busy with this operation
  std::deque<Launch> running_;
  std::map<std::uint64_t, Counts> counts_;  // of all-gathers that are not issued
  std::vector<gpu::GpuEvent> spare_events_;

  std::int64_t served_ = 0;
  TrafficByLink traffic_{};  // always zero
};

NcclRequest::~NcclRequest() {
  if (!operation_.complete) communicator_.GiveUp(operation_);
}

bool NcclRequest::Test() {
  if (!operation_.complete) communicator_.Advance();
  return operation_.complete;
}

int NcclRequest::peer() const noexcept { return communicator_.WaitsFor(operation_); }

// A rank's data for the others, exchanged before they make a communicator.
struct Introduction {
  std::array<char, 64> card{};  // zero-terminated
  NcclUniqueId id{};            // only rank 0's is used
  int version = 0;
  AllGatherLinks links;
};

void CheckIntroductions(std::span<const Introduction> all) {
  for (std::size_t r = 1; r < all.size(); ++r) {
    for (std::size_t earlier = 0; earlier < r; ++earlier) {
      if (all[r].card != all[earlier].card) continue;
      SPARFUSE_THROW(kUnsupported, "nccl: ranks ", earlier, " and ", r, " have the same card, ",
                     all[r].card.data(), kShareACard);
    }
    if (all[r].version != all[0].version) {
      SPARFUSE_THROW(kConfig, "nccl: rank ", r, " has NCCL of version code ", all[r].version,
                     ": expected ", all[0].version, ", as rank 0");
    }
    if (all[r].links != all[0].links) {
      SPARFUSE_THROW(kConfig, "nccl: ranks 0 and ", r,
                     " have different link constants: expected equal constants, so "
                     "that all ranks choose alike");
    }
  }
}

std::unique_ptr<Communicator> MakeNcclGroup(const NcclApi& api,
                                            std::shared_ptr<NcclSession> session, NcclSetup setup) {
  Introduction own;
  SPARFUSE_REQUIRE(!setup.card.empty() && setup.card.size() < own.card.size(), "nccl: card \"",
                   setup.card, "\": expected a name of 1 to ", own.card.size() - 1, " characters");
  const auto call = [&](int result, const char* name) {
    if (result != kNcclSuccess) throw NcclError(api, result, name, nullptr);
  };
  std::copy(setup.card.begin(), setup.card.end(), own.card.begin());
  own.links = setup.links;
  call(api.get_version(&own.version), "ncclGetVersion");
  if (setup.host->rank() == 0) call(api.get_unique_id(&own.id), "ncclGetUniqueId");

  const std::vector<Introduction> all = GatherFromPeers(*setup.host, own, setup.deadline, "nccl");
  CheckIntroductions(all);
  auto control = setup.host->Split(0, setup.host->rank(), setup.deadline);
  auto communicator = std::make_unique<NcclCommunicator>(api, std::move(session), std::move(setup),
                                                         std::move(control));
  communicator->Connect(all[0].id);
  return communicator;
}

}  // namespace

std::unique_ptr<Communicator> MakeNcclWorld(const NcclApi& api, NcclSetup setup) {
  return MakeNcclGroup(api, std::make_shared<NcclSession>(), std::move(setup));
}

}  // namespace sparfuse
