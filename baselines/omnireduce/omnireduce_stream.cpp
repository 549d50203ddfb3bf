#include "baselines/omnireduce/omnireduce_stream.hpp"

#include <algorithm>
#include <string>

#include "core/base/error.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse::baselines {
namespace {

float WordOf(std::uint32_t number) { return std::bit_cast<float>(number); }

[[noreturn]] void ThrowMalformed(const std::string& what) {
  SPARFUSE_THROW(kComm, "omnireduce: malformed message: " + what +
                            "; ranks disagree on the elements or the options");
}

// Calls visit(number, elements) for the records of a message; returns its last word. Throws
// Error{kComm} unless the numbers increase, from `least` on, below `end`.
template <class Visit>
std::uint32_t ReadMessage(const BlockCut& cut, std::span<const float> message, std::size_t least,
                          std::size_t end, const Visit& visit) {
  if (message.empty()) ThrowMalformed("it is empty");
  std::size_t at = 0;
  const std::size_t last = message.size() - 1;
  while (at < last) {
    const auto number = std::bit_cast<std::uint32_t>(message[at]);
    if (number < least || number >= end) {
      ThrowMalformed("block " + std::to_string(number) + ": expected one from " +
                     std::to_string(least) + " to below " + std::to_string(end));
    }
    const std::size_t floats = cut.Floats(number);
    if (floats > last - at - 1) {
      ThrowMalformed("block " + std::to_string(number) + " has " + std::to_string(last - at - 1) +
                     " elements: expected " + std::to_string(floats));
    }
    visit(number, message.subspan(at + 1, floats));
    least = std::size_t{number} + 1;
    at += 1 + floats;
  }
  const auto next = std::bit_cast<std::uint32_t>(message[last]);
  if (next != kNone && (next < least || next >= end)) {
    ThrowMalformed("the block that follows is " + std::to_string(next) + ": expected one from " +
                   std::to_string(least) + " to below " + std::to_string(end));
  }
  return next;
}

}  // namespace

BlockRange BlockRange::Part(std::size_t parts, std::size_t i) const {
  const std::size_t each = size() / parts;
  const std::size_t more = size() % parts;
  const std::size_t first = begin + i * each + std::min(i, more);
  return {first, first + each + (i < more ? 1 : 0)};
}

std::size_t BlockCut::Floats(std::size_t number) const {
  return std::min(block, elements - number * block);
}

std::size_t BlockCut::MessageWords(BlockRange stream, std::size_t bundle) const {
  return std::min(bundle, stream.size()) * (1 + std::min(block, elements)) + 1;
}

BlockIndex::BlockIndex(const BlockCut& cut, const SparsePayload& payload) {
  std::size_t end = 0;  // of the block that was begun last
  for (std::size_t i = 0; i < payload.indices.size(); ++i) {
    const std::size_t index = payload.indices[i];
    if (index < end) continue;
    if (index >= cut.elements) {
      SPARFUSE_THROW(kInternal, "omnireduce: the payload has index " + std::to_string(index) +
                                    ": expected one below " + std::to_string(cut.elements));
    }
    numbers.push_back(static_cast<std::uint32_t>(index / cut.block));
    firsts.push_back(i);
    end = std::min(cut.elements, (index / cut.block + 1) * cut.block);
  }
  firsts.push_back(payload.indices.size());
}

WorkerStream::WorkerStream(const BlockCut& cut, const SparsePayload& own, const BlockIndex& index,
                           BlockRange stream, std::size_t bundle)
    : cut_(cut),
      own_(own),
      index_(&index),
      stream_(stream),
      bundle_(bundle),
      done_(stream.size() == 0) {
  const auto position = [&](std::size_t block) {
    const auto& numbers = index.numbers;
    return static_cast<std::size_t>(std::lower_bound(numbers.begin(), numbers.end(), block) -
                                    numbers.begin());
  };
  next_ = given_ = position(stream.begin);
  end_ = position(stream.end);
}

bool WorkerStream::sends() const {
  if (done_) return false;
  return !heard_ || (next_ < end_ && next_ - given_ < bundle_);
}

std::size_t WorkerStream::Fill(std::span<float> message) {
  heard_ = true;
  std::size_t at = 0;
  for (; next_ < end_ && next_ - given_ < bundle_; ++next_) {
    const std::uint32_t number = index_->numbers[next_];
    const std::size_t floats = cut_.Floats(number);
    message[at] = WordOf(number);
    const std::span<float> elements = message.subspan(at + 1, floats);
    std::fill(elements.begin(), elements.end(), 0.0f);
    for (std::size_t i = index_->firsts[next_]; i < index_->firsts[next_ + 1]; ++i) {
      elements[own_.indices[i] - number * cut_.block] = own_.values[i];
    }
    at += 1 + floats;
  }
  message[at] = WordOf(next_ < end_ ? index_->numbers[next_] : kNone);
  return at + 1;
}

void WorkerStream::Take(std::span<const float> message, SumRoom& sums) {
  const auto take = [&](std::uint32_t number, std::span<const float> elements) {
    const std::size_t room = sums.indices.size() - sums.used;
    const bool all_fit = elements.size() <= room;
    const auto count = all_fit ? elements.size()
                               : static_cast<std::size_t>(std::ranges::count_if(
                                     elements, [](float value) { return value != 0; }));
    if (count > room) {
      ThrowMalformed("there is room for " + std::to_string(room) + " more sums, and block " +
                     std::to_string(number) + " has " + std::to_string(count));
    }
    auto index = static_cast<std::uint32_t>(number * cut_.block);
    std::size_t to = sums.used;
    if (all_fit) {
      for (const float value : elements) {  // without branches: which are 0 cannot be predicted
        sums.indices[to] = index++;
        sums.values[to] = value;
        to += value != 0;
      }
    } else {
      for (const float value : elements) {
        if (value != 0) {
          sums.indices[to] = index;
          sums.values[to++] = value;
        }
        ++index;
      }
    }
    sums.used = to;
  };
  const std::uint32_t asked = ReadMessage(cut_, message, stream_.begin, stream_.end, take);
  while (given_ < next_ && index_->numbers[given_] < asked) ++given_;
  done_ = asked == kNone;
}

AggregatorStream::AggregatorStream(const BlockCut& cut, BlockRange stream, std::size_t bundle,
                                   std::size_t ranks, std::span<float> room)
    : cut_(cut), stream_(stream), bundle_(bundle), kept_(ranks) {
  const std::size_t words = cut.MessageWords(stream, bundle);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    kept_[rank].room = room.subspan(rank * words, words);
  }
}

bool AggregatorStream::Expects(std::size_t rank) const {
  const Kept& kept = kept_[rank];
  return !kept.heard || (kept.next != kNone && kept.blocks < bundle_);
}

std::span<float> AggregatorStream::Room(std::size_t rank) {
  return kept_[rank].room.subspan(kept_[rank].words);
}

void AggregatorStream::Arrived(std::size_t rank, std::size_t words) {
  Kept& kept = kept_[rank];
  // What a worker announced is where it goes on.
  const std::size_t least = std::max<std::size_t>(stream_.begin, kept.heard ? kept.next : 0);
  std::size_t blocks = 0;
  kept.next = ReadMessage(cut_, Room(rank).first(words), least, stream_.end,
                          [&](std::uint32_t, std::span<const float>) { ++blocks; });
  kept.words += words - 1;
  kept.blocks += blocks;
  kept.heard = true;
}

std::size_t AggregatorStream::Emit(std::span<float> message) {
  std::uint32_t bound = kNone;
  for (const Kept& kept : kept_) bound = std::min(bound, kept.next);
  std::size_t at = 0;
  std::uint32_t number = kNone;
  for (std::size_t given = 0;; ++given) {
    number = kNone;
    for (const Kept& kept : kept_) number = std::min(number, kept.head());
    if (number >= bound || given == bundle_) break;
    const std::size_t floats = cut_.Floats(number);
    const std::span<float> sum = message.subspan(at + 1, floats);
    bool first = true;
    for (Kept& kept : kept_) {  // in the order of the ranks
      if (kept.head() != number) continue;
      const std::span<const float> elements = kept.room.subspan(kept.read + 1, floats);
      if (first) {
        std::copy(elements.begin(), elements.end(), sum.begin());
      } else {
        AddInto(elements, sum);
      }
      first = false;
      added_ += floats;
      kept.read += 1 + floats;
      --kept.blocks;
    }
    message[at] = WordOf(number);
    at += 1 + floats;
  }
  message[at] = WordOf(std::min(number, bound));
  for (Kept& kept : kept_) {  // what is left moves to the front
    std::copy(kept.room.begin() + static_cast<std::ptrdiff_t>(kept.read),
              kept.room.begin() + static_cast<std::ptrdiff_t>(kept.words), kept.room.begin());
    kept.words -= kept.read;
    kept.read = 0;
  }
  return at + 1;
}

}  // namespace sparfuse::baselines
