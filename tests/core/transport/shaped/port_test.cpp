// Tests the times of messages at a port of an emulated network, by plain numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/transport/shaped/host_links.hpp"

namespace sparfuse {
namespace {

std::unique_ptr<Port> UnusedPort() { return std::make_unique<Port>(Port{}); }

TEST(Port, SendsOneMessageAfterAnother) {
  const auto port = UnusedPort();
  EXPECT_EQ(port->Send(1000, 50), 1000);
  EXPECT_EQ(port->Send(1010, 30), 1050);  // the first leaves at 1050
  EXPECT_EQ(port->Send(1020, 10), 1080);
  EXPECT_EQ(port->Send(2000, 10), 2000);  // idle since 1090
}

TEST(Port, ReceivesInOrderOfArrivalWhateverWasExpectedFirst) {
  const auto port = UnusedPort();
  EXPECT_TRUE(port->Expect(0, 1, 1000, 100));
  EXPECT_EQ(port->EndOf(1), 1100);
  EXPECT_TRUE(port->Expect(0, 2, 500, 550));  // ends at 1050, so that 1 has to wait
  EXPECT_EQ(port->EndOf(2), 1050);
  EXPECT_EQ(port->EndOf(1), 1150);
  EXPECT_TRUE(port->Expect(0, 3, 1000, 10));  // arrives with 1, but was expected later
  EXPECT_EQ(port->EndOf(1), 1150);
  EXPECT_EQ(port->EndOf(3), 1160);
  EXPECT_TRUE(port->Expect(0, 4, 2000, 10));
  EXPECT_EQ(port->EndOf(4), 2010);
}

TEST(Port, ForgetsWhatHasPassed) {
  const auto port = UnusedPort();
  EXPECT_TRUE(port->Expect(0, 1, 100, 100));
  EXPECT_TRUE(port->Expect(0, 2, 150, 100));
  EXPECT_TRUE(port->Expect(250, 3, 400, 100));  // 1 has passed at 200; 2, at 300, has not
  EXPECT_EQ(port->EndOf(1), Port::kPassed);
  EXPECT_EQ(port->EndOf(2), 300);
  EXPECT_EQ(port->EndOf(3), 500);
}

TEST(Port, HasRoomForSoManyOnTheWay) {
  const auto port = UnusedPort();
  for (std::uint64_t id = 0; id < Port::kMostOnTheWay; ++id)
    EXPECT_TRUE(port->Expect(0, id, 100, 1));
  EXPECT_FALSE(port->Expect(0, 1u << 20, 100, 1));
  EXPECT_EQ(port->EndOf(Port::kMostOnTheWay - 1), 100 + static_cast<int>(Port::kMostOnTheWay));
  EXPECT_TRUE(port->Expect(101, 1u << 20, 300, 1));  // one message has passed
}

// Messages of several senders, whose cards space them out. Each is known before it arrives.
TEST(Port, NeverCarriesTwoMessagesAtOnceAndNeverIdlesBesideOneThatWaits) {
  const auto port = UnusedPort();
  struct Message {
    std::int64_t arrival, duration;
    std::uint64_t id;
  };
  std::vector<Message> all;
  std::uint64_t state = 1;
  const auto random = [&](std::uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>((state >> 33) % below);
  };
  std::vector<std::pair<std::int64_t, std::int64_t>> busy;  // of messages that have passed
  const auto collect = [&](std::int64_t now) {
    std::erase_if(all, [&](const Message& message) {
      const std::int64_t end = port->EndOf(message.id);
      EXPECT_GE(end, message.arrival + message.duration);
      if (end > now) return false;
      busy.emplace_back(end - message.duration, end);
      return true;
    });
  };
  constexpr std::int64_t kAlpha = 100;
  std::int64_t now = 0, carried = 0;
  for (std::uint64_t id = 0; id < 2000; ++id) {
    now += random(40);
    collect(now);
    const Message message{now + kAlpha + random(300), 1 + random(30), id};
    ASSERT_TRUE(port->Expect(now, id, message.arrival, message.duration));
    all.push_back(message);
    carried += message.duration;
  }
  collect(now + 1'000'000);
  ASSERT_EQ(busy.size(), 2000u);
  std::sort(busy.begin(), busy.end());
  for (std::size_t i = 1; i < busy.size(); ++i) EXPECT_GE(busy[i].first, busy[i - 1].second);
  EXPECT_GT(carried, busy.back().second / 2);  // messages had to queue
}

}  // namespace
}  // namespace sparfuse
