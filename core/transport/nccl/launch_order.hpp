// One order in which the ranks of a group start what several of them take part in.
//
// NCCL runs what a rank starts in the order in which the rank starts it, and an operation ends only
// when all of its ranks have come to it: ranks that start the same two operations in different
// orders wait for each other for ever. Here every operation gets a place on which its ranks agree,
// all places are ordered, and a rank starts operations in the order of their places: the first of
// those not over is then at the head on all of its ranks, so something always moves. That holds of
// several started as one only where none of them waits for another.
//
// The place of a collective follows from its number, which every rank counts alike. That of a
// message is agreed on by its two ranks: the receiver proposes a time and starts nothing behind it;
// the sender, whose own clock may be ahead, fixes the place at or after it.
//
// Source:  D. Skeen's total order for multicasts, as in K. P. Birman & T. A. Joseph, Reliable
//          communication in the presence of failures, ACM TOCS 5(1), 1987 (ABCAST); of the two
//          parties here one votes and the other decides.
#pragma once

#include <algorithm>
#include <cassert>
#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

namespace sparfuse {

// The upper 32 bits of `time` count the collectives before it.
struct Place {
  std::uint64_t time = 0;
  int sender = 0;  // of the message; breaks ties, for a sender fixes each place at another time
  auto operator<=>(const Place&) const = default;
};

template <class Item>
class LaunchOrder {
 public:
  // A message that `sender` announced and this rank is ready to receive.
  Place Propose(int sender, Item item) {
    const Place proposed{++clock_, sender};
    queue_.emplace(Key{proposed, true}, Entry{std::move(item), false});
    return proposed;
  }
  // At the sender, of a message with that proposal.
  Place Fix(Place proposed, Item item) {
    clock_ = std::max(clock_ + 1, proposed.time);
    const Place fixed{clock_, proposed.sender};
    queue_.emplace(Key{fixed, false}, Entry{std::move(item), true});
    return fixed;
  }
  // At the receiver, when it hears of it.
  void Settle(Place proposed, Place fixed) {
    auto node = queue_.extract(Key{proposed, true});
    assert(!node.empty() && proposed <= fixed);
    node.key() = Key{fixed, false};
    node.mapped().ready = true;
    queue_.insert(std::move(node));
    clock_ = std::max(clock_, fixed.time);
  }

  // The next collective of all ranks. It holds up what follows until it is ready.
  std::uint64_t Append(Item item, bool ready) {
    queue_.emplace(KeyOf(appended_), Entry{std::move(item), ready});
    return appended_++;
  }
  void MarkReady(std::uint64_t collective) { queue_.at(KeyOf(collective)).ready = true; }
  std::uint64_t appended() const { return appended_; }

  // What is to be started next, or null while that is not known or not ready.
  const Item* Next() const {
    if (queue_.empty() || !queue_.begin()->second.ready) return nullptr;
    const auto& [key, entry] = *queue_.begin();
    // Collectives that come before it were not appended here yet.
    if (key.place.time >> kTimeBits > started_) return nullptr;
    return &entry.item;
  }
  // Precondition: Next() is not null.
  void Pop() {
    if (queue_.begin()->first.place.sender == kCollective) {
      ++started_;
      clock_ = std::max(clock_, started_ << kTimeBits);
    }
    queue_.erase(queue_.begin());
  }

  bool empty() const { return queue_.empty(); }
  void Clear() { queue_.clear(); }

 private:
  static constexpr int kTimeBits = 32;
  static constexpr int kCollective = std::numeric_limits<int>::max();
  struct Key {
    Place place;
    // A place that its sender fixed comes before a proposal at the same time to the same sender,
    // which must still move behind it.
    bool proposed = false;
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    Item item;
    bool ready = false;
  };
  static Key KeyOf(std::uint64_t collective) {
    return {{collective << kTimeBits | 0xffffffffu, kCollective}, false};
  }

  std::map<Key, Entry> queue_;
  std::uint64_t clock_ = 0;
  std::uint64_t appended_ = 0;  // collectives
  std::uint64_t started_ = 0;
};

}  // namespace sparfuse
