// Owns sockets, and reads and writes the addresses of hosts.
#pragma once

#include <sys/socket.h>

#include <string>
#include <utility>

namespace sparfuse {

// An owned file descriptor, or none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { Close(); }
  Socket(Socket&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)),
        kept_from_children_(std::exchange(other.kept_from_children_, false)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      Close();
      descriptor_ = std::exchange(other.descriptor_, -1);
      kept_from_children_ = std::exchange(other.kept_from_children_, false);
    }
    return *this;
  }

  int get() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  void Close() noexcept;
  // A child that is forked from now on gets /dev/null in the place of this descriptor. Otherwise
  // it would hold the connection open: peers would not learn that this process has died.
  void KeepFromChildren();

 private:
  int descriptor_ = -1;
  bool kept_from_children_ = false;
};

struct HostAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int port() const;
  void set_port(int port);
  std::string host() const;  // "10.0.0.1", "fe80::1"
  std::string Text() const;  // "10.0.0.1:4242", "[fe80::1]:4242"
};

// Parses a host's numeric address; names are not resolved. Throws Error{kConfig}.
HostAddress ParseHost(const std::string& host, int port);
// Returns the address that TcpListener chooses, with port 0.
HostAddress ChooseHost(const std::string& interface, const std::string& toward);

// Makes a stream socket that never blocks and that exec closes. Throws Error{kComm}.
Socket MakeSocket(const HostAddress& address);
// Makes messages leave at once.
void SendAtOnce(const Socket& socket);
// The rate at which a connection's last bytes arrived, as the kernel measures it; 0: not known yet.
double DeliveredBytesPerSecond(const Socket& socket);
// The text of an errno: "Connection refused".
std::string ErrorText(int error);

}  // namespace sparfuse
