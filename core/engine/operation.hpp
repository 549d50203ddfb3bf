// Holds what both engines know of an operation of a step, from its request to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/requests.hpp"
#include "core/fusion/lane.hpp"
#include "core/fusion/layout.hpp"

namespace sparfuse {

class Collective;      // core/collective/collective.hpp
struct ExchangeState;  // of LiveEngine, as is Selection (core/engine/live/live_state.hpp)
struct Selection;

enum class OpKind : std::uint8_t {
  kPack,
  kSparsify,
  kExchange,
  kNegotiate,
  kMerge,
  kApply,
  kTimer
};

struct Op {
  OpKind kind = OpKind::kPack;
  Lane lane = Lane::kCompute;
  Channel channel = Channel::kData;
  Pattern pattern = Pattern::kSum;  // kExchange
  Range range;                // kExchange, kMerge, kApply: from the first of `parts` to the last
  std::vector<Range> parts;   // kExchange, kMerge, kApply: ascending, none touching the next
  std::size_t tensor = 0;     // kPack
  double density = 1.0;       // kSparsify
  std::string_view residual;  // kSparsify, kExchange
  int as_rank = 0;            // kSparsify: whose selection it is, where others make the same
  bool copies = false;        // kSparsify: it is another rank's
  std::string label;          // kExchange
  bool sparse = false;        // kExchange: what is given are selections
  std::vector<Handle> selections;     // kExchange
  std::optional<SharedRange> shared;  // kExchange
  Handle forwarded = 0;               // kExchange
  int owner = 0;                      // kExchange
  bool f16 = false;                   // kExchange
  int counts = 1;                     // kExchange
  std::vector<std::int64_t> values;   // kNegotiate, in and out
  Handle exchange = 0;                // kMerge, kApply
  double seconds = 0;                 // kTimer
  Continuation then;
  std::function<void(std::span<const std::int64_t>)> then_values;

  std::uint32_t waits_for = 0;     // operations that it starts after and that it still waits for
  std::vector<Handle> dependents;  // start when this is done
  // Where streams keep operations in order (StepScheduler::StreamsOrder): those that start when
  // this has been started, and those behind which this has been started.
  std::vector<Handle> stream_successors;
  std::vector<Handle> stream_predecessors;
  bool started = false;  // kPack, kSparsify, kMerge, kApply
  bool done = false;
  std::uint64_t payload_bytes = 0;  // kSparsify, kExchange: what this rank contributes

  std::vector<Handle> exchanges;  // that it comes after

  // LiveEngine's, from the start of the operation on.
  Selection* selection = nullptr;            // kSparsify
  ExchangeState* exchange_state = nullptr;   // kExchange, kMerge, kApply
  std::vector<const ExchangeState*> behind;  // of `exchanges`: local operations, kExchange

  std::size_t elements() const;  // of `parts`
};

// What does an exchange: of sums the method's collective, of the halves the ring's.
const Collective& CollectiveOf(const Op& exchange, const std::shared_ptr<const Collective>& dense,
                               const std::shared_ptr<const Collective>& sparse);

}  // namespace sparfuse
