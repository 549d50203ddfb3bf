// Plans partial sparsification and hybrid collective communication.
//
// Source:      ADTopk, "All-dimension Top-k compression for high-performance data-parallel DNN
//              training", HPDC 2024, and its published code.
// Deviations:  in the code units hold one tensor, so that none is ever left dense, and no
//              all-reduce is issued. Here units hold L / 20 tensors. With form = "profiled", times
//              are measured, and the density counts once. A cut is judged by the end of its unit on
//              a link that earlier units may still occupy. The dense tensors' share of a unit's
//              budget is taken from the others, down to a tenth of the density; the code's formula
//              never takes any.
#include "core/adtopk/planner.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/fusion/plan_times.hpp"
#include "core/fusion/selective.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {
namespace {

constexpr double kLeastShareOfDensity = 0.1;

bool NeedsProfile(const Options& resolved) {
  return StringOption(resolved, "form") == "profiled" &&
         (BoolOption(resolved, "partial") || BoolOption(resolved, "hybrid"));
}

// Counts the elements that the method's sparsifier, in its default form, keeps of a tensor: by
// fibres if it selects by fibres. Uses KeptCount for a sparsifier that core does not know.
class KeptElements {
 public:
  explicit KeptElements(std::string_view sparsifier) {
    for (const SparsifierDescriptor& descriptor : Sparsifiers()) {
      if (descriptor.name != sparsifier) continue;
      sparsifier_ = descriptor.make(ResolveOptions(descriptor.name, descriptor.options, {}), 0);
    }
  }
  std::size_t operator()(const TensorEntry& tensor, double density) const {
    if (density >= 1) return tensor.numel;
    return sparsifier_ ? sparsifier_->Count(tensor.numel, tensor.shape, density)
                       : KeptCount(tensor.numel, density);
  }

 private:
  std::unique_ptr<Sparsifier> sparsifier_;
};

class Planning {
 public:
  static constexpr std::string_view kName = "adtopk";

  Planning(const PlanInput& input, const Options& options)
      : input_(input), options_(options), layout_(input.layout), kept_(input.sparsifier) {
    if (NeedsProfile(options)) times_.emplace(input, kName);
  }

  Plan MakePlan() {
    plan_.units = UnitsOfEqualCount(input_, options_);
    plan_.tensors.resize(layout_.tensors());
    StepTimes step;
    for (const Unit& unit : plan_.units) {
      const std::vector<std::size_t> cuts = Cuts(unit);
      if (!times_) {
        Cut(unit, cuts.front());
        continue;
      }
      Cut(unit, CheapestCut(cuts, [&](std::size_t cut) {
            Cut(unit, cut);
            return EndSeconds(step, unit);
          }));
      step = After(step, WorkOf(unit));
    }
    return std::move(plan_);
  }

 private:
  // Returns the candidate cuts, ascending; one cut if no profile can decide.
  std::vector<std::size_t> Cuts(const Unit& unit) const {
    if (!BoolOption(options_, "partial")) return {0};
    const auto dense_below = static_cast<std::size_t>(IntOption(options_, "dense_below"));
    const std::size_t smallest = dense_below > 0 ? dense_below - 1 : 0;
    std::vector<std::size_t> cuts{smallest};
    if (times_) {
      for (const std::size_t cut :
           AdmissibleCuts(SparsifiableSizes(layout_, unit), input_.density)) {
        if (cut > smallest) cuts.push_back(cut);
      }
    } else if (StringOption(options_, "form") == "authors") {
      cuts = {std::max(smallest,
                       AuthorsCut(layout_, unit, input_.density, StringOption(options_, "model")))};
    }
    return cuts;
  }

  void Cut(const Unit& unit, std::size_t cut) {
    const double rest = StringOption(options_, "form") == "authors"
                            ? input_.density
                            : DensityAboveCut(SparsifiableSizes(layout_, unit), cut, input_.density,
                                              kLeastShareOfDensity * input_.density);
    const bool hybrid = BoolOption(options_, "hybrid");
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      const TensorEntry& tensor = layout_.tensor(t);
      const bool dense = tensor.dense || tensor.numel <= cut || rest >= 1;
      plan_.tensors[t] = {.density = dense ? 1.0 : rest, .reduced = dense && hybrid && !times_};
    }
    if (hybrid && times_) ReduceWhereCheaper(unit);
  }

  void ReduceWhereCheaper(const Unit& unit) {
    std::vector<HybridTensor> tensors;
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      const TensorEntry& tensor = layout_.tensor(t);
      tensors.push_back({tensor.numel, kept_(tensor, plan_.tensors[t].density)});
    }
    const std::vector<bool> cheaper = CheaperReduced(
        tensors, [this](std::size_t elements) { return times_->Reduce(elements); },
        [this](std::size_t entries) {
          return GatherSeconds(entries) + DecompressSeconds(entries);
        });
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (cheaper[i]) plan_.tensors[unit.first + i] = {.density = 1.0, .reduced = true};
    }
  }

  // Returns the time at which the unit's sums are known: its exchanges are done and decompressed.
  double EndSeconds(const StepTimes& step, const Unit& unit) const {
    const std::size_t entries = EntriesOf(unit);
    return After(step, WorkOf(unit)).link_free + (entries > 0 ? DecompressSeconds(entries) : 0);
  }

  UnitWork WorkOf(const Unit& unit) const {
    UnitWork work;
    std::size_t reduced = 0;
    std::size_t gathered = 0;
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      work.compute += times_->Backward(t) + times_->Sparsify(t, plan_.tensors[t].density);
      (plan_.tensors[t].reduced ? reduced : gathered) += layout_.tensor(t).numel;
      if (!plan_.tensors[t].reduced) continue;
      work.until_reducible = work.compute;
    }
    const std::size_t entries = EntriesOf(unit);
    if (reduced > 0)
      work.reduce = times_->Reduce(reduced) + times_->HostSecondsPerExchange(reduced);
    if (entries > 0) {
      work.gather = GatherSeconds(entries) +
                    times_->HostSecondsPerExchange(gathered, entries * kSparseElementBytes);
    }
    return work;
  }

  std::size_t EntriesOf(const Unit& unit) const {
    std::size_t entries = 0;
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      const TensorPlan& tensor = plan_.tensors[t];
      if (!tensor.reduced) entries += kept_(layout_.tensor(t), tensor.density);
    }
    return entries;
  }

  double GatherSeconds(std::size_t entries) const {
    return times_->Gather(kSparseElementBytes * entries);
  }
  // Returns the decompression time that the entries of all ranks add.
  double DecompressSeconds(std::size_t entries) const {
    return times_->Decompress(0, static_cast<std::size_t>(input_.topology.ranks) * entries);
  }

  const PlanInput& input_;
  const Options& options_;
  const GradientLayout& layout_;
  KeptElements kept_;
  std::optional<PlanTimes> times_;
  Plan plan_;
};

std::vector<OptionSpec> PlannerOptions() {
  return SelectiveOptions(
      {ChoiceOption("form", "profiled", {"profiled", "authors", "fixed"},
                    "times to plan with: measured on this machine, from the tables of the authors' "
                    "cluster, or none, so that only dense_below leaves tensors dense"),
       FlagOption("partial", false, "leave the small tensors of a unit dense"),
       FlagOption("hybrid", false,
                  "all-reduce dense tensors instead of gathering them; with form = \"profiled\" "
                  "only if that is cheaper, and more tensors are dense if that makes them cheaper"),
       WholeOption("dense_below", 8192, 0, 1e12,
                   "with partial: a tensor of fewer elements is dense whatever the unit's "
                   "budget; 0: none")});
}

}  // namespace

StepTimes After(const StepTimes& before, const UnitWork& unit) {
  StepTimes after{before.computed + unit.compute, before.link_free};
  if (unit.reduce) {
    after.link_free =
        std::max(after.link_free, before.computed + unit.until_reducible) + *unit.reduce;
  }
  if (unit.gather) after.link_free = std::max(after.link_free, after.computed) + *unit.gather;
  return after;
}

std::vector<bool> CheaperReduced(std::span<const HybridTensor> tensors,
                                 const std::function<double(std::size_t elements)>& reduce,
                                 const std::function<double(std::size_t entries)>& gather) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return static_cast<double>(tensors[a].kept) * static_cast<double>(tensors[b].elements) >
           static_cast<double>(tensors[b].kept) * static_cast<double>(tensors[a].elements);
  });
  std::size_t reduced = 0;
  std::size_t gathered = 0;
  for (const HybridTensor& tensor : tensors) gathered += tensor.kept;
  const auto seconds = [&] {
    return (reduced > 0 ? reduce(reduced) : 0) + (gathered > 0 ? gather(gathered) : 0);
  };
  double least = seconds();
  std::size_t best = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    reduced += tensors[order[i]].elements;
    gathered -= tensors[order[i]].kept;
    const double with = seconds();
    if (with < least) {
      least = with;
      best = i + 1;
    }
  }
  std::vector<bool> cheaper(tensors.size(), false);
  for (std::size_t i = 0; i < best; ++i) cheaper[order[i]] = true;
  return cheaper;
}

const PlannerDescriptor kAdtopkPlanner = {
    Planning::kName,
    "leaves small tensors dense if their unit then ends earliest, and all-reduces dense tensors",
    "ADTopk, HPDC 2024",
    1,
    PlannerOptions(),
    &MakeSelectivePlanner<Planning>,
    &NeedsProfile,
    true};

}  // namespace sparfuse
