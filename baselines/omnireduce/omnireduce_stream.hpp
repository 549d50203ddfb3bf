// Streams blocks: what a worker and an aggregator keep of one stream, and the messages between
// them, without a transport.
//
// A stream is a contiguous run of blocks. Its messages are words of four bytes: records of a
// block's number and its elements, in the order of blocks, then one more block number,
//
//   of a worker      the next block that it will send, kNone after its last;
//   of an aggregator what it asks for: blocks before it have been summed up and given out. kNone:
//                    the stream has ended.
//
// An aggregator keeps what arrived of each worker, and adds it in the order of the ranks when no
// worker can still send for it: when all that are not at their end have a later block as their
// next. A worker sends as many blocks as it may, `bundle` at a time, of which none has been given
// out yet. At a bundle of one block a worker waits for what it sent.
//
// A worker that is not at its end has `bundle` blocks at the aggregator, so that as many lie before
// its next one: every message of sums but the last has exactly `bundle` blocks.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/payload/payload.hpp"

namespace sparfuse::baselines {

inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// Numbers of blocks [begin, end).
struct BlockRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
  // The i-th of `parts` parts, which differ by one block at most; the first ones are the larger.
  BlockRange Part(std::size_t parts, std::size_t i) const;
};

// Elements cut into blocks, the last of which may be shorter.
struct BlockCut {
  std::size_t elements = 0;
  std::size_t block = 1;

  BlockRange all() const { return {0, (elements + block - 1) / block}; }
  std::size_t Floats(std::size_t number) const;
  // Words of the longest message of a stream: both kinds have at most `bundle` records.
  std::size_t MessageWords(BlockRange stream, std::size_t bundle) const;
};

// The blocks in which a payload has elements.
struct BlockIndex {
  std::vector<std::uint32_t> numbers;
  std::vector<std::size_t> firsts;  // [numbers + 1] positions of their elements in the payload

  // Throws Error{kInternal} where an index is not below the elements.
  BlockIndex(const BlockCut& cut, const SparsePayload& payload);
};

// Room for the elements of sums, filled from its start.
struct SumRoom {
  std::span<std::uint32_t> indices;
  std::span<float> values;  // as many
  std::size_t used = 0;
};

class WorkerStream {
 public:
  // `index` and what `own` views outlive it. A stream without blocks is done.
  WorkerStream(const BlockCut& cut, const SparsePayload& own, const BlockIndex& index,
               BlockRange stream, std::size_t bundle);

  // Whether it has something to say: at first, and while it may send blocks.
  bool sends() const;
  // Writes its message; returns its words. Precondition: room for MessageWords.
  std::size_t Fill(std::span<float> message);
  // Appends the elements of a message of sums that are not 0. Throws Error{kComm} where it is
  // malformed, or has more of them than there is room for.
  void Take(std::span<const float> message, SumRoom& sums);
  bool done() const { return done_; }

 private:
  BlockCut cut_;
  SparsePayload own_;
  const BlockIndex* index_;
  BlockRange stream_;
  std::size_t bundle_;
  // Positions in the index: of the next to send, the first that is not given out, and the end.
  std::size_t next_;
  std::size_t given_;
  std::size_t end_;
  bool heard_ = false;  // it has said something
  bool done_;
};

class AggregatorStream {
 public:
  // `room`: for `ranks` messages of MessageWords, which it keeps there.
  AggregatorStream(const BlockCut& cut, BlockRange stream, std::size_t bundle, std::size_t ranks,
                   std::span<float> room);

  // Whether the worker of `rank` sends before the next sums: WorkerStream::sends.
  bool Expects(std::size_t rank) const;
  // Where its message is to be written.
  std::span<float> Room(std::size_t rank);
  // It has been, with so many words. Throws Error{kComm} where it is malformed.
  void Arrived(std::size_t rank, std::size_t words);
  // Writes the next sums; returns their words. Precondition: all that are expected have arrived;
  // room for MessageWords.
  std::size_t Emit(std::span<float> message);
  std::uint64_t added() const { return added_; }  // floats that were read to be summed

 private:
  struct Kept {
    std::span<float> room;
    std::size_t words = 0;  // of records that are not given out; they lie first in the room
    std::size_t blocks = 0;
    std::size_t read = 0;  // while sums are written
    std::uint32_t next = 0;
    bool heard = false;

    std::uint32_t head() const {
      return read == words ? kNone : std::bit_cast<std::uint32_t>(room[read]);
    }
  };

  BlockCut cut_;
  BlockRange stream_;
  std::size_t bundle_;
  std::vector<Kept> kept_;  // [ranks]
  std::uint64_t added_ = 0;
};

}  // namespace sparfuse::baselines
