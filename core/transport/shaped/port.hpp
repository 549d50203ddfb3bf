// Schedules what passes one port of an emulated network: plain numbers, no clock and no lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sparfuse {

// A full-duplex port: the network card that the ranks of a node share, or a rank's own link within
// its node. Each direction carries one message at a time, first in first out: by the order of Send
// on the way out, by the order of arrival on the way in. Times and durations are in nanoseconds.
//
// Lies in memory that processes share and is not synchronised; zeroed memory is a port that nothing
// has passed. A process that ends in the middle of a call spoils times of messages and nothing
// else.
class Port {
 public:
  static constexpr std::size_t kMostOnTheWay = 4096;
  // What EndOf says of messages that have passed.
  static constexpr std::int64_t kPassed = 0;

  // When the first byte leaves, which is `now` or when the last byte of what was sent before has
  // left.
  std::int64_t Send(std::int64_t now, std::int64_t duration);
  // Expects message `id` at `arrival`, which is later than `now`: nothing that has begun to pass is
  // moved. False, and nothing is done, where kMostOnTheWay have not passed yet.
  [[nodiscard]] bool Expect(std::int64_t now, std::uint64_t id, std::int64_t arrival,
                            std::int64_t duration);
  // When the last byte of `id` has passed inwards, by what is expected so far: what is expected
  // later and arrives earlier moves it back.
  std::int64_t EndOf(std::uint64_t id) const;

 private:
  struct Message {
    std::int64_t arrival;
    std::int64_t duration;
    std::int64_t end;
    std::uint64_t id;
  };

  std::int64_t send_free_;
  std::uint64_t expected_;                       // of messages_
  std::array<Message, kMostOnTheWay> messages_;  // by arrival, equal ones as they were expected
};

}  // namespace sparfuse
