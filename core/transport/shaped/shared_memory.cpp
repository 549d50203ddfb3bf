#include "core/transport/shaped/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/transport/group.hpp"

namespace sparfuse {
namespace {

constexpr int kTag = 0;

// Where rank 0 has the memory. Other processes open its descriptor through /proc, and look whether
// what they opened is the same file: elsewhere that process is another one, or none.
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
  SPARFUSE_THROW(kUnsupported, "the ranks share no memory: " + why +
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
    sends.push_back(world.Isend(peer, kTag, BytesOf(offered)));
    receives.push_back(world.Irecv(
        peer, kTag, std::as_writable_bytes(std::span(&taken[static_cast<std::size_t>(peer)], 1))));
  }
  AwaitPeers(world, receives, sends, deadline, "shared memory");
  for (int peer = 1; peer < world.size(); ++peer) {
    if (taken[static_cast<std::size_t>(peer)] == 0)
      CannotShare("rank " + std::to_string(peer) + " cannot map that of rank 0");
  }
}

void SharedMemory::Take(Communicator& world, std::chrono::milliseconds deadline) {
  Offered offered;
  std::vector<std::unique_ptr<Request>> offer;
  offer.push_back(world.Irecv(0, kTag, BytesOf(offered)));
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
  std::vector<std::unique_ptr<Request>> answer;
  answer.push_back(world.Isend(0, kTag, std::as_bytes(std::span(&taken, 1))));
  AwaitPeers(world, {}, answer, deadline, "shared memory");
  if (data_ == nullptr) CannotShare(path + " of rank 0: " + why);
}

}  // namespace sparfuse
