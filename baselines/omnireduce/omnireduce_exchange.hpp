// Runs the streams of an exchange side by side: what this rank sends, gets and does in each of
// them, as a worker of all aggregators and as one itself.
//
// All ranks get the sums of all streams, and know from what they were told which of them sends to
// which aggregator next. So they go through equal turns: what one waits for in a turn, another
// sends in the same one, and nobody waits for ever.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "baselines/omnireduce/omnireduce_stream.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/transport/communicator.hpp"

namespace sparfuse::baselines {

inline constexpr std::size_t kWord = sizeof(float);
inline constexpr std::size_t kMostSlots = 8;  // two tags each

struct OmniReduceOptions {
  std::size_t block = 1;
  std::size_t slots = 1;
  std::size_t bundle = 1;
};

// What a run notes (ExchangeBuffers::seen). Words are of four bytes; `waits` is equal on all ranks.
enum SeenWord : std::size_t {
  kBundles,      // messages of blocks to other aggregators
  kBundleWords,  // their words
  kBundlesIn,    // messages of blocks of other workers
  kBundleWordsIn,
  kResults,      // messages of sums, to each other rank
  kResultWords,  // their words, to each
  kAdded,        // floats that the aggregator read to sum them up
  kSums,         // elements of its shard that Apply reads
  kWaits,        // times that all ranks waited for messages
  kSeenWords
};
using Seen = std::array<std::uint64_t, kSeenWords>;

// Lives where it was made: its streams point into it. Its messages lie in buffers.kept, sums at
// first in buffers.gathered: where a sum is not 0, some rank has sent an element.
class StreamExchange {
 public:
  StreamExchange(const OmniReduceOptions& options, ExchangeBuffers& buffers, std::size_t rank,
                 std::size_t ranks);
  StreamExchange(const StreamExchange&) = delete;
  StreamExchange& operator=(const StreamExchange&) = delete;

  // A turn: Post, Work where it works, Finish when all requests are complete and the work is done.
  // Streams with even numbers begin a turn before the others, so that one half's messages travel
  // while the other half works. All ranks have as many turns.
  std::vector<std::unique_ptr<Request>> Post(Communicator& communicator, int tag);
  bool works() const { return !working_.empty(); }
  void Work();
  // `requests` begins with those of Post.
  void Finish(std::span<const std::unique_ptr<Request>> requests);
  bool done() const;  // all streams have ended
  // Sets payloads and seen.
  void Conclude(ExchangeBuffers& buffers);

 private:
  // What a rank has of one stream of an aggregator.
  struct Peer {
    WorkerStream worker;
    std::span<float> bundle = {};  // room, not of its own stream
    std::size_t bundle_words = 0;  // 0: nothing is sent
    std::span<float> result = {};
    std::size_t result_words = 0;  // 0: nothing has come
  };

  // The streams of one number, one of every aggregator.
  struct Slot {
    enum class Phase : std::uint8_t { kFill, kBundles, kAdd, kResults, kDone };
    Phase phase = Phase::kFill;
    std::vector<Peer> peers;  // [ranks]
    std::optional<AggregatorStream> own;
    std::vector<std::size_t> arrived;  // [ranks] words; 0: nothing has come

    bool communicates() const { return phase == Phase::kBundles || phase == Phase::kResults; }
  };
  // Sums that one message brought.
  struct Segment {
    std::size_t peer = 0;
    std::size_t slot = 0;
    std::size_t begin = 0;  // in sums_
    std::size_t count = 0;
  };
  // A receive: the request at its place, and what its words are noted in.
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
