// Declares the requests that a Strategy makes of an Engine, one struct a kind of operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/fusion/lane.hpp"
#include "core/fusion/layout.hpp"

namespace sparfuse {

// An operation asked for in this step. 0 is none.
using Handle = std::uint32_t;
using Continuation = std::function<void()>;

// An ordered queue of exchanges with a communicator of its own. Every rank must ask for the
// exchanges of a channel in the same order; they are launched in that order, one at a time.
enum class Channel : std::uint8_t {
  kControl,  // all ranks, as kData
  kData,
  kIntraNode,      // the ranks of a node
  kInterNode,      // those of equal place on their nodes
  kIntraNodeBack,  // the ranks of a node: what comes back, so that what goes out need not wait
  kDataBack,       // all ranks, likewise
  kInterNodeBack,  // those of equal place on their nodes, likewise
};
inline constexpr std::size_t kChannels = 7;
std::string_view ChannelName(Channel channel);
constexpr bool IsWithinNode(Channel channel) {
  return channel == Channel::kIntraNode || channel == Channel::kIntraNodeBack;
}
constexpr bool IsBetweenNodes(Channel channel) {
  return channel == Channel::kInterNode || channel == Channel::kInterNodeBack;
}

// Common to all requests: it starts when every handle in `after` is done; `then` runs on the event
// thread when it is done itself.
struct Ordering {
  std::vector<Handle> after;
  Continuation then;
};

struct PackRequest {  // copies a tensor's gradient into the flat gradient
  std::size_t tensor = 0;
  Lane lane = Lane::kCompute;
  Ordering order = {};
};

struct SparsifyRequest {  // selects from a range of the flat gradient, with error feedback
  // One tensor that has been announced (read where it lies), or a range whose tensors are packed.
  Range range;
  double density = 1.0;
  Lane lane = Lane::kCompute;
  // Which residual takes what is not sent. Each name is a store of its own over the flat gradient;
  // without a name it is lost.
  std::string_view residual = "local";
  // Where other ranks select the same from the same values: the rank whose residual counts as the
  // method's. The others keep copies, which are in no sum over residuals.
  std::optional<int> copy_of = {};
  Ordering order = {};
};

// What an exchange leaves with the members of its channel.
enum class Pattern : std::uint8_t {
  kSum,  // all have the sum, which Apply averages or Merge puts back
  // Dense, of one range, of which shard j (core/collective/shards.hpp) belongs to member j: each
  // has the sum of its shard, in the flat gradient. Sparse: selection j belongs to member
  // `owner` + j, around, who has the sum over all members' selections of that range, for Merge;
  // there may be fewer than members.
  kReduceScatter,
  kAllGather,  // dense alone: each has all shards; each gave its own, from the flat gradient
  kFromOwner,  // sparse alone: all have what member `owner` gave, of `shared`
};

// A range of which members give different parts, or none: what its owners have summed. Members that
// own no part of a sparse reduce-scatter give none.
struct SharedRange {
  Range range;              // equal on all members
  std::size_t largest = 0;  // elements of the largest part that a member gives
  double density = 1.0;     // that each is selected with
  std::size_t parts = 1;    // that a member gives: more than one only of what it forwards
};

struct ExchangeRequest {
  // Dense: what this exchange sums, packed ranges of the flat gradient, ascending and disjoint.
  std::vector<Range> ranges = {};
  // Sparse: Sparsify handles whose ranges are ascending and disjoint; their ranges are summed.
  std::vector<Handle> selections = {};
  // Of a sparse sum where members' selections differ in their ranges, or a member has none.
  std::optional<SharedRange> shared = {};
  Channel channel = Channel::kData;
  Pattern pattern = Pattern::kSum;
  // With `shared`, instead of selections: what this sparse exchange of a part of the range has
  // brought here is sent on as it came.
  Handle forwarded = 0;
  int owner = 0;  // of the patterns that have one
  // Dense: what is sent is rounded to halves, of floats that are added up. What rounding takes goes
  // into `residual`, where the method has feedback; without a name it is lost.
  bool f16 = false;
  std::string_view residual = "local";
  // How often what this rank gives counts as what it contributes (StepRecord::selected). Of a chain
  // where something is selected first: 0 of sums on the way there, and of all that comes after; g
  // of the g-th that each rank of a node selects from the sum of its g ranks.
  int counts = 1;
  std::string label = {};  // for the timeline: "unit 3"
  Ordering order = {};     // the selections are waited for in any case
};

struct NegotiateRequest {  // element-wise maximum of small integers over all ranks
  std::vector<std::int64_t> values;
  Channel channel = Channel::kControl;
  std::vector<Handle> after;
  std::function<void(std::span<const std::int64_t>)> then;
};

struct MergeRequest {  // sum of an exchange -> the flat gradient, a source of what comes after
  Handle exchange = 0;
  Lane lane = Lane::kCompute;
  Ordering order = {};  // the exchange is waited for in any case
};

struct ApplyRequest {  // sum of an exchange over all ranks -> average, ready for the optimizer
  Handle exchange = 0;
  Lane lane = Lane::kCompute;
  Ordering order = {};  // the exchange is waited for in any case
};

}  // namespace sparfuse
