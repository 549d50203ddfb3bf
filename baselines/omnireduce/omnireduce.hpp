// Runs the streams of an exchange side by side: sends, receives and sums the messages of this rank
// in each stream, as a worker of all aggregators and as an aggregator itself.
//
// All ranks get the sums of all streams, and derive from them which rank sends to which aggregator
// next. All ranks therefore run through equal turns: if one waits for a message in a turn, another
// sends it in the same turn, and no rank waits for ever.
//
// Streams blocks: holds the state of one stream on a worker and on an aggregator, and their
// messages, without a transport.
//
// A stream is a contiguous run of blocks. Its messages are words of four bytes: records of a
// block's number and its elements, in the order of blocks, then one more block number,
//
//   of a worker      the next block that it will send, kNone after its last;
//   of an aggregator the block that it asks for: blocks before it have been summed and given out.
//                    kNone: the stream has ended.
//
// An aggregator keeps the arrived blocks of each worker. It sums a block, in the order of the
// ranks, when no worker can still send it: all workers not at their end have a later block as
// their next. A worker sends as many blocks as it may, `bundle` at a time, of which none has been
// given out yet. At a bundle of one block a worker waits for the sum of the block that it sent.
//
// A worker that is not at its end has `bundle` blocks at the aggregator, so that as many lie before
// its next one. Every message of sums but the last therefore has exactly `bundle` blocks.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/collective/collective.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/payload/payload.hpp"
#include "core/transport/communicator.hpp"

namespace sparfuse::baselines {

CollectiveDescriptor OmniReduceCollective();

// The number of streams of a shard if each rank is to select `kept` elements: the number of
// messages that a shard's part of the blocks of these elements fills, 1 to `slots`.
std::size_t OmniReduceStreams(std::size_t kept, std::size_t block, std::size_t bundle,
                              std::size_t slots, std::size_t ranks);

inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// Numbers of blocks [begin, end).
struct BlockRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
  // The i-th of `parts` parts, which differ by one block at most; the first parts are the larger.
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

  // Throws Error{kInternal} if an index is not below the number of elements.
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
  // `index` and the memory of `own` outlive it. A stream without blocks is done.
  WorkerStream(const BlockCut& cut, const SparsePayload& own, const BlockIndex& index,
               BlockRange stream, std::size_t bundle);

  // Whether the worker has a message to send: at first, and while it may send blocks.
  bool sends() const;
  // Writes its message; returns the number of words. Precondition: room for MessageWords.
  std::size_t Fill(std::span<float> message);
  // Appends the elements of a message of sums that are not 0. Throws Error{kComm} if the message is
  // malformed, or has more such elements than there is room for.
  void Take(std::span<const float> message, SumRoom& sums);
  bool done() const { return done_; }

 private:
  BlockCut cut_;
  SparsePayload own_;
  const BlockIndex* index_;
  BlockRange stream_;
  std::size_t bundle_;
  // Positions in the index: the next block to send, the first one not given out, and the end.
  std::size_t next_;
  std::size_t given_;
  std::size_t end_;
  bool heard_ = false;  // it has sent a message
  bool done_;
};

class AggregatorStream {
 public:
  // `room`: memory for `ranks` messages of MessageWords.
  AggregatorStream(const BlockCut& cut, BlockRange stream, std::size_t bundle, std::size_t ranks,
                   std::span<float> room);

  // Whether the worker of `rank` sends before the next sums: WorkerStream::sends.
  bool Expects(std::size_t rank) const;
  // The memory for the next message of that worker.
  std::span<float> Room(std::size_t rank);
  // The message, of `words` words, has been written there. Throws Error{kComm} if it is malformed.
  void Arrived(std::size_t rank, std::size_t words);
  // Writes the next sums; returns the number of words. Preconditions: all expected messages have
  // arrived; room for MessageWords.
  std::size_t Emit(std::span<float> message);
  std::uint64_t added() const { return added_; }  // floats that were read to be summed

 private:
  struct Kept {
    std::span<float> room;
    std::size_t words = 0;  // of records not given out, which lie first in the room
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

inline constexpr std::size_t kWord = sizeof(float);
inline constexpr std::size_t kMostSlots = 8;  // two tags each

struct OmniReduceOptions {
  std::size_t block = 1;
  std::size_t slots = 1;
  std::size_t bundle = 1;
};

// The counts that a run notes (ExchangeBuffers::seen). Words have four bytes; kWaits is equal on
// all ranks.
enum SeenWord : std::size_t {
  kBundles,      // messages of blocks to other aggregators
  kBundleWords,  // their words
  kBundlesIn,    // messages of blocks of other workers
  kBundleWordsIn,
  kResults,      // messages of sums, to each other rank
  kResultWords,  // their words, to each
  kAdded,        // floats that the aggregator read to sum them
  kSums,         // elements of its shard that Apply reads
  kWaits,        // times that all ranks waited for messages
  kSeenWords
};
using Seen = std::array<std::uint64_t, kSeenWords>;

// Must not move, because its streams point into it. Messages lie in buffers.kept. Sums lie at first
// in buffers.gathered, which has room: for every sum that is not 0, a rank has sent an element.
class StreamExchange {
 public:
  StreamExchange(const OmniReduceOptions& options, ExchangeBuffers& buffers, std::size_t rank,
                 std::size_t ranks);
  StreamExchange(const StreamExchange&) = delete;
  StreamExchange& operator=(const StreamExchange&) = delete;

  // A turn: Post, Work if works(), then Finish when all requests are complete and the work is done.
  // Streams with even numbers begin a turn before the others, so that one half's messages travel
  // while the other half works. All ranks have the same number of turns.
  std::vector<std::unique_ptr<Request>> Post(Communicator& communicator, int tag);
  bool works() const { return !working_.empty(); }
  void Work();
  // `requests` begins with the requests of Post.
  void Finish(std::span<const std::unique_ptr<Request>> requests);
  bool done() const;  // all streams have ended
  // Sets payloads and seen.
  void Conclude(ExchangeBuffers& buffers);

 private:
  // This rank's state as a worker of one stream of an aggregator.
  struct Peer {
    WorkerStream worker;
    std::span<float> bundle = {};  // room, not of its own stream
    std::size_t bundle_words = 0;  // 0: nothing is sent
    std::span<float> result = {};
    std::size_t result_words = 0;  // 0: nothing has arrived
  };

  // The streams of one number, one of every aggregator.
  struct Slot {
    enum class Phase : std::uint8_t { kFill, kBundles, kAdd, kResults, kDone };
    Phase phase = Phase::kFill;
    std::vector<Peer> peers;  // [ranks]
    std::optional<AggregatorStream> own;
    std::vector<std::size_t> arrived;  // [ranks] words; 0: nothing has arrived

    bool communicates() const { return phase == Phase::kBundles || phase == Phase::kResults; }
  };
  // Sums that one message brought.
  struct Segment {
    std::size_t peer = 0;
    std::size_t slot = 0;
    std::size_t begin = 0;  // in sums_
    std::size_t count = 0;
  };
  // A receive: the position of its request, and the variable for its number of words.
  struct Arrival {
    std::size_t request = 0;
    std::size_t* words = nullptr;
  };

  void PostBundles(Slot& slot, Communicator& communicator, int tag);
  void PostResults(Slot& slot, Communicator& communicator, int tag);
  void Send(Communicator& communicator, std::size_t to, int tag, std::span<const float> message);
  void Receive(Communicator& communicator, std::size_t from, int tag, std::span<float> room,
               std::size_t* words);
  void Take(std::size_t slot, std::size_t peer);
  void Fill(std::size_t slot);
  void Add(Slot& slot);

  BlockCut cut_;
  SparsePayload own_;
  BlockIndex index_;
  std::size_t rank_;
  std::vector<Slot> slots_;
  SumRoom sums_;
  std::vector<Segment> segments_;
  std::vector<std::size_t> working_;  // slots, in this turn
  std::vector<Slot*> communicating_;  // in this turn
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<Arrival> arrivals_;
  std::size_t turn_ = 0;
  Seen seen_{};
};

}  // namespace sparfuse::baselines
