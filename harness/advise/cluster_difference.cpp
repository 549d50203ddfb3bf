#include "harness/advise/cluster_difference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "harness/advise/modelled_cluster.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

constexpr double kWorthALine = 0.01;

// Inputs that are one question to whoever looks at a cluster.
struct Group {
  const char* what;
  std::set<std::string> inputs;
  std::function<void(DeclaredCluster&, const DeclaredCluster&)> take;
};

const std::vector<Group>& Groups() {
  static const std::vector<Group> kGroups = {
      {"compute",
       {"compute_tflops", "compute_ratio"},
       [](DeclaredCluster& into, const DeclaredCluster& from) {
         into.compute = from.compute;
         into.card = from.card;
       }},
      {"selections and codings",
       {"selection_us", "selection_ns_an_element", "coding_in_step", "side_slowdown"},
       [](DeclaredCluster& into, const DeclaredCluster& from) {
         into.coders = from.coders;
         into.selection_costs = from.selection_costs;
       }},
      {"collectives", {}, [](DeclaredCluster& into, const DeclaredCluster& from) {
         into.all_reduce = from.all_reduce;
         into.all_gather = from.all_gather;
         into.nccl = from.nccl;
         into.curves = from.curves;
       }}};
  return kGroups;
}

void TakeInput(DeclaredCluster& into, const DeclaredCluster& from, const std::string& input,
               std::string_view family) {
  const double value = from.Value(input, family);
  if (DeclaredInput* there = into.Find(input, family)) {
    there->value = value;
    return;
  }
  const auto spec =
      std::ranges::find_if(InputSpecs(), [&](const InputSpec& each) { return input == each.name; });
  DeclaredInput taken;
  taken.name = input;
  taken.group = spec->group;
  taken.value = taken.low = taken.high = value;
  into.inputs.push_back(std::move(taken));
}

}  // namespace

std::vector<ExchangedInput> ExchangedInputs(const DeclaredCluster& of, const DeclaredCluster& over,
                                            const CellConfig& of_cell, int over_ranks_per_node) {
  const std::string_view family = workloads::FindWorkload(of_cell.workload).family();
  const auto seconds = [](const DeclaredCluster& cluster, const CellConfig& cell) {
    return ModelFirstStep(FirstTrial(cell), DeclaredProfile(cluster, cell)).seconds;
  };
  const double own = seconds(of, of_cell);
  std::vector<ExchangedInput> found;
  const auto note_seconds = [&](double exchanged, ExchangedInput input) {
    input.factor = own / exchanged;
    if (std::abs(std::log(input.factor)) > kWorthALine) found.push_back(std::move(input));
  };
  const auto note = [&](const DeclaredCluster& exchanged, ExchangedInput input) {
    note_seconds(seconds(exchanged, of_cell), std::move(input));
  };
  if (of_cell.ranks_per_node != over_ranks_per_node) {
    CellConfig cell = of_cell;
    cell.ranks_per_node = over_ranks_per_node;
    note_seconds(seconds(of, cell), {"ranks_per_node", std::to_string(of_cell.ranks_per_node),
                                     std::to_string(over_ranks_per_node), 1});
  }
  std::set<std::string> grouped;
  for (const Group& group : Groups()) {
    DeclaredCluster exchanged = of;
    group.take(exchanged, over);
    for (const std::string& input : group.inputs) TakeInput(exchanged, over, input, family);
    grouped.insert(group.inputs.begin(), group.inputs.end());
    note(exchanged, {group.what, "", "", 1});
  }
  for (const InputSpec& spec : InputSpecs()) {
    const double ours = of.Value(spec.name, family), theirs = over.Value(spec.name, family);
    if (ours == theirs || grouped.contains(spec.name)) continue;
    DeclaredCluster exchanged = of;
    TakeInput(exchanged, over, spec.name, family);
    note(exchanged, {spec.name, fmt::format("{:.4g}", ours), fmt::format("{:.4g}", theirs), 1});
  }
  std::ranges::stable_sort(found, std::ranges::greater(), [](const ExchangedInput& each) {
    return std::abs(std::log(each.factor));
  });
  return found;
}

}  // namespace sparfuse::harness
