#include "harness/records/cell_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "baselines/composition.hpp"
#include "baselines/registry.hpp"
#include "core/base/thread_pool.hpp"
#include "harness/files/canonical.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {

using nlohmann::json;

template <>
std::span<const std::string> NamesOf<TrialKind>() {
  static const std::string kNames[] = {"throughput", "convergence", "profile", "fingerprint"};
  return kNames;
}
template <>
std::span<const std::string> NamesOf<Mode>() {
  static const std::string kNames[] = {"measured", "emulated", "modelled"};
  return kNames;
}
template <>
std::span<const std::string> NamesOf<Transport>() {
  static const std::string kNames[] = {"mpi", "threads", "nccl", "tcp"};
  return kNames;
}
template <>
std::span<const std::string> NamesOf<Place>() {
  static const std::string kNames[] = {"cpu", "cuda"};
  return kNames;
}
template <>
std::span<const std::string> NamesOf<Precision>() {
  static const std::string kNames[] = {"fp32", "tf32", "bf16"};
  return kNames;
}

template <>
RecordKeys KeysOf<LinkShape>() {
  static constexpr auto kKeys = KeyTable<LinkShape>(
      Key<&LinkShape::gbps>({.name = "gbps",
                             .range = kLinkGbps,
                             .unit = "Gbit/s",
                             .meaning = "rate of a node's network card"}),
      Key<&LinkShape::alpha_us>({.name = "alpha_us",
                                 .range = kLinkAlphaMicroseconds,
                                 .unit = "microseconds",
                                 .meaning = "start-up of a message"}),
      Key<&LinkShape::host_us>({.name = "host_us",
                                .range = kLinkHostMicroseconds,
                                .unit = "microseconds",
                                .fallback = "0",
                                .meaning = "time that the host takes to prepare an exchange",
                                .optional = true}),
      Key<&LinkShape::intra_node_gbps>({.name = "intra_node_gbps",
                                        .range = {0, kLinkGbps.most},
                                        .unit = "Gbit/s",
                                        .fallback = "none",
                                        .meaning = "rate of a rank's link to others of its node",
                                        .optional = true}),
      Key<&LinkShape::intra_node_us>({.name = "intra_node_us",
                                      .range = kLinkAlphaMicroseconds,
                                      .unit = "microseconds",
                                      .fallback = "none",
                                      .meaning = "start-up of a message within a node"})
          .If([](const LinkShape& link) { return link.has_within(); }));
  return kKeys;
}

// Users write a table of a link's keys, or "none".
template <>
struct Form<std::optional<LinkShape>> : OptionalForm<LinkShape> {
  static std::string TypeText(const KeyInfo&) {
    return fmt::format(
        "\"none\" or {{ gbps, alpha_us }}, {} and {}; intra_node_gbps, intra_node_us; host_us",
        Text(kLinkGbps), Text(kLinkAlphaMicroseconds));
  }
  static std::string WhatIsWrong(const KeyInfo&, const json& given) {
    static const std::string kExpected = fmt::format(
        "\"none\" or {{ gbps = NUMBER, alpha_us = NUMBER }}, gbps from {0}, alpha_us from {1}; "
        "with "
        "intra_node_gbps and intra_node_us, of the same ranges, if nodes have several ranks, and "
        "host_us, from {2}, if the host takes long for an exchange",
        Text(kLinkGbps), Text(kLinkAlphaMicroseconds), Text(kLinkHostMicroseconds));
    if (given.is_string()) return given == "none" ? "" : kExpected;
    if (!given.is_object() || given.contains("intra_node_gbps") != given.contains("intra_node_us"))
      return kExpected;
    try {
      LinkShape link;
      ReadRecord(given, KeyPlace(""), link);
      const bool good = !given.contains("intra_node_gbps") || kLinkGbps.Has(link.intra_node_gbps);
      return good ? "" : kExpected;
    } catch (const Error&) {
      return kExpected;
    }
  }
};

template <>
RecordKeys KeysOf<DenseTensors>() {
  static constexpr auto kKeys = KeyTable<DenseTensors>(
      Key<&DenseTensors::max_ndim>({.name = "max_ndim",
                                    .fallback = "0",
                                    .meaning = "tensors of at most this many dimensions"}),
      Key<&DenseTensors::names>({.name = "names",
                                 .fallback = "[]",
                                 .meaning = "tensors of these names",
                                 .leaves = Leaves::kPlace}));
  return kKeys;
}

// The table is flat: the options of sending stand beside the parts and their options.
template <>
struct Form<MethodChoice> {
  static json Write(const MethodChoice& choice, const KeyInfo&, WrittenFor) {
    json table = {{"strategy", choice.strategy},
                  {"strategy_options", OptionsToJson(choice.strategy_options)},
                  {"planner", choice.planner},
                  {"planner_options", OptionsToJson(choice.planner_options)},
                  {"collective", choice.collective},
                  {"collective_options", OptionsToJson(choice.collective_options)}};
    table.update(OptionsToJson(choice.sending));
    return table;
  }
  static void Read(const json& from, const KeyInfo&, const KeyPlace& place, MethodChoice& choice) {
    if (!from.is_object()) place.Expected(from, "a table");
    const auto read = [&](const char* key, auto& value) {
      const auto found = from.find(key);
      if (found == from.end()) place.Missing(key);
      Form<std::remove_reference_t<decltype(value)>>::Read(*found, {.name = key},
                                                           KeyPlace(place, key), value);
    };
    read("strategy", choice.strategy);
    read("strategy_options", choice.strategy_options);
    read("planner", choice.planner);
    read("planner_options", choice.planner_options);
    read("collective", choice.collective);
    // Configurations from before collectives had options have none.
    choice.collective_options.clear();
    if (from.contains("collective_options")) read("collective_options", choice.collective_options);
    json sending = json::object();
    for (const OptionSpec& option : SendingOptions()) {
      if (const auto found = from.find(option.name); found != from.end())
        sending[option.name] = *found;
    }
    Form<Options>::Read(sending, {.name = "method_options"}, place, choice.sending);
  }
  static void Scrub(MethodChoice& choice, Leaves, const Scrubber& scrubber) {
    for (std::string* name : {&choice.strategy, &choice.planner, &choice.collective})
      *name = scrubber.Scrubbed(*name, Leaves::kOption);
    for (Options* options : {&choice.strategy_options, &choice.planner_options,
                             &choice.collective_options, &choice.sending})
      Form<Options>::Scrub(*options, Leaves::kOption, scrubber);
  }
  static std::string TypeText(const KeyInfo&) { return "table"; }
  static std::string WhatIsWrong(const KeyInfo&, const json& given) {
    return given.is_object() ? "" : "a table";
  }
};

namespace {

constexpr auto kIsCell = [](const CellConfig& config) {
  return !config.is_profile() && !config.is_fingerprint();
};
constexpr auto kIsProfile = [](const CellConfig& config) { return config.is_profile(); };

}  // namespace

template <>
RecordKeys KeysOf<CellConfig>() {
  using enum CellRole::Part;
  using C = CellConfig;
  static constexpr auto kKeys = KeyTable<C>(
      Key<&C::kind>(
          {.name = "kind",
           .choices = {"throughput", "convergence"},
           .fallback = "\"throughput\"",
           .meaning = "the quantity that a trial measures: the time of its steps, or the "
                      "metric in the course of training",
           .leaves = Leaves::kOption,
           .as_given = true,
           .cell =
               {.launch = true, .process = true, .telling = 29, .column = "kind", .named = true}}),
      Key<&C::mode>(
          {.name = "mode",
           .meaning = "the origin of the numbers: this machine, a link that is slowed "
                      "down, or the model",
           .leaves = Leaves::kOption,
           .as_given = true,
           .cell =
               {.launch = true, .process = true, .telling = 8, .column = "mode", .named = true}}),
      Key<&C::method>({.name = "method",
                       .meaning = "a name of `sparfuse list methods`, or a method's file, relative "
                                  "to this one: \"path/NAME.toml\"",
                       .leaves = Leaves::kOption,
                       .cell = {.part = kMethod, .named = true}})
          .If(kIsCell),
      Key<&C::method_content>(
          {.name = "method_content",
           .meaning = "the head of the hash of a method's file outside the tree",
           .leaves = Leaves::kHash,
           .empty_is_null = true,
           .computed = true,
           .cell = {.part = kMethod}})
          .If(kIsCell),
      Key<&C::method_options>(
          {.name = "method_options",
           .fallback = "the method's",
           .meaning = "options of strategy, planner, collective and payloads; `collective`, `plan` "
                      "(docs/experiments/method-options.md)",
           .leaves = Leaves::kOption,
           .cell = {.part = kMethod, .telling = 17}})
          .If(kIsCell),
      Key<&C::workload>(
          {.name = "workload",
           .meaning = "a name of `sparfuse list workloads`; in mode modelled also a "
                      "model table, relative to this file: \"table:FILE.json\"",
           .leaves = Leaves::kOption,
           .cell = {.process = true, .telling = 1, .column = "workload", .named = true}}),
      Key<&C::workload_options>({.name = "workload_options",
                                 .fallback = "the workload's",
                                 .meaning = "options of the workload outside of its recipe",
                                 .cell = {.telling = 2}}),
      Key<&C::data>({.name = "data",
                     .fallback = "the workload's own",
                     .meaning = "a prepared data set that a live cell trains on: a name of "
                                "`sparfuse data list`",
                     .leaves = Leaves::kOption,
                     .later = true,
                     .empty_is_null = true,
                     .as_given = true,
                     .cell = {.telling = 30, .column = "data"}}),
      Key<&C::data_id>({.name = "data_id",
                        .fallback = "the id of the data on disk",
                        .meaning = "the first 16 digits of the id of the prepared data: other data "
                                   "of that name is refused",
                        .leaves = Leaves::kHash,
                        .later = true,
                        .empty_is_null = true,
                        .as_given = true}),
      Key<&C::weights>({.name = "weights",
                        .fallback = "drawn from the seed",
                        .meaning = "initial parameters of a live cell: a name of "
                                   "`sparfuse weights prepare`",
                        .leaves = Leaves::kOption,
                        .later = true,
                        .empty_is_null = true,
                        .as_given = true,
                        .cell = {.telling = 31, .column = "weights"}}),
      Key<&C::weights_id>({.name = "weights_id",
                           .fallback = "the id of the weights on disk",
                           .meaning = "the first 16 digits of the SHA-256 of the weights: other "
                                      "weights of that name are refused",
                           .leaves = Leaves::kHash,
                           .later = true,
                           .empty_is_null = true,
                           .as_given = true}),
      Key<&C::workers>(
          {.name = "workers",
           .range = {1, 65536},
           .unit = "ranks",
           .meaning = "the number of ranks that train together",
           .as_given = true,
           .cell = {.process = true, .telling = 4, .column = "workers", .named = true}}),
      Key<&C::ranks_per_node>({.name = "ranks_per_node",
                               .range = {1, 65536},
                               .unit = "ranks",
                               .fallback = "measured: workers; emulated: 1; modelled: the declared "
                                           "cluster's, else 1",
                               .meaning = "the number of ranks on a node; a divisor of workers",
                               .cell = {.launch = true, .process = true, .telling = 12}}),
      Key<&C::link>({.name = "link",
                     .unit = "Gbit/s, microseconds",
                     .fallback = "\"none\"",
                     .meaning = "the link of a node, emulated or modelled; intra_node_* are the "
                                "links between its ranks; none: the machine's own",
                     .leaves = Leaves::kOption,
                     .cell = {.process = true, .telling = 3, .column = "link", .named = true}}),
      Key<&C::cluster>(
          {.name = "cluster",
           .meaning = "needed in mode modelled: \"this-machine\", \"machines-like-this\" (one a "
                      "rank), or a file of results/profiles",
           .leaves = Leaves::kOption,
           .empty_is_null = true,
           .cell = {.launch = true, .telling = 18, .column = "cluster"}})
          .If(kIsCell),
      Key<&C::inputs>({.name = "inputs",
                       .unit = "factors",
                       .fallback = "1 each",
                       .meaning = "with a declared cluster only: factors on groups of its inputs, "
                                  "{ host_overhead = 2 }",
                       .cell = {.telling = 19}})
          .If(kIsCell),
      Key<&C::broadcast_bytes>(
          {.name = "broadcast_bytes",
           .range = kBroadcastBytes,
           .unit = "bytes",
           .fallback = "the model table's on a stack that broadcasts buffers, else 0",
           .meaning = "with a declared cluster only: buffers that rank 0 sends to all before each "
                      "forward pass, as DDP's running statistics",
           .later = true,
           .as_given = true,
           .cell = {.telling = 33, .column = "buffers"}})
          .If(kIsCell),
      Key<&C::sparsifier>(
          {.name = "sparsifier",
           .fallback = "the method's",
           .meaning = "a name of `sparfuse list sparsifiers`, or \"python:FILE.py:ClassName\", "
                      "relative to this file; dense methods ignore it",
           .leaves = Leaves::kOption,
           .cell = {.part = kSparsity, .telling = 6, .column = "sparsifier", .named = true}})
          .If(kIsCell),
      Key<&C::sparsifier_options>({.name = "sparsifier_options",
                                   .fallback = "the sparsifier's",
                                   .meaning = "options of the sparsifier",
                                   .leaves = Leaves::kOption,
                                   .cell = {.part = kSparsity, .telling = 7}})
          .If(kIsCell),
      Key<&C::density>(
          {.name = "density",
           .range = {0, 1},
           .above_least = true,
           .unit = "fraction of elements",
           .fallback = "0.01; nonzeros: the workload's, if it is sparse by nature",
           .meaning = "fraction of a gradient's elements that is kept; 1 for methods that send "
                      "dense gradients",
           .cell = {.part = kSparsity, .telling = 5, .column = "density", .named = true}})
          .If(kIsCell),
      Key<&C::feedback>({.name = "feedback",
                         .choices = {"none", "residual", "momentum", "decoupled"},
                         .fallback = "the method's",
                         .meaning = "fate of elements that are not sent: lost, added to the next "
                                    "gradient, or kept as the momentum of DGC or of DeMo",
                         .leaves = Leaves::kOption,
                         .cell = {.part = kSparsity, .telling = 13}})
          .If(kIsCell),
      Key<&C::feedback_options>(
          {.name = "feedback_options",
           .fallback = "the feedback's",
           .meaning = "warmup_epochs, epoch_steps (density warm-up); decay; momentum: momentum, "
                      "nesterov, masking, clip; decoupled: rate",
           .leaves = Leaves::kOption,
           .cell = {.part = kSparsity, .telling = 14}})
          .If(kIsCell),
      Key<&C::dense_tensors>(
          {.name = "dense_tensors",
           .fallback = "{ max_ndim = 0, names = [] }",
           .meaning = "never sparsified: tensors of at most max_ndim dimensions; those in names, "
                      "by name or regular expression",
           .cell = {.launch = true, .telling = 15}})
          .If(kIsCell),
      Key<&C::no_feedback_tensors>(
          {.name = "no_feedback_tensors",
           .fallback = "[]",
           .meaning = "names of tensors (as in dense_tensors) without feedback: their elements "
                      "that are not sent are lost",
           .leaves = Leaves::kPlace,
           .cell = {.telling = 16}})
          .If(kIsCell),
      Key<&C::batch_per_worker>({.name = "batch_per_worker",
                                 .range = {1, 1e6},
                                 .unit = "samples",
                                 .fallback = "the workload's",
                                 .meaning = "batch of a rank in one micro-step",
                                 .cell = {.telling = 9, .column = "batch", .named = true}}),
      Key<&C::accumulation>(
          {.name = "accumulation",
           .range = {1, 1e6},
           .unit = "micro-steps",
           .fallback = "1",
           .meaning = "backward passes whose gradients are added before the exchange",
           .as_given = true,
           .cell = {.telling = 10, .column = "accumulation"}}),
      Key<&C::threads_per_worker>(
          {.name = "threads_per_worker",
           .range = {1, kMostThreads},
           .unit = "threads",
           .fallback = "1",
           .meaning = "threads that a rank computes with",
           .as_given = true,
           .cell = {.launch = true, .process = true, .telling = 11, .column = "threads"}}),
      Key<&C::transport>(
          {.name = "transport",
           .fallback = "\"mpi\"",
           .meaning = "processes over MPI or TCP, threads of one process, or a card a "
                      "rank over NCCL (mode measured, cuda)",
           .leaves = Leaves::kOption,
           .as_given = true,
           .cell = {.launch = true, .process = true, .telling = 20, .column = "transport"}}),
      Key<&C::device>(
          {.name = "device",
           .fallback = "\"cpu\"",
           .meaning =
               "device on which the workload trains and kernels run; cuda in mode measured only",
           .leaves = Leaves::kOption,
           .as_given = true,
           .cell = {.process = true, .telling = 21, .column = "device", .named = true}}),
      Key<&C::precision>(
          {.name = "precision",
           .fallback = "\"fp32\"",
           .meaning = "precision of matrix products, convolutions; tf32: cards only; bf16: "
                      "autocast; parameters, gradients, optimizer: float32",
           .leaves = Leaves::kOption,
           .as_given = true,
           .cell = {.process = true, .telling = 22, .column = "precision", .named = true}}),
      Key<&C::recipe>({.name = "recipe",
                       .fallback = "the workload's",
                       .meaning = "learning rate, optimizer, schedule; or \"NAME\" of `sparfuse "
                                  "list recipes`, or { name = \"NAME\", KEY = ... } to change keys",
                       .leaves = Leaves::kOption,
                       .or_name = true,
                       .cell = {.launch = true, .telling = 23}}),
      Key<&C::warmup_steps>({.name = "warmup_steps",
                             .range = {0, 1e7},
                             .unit = "steps",
                             .fallback = "5, after a live method's dense_warmup_steps; "
                                         "convergence: 0",
                             .meaning = "steps before those measured",
                             .cell = {.launch = true, .telling = 25}}),
      Key<&C::steps>({.name = "steps",
                      .range = {1, 1e7},
                      .unit = "steps",
                      .fallback = "15; convergence: the workload's",
                      .meaning = "measured steps; convergence: the most steps",
                      .cell = {.launch = true, .telling = 24}}),
      Key<&C::evaluate_every>({.name = "evaluate_every",
                               .range = {1, 1e7},
                               .unit = "steps",
                               .fallback = "the workload's",
                               .meaning = "kind convergence only: steps between evaluations",
                               .cell = {.launch = true, .telling = 27}})
          .If(kIsCell),
      Key<&C::target>(
          {.name = "target",
           .range = {1e-6, 1e9},
           .unit = "the workload's metric",
           .fallback = "the workload's",
           .meaning = "kind convergence only: training stops when the metric reaches it",
           .cell = {.launch = true, .telling = 26}})
          .If(kIsCell),
      Key<&C::evaluate>({.name = "evaluate",
                         .choices = {"anchor", "average", "own"},
                         .fallback = "the anchor",
                         .meaning =
                             "kind convergence, with local steps: the evaluated parameters, of the "
                             "anchor, the ranks' average or rank 0",
                         .leaves = Leaves::kOption,
                         .later = true,
                         .empty_is_null = true,
                         .cell = {.telling = 32, .column = "evaluated"}})
          .If(kIsCell),
      Key<&C::deadline_seconds>({.name = "deadline_seconds",
                                 .range = {0.001, 86400},
                                 .unit = "seconds",
                                 .fallback = "60",
                                 .meaning = "longest time that a rank waits for another",
                                 .as_given = true,
                                 .cell = {.launch = true, .process = true, .telling = 28}}),
      Key<&C::sparsifiers>({.name = "sparsifiers",
                            .meaning = "sparsifiers that a profile measures",
                            .leaves = Leaves::kOption,
                            .computed = true})
          .If(kIsProfile),
      Key<&C::quantizers>({.name = "quantizers",
                           .meaning = "quantizers that a profile measures",
                           .leaves = Leaves::kOption,
                           .computed = true})
          .If(kIsProfile));
  return kKeys;
}

// The keys of a trial's config.json beside its cell.
template <>
RecordKeys KeysOf<TrialConfig>() {
  using T = TrialConfig;
  static constexpr auto kKeys =
      KeyTable<T>(Key<&T::seed>({.name = "seed", .meaning = "seed of the trial's block"}),
                  Key<&T::block>({.name = "block", .meaning = "the trial's block"}),
                  Key<&T::trial_id>({.name = "trial_id",
                                     .meaning = "names the trial's directory",
                                     .leaves = Leaves::kPlace}));
  return kKeys;
}

namespace {

// Later options of methods, by JSON pointer, with the value for the methods' earlier behaviour. A
// configuration with this value has the hash of one without the option.
struct LaterOption {
  json::json_pointer at;
  json before;
};
const std::vector<LaterOption>& LaterOptions() {
  using Pointer = json::json_pointer;
  static const std::vector<LaterOption> kOptions = {
      {Pointer("/method_options/collective_options"), json::object()},
      {Pointer("/method_options/collective_options/levels"), 1},
      {Pointer("/method_options/collective_options/rounding"), "nearest"},
      {Pointer("/method_options/collective_options/gather"), "direct"},
      {Pointer("/method_options/strategy_options/local_ef"), true},
      {Pointer("/method_options/strategy_options/penalty"), 1},
      {Pointer("/method_options/strategy_options/outer_clip"), 0},
      {Pointer("/method_options/strategy_options/trigger"), "steps"},
      {Pointer("/method_options/strategy_options/inner_state"), "keep"},
      {Pointer("/method_options/strategy_options/combine"), "ranks"},
      {Pointer("/method_options/strategy_options/clip"), "none"},
      {Pointer("/method_options/scope"), "tensor"},
      {Pointer("/method_options/planner_options/lane"), "compute"},
      {Pointer("/method_options/dense_warmup_steps"), 0},
      {Pointer("/method_options/bloom_policy"), "leftmost"},
      {Pointer("/method_options/bloom_fpr"), 0},
      {Pointer("/feedback_options/decay"), 1},
      {Pointer("/sparsifier_options/check_unsent"), false},
      {Pointer("/recipe/learning_rate_per_worker"), false},
      {Pointer("/recipe/warmup_from"), "first-step"},
      {Pointer("/recipe/warmup_epochs"), 0},
      {Pointer("/recipe/warmup_fraction"), 0},
      {Pointer("/recipe/epochs"), 0},
      {Pointer("/recipe/boundaries"), ""},
      {Pointer("/recipe/decay_factor"), 0.1},
      {Pointer("/recipe/patience"), 3},
      {Pointer("/recipe/schedule_span"), "trial"},
      {Pointer("/recipe/no_decay"), ""},
      {Pointer("/recipe/clip_norm"), 0},
      {Pointer("/recipe/clip"), "global"},
      {Pointer("/recipe/remainder"), "drop"},
      {Pointer("/recipe/initial_values"), "own"},
      {Pointer("/recipe/attention_dropout"), 0},
      {Pointer("/recipe/augmentation"), "by-size"},
      {Pointer("/recipe/metric_form"), "samples"},
      {Pointer("/recipe/state"), "zero"}};
  return kOptions;
}

std::string HashOf(json identity) {
  for (const LaterOption& option : LaterOptions()) {
    if (!identity.contains(option.at) || identity[option.at] != option.before) continue;
    identity[option.at.parent_pointer()].erase(option.at.back());
  }
  identity["schema"] = kConfigSchema;
  return ContentHash(identity);
}

// Bundles of versions 1 and 2 brought this key, always empty.
constexpr const char* kEarlierKey = "python_files";

bool IsBesideCell(const std::string& key) {
  return key == kEarlierKey || std::ranges::any_of(KeysOf<TrialConfig>(), [&](const KeyInfo& each) {
           return key == each.name;
         });
}

}  // namespace

std::optional<std::string> MethodChoice::quantizer() const {
  const std::string& name = StringOption(sending, "payload_dense");
  return name == "indexed" ? std::nullopt : std::optional(name);
}

namespace {

// Null for a strategy of a plug-in that is not loaded: its trials can still be read.
const StrategyDescriptor* KnownStrategy(std::string_view name) {
  const auto found = std::ranges::find(Strategies(), name, &StrategyDescriptor::name);
  return found == Strategies().end() ? nullptr : &*found;
}

bool HasLocalSteps(std::string_view strategy) {
  const StrategyDescriptor* const known = KnownStrategy(strategy);
  return known != nullptr && known->local_steps != nullptr;
}

// Other strategies may have options of these names, too.
std::int64_t StepsOf(const MethodChoice& choice, const char* option, std::int64_t otherwise) {
  if (!choice.has_local_steps()) return otherwise;
  const auto found = choice.strategy_options.find(option);
  if (found == choice.strategy_options.end()) return otherwise;
  const auto* const steps = std::get_if<std::int64_t>(&found->second);
  return steps == nullptr ? otherwise : *steps;
}

}  // namespace

int MethodChoice::window_steps() const { return static_cast<int>(StepsOf(*this, "every", 1)); }

bool MethodChoice::has_local_steps() const { return HasLocalSteps(strategy); }

bool MethodChoice::begins_when_idle() const {
  const auto found = strategy_options.find("trigger");
  return has_local_steps() && found != strategy_options.end() &&
         found->second == OptionValue(std::string("idle"));
}

bool MethodChoice::exchanges_beside_steps() const {
  const StrategyDescriptor* const known = KnownStrategy(strategy);
  return (known != nullptr && known->delays) || StepsOf(*this, "delay", 0) > 0;
}

int WindowSteps(const json& config) {
  static const json::json_pointer kStrategy("/method_options/strategy");
  static const json::json_pointer kEvery("/method_options/strategy_options/every");
  if (!config.is_object() || !config.contains(kStrategy) || !config.contains(kEvery)) return 1;
  const json& strategy = config.at(kStrategy);
  if (!strategy.is_string() || !HasLocalSteps(strategy.get_ref<const std::string&>())) return 1;
  const json& every = config.at(kEvery);
  return every.is_number_integer() ? std::clamp(every.get<int>(), 1, 1'000'000) : 1;
}

json ToJson(const std::optional<LinkShape>& link) { return link ? WriteRecord(*link) : json(); }

std::string LinkWords(const std::optional<LinkShape>& link) {
  if (!link) return "unshaped";
  return fmt::format("{} Gbit/s", link->gbps) +
         (link->has_within() ? fmt::format(", {} within nodes", link->intra_node_gbps) : "");
}

std::string LinkWordsInFull(const LinkShape& link) {
  return fmt::format("{} Gbit/s link, {:g} µs per message", link.gbps, link.alpha_us) +
         (link.has_within() ? fmt::format("; within nodes {} Gbit/s, {:g} µs", link.intra_node_gbps,
                                          link.intra_node_us)
                            : "");
}

std::optional<LinkShape> StoredLink(const json& stored) {
  std::optional<LinkShape> link;
  if (!stored.is_null() && stored != "none") ReadRecord(stored, KeyPlace("link"), link.emplace());
  return link;
}

json ToJson(const MethodChoice& choice) {
  return Form<MethodChoice>::Write(choice, {}, WrittenFor::kFile);
}

json ToJson(const CellConfig& config) { return WriteRecord(config); }

CellConfig CellConfigOf(const json& stored, std::string_view whole) {
  return RecordOf<CellConfig>(stored, whole);
}

json ToJson(const TrialConfig& trial) {
  json made = ToJson(trial.cell);
  made.update(WriteRecord(trial));
  return made;
}

TrialConfig TrialConfigOf(const json& stored, std::string_view whole) {
  const KeyPlace place(whole);
  if (!stored.is_object()) place.Expected(stored, "an object");
  json cell = stored, beside = json::object();
  for (const KeyInfo& key : KeysOf<TrialConfig>()) {
    if (const auto found = cell.find(key.name); found != cell.end()) {
      beside[key.name] = *found;
      cell.erase(found);
    }
  }
  TrialConfig trial;
  ReadRecord(beside, place, trial);
  trial.cell = CellConfigOf(cell, whole);
  return trial;
}

std::string ConfigHash(const CellConfig& config) {
  return HashOf(WriteRecord(config, WrittenFor::kIdentity));
}

std::string ConfigHash(const json& config) {
  json identity = config;
  for (const KeyInfo& key : KeysOf<TrialConfig>()) identity.erase(key.name);
  identity.erase(kEarlierKey);
  EraseLaterKeys(identity);
  return HashOf(std::move(identity));
}

bool HaveTheSameProcesses(const CellConfig& a, const CellConfig& b) {
  return std::ranges::all_of(KeysOf<CellConfig>(), [&](const RecordKey& key) {
    return !key.cell.process ||
           key.Write(&a, WrittenFor::kFile) == key.Write(&b, WrittenFor::kFile);
  });
}

void EraseLaterKeys(json& config, std::span<const std::string_view> kept) {
  static const CellConfig kInitial;
  for (const RecordKey& key : KeysOf<CellConfig>()) {
    if (!key.later || std::ranges::find(kept, key.name) != kept.end()) continue;
    const auto found = config.find(key.name);
    if (found != config.end() && *found == key.Write(&kInitial, WrittenFor::kIdentity))
      config.erase(found);
  }
}

bool SaysTheSame(const json& one, const json& other) {
  if (!one.is_object() || !other.is_object()) return false;
  const auto next = [](json::const_iterator at, const json& of) {
    while (at != of.end() && IsBesideCell(at.key())) ++at;
    return at;
  };
  auto a = next(one.begin(), one), b = next(other.begin(), other);
  while (a != one.end() && b != other.end()) {
    if (a.key() != b.key() || *a != *b) return false;
    a = next(++a, one), b = next(++b, other);
  }
  return a == one.end() && b == other.end();
}

std::string CellName(const CellConfig& config) {
  std::string name;
  for (const RecordKey& key : KeysOf<CellConfig>()) {
    if (!key.cell.named || !key.IsIn(&config)) continue;
    const json value = key.Write(&config, WrittenFor::kFile);
    name += fmt::format("{}{} = {}", name.empty() ? "" : ", ", key.name,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  return name;
}

}  // namespace sparfuse::harness
