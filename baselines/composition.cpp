#include "baselines/composition.hpp"

#include <algorithm>
#include <utility>

#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/base/expression.hpp"
#include "core/coding/chunk_coding.hpp"
#include "core/fusion/dense_fallback.hpp"
#include "core/sparsify/reused_threshold/reused_threshold.hpp"

namespace sparfuse {
namespace {

bool Takes(std::span<const OptionSpec> options, std::string_view key) {
  return std::ranges::find(options, key, &OptionSpec::name) != options.end();
}

template <class Descriptor>
Options OptionsOf(const char* kind, const Descriptor& part, const Options& given) {
  return ResolveOptions(std::string(kind) + " " + std::string(part.name), part.options, given);
}

// Precondition: the sparsifier and its density are known.
PayloadCoding CodingOf(const Composition& made) {
  const Options& sending = made.sending;
  const std::string& values = StringOption(sending, "payload_values");
  const std::string& indices = StringOption(sending, "payload_indices");
  const std::string& policy = StringOption(sending, "bloom_policy");
  PayloadCoding coding;
  coding.values = values == "f16"      ? ValueCoding::kF16
                  : values == "fitted" ? ValueCoding::kFitted
                  : values == "codes4" ? ValueCoding::kCodes4
                                       : ValueCoding::kF32;
  coding.indices = indices == "delta"   ? IndexCoding::kDelta
                   : indices == "bloom" ? IndexCoding::kBloom
                   : indices == "u12"   ? IndexCoding::kU12
                                        : IndexCoding::kU32;
  if (coding.indices == IndexCoding::kU12) {
    const std::unique_ptr<Sparsifier> sparsifier = made.MakeSparsifier(0);
    const std::size_t chunk = sparsifier == nullptr ? 0 : sparsifier->chunk();
    SPARFUSE_REQUIRE(chunk <= kMostOfChunk,
                     "payload_indices = u12 with chunk = " + std::to_string(chunk) +
                         ": an index within a chunk has 12 bits; expected a chunk of at most " +
                         std::to_string(kMostOfChunk));
    coding.chunk = static_cast<std::uint32_t>(chunk == 0 ? kMostOfChunk : chunk);
    coding.density = chunk == 0 ? 0 : made.density;
    coding.codes_by_chunk = StringOption(sending, "scope") == "chunk";
  }
  if (coding.indices != IndexCoding::kBloom) return coding;
  coding.policy = policy == "random" ? BloomPolicy::kRandom
                  : policy == "p0"   ? BloomPolicy::kAll
                                     : BloomPolicy::kLeftmost;
  coding.false_positives = DoubleOption(sending, "bloom_fpr");
  return coding;
}

// Returns the tensors that a name means. `key`: the option that gives the name.
std::vector<std::size_t> TensorsNamed(const std::string& name, std::span<const TensorShape> tensors,
                                      const std::string& key, const std::string& whose) {
  std::vector<std::size_t> found;
  std::vector<std::string> known;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (tensors[t].name == name) return {t};
    known.push_back(tensors[t].name);
  }
  const std::string what = key + " has \"" + name + "\"";
  constexpr std::size_t kLongest = 1000;
  SPARFUSE_REQUIRE(name.size() <= kLongest, key + " has a name of " + std::to_string(name.size()) +
                                                " characters; expected at most " +
                                                std::to_string(kLongest));
  const Expression pattern(name, what);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (pattern.FoundIn(tensors[t].name)) found.push_back(t);
  }
  if (found.empty()) {
    SPARFUSE_THROW(kConfig, what + ", which is no tensor of " + whose + Suggestion(name, known));
  }
  return found;
}

// Dense tensors of fused buffers are summed by the all-reduce of their unit.
void ReduceDense(const GradientLayout& layout, Plan& plan) {
  for (Unit& unit : plan.units) {
    bool all_dense = true;
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      all_dense = all_dense && layout.tensor(t).dense;
    }
    if (all_dense) unit = {.first = unit.first, .last = unit.last, .date = unit.date};
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      TensorPlan how;
      how.density = layout.tensor(t).dense ? 1.0 : unit.density;
      how.reduced = layout.tensor(t).dense && unit.sparsified != Sparsified::kNever;
      plan.tensors.push_back(how);
    }
  }
}

}  // namespace

std::span<const OptionSpec> SendingOptions() {
  static const std::vector<OptionSpec> kOptions = {
      ChoiceOption(
          "payload_values", "f32", {"f32", "f16", "fitted", "codes4"},
          "values of a sparse payload; codes4: two bits each, with the four levels of a tensor; "
          "the error of a half, a fitted polynomial or a level goes into the residual"),
      ChoiceOption("payload_indices", "u32", {"u32", "delta", "bloom", "u12"},
                   "indices of a sparse payload; delta: two bytes if a gap is below 65535; bloom: "
                   "a Bloom filter of each tensor's indices; u12: 12 bits each, within chunks"),
      ChoiceOption("bloom_policy", "leftmost", {"leftmost", "random", "p0"},
                   "indices of a filter that are sent, as many as were selected: the first, or the "
                   "first of a permutation; p0: all"),
      NumberOption("bloom_fpr", 0.0, 0, 0.5,
                   "fraction of the indices that were not selected but are in the filter; 0: a "
                   "tenth of the selected fraction"),
      ChoiceOption("scope", "tensor", {"tensor", "chunk"},
                   "scope of the four levels of codes4: a tensor, or each of its chunks"),
      {"payload_dense",
       "indexed",
       0,
       0,
       {"indexed", "fp32", "fp16", "qsgd", "sign", "sign-bytes", "int8-blocks", "int4-blocks",
        "fp8-blocks"},
       "tensors of density 1: with indices like others, or without indices and coded by this "
       "quantizer, which may be a python:FILE.py:Class",
       true},
      WholeOption("threshold_period", 1, 0, 1e9,
                  "steps for which a threshold is used, an estimated one or topk's k-th largest "
                  "magnitude; 0: 32, or 1 if the sparsifier estimates none; Ok-Topk's is 32"),
      WholeOption("replan_every", 0, 0, 1e9,
                  "steps after which a plan is made anew from the times of these steps; 0: never"),
      FlagOption("dense_fallback", false,
                 "units that take longer sparse than dense, by the profile, are sent dense"),
      WholeOption(
          "dense_warmup_steps", 0, 0, 1e6,
          "number of first steps in which every unit is sent dense; Ok-Topk's code has 128 to "
          "512, Cupcake's 1")};
  return kOptions;
}

std::optional<MethodOptions::Owner> MethodOptions::OwnerOf(std::string_view key,
                                                           std::string_view method) const {
  if (Takes(sending, key)) return Owner::kSending;
  std::vector<Owner> owners;
  std::vector<std::string> names;
  const auto add = [&](std::span<const OptionSpec> options, Owner owner, const char* name) {
    if (!Takes(options, key)) return;
    owners.push_back(owner);
    names.emplace_back(name);
  };
  add(strategy, Owner::kStrategy, "strategy");
  add(planner, Owner::kPlanner, "planner");
  add(collective, Owner::kCollective, "collective");
  if (owners.size() > 1) {
    SPARFUSE_THROW(kConfig, "method " + std::string(method) + ": both its " + names[0] +
                                " and its " + names[1] + " take \"" + std::string(key) +
                                "\"; expected it in " + names[0] + "_options or " + names[1] +
                                "_options");
  }
  if (owners.empty()) return std::nullopt;
  return owners.front();
}

std::vector<std::string> MethodOptions::Names() const {
  std::vector<std::string> names;
  for (const auto options : {sending, strategy, planner, collective}) {
    for (const OptionSpec& option : options) names.push_back(option.name);
  }
  return names;
}

std::unique_ptr<Sparsifier> Composition::MakeSparsifier(std::uint64_t seed) const {
  if (sparsifier == nullptr) return nullptr;
  return ReuseThreshold(sparsifier->make(sparsifier_options, seed), threshold_period);
}

std::unique_ptr<Quantizer> Composition::MakeDenseQuantizer(std::uint64_t seed) const {
  const std::string& name = StringOption(sending, "payload_dense");
  if (name == "indexed") return nullptr;
  const QuantizerDescriptor& quantizer = FindQuantizer(name);
  return quantizer.make(ResolveOptions("quantizer " + name, quantizer.options, {}), seed);
}

std::optional<LocalSteps> Composition::local_steps() const {
  if (strategy->local_steps == nullptr) return std::nullopt;
  return strategy->local_steps(strategy_options);
}

bool Composition::needs_profile() const {
  if (BoolOption(sending, "dense_fallback")) return true;
  return planner->needs_profile != nullptr && planner->needs_profile(planner_options);
}

std::uint64_t Composition::usual_step() const {
  const CollectiveTraits traits = sparse_collective->traits();
  const std::uint64_t unlike = traits.periodic || traits.begins_dense ? 1 : 0;
  return std::max(dense_warmup_steps, unlike);
}

Composition Compose(const MethodParts& parts) {
  Composition made;
  made.strategy = &FindStrategy(parts.strategy);
  made.strategy_options = OptionsOf("strategy", *made.strategy, parts.strategy_options);
  made.planner = &FindPlanner(parts.planner);
  made.planner_options = OptionsOf("planner", *made.planner, parts.planner_options);
  const CollectiveDescriptor& collective = FindCollective(parts.collective);
  made.collective_options = OptionsOf("collective", collective, parts.collective_options);
  made.dense_collective = CoreCollective("ring-allreduce");
  made.sparse_collective = CoreCollective("sparse-allgather");
  (collective.payload == PayloadKind::kDense ? made.dense_collective : made.sparse_collective) =
      MakeCollective(collective, made.collective_options);
  made.sending = ResolveOptions("method_options", SendingOptions(), parts.sending);
  const std::int64_t replan_every = IntOption(made.sending, "replan_every");
  if (replan_every > 0 && !made.needs_profile()) {
    SPARFUSE_THROW(kConfig, "replan_every = " + std::to_string(replan_every) + " with planner \"" +
                                std::string(made.planner->name) +
                                "\", which needs no times with these options: expected 0");
  }
  if (replan_every > 0 && (made.strategy->node_shards || made.strategy->owned_parts)) {
    SPARFUSE_THROW(kConfig, "replan_every = " + std::to_string(replan_every) + " with strategy \"" +
                                std::string(made.strategy->name) +
                                "\": residuals belong to parts of units, which another plan would "
                                "give to other ranks: expected 0");
  }
  made.dense_warmup_steps =
      static_cast<std::uint64_t>(IntOption(made.sending, "dense_warmup_steps"));
  if (parts.sparsifier != nullptr) {
    made.sparsifier = parts.sparsifier;
    made.sparsifier_options = parts.sparsifier_options;
    made.density = parts.density;
    made.threshold_period =
        ThresholdPeriod(*made.sparsifier, IntOption(made.sending, "threshold_period"));
  }
  made.coding = CodingOf(made);
  made.feedback = MakeFeedback(
      parts.feedback, ResolveOptions("feedback " + parts.feedback, FeedbackOptions(parts.feedback),
                                     parts.feedback_options));
  made.inner_arrays = parts.inner_arrays;
  CheckParts(made, collective);
  return made;
}

void CheckTopology(const Composition& composition, const Topology& topology) {
  const std::optional<LocalSteps> steps = composition.local_steps();
  if (steps && steps->outer == OuterRule::kElastic) {
    SPARFUSE_REQUIRE(steps->rate * static_cast<float>(topology.ranks) <= 1,
                     "outer_rate = " + std::to_string(steps->rate) + " with outer = elastic and " +
                         std::to_string(topology.ranks) +
                         " workers: expected at most 1 / workers, beyond which the anchor "
                         "oscillates");
  }
  if (composition.strategy->node_shards && topology.ranks % topology.ranks_per_node != 0) {
    SPARFUSE_THROW(kConfig, std::to_string(topology.ranks) + " workers, " +
                                std::to_string(topology.ranks_per_node) + " a node: strategy \"" +
                                std::string(composition.strategy->name) +
                                "\" needs equally many on every node");
  }
  const Topology sending =
      composition.strategy->node_shards ? Topology{topology.nodes(), 1} : topology;
  // The options belong to the collective that the method names; the other has none.
  for (const Collective* each :
       {composition.sparse_collective.get(), composition.dense_collective.get()}) {
    const CollectiveDescriptor& collective = each->descriptor();
    const std::string why =
        collective.WhyNot(composition.collective_options,
                          collective.payload == PayloadKind::kSparse ? sending : topology);
    if (why.empty()) continue;
    SPARFUSE_THROW(kConfig, std::to_string(topology.ranks) + " workers, " +
                                std::to_string(topology.ranks_per_node) +
                                " a node: the collective \"" + std::string(collective.name) +
                                "\" " + why);
  }
}

GradientLayout MakeLayout(std::span<const TensorShape> tensors, const TensorChoice& choice,
                          const std::string& whose) {
  SPARFUSE_REQUIRE(tensors.size() <= kMostTensors,
                   whose + " has " + std::to_string(tensors.size()) +
                       " tensors: expected at most " + std::to_string(kMostTensors));
  std::vector<bool> dense(tensors.size());
  std::vector<bool> feedback(tensors.size(), true);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    dense[t] = choice.max_ndim > 0 && tensors[t].shape.size() <= choice.max_ndim;
  }
  for (const std::string& name : choice.dense) {
    for (const std::size_t t : TensorsNamed(name, tensors, "dense_tensors: names", whose)) {
      dense[t] = true;
    }
  }
  for (const std::string& name : choice.without_feedback) {
    for (const std::size_t t : TensorsNamed(name, tensors, "no_feedback_tensors", whose)) {
      feedback[t] = false;
    }
  }
  GradientLayout layout;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    layout.Add(tensors[t].name, tensors[t].shape, tensors[t].numel, dense[t], feedback[t]);
  }
  if (choice.dense_apart && std::ranges::find(dense, true) != dense.end()) layout.SetDenseApart();
  return layout;
}

Plan MakePlan(const Composition& composition, const GradientLayout& layout,
              const Topology& topology, const BackwardProfile* backward, const CostModel* cost) {
  CheckTopology(composition, topology);
  const StrategyDescriptor& strategy = *composition.strategy;
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const TensorEntry& tensor = layout.tensor(t);
    if (strategy.sparsified != Sparsified::kBehind || tensor.feedback) continue;
    SPARFUSE_THROW(kConfig, "no_feedback_tensors has " + tensor.name + " with strategy \"" +
                                std::string(strategy.name) +
                                "\", which selects from fused buffers: expected none");
  }
  PlanInput input{layout, topology, composition.density, strategy.sparsified, backward, cost};
  if (composition.sparsifier != nullptr) input.sparsifier = composition.sparsifier->name;
  input.dense_collective = composition.dense_collective.get();
  input.sparse_collective = composition.sparse_collective.get();
  Plan plan = composition.planner->make(composition.planner_options)->MakePlan(input);
  if (layout.dense_apart()) ReduceDense(layout, plan);
  if (BoolOption(composition.sending, "dense_fallback")) {
    const auto sparsifier = composition.MakeSparsifier(0);
    const auto dense_quantizer = composition.MakeDenseQuantizer(0);
    plan = WithDenseFallback(std::move(plan), input,
                             {sparsifier.get(), composition.coding, dense_quantizer.get()});
  }
  CheckPlan(plan, layout);
  return plan;
}

LiveConfig MakeLiveConfig(const Composition& composition, GradientLayout layout, Plan plan,
                          const Topology& topology, std::uint64_t seed) {
  LiveConfig live;
  live.layout = std::move(layout);
  live.plan = std::move(plan);
  live.topology = topology;
  live.strategy = composition.MakeStrategy();
  const StrategyDescriptor& strategy = *composition.strategy;
  live.strategy_loses = strategy.loses != nullptr && strategy.loses(composition.strategy_options);
  live.local_steps = composition.local_steps();
  live.inner_arrays = composition.inner_arrays.value_or(0);
  live.delays = strategy.delays;
  live.sparsifier = composition.MakeSparsifier(seed);
  live.unbounded_count =
      composition.sparsifier != nullptr && composition.sparsifier->unbounded_count;
  live.feedback = composition.feedback;
  if (live.feedback.make_rule) live.feedback.rule = live.feedback.make_rule();
  live.dense_quantizer = composition.MakeDenseQuantizer(seed);
  live.dense_collective = composition.dense_collective;
  live.sparse_collective = composition.sparse_collective;
  live.coding = composition.coding;
  return live;
}

ModelConfig MakeModelConfig(const Composition& composition, GradientLayout layout,
                            const Topology& topology, BackwardProfile backward, CostModel cost,
                            std::uint64_t seed) {
  ModelConfig model;
  model.layout = std::move(layout);
  model.backward = std::move(backward);
  model.cost = std::move(cost);
  model.topology = topology;
  model.plan = MakePlan(composition, model.layout, model.topology, &model.backward, &model.cost);
  model.make_strategy = [composition] { return composition.MakeStrategy(); };
  model.local_steps = composition.local_steps();
  model.inner_arrays = composition.inner_arrays.value_or(0);
  SPARFUSE_REQUIRE(
      !model.local_steps || model.local_steps->inner == InnerState::kKeep || model.inner_arrays > 0,
      "inner_state: nothing is known that the inner optimizer keeps from step to step; "
      "expected \"keep\", or an optimizer with a momentum");
  model.dense_collective = composition.dense_collective;
  model.sparse_collective = composition.sparse_collective;
  model.coding = composition.coding;
  model.dense_quantizer = composition.MakeDenseQuantizer(0);
  if (composition.sparsifier != nullptr) {
    model.sparsifier = composition.sparsifier->name;
    model.selector = composition.sparsifier->make(composition.sparsifier_options, 0);
    model.selection = composition.sparsifier->selection_model;
    model.index_shared = composition.sparsifier->index_shared;
    model.unbounded_count = composition.sparsifier->unbounded_count;
    if (model.index_shared) model.overlap.theta = 1;
    model.overlap.together = model.selector->block();
  }
  model.seed = seed;
  return model;
}

}  // namespace sparfuse
