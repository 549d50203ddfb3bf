#include "core/fusion/dense_fallback.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/coding/quantizers/quantizer.hpp"
#include "core/coding/selection_coding.hpp"
#include "core/cost/cost_model.hpp"
#include "core/fusion/plan_times.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {
namespace {

constexpr int kRounds = 8;  // rounds of reconsidering every unit

// A unit's times on the compute lane and the channel. Seconds.
struct UnitTimes {
  struct Message {
    double ready = 0;  // since the unit's first piece of backward began
    double side = 0;   // after that, on the side lane
    double exchange = 0;
    double average = 0;
  };
  double compute = 0;  // backward and local work
  std::vector<Message> messages;

  // Returns the sum of all times, without overlap.
  double Sum() const {
    double sum = compute;
    for (const Message& message : messages)
      sum += message.side + message.exchange + message.average;
    return sum;
  }
};

class Prediction {
 public:
  Prediction(const PlanInput& input, const PayloadForm& form)
      : input_(input), form_(form), cost_(*input.cost), times_(input, "dense_fallback") {}

  UnitTimes TimesOf(const Plan& plan, const Unit& unit) const {
    UnitTimes times;
    Local dense;      // tensors that are all-reduced
    Local fused;      // tensors that are selected from as a whole
    Local payload;    // tensors and ranges that are gathered
    double host = 0;  // until the host lane is free
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      const TensorEntry& tensor = input_.layout.tensor(t);
      const TensorPlan how = plan.TensorOf(input_.layout, t);
      times.compute += times_.Backward(t);
      if (unit.sparsified != Sparsified::kAhead || how.reduced) {
        times.compute += times_.Sparsify(t, 1.0);
        const bool behind = unit.sparsified == Sparsified::kBehind && !how.reduced;
        (behind ? fused : dense).Add(tensor.numel, times.compute);
      } else if (how.offloaded) {
        host = std::max(host, times.compute) + times_.SparsifyOnHost(t, how.density) +
               CodingSeconds(tensor.numel, tensor.shape, how.density);
        AddSelection(tensor.numel, tensor.shape, how.density, host, payload);
      } else {
        const bool is_whole = how.density >= 1 && form_.dense_quantizer != nullptr;
        times.compute += is_whole
                             ? cost_.dispatch_seconds +
                                   cost_.EncodeSeconds(form_.dense_quantizer->name(), tensor.numel)
                             : times_.Sparsify(t, how.density) +
                                   CodingSeconds(tensor.numel, tensor.shape, how.density);
        AddSelection(tensor.numel, tensor.shape, how.density, times.compute, payload);
      }
    }
    double side = 0;
    if (fused.elements > 0) {
      const TensorEntry& first = input_.layout.tensor(unit.first);
      const bool alone = unit.last - unit.first == 1;
      const auto shape = alone ? std::span(first.shape) : std::span<std::int64_t const>();
      (unit.lane == Lane::kSide ? side : times.compute) +=
          times_.SparsifyFused(fused.elements, unit.density, unit.lane) +
          CodingSeconds(fused.elements, shape, unit.density);
      AddSelection(fused.elements, shape, unit.density, times.compute, payload);
    }
    if (dense.elements > 0) {
      times.messages.push_back(
          {dense.ready, 0,
           times_.Reduce(dense.elements) + times_.HostSecondsPerExchange(dense.elements),
           cost_.dispatch_seconds + cost_.scale_seconds(static_cast<double>(dense.elements))});
    }
    if (payload.elements > 0) {
      const std::size_t range = input_.layout.RangeOf(unit.first, unit.last).size();
      const std::size_t indexed = form_.coding.of_selections() ? payload.coded_bytes
                                  : form_.coding == PayloadCoding{}
                                      ? payload.kept * kSparseElementBytes
                                      : ExpectedPayloadBytes(form_.coding, payload.kept, range);
      const std::size_t entries = payload.kept + payload.run_elements;
      const std::uint64_t bytes = payload.whole_bytes + (payload.kept > 0 ? indexed : 0);
      times.messages.push_back(
          {payload.ready, side,
           times_.Gather(bytes) + times_.HostSecondsPerExchange(payload.elements, bytes),
           cost_.dispatch_seconds + input_.topology.ranks * payload.decode_seconds +
               times_.Decompress(payload.elements,
                                 static_cast<std::size_t>(input_.topology.ranks) * entries)});
    }
    return times;
  }

  // units[u]: the times of unit u.
  double Seconds(const std::vector<const UnitTimes*>& units) const {
    double compute = 0;
    double side = 0;  // until the side lane is free
    double channel = 0;
    averages_.clear();
    for (const UnitTimes* unit : units) {
      for (const UnitTimes::Message& message : unit->messages) {
        double ready = compute + message.ready;
        if (message.side > 0) ready = side = std::max(side, ready) + message.side;
        channel = std::max(channel, ready) + message.exchange;
        averages_.emplace_back(channel, message.average);
      }
      compute += unit->compute;
    }
    double end = compute + input_.backward->tail_seconds;
    for (const auto& [summed, average] : averages_) end = std::max(end, summed) + average;
    return end;
  }

 private:
  // Tensors of a unit that are sent together.
  struct Local {
    std::size_t elements = 0;
    std::size_t kept = 0;          // with indices
    std::size_t run_elements = 0;  // without
    std::size_t whole_bytes = 0;
    std::size_t coded_bytes = 0;  // of selections that are coded one by one
    double decode_seconds = 0;
    double ready = 0;

    void Add(std::size_t n, double when) {
      elements += n;
      ready = std::max(ready, when);
    }
  };

  void AddSelection(std::size_t n, std::span<const std::int64_t> shape, double density, double when,
                    Local& payload) const {
    payload.Add(n, when);
    if (density >= 1 && form_.dense_quantizer != nullptr) {
      payload.run_elements += n;
      payload.whole_bytes += form_.dense_quantizer->EncodedBytes(n);
      return;
    }
    const std::size_t selected = Kept(n, shape, density);
    if (!form_.coding.of_selections()) {
      payload.kept += selected;
      return;
    }
    const auto [kept, bytes] = ExpectSelection(form_.coding, selected, n);
    payload.kept += kept;
    payload.coded_bytes += bytes;
    payload.decode_seconds +=
        cost_.selection_coding.Seconds(WorkOfDecoding(form_.coding, selected, n));
  }

  std::size_t Kept(std::size_t n, std::span<const std::int64_t> shape, double density) const {
    if (density >= 1) return n;
    return form_.sparsifier != nullptr ? form_.sparsifier->Count(n, shape, density)
                                       : KeptCount(n, density);
  }

  double CodingSeconds(std::size_t n, std::span<const std::int64_t> shape, double density) const {
    if (!form_.coding.of_selections() || (density >= 1 && form_.dense_quantizer != nullptr)) {
      return 0;
    }
    return cost_.selection_coding.Seconds(WorkOfEncoding(form_.coding, Kept(n, shape, density), n));
  }

  const PlanInput& input_;
  const PayloadForm& form_;
  const CostModel& cost_;
  PlanTimes times_;
  mutable std::vector<std::pair<double, double>> averages_;  // scratch: time of the sum, seconds
};

void LeaveDense(Plan& plan, std::size_t unit) {
  Unit& left = plan.units[unit];
  left.sparsified = Sparsified::kNever;
  left.density = 1.0;
  left.lane = Lane::kCompute;
  left.partitions = 1;
  left.path = 0;
  for (std::size_t t = left.first; t < left.last && !plan.tensors.empty(); ++t)
    plan.tensors[t] = {};
}

}  // namespace

double PredictedSeconds(const Plan& plan, const PlanInput& input, const PayloadForm& form) {
  const Prediction prediction(input, form);
  std::vector<UnitTimes> units;
  for (const Unit& unit : plan.units) units.push_back(prediction.TimesOf(plan, unit));
  std::vector<const UnitTimes*> pointers;
  for (const UnitTimes& unit : units) pointers.push_back(&unit);
  return prediction.Seconds(pointers);
}

Plan WithDenseFallback(Plan plan, const PlanInput& input, const PayloadForm& form) {
  const Prediction prediction(input, form);
  const Plan all_dense = DensePlan(plan);
  std::vector<UnitTimes> sparse;
  std::vector<UnitTimes> dense;
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    sparse.push_back(prediction.TimesOf(plan, plan.units[u]));
    dense.push_back(prediction.TimesOf(all_dense, all_dense.units[u]));
  }
  std::vector<const UnitTimes*> chosen;
  for (const UnitTimes& unit : sparse) chosen.push_back(&unit);
  double least = prediction.Seconds(chosen);
  const auto take_if_less = [&](std::vector<const UnitTimes*> tried) {
    const double seconds = prediction.Seconds(tried);
    if (!(seconds < least)) return false;
    least = seconds;
    chosen = std::move(tried);
    return true;
  };
  std::vector<const UnitTimes*> start = chosen;
  for (std::size_t u = 0; u < start.size(); ++u) {
    if (dense[u].Sum() < sparse[u].Sum()) start[u] = &dense[u];
  }
  take_if_less(start);
  for (std::size_t u = 0; u < start.size(); ++u) start[u] = &dense[u];
  take_if_less(start);
  bool better = true;
  for (int round = 0; better && round < kRounds; ++round) {
    better = false;
    for (std::size_t u = 0; u < chosen.size(); ++u) {
      std::vector<const UnitTimes*> tried = chosen;
      tried[u] = tried[u] == &dense[u] ? &sparse[u] : &dense[u];
      better = take_if_less(std::move(tried)) || better;
    }
  }
  for (std::size_t u = 0; u < chosen.size(); ++u) {
    if (chosen[u] == &dense[u]) LeaveDense(plan, u);
  }
  return plan;
}

}  // namespace sparfuse
