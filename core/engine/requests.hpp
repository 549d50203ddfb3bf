// Declares the requests that a Strategy makes of an Engine, one struct for each kind of operation.
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

// Identifies an operation requested in this step, or an exchange that outlives steps. 0 is none.
using Handle = std::uint32_t;
// The first handle of exchanges in the background. Their handles are never reused.
inline constexpr Handle kFirstInBackground = Handle{1} << 31;
using Continuation = std::function<void()>;

// An ordered queue of exchanges with a communicator of its own. Every rank must ask for the
// exchanges of a channel in the same order; they are launched in that order, one at a time.
enum class Channel : std::uint8_t {
  kControl,  // all ranks, as kData
  kData,
  kIntraNode,      // the ranks of a node
  kInterNode,      // ranks of equal place on their nodes
  kIntraNodeBack,  // the ranks of a node: results on their way back, which delay no outgoing data
  kDataBack,       // all ranks, likewise
  kInterNodeBack,  // ranks of equal place on their nodes, likewise
  kBackground,     // all ranks: exchanges that outlive steps, for which no other exchange waits
};
inline constexpr std::size_t kChannels = 8;
std::string_view ChannelName(Channel channel);
constexpr bool IsWithinNode(Channel channel) {
  return channel == Channel::kIntraNode || channel == Channel::kIntraNodeBack;
}
constexpr bool IsBetweenNodes(Channel channel) {
  return channel == Channel::kInterNode || channel == Channel::kInterNodeBack;
}

// Common to all requests. An operation starts when every handle in `after` is done. `then` runs on
// the event thread when the operation itself is done.
struct Ordering {
  std::vector<Handle> after = {};
  Continuation then = {};
};

struct PackRequest {  // copies a tensor's gradient (or another `source`) into the flat gradient
  std::size_t tensor = 0;
  PackSource source = PackSource::kGradient;  // other sources only after the update
  std::size_t array = 0;                      // of the inner optimizer's state, from 1; 0: other
  Lane lane = Lane::kCompute;
  Ordering order = {};
};

struct SparsifyRequest {  // selects from a range of the flat gradient, with error feedback
  // One tensor that has been announced (read in place), or a range whose tensors are packed.
  Range range;
  double density = 1.0;
  Lane lane = Lane::kCompute;
  // The residual that keeps unsent elements. Each name is a store of its own over the flat
  // gradient; without a name, unsent elements are lost.
  std::string_view residual = "local";
  // False: unsent elements are lost, as without a name. The name still tells this selection apart
  // from others of its range.
  bool keeps_unsent = true;
  // If other ranks make the same selection from the same values: the rank whose residual counts as
  // the method's. The others keep copies, which no sum over residuals includes.
  std::optional<int> copy_of = {};
  Ordering order = {};
};

// Floats are summed as floats but sent rounded to halves. The rounding error goes into `residual`
// if the method has feedback; without a name it is lost.
struct Halves {
  std::string_view residual = "local";
};

// --- Dense exchanges send packed ranges of the flat gradient, equal on all members.

struct DenseSum {             // all members get the sum, which Apply averages
  std::vector<Range> ranges;  // ascending and disjoint
  std::size_t array = 0;      // of what is packed: PackRequest::array
};
struct HalvesSum {  // the same for one range, sent in halves
  Range range;
  Halves halves = {};
};
// Shard j (core/collective/algorithms.hpp) belongs to member j, which gets the shard's sum in its
// flat gradient.
struct SumShards {
  Range range;
  std::optional<Halves> halves = {};
  // Shards of unequal lengths, in the order of the members and of the range, all of it; not in
  // halves. Empty: even ones.
  std::vector<Range> shards = {};
};
struct GatherShards {  // each member gives its shard of the flat gradient; all get all shards
  Range range;
  std::optional<Halves> halves = {};
  std::vector<Range> shards = {};  // as SumShards'
};

// --- Sparse exchanges send selections and always wait until these are finished.

struct SparseSum {                 // all get the sum, which Apply averages or Merge puts back
  std::vector<Handle> selections;  // ascending and disjoint ranges, equal on all members
};
// Selection j belongs to member (`owner` + j) modulo the number of members. That member gets the
// sum over all members' selections of the range, for Merge. There may be fewer selections than
// members.
struct ToOwners {
  std::vector<Handle> selections;  // as a SparseSum's
  int owner = 0;
};

// A range of which each member gives another part, or none: the part that it owns and has summed.
struct SharedRange {
  Range range;              // equal on all members
  std::size_t largest = 0;  // elements of the largest part that a member gives
  double density = 1.0;     // of the selection from each part
  std::size_t parts = 1;    // parts a member gives: more than one only if it forwards them
  // The parts in the order of the members that own them. Needed if parts may travel whole.
  std::vector<Range> owned = {};
};
struct Selected {
  Handle selection = 0;
};
struct Forwarded {  // sends on, unchanged, the result of a sparse exchange of a part
  Handle exchange = 0;
};
using SharedPart = std::variant<std::monostate, Selected, Forwarded>;

struct SharedSum {  // all get the sum of the parts that members give
  SharedRange shared;
  SharedPart given = {};
};
struct FromOwner {  // all get the part that member `owner` gives; the others give nothing
  SharedRange shared;
  int owner = 0;
  SharedPart given = {};
};

// The inputs that the members of a channel give to an exchange, and the results they get.
using Pattern = std::variant<DenseSum, HalvesSum, SumShards, GatherShards, SparseSum, ToOwners,
                             SharedSum, FromOwner>;

struct ExchangeRequest {
  Pattern pattern;
  Channel channel = Channel::kData;
  // How often this rank's elements count in StepRecord::selected. In a chain of exchanges, only
  // the first selection counts: sums before it and all exchanges after it have 0. If each of the g
  // ranks of a node selects from a g-th of the node's sum, its exchange has g.
  int counts = 1;
  std::string label = {};  // for the timeline: "unit 3"
  // The exchange outlives the step, which does not wait for it; an Apply of a later step takes it.
  // Its channel must carry background exchanges only.
  bool background = false;
  Ordering order = {};

  // Fields of the pattern; none, or 0, if the pattern has no such field.
  bool sparse() const;
  const Halves* halves() const;
  std::span<const Handle> selections() const;
  const SharedRange* shared() const;
  Handle forwarded() const;
  int owner() const;
  std::size_t array() const;
  std::span<const Range> shards() const;
};

struct NegotiateRequest {  // element-wise maximum of small integers over all ranks
  std::vector<std::int64_t> values;
  Channel channel = Channel::kControl;
  std::function<void(std::span<const std::int64_t>)> then = {};
  Ordering order = {};
};

struct MergeRequest {  // writes the sum of an exchange to the flat gradient, for later operations
  Handle exchange = 0;
  Lane lane = Lane::kCompute;
  Ordering order = {};  // the exchange is waited for in any case
};

enum class ApplyTo : std::uint8_t {
  kGradient,   // average, ready for the optimizer
  kAnchor,     // the outer rule, after the update
  kInnerState  // average, in the place of an array of the inner optimizer's state
};

struct ApplyRequest {  // takes the sum of an exchange over all ranks
  Handle exchange = 0;
  // A range to apply without an exchange. Gradients: this rank's own, unchanged. Anchor: no sum
  // has arrived, and the range's parameters go back to the anchor. Inner state: all arrays are zero
  // there, and the optimizer counts its updates of the range anew.
  std::optional<Range> own = {};
  ApplyTo to = ApplyTo::kGradient;
  bool last = true;  // anchor: of the exchanges that are received together
  Lane lane = Lane::kCompute;
  Ordering order = {};  // the exchange is waited for in any case
};

struct TimerRequest {
  double seconds = 0;
  Ordering order = {};
};

}  // namespace sparfuse
