#include "core/transport/tcp/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>

#include "core/base/error.hpp"

namespace sparfuse {
namespace {

struct KeptDescriptors {
  std::mutex mutex;
  std::set<int> descriptors;
};

// Never destroyed: a thread may fork while the process ends.
KeptDescriptors& Kept() {
  static KeptDescriptors& all = *[] {
    pthread_atfork([] { Kept().mutex.lock(); }, [] { Kept().mutex.unlock(); },
                   [] {
                     const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
                     for (const int descriptor : Kept().descriptors)
                       ::dup3(nothing, descriptor, O_CLOEXEC);
                     ::close(nothing);
                     Kept().mutex.unlock();
                   });
    return new KeptDescriptors;
  }();
  return all;
}

HostAddress FromSystem(const sockaddr* address) {
  HostAddress made;
  made.length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&made.storage, address, made.length);
  return made;
}

bool IsOfInternet(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

// Returns the address of this host's interface `name`; IPv4 before IPv6. Throws Error{kConfig}.
HostAddress AddressOfInterface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) SPARFUSE_THROW(kComm, "getifaddrs: ", ErrorText(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::optional<HostAddress> found;
  std::set<std::string> names;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    names.insert(each->ifa_name);
    if (name != each->ifa_name || !IsOfInternet(each->ifa_addr)) continue;
    if (!found || each->ifa_addr->sa_family == AF_INET) found = FromSystem(each->ifa_addr);
    if (each->ifa_addr->sa_family == AF_INET) break;
  }
  if (found) return *found;
  std::string known;
  for (const std::string& each : names) known += (known.empty() ? "" : ", ") + each;
  SPARFUSE_THROW(kConfig, "interface \"", name,
                 "\": this host has no interface of that name with an address; expected one of ",
                 known, ", or an address of this host");
}

// Returns the address from which this host sends to `host`; nothing if `host` is not found.
std::optional<HostAddress> AddressToward(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &list) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    const Socket socket(::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    HostAddress own;
    own.length = sizeof(own.storage);
    if (!socket || ::connect(socket.get(), each->ai_addr, each->ai_addrlen) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) != 0) {
      continue;
    }
    own.set_port(0);
    return own;
  }
  return std::nullopt;
}

std::optional<HostAddress> TryParseHost(const std::string& host, int port) {
  HostAddress address;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    address.length = sizeof(sockaddr_in);
  } else if (inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    address.length = sizeof(sockaddr_in6);
  } else {
    return std::nullopt;
  }
  address.set_port(port);
  return address;
}

}  // namespace

void Socket::Close() noexcept {
  if (descriptor_ < 0) return;
  std::unique_lock<std::mutex> lock;  // until it is closed: its number may then be another file's
  if (std::exchange(kept_from_children_, false)) {
    lock = std::unique_lock(Kept().mutex);
    Kept().descriptors.erase(descriptor_);
  }
  ::close(std::exchange(descriptor_, -1));
}

void Socket::KeepFromChildren() {
  const std::scoped_lock lock(Kept().mutex);
  Kept().descriptors.insert(descriptor_);
  kept_from_children_ = true;
}

int HostAddress::port() const {
  return ntohs(storage.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in*>(&storage)->sin_port
                   : reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

void HostAddress::set_port(int port) {
  const auto on_wire = htons(static_cast<std::uint16_t>(port));
  if (storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = on_wire;
  } else {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = on_wire;
  }
}

std::string HostAddress::host() const {
  char text[INET6_ADDRSTRLEN] = {};
  const void* number =
      storage.ss_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr)
          : &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  inet_ntop(storage.ss_family, number, text, sizeof text);
  return text;
}

std::string HostAddress::Text() const {
  const std::string number = host();
  return (number.find(':') == std::string::npos ? number : "[" + number + "]") + ":" +
         std::to_string(port());
}

HostAddress ParseHost(const std::string& host, int port) {
  if (const auto address = TryParseHost(host, port)) return *address;
  SPARFUSE_THROW(kConfig, "\"", host,
                 "\": expected the numeric address of a host, such as 10.0.0.1");
}

HostAddress ChooseHost(const std::string& interface, const std::string& toward) {
  if (!interface.empty()) {
    if (const auto address = TryParseHost(interface, 0)) return *address;
    return AddressOfInterface(interface);
  }
  if (!toward.empty()) {
    if (const auto address = AddressToward(toward)) return *address;
  }
  return ParseHost("127.0.0.1", 0);
}

Socket MakeSocket(const HostAddress& address) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) SPARFUSE_THROW(kComm, "socket: ", ErrorText(errno));
  return socket;
}

void SendAtOnce(const Socket& socket) {
  const int one = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

double DeliveredBytesPerSecond(const Socket& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size);  // an old kernel leaves a 0
  return static_cast<double>(info.tcpi_delivery_rate);
}

std::string ErrorText(int error) { return std::generic_category().message(error); }

}  // namespace sparfuse
