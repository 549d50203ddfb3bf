// Declares the requests that a Strategy makes of an Engine, one struct a kind of operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/fusion/layout.hpp"
#include "core/fusion/plan.hpp"
#include "core/localsteps/local_steps.hpp"

namespace sparfuse {

// An operation asked for in this step, or an exchange that outlives steps. 0 is none.
using Handle = std::uint32_t;
// Handles of exchanges in the background, which are never used again.
inline constexpr Handle kFirstInBackground = Handle{1} << 31;
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
  kBackground,     // all ranks: what goes on over steps, so that nothing else need wait for it
};
inline constexpr std::size_t kChannels = 8;
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
  std::vector<Handle> after = {};
  Continuation then = {};
};

struct PackRequest {  // copies a tensor's gradient, or what else is sent, into the flat gradient
  std::size_t tensor = 0;
  PackSource source = PackSource::kGradient;  // others behind the update only
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

// What is sent is rounded to halves, of floats that are added up. What rounding takes goes into
// `residual`, where the method has feedback; without a name it is lost.
struct Halves {
  std::string_view residual = "local";
};

// --- Dense exchanges: of packed ranges of the flat gradient, equal on all members.

struct DenseSum {             // all have the sum, which Apply averages
  std::vector<Range> ranges;  // ascending and disjoint
};
struct HalvesSum {  // the same of one range
  Range range;
  Halves halves = {};
};
// Shard j (core/collective/algorithms.hpp) belongs to member j, who has its sum, in the flat
// gradient.
struct SumShards {
  Range range;
  std::optional<Halves> halves = {};
};
struct GatherShards {  // all have all shards; each gave its own, from the flat gradient
  Range range;
  std::optional<Halves> halves = {};
};

// --- Sparse exchanges: of finished selections, which are waited for in any case.

struct SparseSum {                 // all have the sum, which Apply averages or Merge puts back
  std::vector<Handle> selections;  // ascending and disjoint ranges, equal on all members
};
// Selection j belongs to member `owner` + j, around, who has the sum over all members' selections
// of that range, for Merge. There may be fewer than members.
struct ToOwners {
  std::vector<Handle> selections;  // as a SparseSum's
  int owner = 0;
};

// A range of which members give different parts, or none: what its owners have summed.
struct SharedRange {
  Range range;              // equal on all members
  std::size_t largest = 0;  // elements of the largest part that a member gives
  double density = 1.0;     // that each is selected with
  std::size_t parts = 1;    // that a member gives: more than one only of what it forwards
  // The part of each member that owns one, in their order: needed if parts may travel whole.
  std::vector<Range> owned = {};
};
struct Selected {
  Handle selection = 0;
};
struct Forwarded {  // sent on as it came: what a sparse exchange of a part has brought here
  Handle exchange = 0;
};
using SharedPart = std::variant<std::monostate, Selected, Forwarded>;

struct SharedSum {  // all have the sum of what members give
  SharedRange shared;
  SharedPart given = {};
};
struct FromOwner {  // all have what member `owner` gives; the others give nothing
  SharedRange shared;
  int owner = 0;
  SharedPart given = {};
};

// What the members of a channel give, and what an exchange leaves with them.
using Pattern = std::variant<DenseSum, HalvesSum, SumShards, GatherShards, SparseSum, ToOwners,
                             SharedSum, FromOwner>;

struct ExchangeRequest {
  Pattern pattern;
  Channel channel = Channel::kData;
  // How often what this rank gives counts as what it contributes (StepRecord::selected). Of a chain
  // where something is selected first: 0 of sums on the way there, and of all that comes after; g
  // of the g-th that each rank of a node selects from the sum of its g ranks.
  int counts = 1;
  std::string label = {};  // for the timeline: "unit 3"
  // It outlives the step, which does not wait for it, and is taken in a later one by an Apply. On a
  // channel that has no other kind.
  bool background = false;
  Ordering order = {};

  // What its pattern says of these; else none, and 0.
  bool sparse() const;
  const Halves* halves() const;
  std::span<const Handle> selections() const;
  const SharedRange* shared() const;
  Handle forwarded() const;
  int owner() const;
};

struct NegotiateRequest {  // element-wise maximum of small integers over all ranks
  std::vector<std::int64_t> values;
  Channel channel = Channel::kControl;
  std::function<void(std::span<const std::int64_t>)> then = {};
  Ordering order = {};
};

struct MergeRequest {  // sum of an exchange -> the flat gradient, a source of what comes after
  Handle exchange = 0;
  Lane lane = Lane::kCompute;
  Ordering order = {};  // the exchange is waited for in any case
};

enum class ApplyTo : std::uint8_t {
  kGradient,  // average, ready for the optimizer
  kAnchor     // the outer rule, behind the update
};

struct ApplyRequest {  // takes the sum of an exchange over all ranks
  Handle exchange = 0;
  // Instead of an exchange. Of gradients: this rank's own, as they are. Of the anchor: nothing has
  // come, and parameters go back to it.
  std::optional<Range> own = {};
  ApplyTo to = ApplyTo::kGradient;
  Lane lane = Lane::kCompute;
  Ordering order = {};  // the exchange is waited for in any case
};

struct TimerRequest {
  double seconds = 0;
  Ordering order = {};
};

}  // namespace sparfuse
