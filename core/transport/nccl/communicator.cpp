#include "core/transport/nccl/communicator.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/base/error.hpp"
#include "core/transport/group.hpp"

namespace sparfuse {

namespace {

constexpr int kNoticeTag = 0;

}  // namespace

NcclControl::NcclControl(std::unique_ptr<Communicator> host)
    : host_(std::move(host)), peers_(static_cast<std::size_t>(host_->size())) {
  for (int peer = 0; peer < host_->size(); ++peer) {
    if (peer == host_->rank()) continue;
    peers_[static_cast<std::size_t>(peer)].inbox = std::make_unique<Message>();
    Listen(peer);
  }
}

void NcclControl::Listen(int peer) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  from.receive =
      host_->Irecv(peer, kNoticeTag, std::as_writable_bytes(std::span(from.inbox.get(), 1)));
  from.world_rank = from.receive->peer();
}

void NcclControl::Send(int peer, const Notice& notice, std::string_view text) {
  if (At(peer).lost) return;
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.peer = peer;
  outgoing.message.notice = notice;
  const std::size_t length = std::min(text.size(), kLongestText);
  std::copy_n(text.data(), length, outgoing.message.text.data());
  try {
    outgoing.send =
        host_->Isend(peer, kNoticeTag,
                     std::as_bytes(std::span(&outgoing.message, 1)).first(sizeof(Notice) + length));
  } catch (const Error& error) {
    outgoing_.pop_back();
    Lose(peer, error.what());
  }
}

void NcclControl::SendAll(const Notice& notice, std::string_view text) {
  for (int peer = 0; peer < host_->size(); ++peer) {
    if (peer != host_->rank()) Send(peer, notice, text);
  }
}

void NcclControl::Service(const Take& take) {
  for (int peer = 0; peer < host_->size(); ++peer) {
    Peer& from = peers_[static_cast<std::size_t>(peer)];
    for (;;) {
      Message message;
      std::size_t bytes = 0;
      try {
        if (!from.receive || !from.receive->Test()) break;
        bytes = from.receive->bytes();
        message = *from.inbox;
        Listen(peer);
      } catch (const Error& error) {
        Lose(peer, error.what());
        if (bytes == 0) break;
      }
      take(peer, message.notice, {message.text.data(), bytes - sizeof(Notice)});
    }
  }
  std::erase_if(outgoing_, [this](const Outgoing& outgoing) {
    try {
      return outgoing.send->Test();
    } catch (const Error& error) {
      Lose(outgoing.peer, error.what());
      return true;
    }
  });
}

void NcclControl::Lose(int peer, const char* what) {
  Peer& lost = peers_[static_cast<std::size_t>(peer)];
  lost.receive.reset();
  if (!lost.lost) lost.lost = Lost{what, Clock::now()};
  any_lost_ = true;
}

namespace {

using Clock = std::chrono::steady_clock;
using Kind = NcclOperation::Kind;
constexpr std::chrono::milliseconds kIdle{1};
// A rank that the host transport has lost may have done its part of running operations: these get
// this long to end.
constexpr std::chrono::milliseconds kLostGrace{500};
// Interval for reading notices while nothing waits for them: a peer may have given up.
constexpr std::int64_t kServiceNanoseconds = 1'000'000;
// Padded payloads begin at multiples of this, as far as the capacity allows.
constexpr std::size_t kAlignment = 16;

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

bool AllKnown(const std::vector<std::optional<std::uint64_t>>& counts) {
  return std::ranges::all_of(counts, [](const auto& count) { return count.has_value(); });
}

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

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclApi& api, std::shared_ptr<NcclSession> session,
                                   NcclSetup setup, std::unique_ptr<Communicator> control)
    : api_(api),
      session_(std::move(session)),
      setup_(std::move(setup)),
      control_(std::move(control)),
      stream_(setup_.device, gpu::Priority::kHigh),
      handle_(api) {}

NcclCommunicator::~NcclCommunicator() {
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

void NcclCommunicator::Connect(const NcclUniqueId& id) {
  try {
    handle_.Init(size(), id, rank(), setup_.device.index);
    WaitUntilSettled("the set-up among " + std::to_string(size()) + " ranks");
  } catch (const Error& error) {
    Fail(error, true);
    throw;
  }
}

// --- calls ---

std::unique_ptr<Request> NcclCommunicator::Isend(int, int, std::span<const std::byte>) {
  RefuseMessages();
}

std::unique_ptr<Request> NcclCommunicator::Irecv(int, int, std::span<std::byte>) {
  RefuseMessages();
}

std::unique_ptr<Request> NcclCommunicator::Post(Operation operation) {
  if (failure_) throw Error(*failure_);
  operation.number = next_number_++;
  auto request = std::make_unique<NcclRequest>(*this, std::move(operation));
  Operation& posted = request->operation();
  posted_.push_back(&posted);
  const auto counts = counts_.find(posted.number);
  if (posted.kind != Kind::kAllGather && counts != counts_.end()) {
    const auto gathering =
        std::ranges::find_if(counts->second, [](const auto& count) { return count.has_value(); });
    Fail(Error(FailureKind::kComm,
               "nccl: " + RankName(static_cast<int>(gathering - counts->second.begin())) +
                   " gathers while this rank does not: all ranks must post collectives in the same "
                   "order"),
         true);
  }
  return request;
}

std::unique_ptr<Request> NcclCommunicator::NativeAllReduceSum(std::span<float> buffer) {
  return Post({.kind = Kind::kAllReduce,
               .data = reinterpret_cast<std::byte*>(buffer.data()),
               .bytes = buffer.size_bytes()});
}

std::unique_ptr<Request> NcclCommunicator::NativeAllGather(
    std::span<const std::byte> own, std::span<std::byte> gathered, std::size_t capacity_bytes,
    std::vector<std::span<const std::byte>>& by_rank) {
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

std::unique_ptr<Request> NcclCommunicator::NativeRingStep(RingNeighbours ring,
                                                          std::span<const std::byte> out,
                                                          std::span<std::byte> in, int messages) {
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

void NcclCommunicator::Idle(std::chrono::nanoseconds limit) {
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

std::unique_ptr<Communicator> NcclCommunicator::Split(int color, int key,
                                                      std::chrono::milliseconds deadline) {
  if (failure_) throw Error(*failure_);
  NcclSetup setup{setup_.host->Split(color, key, deadline), setup_.device, setup_.card, deadline,
                  setup_.links};
  return MakeNcclGroup(api_, session_, std::move(setup));
}

int NcclCommunicator::WaitsFor(const Operation& operation) const {
  if (operation.kind == Kind::kRingStep) return control_.WorldRank(operation.ring.previous);
  const auto counts = counts_.find(operation.number);
  if (operation.complete || counts == counts_.end()) return -1;
  for (int peer = 0; peer < size(); ++peer) {
    if (!counts->second[static_cast<std::size_t>(peer)]) return control_.WorldRank(peer);
  }
  return -1;
}

void NcclCommunicator::GiveUp(const Operation& operation) noexcept {
  Fail(Error(FailureKind::kComm, Describe(operation) + " was given up"), true);
}

void NcclCommunicator::Advance() {
  if (failure_) throw Error(*failure_);
  try {
    Progress();
  } catch (const Error& error) {
    Fail(error, true);
    throw Error(*failure_);
  }
}

// --- progress ---

void NcclCommunicator::Take(int peer, const Notice& notice, std::string_view text) {
  if (notice.kind == Notice::Kind::kGaveUp) {
    Fail(Error(FailureKind::kComm, RankName(peer) + " gave up: " + std::string(text)), false);
    throw Error(*failure_);
  }
  const bool posted = notice.number < next_number_;
  if (posted && !counts_.contains(notice.number)) {
    SPARFUSE_THROW(
        kComm, "nccl: ", RankName(peer),
        " gathers while this rank does not: all ranks must post collectives in the same order");
  }
  CountsOf(notice.number)[static_cast<std::size_t>(peer)] = notice.bytes;
}

void NcclCommunicator::Progress() {
  const std::int64_t now = MonotonicNanoseconds();
  if (!posted_.empty() || now - served_ > kServiceNanoseconds) {
    served_ = now;
    control_.Service([this](int peer, const Notice& notice, std::string_view text) {
      Take(peer, notice, text);
    });
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
bool NcclCommunicator::LaunchNext() {
  if (posted_.empty()) return false;
  Operation& operation = *posted_.front();
  bool moves = operation.bytes > 0;
  if (operation.kind == Kind::kAllGather) {
    if (!AllKnown(counts_.at(operation.number))) return false;
    moves = LaunchAllGather(operation);
  } else if (operation.kind == Kind::kRingStep) {
    LaunchRingStep(operation);
  } else if (moves) {
    handle_.Check(
        api_.all_reduce_sum(reinterpret_cast<float*>(operation.data),
                            operation.bytes / sizeof(float), handle_.comm(), stream_.view().native),
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
bool NcclCommunicator::LaunchAllGather(Operation& gather) {
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

void NcclCommunicator::LaunchRingStep(const Operation& step) {
  const Stream stream = stream_.view();
  const std::size_t bytes = step.bytes / static_cast<std::size_t>(step.messages);
  handle_.Group("NCCL's ring step", [&] {
    for (std::size_t at = 0; at < step.bytes; at += bytes) {
      handle_.Check(api_.send(step.data + at, bytes, step.ring.next, handle_.comm(), stream.native),
                    "ncclSend");
      handle_.Check(api_.receive(step.received.data() + at, bytes, step.ring.previous,
                                 handle_.comm(), stream.native),
                    "ncclRecv");
    }
  });
}

// Records that NCCL has enqueued issuing_ on the stream.
void NcclCommunicator::Launched() {
  if (spare_events_.empty()) spare_events_.emplace_back(setup_.device);
  running_.push_back({std::exchange(issuing_, nullptr), std::move(spare_events_.back())});
  spare_events_.pop_back();
  running_.back().end.Record(stream_.view());
}

void NcclCommunicator::FinishLaunches() {
  while (!running_.empty() && running_.front().end.Done()) {
    Finish(*running_.front().operation);
    spare_events_.push_back(std::move(running_.front().end));
    running_.pop_front();
    --session_->in_flight;
  }
}

void NcclCommunicator::Finish(Operation& operation) {
  operation.complete = true;
  session_->last_change = MonotonicNanoseconds();
}

void NcclCommunicator::CheckLost() const {
  const auto now = NcclControl::Clock::now();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank() || !control_.lost(peer)) continue;
    const auto& lost = *control_.lost(peer);
    const auto concerns = [&](const Operation* operation) {
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

void NcclCommunicator::Fail(const Error& error, bool tell) noexcept {
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

void NcclCommunicator::WaitUntilSettled(const std::string& what) {
  const auto expires = Clock::now() + setup_.deadline;
  while (!handle_.Settled()) {
    control_.Service([this](int peer, const Notice& notice, std::string_view text) {
      Take(peer, notice, text);
    });
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

std::string NcclCommunicator::UnderWay() const {
  std::string text;
  for (const Launch& launch : running_) {
    text += (text.empty() ? "; under way: " : ", ") + Describe(*launch.operation);
  }
  return text;
}

std::string NcclCommunicator::RankName(int peer) const {
  return "rank " + std::to_string(peer == rank() ? peer : control_.WorldRank(peer));
}

NcclCommunicator::Counts& NcclCommunicator::CountsOf(std::uint64_t number) {
  Counts& counts = counts_[number];
  counts.resize(static_cast<std::size_t>(size()));
  return counts;
}

}  // namespace sparfuse
