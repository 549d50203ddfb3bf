#include "core/transport/shaped/port.hpp"

#include <algorithm>
#include <span>
#include <type_traits>

namespace sparfuse {

static_assert(std::is_trivial_v<Port>, "zeroed memory must be a port");

std::int64_t Port::Send(std::int64_t now, std::int64_t duration) {
  const std::int64_t departure = std::max(now, send_free_);
  send_free_ = departure + duration;
  return departure;
}

bool Port::Expect(std::int64_t now, std::uint64_t id, std::int64_t arrival, std::int64_t duration) {
  std::span messages = std::span(messages_).first(std::min<std::size_t>(expected_, kMostOnTheWay));
  // What has passed delays nothing that arrives from now on.
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

}  // namespace sparfuse
