#include "core/transport/shaped/host_links.hpp"

#include <pthread.h>
#include <time.h>

#include <cerrno>
#include <cmath>
#include <new>
#include <string>

#include "core/base/error.hpp"
#include "core/transport/shaped/port.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {

// What lies in the shared memory, with the ports behind it: the ranks' own, then the nodes'.
struct HostLinks::Segment {
  pthread_mutex_t mutex;  // guards all else
  std::uint64_t next_id;

  Port& port(std::size_t i) { return reinterpret_cast<Port*>(this + 1)[i]; }
  static std::size_t BytesFor(const Topology& topology) {
    const auto ports = static_cast<std::size_t>(topology.ranks + topology.nodes());
    return sizeof(Segment) + ports * sizeof(Port);
  }
  static void Prepare(std::byte* memory) {
    auto* segment = new (memory) Segment{};
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&segment->mutex, &kind);
    pthread_mutexattr_destroy(&kind);
  }
};

class HostLinks::Held {
 public:
  Held(Segment& segment, std::chrono::milliseconds deadline) : mutex_(segment.mutex) {
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += deadline.count() / 1000 + 1;
    const int error = pthread_mutex_timedlock(&mutex_, &until);
    if (error == EOWNERDEAD) {  // what it spoiled are times; the others find that it is gone
      pthread_mutex_consistent(&mutex_);
    } else if (error != 0) {
      SPARFUSE_THROW(kTimeout, "shaped: a rank has held the lock of all links for " +
                                   std::to_string(deadline.count()) + " ms: is it stopped?");
    }
  }
  ~Held() { pthread_mutex_unlock(&mutex_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

HostLinks::HostLinks(Communicator& world, const NetworkShape& shape,
                     std::chrono::milliseconds deadline)
    : topology_(world.topology()),
      deadline_(deadline),
      memory_(world, Segment::BytesFor(topology_), Segment::Prepare, deadline),
      segment_(*reinterpret_cast<Segment*>(memory_.data())) {
  const auto link = [](const LinkShape& of) {
    return Link{8.0 / of.gbps, static_cast<std::int64_t>(std::ceil(of.alpha_seconds * 1e9))};
  };
  links_.fill(link(shape.between));
  if (shape.within) links_[static_cast<std::size_t>(LinkClass::kIntraNode)] = link(*shape.within);
}

std::size_t HostLinks::PortOf(int rank, LinkClass link) const {
  return static_cast<std::size_t>(
      link == LinkClass::kIntraNode ? rank : topology_.ranks + topology_.NodeOf(rank));
}

HostLinks::Sent HostLinks::Send(int source, int destination, std::size_t bytes) {
  const LinkClass link_class = topology_.LinkBetween(source, destination);
  const Link& link = links_[static_cast<std::size_t>(link_class)];
  const auto duration =
      static_cast<std::int64_t>(std::ceil(static_cast<double>(bytes) * link.nanoseconds_per_byte));
  const Held held(segment_, deadline_);
  const std::int64_t now = MonotonicNanoseconds();
  Sent sent;
  sent.id = segment_.next_id++;
  sent.departure = segment_.port(PortOf(source, link_class)).Send(now, duration);
  sent.left = sent.departure + duration;
  Port& port = segment_.port(PortOf(destination, link_class));
  if (!port.Expect(now, sent.id, sent.departure + link.alpha, duration)) {
    SPARFUSE_THROW(kUnsupported,
                   "shaped: more than " + std::to_string(Port::kMostOnTheWay) +
                       " messages are on the way to rank " + std::to_string(destination) +
                       " or its node; expected fewer at once: larger buckets, or fewer ranks");
  }
  return sent;
}

std::int64_t HostLinks::EndOf(int source, int destination, std::uint64_t id) {
  const LinkClass link = topology_.LinkBetween(source, destination);
  const Held held(segment_, deadline_);
  return segment_.port(PortOf(destination, link)).EndOf(id);
}

}  // namespace sparfuse
