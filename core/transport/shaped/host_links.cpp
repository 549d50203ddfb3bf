#include "core/transport/shaped/host_links.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/error.hpp"
#include "core/transport/group.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {
namespace {

constexpr int kOfferTag = 0;

// The place of the memory on rank 0. Other processes open its descriptor through /proc, and check
// that it is the same file: on another host the process is another one, or none.
struct Offered {
  std::int64_t process = 0;
  std::int64_t descriptor = 0;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
};

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void CannotShare(const std::string& why) {
  SPARFUSE_THROW(kUnsupported, "the ranks share no memory: ", why,
                 "; expected all of them on one host, in one container");
}

std::string Reason() { return std::strerror(errno); }

std::byte* Map(int descriptor, std::size_t bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

std::span<std::byte> BytesOf(Offered& offered) {
  return std::as_writable_bytes(std::span(&offered, 1));
}

constexpr int kTries = 40;
constexpr std::size_t kBytes = 2u << 20;  // long against the time of one check of a message

// Returns the smallest of all ranks' values. No rank leaves before all have arrived.
double LeastOf(Communicator& world, double own, std::chrono::milliseconds deadline) {
  return std::ranges::min(GatherFromPeers(world, own, deadline, "the host's rate"));
}

}  // namespace

SharedMemory::SharedMemory(Communicator& world, std::size_t bytes,
                           const std::function<void(std::byte*)>& prepare,
                           std::chrono::milliseconds deadline)
    : bytes_(bytes) {
  try {
    if (world.rank() == 0) {
      Offer(world, prepare, deadline);
    } else {
      Take(world, deadline);
    }
  } catch (...) {
    if (data_ != nullptr) munmap(data_, bytes_);
    throw;
  }
}

SharedMemory::~SharedMemory() { munmap(data_, bytes_); }

void SharedMemory::Offer(Communicator& world, const std::function<void(std::byte*)>& prepare,
                         std::chrono::milliseconds deadline) {
  const Descriptor file(memfd_create("sparfuse-ranks", MFD_CLOEXEC));
  struct stat status {};
  if (file.number() < 0 || ftruncate(file.number(), static_cast<off_t>(bytes_)) != 0 ||
      fstat(file.number(), &status) != 0) {
    CannotShare("memfd_create: " + Reason());
  }
  data_ = Map(file.number(), bytes_);
  if (data_ == nullptr) CannotShare("mmap: " + Reason());
  prepare(data_);

  Offered offered{getpid(), file.number(), status.st_dev, status.st_ino};
  std::vector<char> taken(static_cast<std::size_t>(world.size()), 1);
  std::vector<std::unique_ptr<Request>> sends;
  std::vector<std::unique_ptr<Request>> receives;
  for (int peer = 1; peer < world.size(); ++peer) {
    sends.push_back(world.Isend(peer, kOfferTag, BytesOf(offered)));
    receives.push_back(
        world.Irecv(peer, kOfferTag,
                    std::as_writable_bytes(std::span(&taken[static_cast<std::size_t>(peer)], 1))));
  }
  AwaitPeers(world, receives, sends, deadline, "shared memory");
  for (int peer = 1; peer < world.size(); ++peer) {
    if (taken[static_cast<std::size_t>(peer)] == 0)
      CannotShare("rank " + std::to_string(peer) + " cannot map the memory of rank 0");
  }
}

void SharedMemory::Take(Communicator& world, std::chrono::milliseconds deadline) {
  Offered offered;
  const std::unique_ptr<Request> offer[] = {world.Irecv(0, kOfferTag, BytesOf(offered))};
  AwaitPeers(world, offer, {}, deadline, "shared memory");

  const std::string path =
      "/proc/" + std::to_string(offered.process) + "/fd/" + std::to_string(offered.descriptor);
  const Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  const bool found = file.number() >= 0 && fstat(file.number(), &status) == 0;
  const bool same = found && status.st_dev == offered.device && status.st_ino == offered.inode;
  if (same) data_ = Map(file.number(), bytes_);
  const std::string why = found && !same ? "is another file here" : Reason();

  const char taken = data_ != nullptr ? 1 : 0;
  const std::unique_ptr<Request> answer[] = {
      world.Isend(0, kOfferTag, std::as_bytes(std::span(&taken, 1)))};
  AwaitPeers(world, {}, answer, deadline, "shared memory");
  if (data_ == nullptr) CannotShare(path + " of rank 0: " + why);
}

static_assert(std::is_trivial_v<Port>, "zeroed memory must be a port");

std::int64_t Port::Send(std::int64_t now, std::int64_t duration) {
  const std::int64_t departure = std::max(now, send_free_);
  send_free_ = departure + duration;
  return departure;
}

bool Port::Expect(std::int64_t now, std::uint64_t id, std::int64_t arrival, std::int64_t duration) {
  std::span messages = std::span(messages_).first(std::min<std::size_t>(expected_, kMostOnTheWay));
  // Messages that have passed delay no later arrival.
  const auto waiting =
      std::ranges::find_if(messages, [now](const Message& message) { return message.end > now; });
  const auto end = std::move(waiting, messages.end(), messages.begin());
  expected_ = static_cast<std::uint64_t>(end - messages.begin());
  if (expected_ == kMostOnTheWay) return false;

  messages = std::span(messages_).first(expected_ + 1);
  const auto place = std::upper_bound(
      messages.begin(), messages.end() - 1, arrival,
      [](std::int64_t time, const Message& message) { return time < message.arrival; });
  std::move_backward(place, messages.end() - 1, messages.end());
  *place = {arrival, duration, 0, id};
  ++expected_;
  std::int64_t free_from = place == messages.begin() ? arrival : std::prev(place)->end;
  for (auto message = place; message != messages.end(); ++message) {
    message->end = std::max(message->arrival, free_from) + message->duration;
    free_from = message->end;
  }
  return true;
}

std::int64_t Port::EndOf(std::uint64_t id) const {
  const auto messages = std::span(messages_).first(std::min<std::size_t>(expected_, kMostOnTheWay));
  const auto message = std::ranges::find(messages, id, &Message::id);
  return message == messages.end() ? kPassed : message->end;
}

// The layout of the shared memory, with the ports behind it: the ranks' ports, then the nodes'.
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
    if (error == EOWNERDEAD) {  // only times may be spoiled, and the other ranks notice the loss
      pthread_mutex_consistent(&mutex_);
    } else if (error != 0) {
      SPARFUSE_THROW(kTimeout, "shaped: a rank has held the lock of all links for ",
                     deadline.count(), " ms: is it stopped?");
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
    SPARFUSE_THROW(kUnsupported, "shaped: more than ", Port::kMostOnTheWay,
                   " messages are on the way to rank ", destination,
                   " or its node; expected fewer at once: larger buckets, or fewer ranks");
  }
  return sent;
}

std::int64_t HostLinks::EndOf(int source, int destination, std::uint64_t id) {
  const LinkClass link = topology_.LinkBetween(source, destination);
  const Held held(segment_, deadline_);
  return segment_.port(PortOf(destination, link)).EndOf(id);
}

double HostGbps(Communicator& world, double wanted, std::chrono::milliseconds deadline) {
  if (world.size() == 1) return std::numeric_limits<double>::infinity();
  const std::vector<std::byte> out(kBytes);
  std::vector<std::byte> in(kBytes);
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  double best = 0, least = LeastOf(world, 0, deadline);
  for (int i = 0; i < kTries && least < wanted; ++i) {
    const std::int64_t start = MonotonicNanoseconds();
    const std::unique_ptr<Request> receive[] = {world.Irecv(previous, kOfferTag, in)};
    const std::unique_ptr<Request> send[] = {world.Isend(next, kOfferTag, out)};
    AwaitPeers(world, receive, send, deadline, "the host's rate");
    const auto nanoseconds = static_cast<double>(MonotonicNanoseconds() - start);
    best = std::max(best, 8.0 * kBytes / nanoseconds);
    least = LeastOf(world, best, deadline);
  }
  return least;
}

}  // namespace sparfuse
