#include "core/transport/nccl/communicator.hpp"

#include <sched.h>

#include <algorithm>

#include "core/transport/group.hpp"

namespace sparfuse {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kIdle{1};
// What the host transport loses may have taken part in what runs on the device: it gets this long.
constexpr std::chrono::milliseconds kLostGrace{500};

class NcclRequest final : public Request {
 public:
  NcclRequest(NcclCommunicator& communicator, NcclOperation operation)
      : communicator_(communicator), operation_(std::move(operation)) {}
  ~NcclRequest() override {
    if (!operation_.complete) communicator_.GiveUp(operation_);
  }
  bool Test() override {
    if (!operation_.complete) communicator_.Advance();
    return operation_.complete;
  }
  std::size_t bytes() const noexcept override { return operation_.bytes; }
  int peer() const noexcept override { return communicator_.WaitsFor(operation_); }

  NcclOperation& operation() { return operation_; }

 private:
  NcclCommunicator& communicator_;
  NcclOperation operation_;
};

}  // namespace

std::unique_ptr<Request> NcclCommunicator::Isend(int destination, int tag,
                                                 std::span<const std::byte> data) {
  CheckAddress(destination, size(), tag);
  if (destination == rank()) {
    SPARFUSE_THROW(kUnsupported, "nccl: message of a rank to itself; copy it on the device");
  }
  if (failure_) throw Error(*failure_);
  Traffic& traffic = TrafficWith(destination);
  ++traffic.messages_sent;
  traffic.bytes_sent += data.size();
  auto request = std::make_unique<NcclRequest>(
      *this, Operation{.kind = Operation::Kind::kSend,
                       .peer = destination,
                       .tag = tag,
                       .data = const_cast<std::byte*>(data.data()),
                       .bytes = data.size(),
                       .number = sent_[static_cast<std::size_t>(destination)]++});
  Operation& send = request->operation();
  control_.Send(destination, {Notice::Kind::kAnnounced, tag, send.number, data.size(), 0});
  if (data.empty()) {
    send.complete = true;  // the announcement is the message
  } else {
    announced_[{destination, send.number}] = &send;
    unstarted_.push_back(&send);
  }
  return request;
}

std::unique_ptr<Request> NcclCommunicator::Irecv(int source, int tag, std::span<std::byte> buffer) {
  CheckAddress(source, size(), tag);
  if (source == rank()) {
    SPARFUSE_THROW(kUnsupported, "nccl: message of a rank to itself; copy it on the device");
  }
  if (failure_) throw Error(*failure_);
  auto request = std::make_unique<NcclRequest>(*this, Operation{.kind = Operation::Kind::kReceive,
                                                                .peer = source,
                                                                .tag = tag,
                                                                .data = buffer.data(),
                                                                .bytes = buffer.size()});
  unstarted_.push_back(&request->operation());
  receives_[{source, tag}].push_back(&request->operation());
  try {
    Match({source, tag});
  } catch (const Error& error) {
    Fail(error, true);  // Test throws it
  }
  return request;
}

std::unique_ptr<Request> NcclCommunicator::NativeAllReduceSum(std::span<float> buffer) {
  if (failure_) throw Error(*failure_);
  auto request = std::make_unique<NcclRequest>(
      *this, Operation{.kind = Operation::Kind::kAllReduce,
                       .data = reinterpret_cast<std::byte*>(buffer.data()),
                       .bytes = buffer.size_bytes(),
                       .number = order_.appended()});
  Operation& reduce = request->operation();
  if (const auto counts = counts_.find(reduce.number); counts != counts_.end()) {
    const auto gathering = std::find_if(counts->second.begin(), counts->second.end(),
                                        [](const auto& count) { return count.has_value(); });
    Fail(Error(FailureKind::kComm,
               "nccl: " + RankName(static_cast<int>(gathering - counts->second.begin())) +
                   " gathers where this rank reduces: collectives must be posted in one order"),
         true);
    return request;
  }
  unstarted_.push_back(&reduce);
  order_.Append(&reduce, true);
  return request;
}

std::unique_ptr<Request> NcclCommunicator::NativeAllGather(
    std::span<const std::byte> own, std::span<std::byte> gathered, std::size_t capacity_bytes,
    std::vector<std::span<const std::byte>>& by_rank) {
  if (own.size() > capacity_bytes ||
      gathered.size() < static_cast<std::size_t>(size()) * capacity_bytes) {
    SPARFUSE_THROW(kInternal, "nccl: all-gather of " + std::to_string(own.size()) +
                                  " bytes with room for " + std::to_string(gathered.size()) +
                                  ": expected at most " + std::to_string(capacity_bytes) +
                                  " and that for each of " + std::to_string(size()) + " ranks");
  }
  if (failure_) throw Error(*failure_);
  auto request =
      std::make_unique<NcclRequest>(*this, Operation{.kind = Operation::Kind::kAllGather,
                                                     .data = const_cast<std::byte*>(own.data()),
                                                     .bytes = own.size(),
                                                     .number = order_.appended(),
                                                     .gathered = gathered,
                                                     .capacity = capacity_bytes,
                                                     .by_rank = &by_rank});
  Operation& gather = request->operation();
  unstarted_.push_back(&gather);
  Counts& counts = CountsOf(gather.number);
  counts[static_cast<std::size_t>(rank())] = own.size();
  control_.SendAll({Notice::Kind::kCount, 0, gather.number, own.size(), 0});
  order_.Append(&gather, AllKnown(counts));
  return request;
}

void NcclCommunicator::Idle(std::chrono::nanoseconds limit) {
  Communicator& host = control_.host();
  if (session_->in_flight == 0) return host.Idle(limit);  // a notice is what comes next
  const std::int64_t sleep =
      PollingSleepNanoseconds(MonotonicNanoseconds() - session_->last_change);
  if (sleep == 0) {
    sched_yield();
    return;
  }
  host.Idle(std::min(limit, std::chrono::nanoseconds(sleep)));
}

std::unique_ptr<Communicator> NcclCommunicator::Split(int color, int key,
                                                      std::chrono::milliseconds deadline) {
  if (failure_) throw Error(*failure_);
  NcclSetup setup{setup_.host->Split(color, key, deadline), setup_.device, setup_.card, deadline,
                  setup_.links};
  return MakeNcclGroup(api_, session_, std::move(setup));
}

void NcclCommunicator::CheckLost() const {
  const auto now = NcclControl::Clock::now();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank() || !control_.lost(peer)) continue;
    const auto& lost = *control_.lost(peer);
    const auto concerns = [&](const Operation* operation) {
      return operation->peer < 0 || operation->peer == peer;
    };
    bool waits = std::any_of(unstarted_.begin(), unstarted_.end(), concerns);
    if (now - lost.since > kLostGrace) {
      for (const Launch& launch : running_) {
        waits = waits || std::any_of(launch.operations.begin(), launch.operations.end(), concerns);
      }
    }
    if (waits) SPARFUSE_THROW(kComm, lost.what);
  }
}

void NcclCommunicator::Fail(const Error& error, bool tell) noexcept {
  if (failure_) return;
  failure_ = error;
  handle_.Abort();
  order_.Clear();
  unstarted_.clear();
  announced_.clear();
  accepted_.clear();
  receives_.clear();
  announcements_.clear();
  counts_.clear();
  session_->in_flight -= static_cast<int>(running_.size()) + (issuing_.empty() ? 0 : 1);
  issuing_.clear();
  running_.clear();
  if (tell) control_.SendAll({Notice::Kind::kGaveUp, 0, 0, 0, 0}, error.what());
}

int NcclCommunicator::WaitsFor(const Operation& operation) const {
  if (operation.peer >= 0) return control_.WorldRank(operation.peer);
  const auto counts = counts_.find(operation.number);
  if (operation.complete || counts == counts_.end()) return -1;
  for (int peer = 0; peer < size(); ++peer) {
    if (!counts->second[static_cast<std::size_t>(peer)]) return control_.WorldRank(peer);
  }
  return -1;
}

std::string NcclCommunicator::Describe(const Operation& operation) const {
  const std::string bytes = std::to_string(operation.bytes) + " bytes";
  switch (operation.kind) {
    case Operation::Kind::kSend:
      return "a message of " + bytes + " to " + RankName(operation.peer);
    case Operation::Kind::kReceive:
      return "a message of at most " + bytes + " from " + RankName(operation.peer);
    case Operation::Kind::kAllReduce:
      return "an all-reduce of " + bytes;
    case Operation::Kind::kAllGather:
      return "an all-gather of " + bytes;
  }
  return "";
}

std::string NcclCommunicator::UnderWay() const {
  std::string text;
  for (const Launch& launch : running_) {
    for (const Operation* operation : launch.operations) {
      text += (text.empty() ? "; under way: " : ", ") + Describe(*operation);
    }
  }
  return text;
}

void NcclCommunicator::WaitUntilSettled(const std::string& what) {
  const auto expires = Clock::now() + setup_.deadline;
  while (!handle_.Settled()) {
    control_.Service([this](int peer, const Notice& notice, std::string_view text) {
      Take(peer, notice, text);
    });
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank() && control_.lost(peer)) {
        SPARFUSE_THROW(kComm, "nccl: " + what + ": " + control_.lost(peer)->what);
      }
    }
    if (Clock::now() > expires) {
      SPARFUSE_THROW(kTimeout, "nccl: " + what + " is not complete after " +
                                   std::to_string(setup_.deadline.count()) + " ms");
    }
    control_.host().Idle(kIdle);
  }
}

void NcclCommunicator::Close() {
  if (handle_.comm() == nullptr) return;
  handle_.Finalize();
  WaitUntilSettled("the end");
  handle_.Destroy();
}

}  // namespace sparfuse
