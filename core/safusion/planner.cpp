#include "core/safusion/planner.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/cost/authors_tables.hpp"
#include "core/fusion/plan_times.hpp"
#include "core/safusion/earliest_buffers.hpp"

namespace sparfuse {

// Plans as the later version of the published code does (the earlier one returns a constant at
// densities below 0.1). It differs from the paper as follows. Eq. 2 cuts all groups, with a
// constant start-up time for each tensor, so that its communication times cancel. Eq. 1 covers
// communication and selection of the previous buffer, and absorbed times are never reset. Eq. 3
// takes the communication of one buffer of all tensors so far, and below density 1 lengths repeat
// from the third buffer on. A buffer's selection time is taken at its merged size from the curve
// of top-k.

namespace {

struct Group {
  std::size_t tensors = 0;
  double exchange_seconds = 0;  // communication and selection
  double backward_seconds = 0;
  double select_seconds = 0;
};

// Returns the gain below which a group closes: a constant of the published code.
double CloseBelowSeconds(std::string_view model) {
  if (model == "lstm") return 5.804741986804342e-3;
  if (model == "transformer") return 9.056826124015718e-2;
  return 0;
}

// Step 1: a group closes when its start-up times saved exceed its backward. The last may stay open.
std::vector<Group> CutGroups(const GradientLayout& layout, std::string_view model, double density) {
  std::vector<Group> groups;
  Group open;
  std::size_t elements = 0;
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    ++open.tensors;
    elements += layout.tensor(t).numel;
    open.backward_seconds = AuthorsBackwardSeconds(model, elements, layout.numel());
    open.select_seconds = AuthorsCompressionSeconds("topk", elements);
    open.exchange_seconds = AuthorsCommunicationSeconds(elements, density) + open.select_seconds;
    const double saved = static_cast<double>(open.tensors - 1) * kAuthorsStartupSeconds;
    if (open.backward_seconds - saved < CloseBelowSeconds(model) || t + 1 == layout.tensors()) {
      groups.push_back(open);
      open = {};
      elements = 0;
    }
  }
  return groups;
}

// Step 2: groups join while their backward and selection fit under the exchange of the previous
// buffer. `covered` sums over all buffers, and a group that did not fit counts again in the next.
std::vector<std::size_t> Coalesce(const std::vector<Group>& groups) {
  std::vector<std::size_t> lengths = {groups.front().tensors};
  double exchange_seconds = groups.front().exchange_seconds;
  double covered = 0;
  std::size_t next = 1;
  while (next < groups.size()) {
    std::size_t end = next;
    Group joined;
    for (; end < groups.size(); ++end) {
      covered += groups[end].backward_seconds + groups[end].select_seconds;
      if (covered > exchange_seconds) break;
      joined.tensors += groups[end].tensors;
      joined.exchange_seconds += groups[end].exchange_seconds;
    }
    if (end == groups.size()) {  // never covered: the remaining groups stay as cut
      for (; next < end; ++next) lengths.push_back(groups[next].tensors);
      break;
    }
    if (end == next) joined = groups[end++];
    lengths.push_back(joined.tensors);
    exchange_seconds = joined.exchange_seconds;
    next = end;
  }
  return lengths;
}

// Step 3: all tensors after a prefix that computation cannot cover form one buffer.
std::vector<std::size_t> CapTail(const GradientLayout& layout, double density,
                                 const std::vector<std::size_t>& lengths,
                                 double computation_seconds) {
  std::vector<std::size_t> capped;
  std::size_t tensors = 0;
  const auto append = [&](std::size_t length) {
    capped.push_back(length);
    tensors += length;
  };
  for (const std::size_t length : lengths) {
    append(length);
    const std::size_t elements = layout.RangeOf(0, tensors).size();
    const bool uncovered = AuthorsCommunicationSeconds(elements, density) > computation_seconds;
    if (!uncovered && (density == 1 || capped.size() < 3)) continue;
    if (!uncovered && layout.tensors() - tensors > capped.back()) {
      do {
        if (capped.back() < 3) append((layout.tensors() - tensors) / 3);
        append(capped.back());
      } while (layout.tensors() - tensors > tensors);
    }
    append(layout.tensors() - tensors);
    break;
  }
  return capped;
}

// Times of the buffer that holds tensors [first, last).
class BufferTimes {
 public:
  explicit BufferTimes(const PlanInput& input) : input_(input), times_(input, "safusion") {
    for (std::size_t t = 0; t < tensors(); ++t) {
      const double density = input.layout.tensor(t).dense ? 1.0 : input.unit_density();
      backward_.push_back(backward_.back() + times_.Backward(t));
      sparsify_.push_back(sparsify_.back() + times_.Sparsify(t, density));
      bytes_.push_back(bytes_.back() + PlannedPayloadBytes(input.layout, t, density));
      elements_.push_back(elements_.back() + input.layout.RangeOf(t, t + 1).size());
    }
    growth_ =
        input.sparsified == Sparsified::kNever ? times_.ReduceGrowth() : times_.GatherGrowth();
  }

  std::size_t tensors() const { return input_.layout.tensors(); }
  double Backward(std::size_t first, std::size_t last) const {
    return backward_[last] - backward_[first];
  }
  // Returns the time of backward and of sparsification tensor by tensor.
  double Compute(std::size_t first, std::size_t last) const {
    return Backward(first, last) + (sparsify_[last] - sparsify_[first]);
  }
  double Exchange(std::size_t first, std::size_t last) const {
    const std::size_t elements = elements_[last] - elements_[first];
    if (input_.sparsified == Sparsified::kNever)
      return times_.HostSecondsPerExchange(elements) + times_.Reduce(elements);
    const std::uint64_t bytes = bytes_[last] - bytes_[first];
    return times_.HostSecondsPerExchange(elements, bytes) + times_.Gather(bytes);
  }
  // Exchange(first, last) is at least GrowsTo(j) - GrowsTo(last) - fall() shorter than
  // Exchange(first, j), and GrowsTo(first) - GrowsTo(i) - fall() shorter than Exchange(i, last).
  double GrowsTo(std::size_t tensors) const {
    const std::size_t elements = elements_[tensors];
    if (input_.sparsified == Sparsified::kNever)
      return times_.HostSecondsPerExchange(elements) +
             growth_.seconds_per_byte * sizeof(float) * static_cast<double>(elements);
    const std::uint64_t bytes = bytes_[tensors];
    return times_.HostSecondsPerExchange(elements, bytes) +
           growth_.seconds_per_byte * static_cast<double>(bytes);
  }
  double fall() const { return growth_.fall; }

 private:
  const PlanInput& input_;
  PlanTimes times_;
  // [tensors + 1]: sums over all tensors before
  std::vector<double> backward_ = {0};
  std::vector<double> sparsify_ = {0};
  std::vector<std::uint64_t> bytes_ = {0};
  std::vector<std::size_t> elements_ = {0};  // of GradientLayout::RangeOf
  CostModel::Growth growth_;
};

// Both forms return the number of tensors of each buffer.

std::vector<std::size_t> PaperLengths(const BufferTimes& times) {
  const std::size_t tensors = times.tensors();
  std::size_t first_length = 1;  // Eq. 2
  double one_by_one = times.Exchange(0, 1);
  while (first_length < tensors) {
    ++first_length;
    one_by_one += times.Exchange(first_length - 1, first_length);
    if (times.Backward(0, first_length) + times.Exchange(0, first_length) < one_by_one) break;
  }

  std::vector<std::size_t> lengths = {first_length};
  std::vector<double> exchange = {times.Exchange(0, first_length)};
  for (std::size_t first = first_length; first < tensors;) {  // Eq. 1
    std::size_t last = first + 1;
    while (last < tensors && times.Compute(first, last) < exchange.back()) ++last;
    lengths.push_back(last - first);
    exchange.push_back(times.Exchange(first, last));
    first = last;
  }

  const double computation = times.Compute(first_length, tensors);  // Eq. 3
  double communication = 0;
  std::size_t before = 0;  // tensors
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    communication += exchange[i];
    if (communication > computation) {
      lengths.resize(i + 1);
      lengths[i] = tensors - before;
      break;
    }
    before += lengths[i];
  }
  return lengths;
}

// Returns the end of the last exchange, if exchanges take `slowness` times as long as measured.
double EndOf(const BufferTimes& times, const std::vector<std::size_t>& lengths, double slowness) {
  double end = 0;
  std::size_t first = 0;
  for (const std::size_t length : lengths) {
    const std::size_t last = first + length;
    end = std::max(end, times.Compute(0, last)) + slowness * times.Exchange(first, last);
    first = last;
  }
  return end;
}

std::vector<std::size_t> EarliestLengths(const BufferTimes& times, double slowness) {
  std::vector<double> ready;
  std::vector<double> grows;
  for (std::size_t j = 0; j <= times.tensors(); ++j) {
    ready.push_back(times.Compute(0, j));
    grows.push_back(slowness * times.GrowsTo(j));
  }
  return EarliestBuffers(
      ready,
      [&](std::size_t first, std::size_t last) { return slowness * times.Exchange(first, last); },
      {grows, slowness * times.fall()});
}

std::vector<std::size_t> ProfiledLengths(const BufferTimes& times, double tolerance) {
  constexpr double kSlow = 2;
  std::vector<std::size_t> earliest = EarliestLengths(times, 1);
  std::vector<std::size_t> robust = EarliestLengths(times, kSlow);
  const double latest = (1 + tolerance) * EndOf(times, earliest, 1);
  return tolerance > 0 && EndOf(times, robust, 1) <= latest ? robust : earliest;
}

std::vector<std::size_t> LengthsOf(const Options& options, const PlanInput& input) {
  const std::string& form = StringOption(options, "form");
  if (form == "authors") {
    std::vector<std::size_t> lengths =
        AuthorsBufferLengths(input.layout, StringOption(options, "model"), input.unit_density());
    --lengths.front();  // the code counts one tensor too many
    std::erase(lengths, 0);
    return lengths;
  }
  const BufferTimes times(input);
  return form == "paper" ? PaperLengths(times)
                         : ProfiledLengths(times, DoubleOption(options, "tolerance"));
}

}  // namespace

std::vector<std::size_t> AuthorsBufferLengths(const GradientLayout& layout, std::string_view model,
                                              double density) {
  const std::vector<Group> groups = CutGroups(layout, model, density);
  double computation_seconds = 0;
  for (std::size_t g = 1; g < groups.size(); ++g) {
    computation_seconds += groups[g].backward_seconds + groups[g].select_seconds;
  }
  std::vector<std::size_t> lengths =
      CapTail(layout, density, Coalesce(groups), computation_seconds);
  ++lengths.front();
  return lengths;
}

const PlannerDescriptor kSafusionPlanner = {
    .name = "safusion",
    .summary = "sizes buffers so that communication hides behind backward and sparsification",
    .source = "SAFusion, HPDC 2025, section 3.3",
    .revision = 1,
    .options = {ChoiceOption(
                    "form", "profiled", {"profiled", "paper", "authors"},
                    "measured times and the earliest end of communication, measured times and the "
                    "paper's equations, or the published code's tables"),
                TextOption(
                    "model", "",
                    "authors only: row of the published backward times (resnet50, resnet101, "
                    "resnet152, vgg16, vgg19, lstm, transformer, bert_base); any other counts as "
                    "taking no time"),
                NumberOption(
                    "tolerance", 0.01, 0, 1,
                    "profiled only: fraction by which communication may end later than in the "
                    "earliest plan, "
                    "for a plan that ends earlier if exchanges take twice their measured time")},
    .make =
        [](const Options& options) {
          return PlannerBy([options](const PlanInput& input) {
            return PlanOfLengths(LengthsOf(options, input), input);
          });
        },
    .needs_profile =
        [](const Options& options) { return StringOption(options, "form") != "authors"; },
    .keeps_density = true};

}  // namespace sparfuse
