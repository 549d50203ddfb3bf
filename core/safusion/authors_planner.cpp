// Plans as the published code does, in its later version (the earlier one returns a constant at
// densities below 0.1). It differs from the paper as follows. Eq. 2 cuts all groups, with a
// constant start-up time for each tensor, so that its communication times cancel. Eq. 1 covers
// communication and selection of the buffer before, and what has been absorbed is never forgotten.
// Eq. 3 takes the communication of one buffer of all tensors so far, and below density 1 lengths
// repeat from the third buffer on. A buffer's selection is one of its merged size, with the curve
// of top-k.
#include "core/safusion/authors_planner.hpp"

#include "core/cost/authors_tables.hpp"

namespace sparfuse {
namespace {

struct Group {
  std::size_t tensors = 0;
  double exchange_seconds = 0;  // communication and selection
  double backward_seconds = 0;
  double select_seconds = 0;
};

// What a group's gain must stay below for it to close: a constant of the published code.
double CloseBelowSeconds(std::string_view model) {
  if (model == "lstm") return 5.804741986804342e-3;
  if (model == "transformer") return 9.056826124015718e-2;
  return 0;
}

// Step 1: a group closes when its start-up times saved exceed its backward. The last may be open.
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

// Step 2: groups join while their backward and selection fit under the exchange of the buffer
// before. `covered` sums over all buffers, and a group that did not fit counts again in the next.
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
    if (end == groups.size()) {  // never covered: what is left stays as it was cut
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

// Step 3: what follows a prefix that no computation covers is one buffer.
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

}  // namespace sparfuse
