#include "core/transport/shaped/shaped.hpp"

#include <algorithm>
#include <list>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/transport/group.hpp"
#include "core/transport/shaped/host_links.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {
namespace {

// Nanoseconds of any message fit 64 bits within these limits.
constexpr double kLargestAlphaSeconds = 3600;
constexpr double kSmallestGbps = 1e-4;
constexpr double kLargestGbps = 1e6;

// Sent before each payload, on its tag.
struct Header {
  std::uint64_t id = 0;        // of HostLinks
  std::int64_t departure = 0;  // of the first byte, MonotonicNanoseconds
};

class ShapedRequest;

// A rank's part in the network, shared by its communicators and their requests.
struct Network {
  Network(Communicator& world, const NetworkShape& shape, std::chrono::milliseconds deadline)
      : links(world, shape, deadline), rank(world.rank()) {}

  HostLinks links;
  int rank;                             // of the world
  std::list<ShapedRequest*> in_flight;  // requests that Idle may wait for
};

// Holds header and payload on the inner transport, and the end of the emulated message.
class ShapedRequest : public Request {
 public:
  ~ShapedRequest() override {
    if (!complete_) network_->in_flight.erase(place_);
  }

  bool Test() override {
    if (complete_) return true;
    Advance();
    if (!inner_complete_ || MonotonicNanoseconds() < End()) return false;
    complete_ = true;
    network_->in_flight.erase(place_);
    Delivered();
    return true;
  }
  std::size_t bytes() const noexcept override { return payload_->bytes(); }
  int peer() const noexcept override { return payload_->peer(); }

  bool inner_complete() const { return inner_complete_; }
  // Returns the time of completion, or -1 while it is unknown.
  virtual std::int64_t End() = 0;

 protected:
  explicit ShapedRequest(std::shared_ptr<Network> network)
      : network_(std::move(network)),
        place_(network_->in_flight.insert(network_->in_flight.end(), this)) {}
  virtual void Delivered() = 0;
  bool header_complete() const { return header_request_ == nullptr; }

  std::shared_ptr<Network> network_;  // shared with this rank's communicators
  Header header_;
  std::unique_ptr<Request> header_request_;
  std::unique_ptr<Request> payload_;

 private:
  void Advance() {
    if (inner_complete_) return;
    if (header_request_) {
      if (!header_request_->Test()) return;
      header_request_.reset();
    }
    inner_complete_ = payload_->Test();
  }

  std::list<ShapedRequest*>::iterator place_;
  bool inner_complete_ = false;
  bool complete_ = false;
};

class ShapedSend final : public ShapedRequest {
 public:
  // world_rank: of the destination; as below.
  ShapedSend(std::shared_ptr<Network> network, Communicator& inner, int destination, int world_rank,
             int tag, std::span<const std::byte> data)
      : ShapedRequest(std::move(network)) {
    const HostLinks::Sent sent = network_->links.Send(network_->rank, world_rank, data.size());
    header_ = {sent.id, sent.departure};
    end_ = sent.left;
    header_request_ = inner.Isend(destination, tag, std::as_bytes(std::span(&header_, 1)));
    payload_ = inner.Isend(destination, tag, data);
  }
  std::int64_t End() override { return end_; }

 private:
  void Delivered() override {}

  std::int64_t end_ = 0;
};

class ShapedReceive final : public ShapedRequest {
 public:
  ShapedReceive(std::shared_ptr<Network> network, Communicator& inner, int source, int world_rank,
                int tag, std::span<std::byte> buffer, Traffic& traffic)
      : ShapedRequest(std::move(network)), world_rank_(world_rank), traffic_(traffic) {
    header_request_ = inner.Irecv(source, tag, std::as_writable_bytes(std::span(&header_, 1)));
    payload_ = inner.Irecv(source, tag, buffer);
  }
  std::int64_t End() override {
    if (!header_complete()) return -1;
    if (final_) return end_;
    const std::int64_t now = MonotonicNanoseconds();
    end_ = network_->links.EndOf(world_rank_, network_->rank, header_.id);
    final_ = now >= header_.departure;
    return end_;
  }

 private:
  void Delivered() override {
    ++traffic_.messages_received;
    traffic_.bytes_received += bytes();
  }

  int world_rank_;
  Traffic& traffic_;
  std::int64_t end_ = 0;
  bool final_ = false;  // is end_
};

class ShapedCommunicator final : public GroupCommunicator {
 public:
  ShapedCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<Network> network,
                     std::vector<int> world_ranks)
      : GroupCommunicator(std::move(world_ranks), inner->rank(), inner->topology()),
        inner_(std::move(inner)),
        network_(std::move(network)) {}

  std::string_view backend() const noexcept override { return "shaped"; }

  std::unique_ptr<Request> Isend(int destination, int tag,
                                 std::span<const std::byte> data) override {
    CheckAddress(destination, size(), tag);
    auto request = std::make_unique<ShapedSend>(network_, *inner_, destination,
                                                WorldRank(destination), tag, data);
    CountSent(destination, data.size());
    return request;
  }
  std::unique_ptr<Request> Irecv(int source, int tag, std::span<std::byte> buffer) override {
    CheckAddress(source, size(), tag);
    return std::make_unique<ShapedReceive>(network_, *inner_, source, WorldRank(source), tag,
                                           buffer, TrafficWith(source));
  }

  void Idle(std::chrono::nanoseconds limit) override {
    const std::int64_t now = MonotonicNanoseconds();
    std::int64_t wake = now + limit.count();
    for (ShapedRequest* request : network_->in_flight) {
      if (const std::int64_t end = request->End(); end >= 0 && end > now) {
        wake = std::min(wake, end);
      } else if (request->inner_complete()) {
        return;  // complete, but not tested yet
      }
    }
    inner_->Idle(std::chrono::nanoseconds(wake - now));
  }
  void Wake() noexcept override { inner_->Wake(); }

  std::unique_ptr<Communicator> Split(int color, int key,
                                      std::chrono::milliseconds deadline) override {
    std::unique_ptr<Communicator> group = inner_->Split(color, key, deadline);
    std::vector<int> ranks = GatherFromPeers(*group, network_->rank, deadline, "split");  // world's
    return std::make_unique<ShapedCommunicator>(std::move(group), network_, std::move(ranks));
  }

 private:
  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<Network> network_;  // shared with this rank's communicators and their requests
};

void CheckShape(const LinkShape& shape, const std::string& which) {
  if (!(shape.gbps >= kSmallestGbps && shape.gbps <= kLargestGbps)) {
    std::ostringstream text;
    text << "shaped: gbps = " << shape.gbps << which << ": expected a number from " << kSmallestGbps
         << " to " << kLargestGbps;
    SPARFUSE_THROW(kConfig, text.str());
  }
  if (!(shape.alpha_seconds >= kSmallestAlphaSeconds &&
        shape.alpha_seconds <= kLargestAlphaSeconds)) {
    std::ostringstream text;
    text << "shaped: alpha = " << shape.alpha_seconds << " s" << which
         << " cannot be emulated: expected " << kSmallestAlphaSeconds << " to "
         << kLargestAlphaSeconds << " s";
    SPARFUSE_THROW(kConfig, text.str());
  }
}

// Throws unless the host's own transfers, which underlie the emulated ones, are fast enough.
void CheckHost(Communicator& inner, const NetworkShape& shape, std::chrono::milliseconds deadline) {
  const Topology& topology = inner.topology();
  const int on_a_node = std::min(topology.ranks, topology.ranks_per_node);
  double wanted = 0;  // of each rank, while all ranks send
  if (topology.nodes() > 1) wanted = shape.between.gbps / on_a_node;
  if (on_a_node > 1) wanted = std::max(wanted, shape.within->gbps);
  const double reached = HostGbps(inner, wanted, deadline);
  if (reached >= wanted) return;
  std::ostringstream text;
  text.precision(3);
  text << "the link cannot be emulated: " << wanted << " Gbit/s per rank while all "
       << topology.ranks << " send at once; this host passed on " << reached
       << " Gbit/s: expected no more than that";
  SPARFUSE_THROW(kUnsupported, text.str());
}

}  // namespace

std::unique_ptr<Communicator> MakeShaped(std::unique_ptr<Communicator> inner,
                                         const NetworkShape& shape,
                                         std::chrono::milliseconds deadline) {
  CheckShape(shape.between, "");
  if (shape.within) CheckShape(*shape.within, " within nodes");
  const Topology& topology = inner->topology();
  SPARFUSE_REQUIRE(
      shape.within || topology.ranks_per_node == 1, "shaped: ", topology.ranks_per_node,
      " ranks per node without a link within nodes; expected such a link, or 1 rank per node");
  CheckHost(*inner, shape, deadline);
  auto network = std::make_shared<Network>(*inner, shape, deadline);
  std::vector<int> ranks = AllRanks(inner->size());
  return std::make_unique<ShapedCommunicator>(std::move(inner), std::move(network),
                                              std::move(ranks));
}

}  // namespace sparfuse
