#include "core/transport/shaped.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <list>
#include <sstream>
#include <utility>

#include "core/base/error.hpp"
#include "core/transport/link_schedule.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {
namespace {

constexpr double kSmallestAlphaSeconds = 100e-6;
// Nanoseconds of any message fit 64 bits between these.
constexpr double kLargestAlphaSeconds = 3600;
constexpr double kSmallestGbps = 1e-4;
constexpr double kLargestGbps = 1e6;

// Travels before each payload, on its tag.
struct Header {
  std::int64_t departure = 0;  // of the first byte, MonotonicNanoseconds
  std::uint64_t bytes = 0;
};

class ShapedRequest;

// A rank's network card.
struct NetworkCard {
  explicit NetworkCard(LinkShape shape)
      : nanoseconds_per_byte(8.0 / shape.gbps),
        alpha(static_cast<std::int64_t>(std::ceil(shape.alpha_seconds * 1e9))) {}
  std::int64_t Duration(std::size_t bytes) const {
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(bytes) * nanoseconds_per_byte));
  }

  double nanoseconds_per_byte;
  std::int64_t alpha;
  std::int64_t send_free = 0;  // when the last byte of what was sent so far leaves
  LinkSchedule receive;
  std::list<ShapedRequest*> in_flight;  // what Idle may wait for
};

// Header and payload on the inner transport, and the time at which the emulated message is over.
class ShapedRequest : public Request {
 public:
  ~ShapedRequest() override {
    if (!complete_) card_->in_flight.erase(place_);
  }

  bool Test() override {
    if (complete_) return true;
    Advance();
    if (!inner_complete_ || MonotonicNanoseconds() < End()) return false;
    complete_ = true;
    card_->in_flight.erase(place_);
    Delivered();
    return true;
  }
  std::size_t bytes() const noexcept override { return payload_->bytes(); }
  int peer() const noexcept override { return payload_->peer(); }

  bool inner_complete() const { return inner_complete_; }
  // When it will be complete, or -1 while that is unknown.
  virtual std::int64_t End() const = 0;

 protected:
  explicit ShapedRequest(std::shared_ptr<NetworkCard> card)
      : card_(std::move(card)), place_(card_->in_flight.insert(card_->in_flight.end(), this)) {}
  virtual void HeaderComplete() = 0;
  virtual void Delivered() = 0;

  std::shared_ptr<NetworkCard> card_;  // shared with this rank's communicators
  Header header_;
  std::unique_ptr<Request> header_request_;
  std::unique_ptr<Request> payload_;

 private:
  void Advance() {
    if (inner_complete_) return;
    if (header_request_) {
      if (!header_request_->Test()) return;
      header_request_.reset();
      HeaderComplete();
    }
    inner_complete_ = payload_->Test();
  }

  std::list<ShapedRequest*>::iterator place_;
  bool inner_complete_ = false;
  bool complete_ = false;
};

class ShapedSend final : public ShapedRequest {
 public:
  ShapedSend(std::shared_ptr<NetworkCard> card, Communicator& inner, int destination, int tag,
             std::span<const std::byte> data)
      : ShapedRequest(std::move(card)) {
    header_.departure = std::max(MonotonicNanoseconds(), card_->send_free);
    header_.bytes = data.size();
    end_ = header_.departure + card_->Duration(data.size());
    card_->send_free = end_;
    header_request_ = inner.Isend(destination, tag, std::as_bytes(std::span(&header_, 1)));
    payload_ = inner.Isend(destination, tag, data);
  }
  std::int64_t End() const override { return end_; }

 private:
  void HeaderComplete() override {}
  void Delivered() override {}

  std::int64_t end_ = 0;
};

class ShapedReceive final : public ShapedRequest {
 public:
  ShapedReceive(std::shared_ptr<NetworkCard> card, Communicator& inner, int source, int tag,
                std::span<std::byte> buffer, Traffic& traffic)
      : ShapedRequest(std::move(card)), traffic_(traffic) {
    header_request_ = inner.Irecv(source, tag, std::as_writable_bytes(std::span(&header_, 1)));
    payload_ = inner.Irecv(source, tag, buffer);
  }
  ~ShapedReceive() override {
    if (scheduled_) card_->receive.Remove(schedule_id_);
  }
  std::int64_t End() const override { return scheduled_ ? card_->receive.EndOf(schedule_id_) : -1; }

 private:
  void HeaderComplete() override {
    schedule_id_ =
        card_->receive.Add(header_.departure + card_->alpha, card_->Duration(header_.bytes));
    scheduled_ = true;
  }
  void Delivered() override {
    card_->receive.MarkDelivered(schedule_id_);
    scheduled_ = false;
    ++traffic_.messages_received;
    traffic_.bytes_received += bytes();
  }

  Traffic& traffic_;
  std::uint64_t schedule_id_ = 0;
  bool scheduled_ = false;  // is in card_->receive
};

class ShapedCommunicator final : public Communicator {
 public:
  ShapedCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<NetworkCard> card)
      : inner_(std::move(inner)), card_(std::move(card)), topology_{inner_->size(), 1} {}

  std::string_view backend() const noexcept override { return "shaped"; }
  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  const Topology& topology() const noexcept override { return topology_; }

  std::unique_ptr<Request> Isend(int destination, int tag,
                                 std::span<const std::byte> data) override {
    auto request = std::make_unique<ShapedSend>(card_, *inner_, destination, tag, data);
    Traffic& traffic = TrafficWith(destination);
    ++traffic.messages_sent;
    traffic.bytes_sent += data.size();
    return request;
  }
  std::unique_ptr<Request> Irecv(int source, int tag, std::span<std::byte> buffer) override {
    return std::make_unique<ShapedReceive>(card_, *inner_, source, tag, buffer,
                                           TrafficWith(source));
  }

  std::unique_ptr<Request> NativeAllReduceSum(std::span<float>) override { return nullptr; }
  bool has_native_all_reduce() const noexcept override { return false; }

  void Idle(std::chrono::nanoseconds limit) override {
    const std::int64_t now = MonotonicNanoseconds();
    std::int64_t wake = now + limit.count();
    for (const ShapedRequest* request : card_->in_flight) {
      if (const std::int64_t end = request->End(); end >= 0 && end > now) {
        wake = std::min(wake, end);
      } else if (request->inner_complete()) {
        return;  // complete, only not tested yet
      }
    }
    inner_->Idle(std::chrono::nanoseconds(wake - now));
  }
  void Wake() noexcept override { inner_->Wake(); }

  std::unique_ptr<Communicator> Split(int color, int key,
                                      std::chrono::milliseconds deadline) override {
    return std::make_unique<ShapedCommunicator>(inner_->Split(color, key, deadline), card_);
  }

  const TrafficByLink& traffic() const noexcept override { return traffic_; }

 private:
  Traffic& TrafficWith(int peer) {
    return traffic_[static_cast<std::size_t>(topology_.LinkBetween(rank(), peer))];
  }

  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<NetworkCard>
      card_;  // shared with communicators split from this one and with requests
  Topology topology_;
  TrafficByLink traffic_{};
};

}  // namespace

std::unique_ptr<Communicator> MakeShaped(std::unique_ptr<Communicator> inner, LinkShape shape) {
  if (!(shape.gbps >= kSmallestGbps && shape.gbps <= kLargestGbps)) {
    std::ostringstream text;
    text << "shaped: gbps = " << shape.gbps << ": expected a number from " << kSmallestGbps
         << " to " << kLargestGbps;
    SPARFUSE_THROW(kConfig, text.str());
  }
  if (!(shape.alpha_seconds >= kSmallestAlphaSeconds &&
        shape.alpha_seconds <= kLargestAlphaSeconds)) {
    std::ostringstream text;
    text << "shaped: alpha = " << shape.alpha_seconds << " s cannot be emulated: expected "
         << kSmallestAlphaSeconds << " to " << kLargestAlphaSeconds << " s";
    SPARFUSE_THROW(kConfig, text.str());
  }
  return std::make_unique<ShapedCommunicator>(std::move(inner),
                                              std::make_shared<NetworkCard>(shape));
}

}  // namespace sparfuse
