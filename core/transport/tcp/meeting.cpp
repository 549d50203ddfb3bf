#include "core/transport/tcp/meeting.hpp"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <list>
#include <sstream>

#include "core/base/error.hpp"
#include "core/transport/tcp/tcp.hpp"

namespace sparfuse {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kTokenBytes = 16;
// How long a rank that seems lost may still come, and how long others have to see by themselves
// which one is lost, before this rank leaves because of it.
constexpr std::chrono::milliseconds kGrace{300};
constexpr std::ptrdiff_t kMostVisitors = 256;  // that have not shown a token

// The components of TcpListener::address().
struct TcpAddress {
  HostAddress host;
  std::string token;
};

// Throws Error{kConfig}.
TcpAddress ParseTcpAddress(const std::string& text) {
  std::istringstream words(text);
  std::string host;
  int port = 0;
  TcpAddress address;
  words >> host >> port >> address.token;
  if (!words || port < 1 || port > 65535 || address.token.size() != 2 * kTokenBytes) {
    SPARFUSE_THROW(kConfig, "\"", text, "\": expected the address of a listener, HOST PORT TOKEN");
  }
  address.host = ParseHost(host, port);
  return address;
}

// The first bytes of a connection, in both directions.
struct Greeting {
  std::uint64_t magic = 0x7370617266757365;  // also detects another byte order
  std::array<char, 2 * kTokenBytes> token{};
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
};

std::string DrawToken() {
  std::array<unsigned char, kTokenBytes> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    SPARFUSE_THROW(kInternal, "getrandom: ", ErrorText(errno));
  std::string token;
  for (const unsigned char byte : bytes) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
}

// Compares a greeting's token in a time that does not depend on the place of a difference.
bool SameToken(const std::array<char, 2 * kTokenBytes>& shown, const std::string& expected) {
  unsigned char difference = 0;
  for (std::size_t i = 0; i < shown.size(); ++i)
    difference |= static_cast<unsigned char>(shown[i] ^ expected[i]);
  return difference == 0;
}

// A connection that is exchanging greetings, or a watch: a connection from a lower to a higher rank
// that lasts as long as the higher one meets ranks. If it ends and the higher rank has not
// connected, that rank is lost.
struct Guest {
  Socket socket;
  int peer = -1;  // -1: a visitor to our port that has not told its rank
  bool connecting = false;
  Greeting own;
  std::size_t sent = 0;
  Greeting theirs;
  std::size_t received = 0;
  bool speaks_first = false;
  bool watches = false;

  bool has_heard() const { return received == sizeof theirs; }
  bool WantsToSend() const {
    return !connecting && sent < sizeof own && (speaks_first || (has_heard() && !watches));
  }
  bool done() const { return has_heard() && sent == sizeof own; }
};

class Meeting {
 public:
  Meeting(Socket listener, std::span<const std::string> addresses, int rank)
      : listener_(std::move(listener)),
        rank_(rank),
        connections_(addresses.size()),
        lost_since_(addresses.size()) {
    for (const std::string& address : addresses) addresses_.push_back(ParseTcpAddress(address));
  }

  std::vector<Socket> Run(std::chrono::milliseconds deadline, const std::stop_token& stop) {
    const auto expires = Clock::now() + deadline;
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer != rank_) Connect(peer);
    }
    while (Missing() > 0) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(expires - Clock::now());
      if (left.count() <= 0) ThrowLate(deadline);
      if (stop.stop_requested())
        SPARFUSE_THROW(kComm, "tcp: stopped before all ranks had connected");
      const bool any_lost = ThrowIfLost();
      Wait(static_cast<int>(std::min<std::int64_t>(left.count() + 1, any_lost ? 50 : 1000)));
    }
    return std::move(connections_);
  }

 private:
  int ranks() const { return static_cast<int>(addresses_.size()); }
  const TcpAddress& AddressOf(int rank) const { return addresses_[static_cast<std::size_t>(rank)]; }
  Socket& ConnectionTo(int rank) { return connections_[static_cast<std::size_t>(rank)]; }

  Greeting GreetingTo(int peer) const {
    Greeting greeting;
    std::ranges::copy(AddressOf(peer).token, greeting.token.begin());
    greeting.rank = rank_;
    greeting.ranks = ranks();
    return greeting;
  }

  std::ptrdiff_t Missing() const {
    return std::ranges::count_if(connections_, [](const Socket& socket) { return !socket; }) - 1;
  }

  [[noreturn]] void ThrowNoRoute(int peer, int error) const {
    SPARFUSE_THROW(kComm, "tcp: rank ", rank_, " at ", AddressOf(rank_).host.host(),
                   " does not reach rank ", peer, " at ", AddressOf(peer).host.Text(), " (",
                   ErrorText(error), "); ",
                   (error == ECONNREFUSED ? "it has ended, or else e" : "e"),
                   "xpected a network that both ranks share: GLOO_SOCKET_IFNAME names the "
                   "interface of a rank");
  }

  // Throws if a rank is lost for good. Returns whether one seems to be.
  bool ThrowIfLost() const {
    int first = -1;
    for (int peer = rank_ + 1; peer < ranks(); ++peer) {
      const auto since = LostSince(peer);
      if (since == Clock::time_point() || connections_[static_cast<std::size_t>(peer)]) continue;
      if (first < 0 || since < LostSince(first)) first = peer;
    }
    if (first < 0 || Clock::now() - LostSince(first) < kGrace) return first >= 0;
    SPARFUSE_THROW(kComm, "tcp: rank ", first, " at ", AddressOf(first).host.Text(),
                   " is lost before it has connected to rank ", rank_, " at ",
                   AddressOf(rank_).host.Text());
  }
  Clock::time_point LostSince(int peer) const {
    return lost_since_[static_cast<std::size_t>(peer)];
  }

  [[noreturn]] void ThrowLate(std::chrono::milliseconds deadline) {
    std::string missing;
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer == rank_ || ConnectionTo(peer)) continue;
      missing += (missing.empty() ? "" : ", ") + ("rank " + std::to_string(peer)) + " at " +
                 AddressOf(peer).host.Text();
    }
    SPARFUSE_THROW(kTimeout, "tcp: no connection between rank ", rank_, " at ",
                   AddressOf(rank_).host.Text(), " and ", missing, " within ", deadline.count(),
                   " ms; expected all ranks to start together, and a network that they all "
                   "share: GLOO_SOCKET_IFNAME names the interface of a rank");
  }

  void Connect(int peer) {
    Guest& guest = guests_.emplace_back();
    const HostAddress& to = AddressOf(peer).host;
    guest.socket = MakeSocket(to);
    guest.peer = peer;
    guest.own = GreetingTo(peer);
    guest.speaks_first = true;
    guest.watches = peer > rank_;
    SendAtOnce(guest.socket);
    if (::connect(guest.socket.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.length) ==
        0)
      return;
    guest.connecting = true;
    if (errno != EINPROGRESS && !Failed(guest, errno)) guests_.pop_back();
  }

  // A connection was not made. A watch needs none, since the other side connects as well.
  // Returns false if the guest needs no more service.
  bool Failed(const Guest& guest, int error) {
    if (!guest.watches) ThrowNoRoute(guest.peer, error);
    if (error == ECONNREFUSED) Lose(guest.peer);
    return false;
  }

  void Lose(int peer) {
    Clock::time_point& since = lost_since_[static_cast<std::size_t>(peer)];
    if (since == Clock::time_point()) since = Clock::now();
  }

  void Accept() {
    while (true) {
      Socket socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      const bool full = !socket && (errno == EMFILE || errno == ENFILE);
      if (full || Visitors() >= kMostVisitors) ForgetOldestVisitor();
      if (!socket) return;
      SendAtOnce(socket);
      guests_.emplace_back().socket = std::move(socket);
    }
  }

  std::ptrdiff_t Visitors() const {
    return std::ranges::count_if(guests_, [](const Guest& guest) { return guest.peer < 0; });
  }

  // Strangers must not take all descriptors by saying nothing.
  void ForgetOldestVisitor() {
    const auto oldest =
        std::ranges::find_if(guests_, [](const Guest& guest) { return guest.peer < 0; });
    if (oldest != guests_.end()) guests_.erase(oldest);
  }

  void Wait(int milliseconds) {
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
    for (const Guest& guest : guests_) {
      const short events = guest.connecting || guest.WantsToSend() ? POLLOUT : POLLIN;
      polled.push_back({guest.socket.get(), events, 0});
    }
    if (::poll(polled.data(), polled.size(), milliseconds) <= 0) return;
    auto guest = guests_.begin();
    for (std::size_t i = 1; i < polled.size(); ++i) {
      const auto at = guest++;
      if (polled[i].revents != 0 && !Serve(*at)) guests_.erase(at);
    }
    if (polled[0].revents != 0) Accept();
  }

  // Returns false if the guest needs no more service.
  bool Serve(Guest& guest) {
    if (guest.connecting && !FinishConnecting(guest)) return false;
    if (guest.watches) return Watch(guest);
    if (guest.WantsToSend() && !Move(guest, true)) return Reject(guest);
    if (!guest.has_heard() && !Move(guest, false)) return Reject(guest);
    if (guest.has_heard() && !Recognise(guest)) return Reject(guest);
    if (guest.watches) return true;
    if (guest.WantsToSend() && !Move(guest, true)) return Reject(guest);
    if (!guest.done()) return true;
    ConnectionTo(guest.peer) = std::move(guest.socket);
    return false;
  }

  // Of both sides of a watch. Returns false if it has ended.
  bool Watch(Guest& guest) {
    if (guest.WantsToSend()) {
      if (Move(guest, true)) return true;
    } else {
      std::byte nothing{};
      const ssize_t now = ::recv(guest.socket.get(), &nothing, 1, 0);
      if (now < 0 && (errno == EAGAIN || errno == EINTR)) return true;
      if (now > 0) return false;  // a rank says nothing here
    }
    if (guest.speaks_first) Lose(guest.peer);
    return false;
  }

  // Returns false if the guest needs no more service.
  bool FinishConnecting(Guest& guest) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(guest.socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return Failed(guest, error);
    guest.connecting = false;
    return true;
  }

  // Sends or receives as much of a greeting as possible. Returns false if the other side has gone.
  static bool Move(Guest& guest, bool send) {
    std::size_t& moved = send ? guest.sent : guest.received;
    auto* bytes = reinterpret_cast<std::byte*>(send ? &guest.own : &guest.theirs) + moved;
    const std::size_t left = sizeof(Greeting) - moved;
    const ssize_t now = send ? ::send(guest.socket.get(), bytes, left, MSG_NOSIGNAL)
                             : ::recv(guest.socket.get(), bytes, left, 0);
    if (now > 0) {
      moved += static_cast<std::size_t>(now);
      return true;
    }
    return now < 0 && (errno == EAGAIN || errno == EINTR);
  }

  // Returns whether the guest has told its rank, and may be here.
  bool Recognise(Guest& guest) {
    const Greeting& said = guest.theirs;
    if (said.magic != Greeting{}.magic || !SameToken(said.token, AddressOf(rank_).token))
      return false;
    const bool expected =
        guest.speaks_first ? said.rank == guest.peer : said.rank >= 0 && said.rank < ranks();
    if (said.ranks != ranks() || !expected || said.rank == rank_) return false;
    if (!guest.speaks_first && said.rank < rank_) {
      guest.watches = true;
      guest.peer = said.rank;
      return true;
    }
    if (ConnectionTo(said.rank)) return false;
    if (guest.peer < 0) guest.own = GreetingTo(said.rank);
    guest.peer = said.rank;
    return true;
  }

  // Forgets a stranger at our port. Throws if we connected: another program is there.
  bool Reject(const Guest& guest) const {
    if (!guest.speaks_first) return false;
    SPARFUSE_THROW(kComm, "tcp: the process that answers at ", AddressOf(guest.peer).host.Text(),
                   " is not rank ", guest.peer, " of ", ranks(),
                   " (it has left, or does not know this world's token); expected "
                   "addresses of ranks that were started together");
  }

  Socket listener_;
  int rank_;
  std::vector<TcpAddress> addresses_;
  std::vector<Socket> connections_;
  std::vector<Clock::time_point> lost_since_;  // of ranks that seem lost
  std::list<Guest> guests_;
};

}  // namespace

TcpListener::TcpListener(const std::string& interface, const std::string& toward) {
  HostAddress host = ChooseHost(interface, toward);
  socket_ = MakeSocket(host);
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&host.storage), host.length) != 0) {
    SPARFUSE_THROW(kConfig, "interface \"", (interface.empty() ? host.host() : interface),
                   "\": cannot listen at ", host.host(), " (", ErrorText(errno),
                   "); expected an address of this host");
  }
  socklen_t length = host.length;
  if (::listen(socket_.get(), SOMAXCONN) != 0 ||
      ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&host.storage), &length) != 0) {
    SPARFUSE_THROW(kComm, "listen at ", host.host(), ": ", ErrorText(errno));
  }
  address_ = host.host() + " " + std::to_string(host.port()) + " " + DrawToken();
}

std::vector<Socket> MeetRanks(Socket listener, std::span<const std::string> addresses, int rank,
                              std::chrono::milliseconds deadline, const std::stop_token& stop) {
  return Meeting(std::move(listener), addresses, rank).Run(deadline, stop);
}

}  // namespace sparfuse
