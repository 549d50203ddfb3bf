// Holds the state of an operation of a step, from its request to its end, for both engines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/collective/rounds.hpp"
#include "core/engine/requests.hpp"
#include "core/engine/timeline.hpp"
#include "core/fusion/layout.hpp"
#include "core/fusion/plan.hpp"

namespace sparfuse {

class Collective;  // core/collective/collective.hpp

struct Op {
  std::variant<PackRequest, SparsifyRequest, ExchangeRequest, NegotiateRequest, MergeRequest,
               ApplyRequest, TimerRequest>
      request;
  Lane lane = Lane::kCompute;           // of local operations
  Channel channel = Channel::kControl;  // of operations that communicate
  Handle summed = 0;                    // the exchange whose sum a Merge or an Apply takes
  std::vector<Range> parts = {};        // ranges covered: ascending, none touching the next
  std::uint64_t step = 0;               // of the request
  std::uint64_t payload_bytes = 0;      // of a selection or an exchange: this rank's contribution

  std::vector<Handle> exchanges = {};   // the exchanges after which this starts
  std::uint32_t waits_for = 0;          // how many operations this still waits for
  std::vector<Handle> dependents = {};  // operations that start when this is done
  // If streams keep operations in order (StepScheduler::StreamsOrder): the operations that start
  // once this has been started, and the operations after which this has been started.
  std::vector<Handle> stream_successors = {};
  std::vector<Handle> stream_predecessors = {};
  bool started = false;  // local operations
  bool taken = false;    // exchanges: an Apply or a Merge has been requested
  bool done = false;

  // The request, or null if it is of another type.
  template <class Request>
  const Request* If() const {
    return std::get_if<Request>(&request);
  }
  template <class Request>
  Request* If() {
    return std::get_if<Request>(&request);
  }
  const ExchangeRequest& exchange() const { return std::get<ExchangeRequest>(request); }

  bool communicates() const { return If<ExchangeRequest>() || If<NegotiateRequest>(); }
  bool sparse() const { return If<ExchangeRequest>() && exchange().sparse(); }
  const Ordering& order() const {
    return std::visit([](const auto& of) -> const Ordering& { return of.order; }, request);
  }
  const std::string& label() const;
  Range range() const {  // from the first of `parts` to the last
    return parts.empty() ? Range{} : Range{parts.front().begin, parts.back().end};
  }
  std::size_t elements() const;  // of `parts`
};

// The kind of a local operation's span.
SpanKind SpanKindOf(const Op& local);

// The collective that runs an exchange: the method's for sums, the ring's for halves.
const Collective& CollectiveOf(const ExchangeRequest& exchange,
                               const std::shared_ptr<const Collective>& dense,
                               const std::shared_ptr<const Collective>& sparse);

// The tensors of the range of an exchange, for collectives that look at them. Shapes point into the
// layout, which must outlive the result. Throws Error{kConfig} if the range cuts a tensor.
std::vector<ExchangedTensor> TensorsOfExchange(const GradientLayout& layout, Range range);

}  // namespace sparfuse
