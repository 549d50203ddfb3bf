// Holds what both engines know of an operation of a step, from its request to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/collective/rounds.hpp"
#include "core/engine/requests.hpp"
#include "core/fusion/layout.hpp"
#include "core/fusion/plan.hpp"

namespace sparfuse {

class Collective;  // core/collective/collective.hpp

struct Op {
  std::variant<PackRequest, SparsifyRequest, ExchangeRequest, NegotiateRequest, MergeRequest,
               ApplyRequest, TimerRequest>
      request;
  Lane lane = Lane::kCompute;           // of local operations
  Channel channel = Channel::kControl;  // of those that communicate
  Handle summed = 0;                    // the exchange whose sum a Merge or an Apply takes
  std::vector<Range> parts = {};        // that it is of: ascending, none touching the next
  std::uint64_t payload_bytes = 0;      // of a selection or an exchange: what this rank contributes

  std::vector<Handle> exchanges = {};  // that it comes after
  std::uint32_t waits_for = 0;  // operations that it starts after and that it still waits for
  std::vector<Handle> dependents = {};  // start when this is done
  // Where streams keep operations in order (StepScheduler::StreamsOrder): those that start when
  // this has been started, and those behind which this has been started.
  std::vector<Handle> stream_successors = {};
  std::vector<Handle> stream_predecessors = {};
  bool started = false;  // local operations
  bool taken = false;    // exchanges: an Apply or a Merge has been asked for
  bool done = false;

  // Of the request, if it is of this type.
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
  const Ordering& order() const;
  const std::string& label() const;
  Range range() const;           // from the first of `parts` to the last
  std::size_t elements() const;  // of `parts`
};

// What does an exchange: of sums the method's collective, of the halves the ring's.
const Collective& CollectiveOf(const ExchangeRequest& exchange,
                               const std::shared_ptr<const Collective>& dense,
                               const std::shared_ptr<const Collective>& sparse);

// The tensors that lie in the range of an exchange, whole, for collectives that look at them;
// shapes are the layout's, which must outlive the result.
std::vector<ExchangedTensor> TensorsOfExchange(const GradientLayout& layout, Range range);

}  // namespace sparfuse
