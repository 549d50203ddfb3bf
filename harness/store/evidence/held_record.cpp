#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "baselines/composition.hpp"
#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "harness/catalog/method_file.hpp"
#include "harness/machine/quiet.hpp"
#include "harness/store/evidence/held.hpp"
#include "harness/store/evidence/recomputed.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

// The parts that a configuration names, by kind, as in revisions and sources. A profile has many
// sparsifiers, and no part of a method.
std::map<std::string, std::string> PartsNamedBy(const json& config) {
  std::map<std::string, std::string> parts;
  const auto add = [&](const json& from, const char* kind) {
    if (const std::string name = TextOf(from, kind); !name.empty() && name != "none")
      parts[kind] = name;
  };
  for (const char* kind : {"workload", "method", "sparsifier"}) add(config, kind);
  const json options = config.value("method_options", json());
  if (options.is_object()) {
    for (const char* kind : {"strategy", "planner", "collective"}) add(options, kind);
  }
  if (const std::string mode = TextOf(config, "mode"); !mode.empty())
    parts["engine"] = mode == NameOf(Mode::kModelled) ? "model" : "live";
  return parts;
}

// "sparsifier:topk", of a profile that measures it.
std::set<std::string> MeasuredParts(const Trial& trial) {
  std::set<std::string> parts;
  if (!IsProfile(trial)) return parts;
  parts.insert("profile");
  for (const json& name : trial.config.value("sparsifiers", json::array())) {
    if (name.is_string()) parts.insert("sparsifier:" + name.get<std::string>());
  }
  return parts;
}

// What a method's file says that options do not change.
struct KnownMethod {
  int revision = 0;  // 0: there is no such method
  std::string strategy;
  bool dense = false;
};

// Reads each file once: a catalogue of all methods takes megabytes.
KnownMethod MethodOfTree(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, KnownMethod> known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace(name);
  if (!is_new) return found->second;
  for (const EmbeddedMethod& file : MethodFiles()) {
    if (!file.path.ends_with("/" + name + ".toml")) continue;
    const Method method = ParseMethodFile(file.path, file.toml);
    found->second = {method.revision, method.strategy, method.dense()};
  }
  return found->second;
}

// Compares the cell with the method of the tree that the trial has the revision of. Options of a
// method change neither its strategy nor whether it sends whole gradients.
std::string WhatMethodContradicts(const Trial& trial) {
  const json options = trial.config.value("method_options", json());
  const std::string name = TextOf(trial.config, "method");
  const auto revision = trial.revisions.find("method:" + name);
  if (!options.is_object() || revision == trial.revisions.end() ||
      !TextOf(trial.config, "method_content").empty())
    return "";
  const KnownMethod method = MethodOfTree(name);
  if (revision->second != method.revision) return "";
  if (const std::string strategy = TextOf(options, "strategy"); strategy != method.strategy)
    return fmt::format("config.method_options.strategy: {}: expected {} of method {}", strategy,
                       method.strategy, name);
  const std::string sparsifier = TextOf(trial.config, "sparsifier");
  if (method.dense && sparsifier != "none")
    return fmt::format("config.sparsifier: {}: expected none of method {}", sparsifier, name);
  return "";
}

std::string WhatPartsContradict(const Trial& trial) {
  const std::map<std::string, std::string> parts = PartsNamedBy(trial.config);
  const std::set<std::string> measured = MeasuredParts(trial);
  const auto is_named = [&](const std::string& part) {
    const std::size_t end = part.find(':');
    const std::string kind = part.substr(0, end);
    if (measured.contains(part)) return true;
    if (IsProfile(trial) && (kind == "profile" || kind == "sparsifier")) return false;
    if (kind == "sparsifier" && !parts.contains(kind)) return end == std::string::npos;
    const auto named = parts.find(kind);
    return named == parts.end() || part.substr(end + 1) == named->second;
  };
  for (const auto& [part, revision] : trial.revisions) {
    if (!is_named(part)) return fmt::format("revisions: it has {}, config does not", part);
  }
  for (const auto& [part, hash] : trial.sources) {
    if (!is_named(part)) return fmt::format("sources: it has {}, config does not", part);
  }
  for (const std::string& part : measured) {
    if (!trial.revisions.contains(part))
      return fmt::format("revisions: expected one of {}, which config names", part);
  }
  if (!trial.config.contains("method_options") && !IsProfile(trial)) return "";
  const bool own_file = !TextOf(trial.config, "method_content").empty();
  for (const auto& [kind, name] : parts) {
    const std::string part = kind + ":" + name;
    if (trial.revisions.contains(part) || (kind == "method" && own_file)) continue;
    return fmt::format("revisions: expected one of {}, which config names", part);
  }
  return "";
}

// Whether ranks synchronise at the end of windows of steps.
bool HasWindows(const json& config) {
  const json options = config.value("method_options", json());
  return NumberOf(MemberIn(options, "strategy_options"), "every") > 0;
}

std::string WhatLinkContradicts(const Trial& trial) {
  const std::string mode = TextOf(trial.config, "mode");
  const auto link = trial.config.find("link");
  if (link == trial.config.end() || mode == NameOf(Mode::kModelled)) return "";
  if (mode == NameOf(Mode::kEmulated) && link->is_null())
    return "config.link: null in mode emulated: expected the link that was emulated";
  if (mode == NameOf(Mode::kMeasured) && !link->is_null())
    return fmt::format("config.link: {} in mode measured: expected null", link->dump());
  return "";
}

// Whether a tensor has the shape of the catalogue's. Prepared data have a vocabulary or classes of
// their own: these stand in the place of one extent, the same in all tensors (`other`: the
// catalogue's, and theirs).
bool HasShape(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& expected,
              bool prepared, std::optional<std::pair<std::int64_t, std::int64_t>>& other) {
  if (shape.size() != expected.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == expected[d]) continue;
    const std::pair found{expected[d], shape[d]};
    if (!prepared || (other && *other != found)) return false;
    other = found;
  }
  return true;
}

// Compares the tensors with those of the catalogue's workload, if the trial has its revision. A
// modelled trial has the tensors of its profile, which may be of prepared data.
std::string WhatCatalogueContradicts(const Trial& trial) {
  const workloads::WorkloadDescriptor* workload = WorkloadOf(trial.config);
  if (workload == nullptr) return "";
  const auto revision = trial.revisions.find("workload:" + workload->name);
  if (revision == trial.revisions.end() || revision->second != workload->revision) return "";
  std::map<std::string_view, const workloads::LayerTensor*> known;
  const workloads::LayerTable& layers = workloads::LayersOf(workload->name);
  for (const workloads::LayerTensor& tensor : layers.tensors) known[tensor.name] = &tensor;
  const bool prepared = !TextOf(trial.config, "data").empty() || !IsLive(trial);
  std::optional<std::pair<std::int64_t, std::int64_t>> other;
  for (std::size_t t = 0; t < trial.layout.size(); ++t) {
    const LayoutTensor& tensor = trial.layout[t];
    const auto found = known.find(tensor.name);
    if (found == known.end())
      return fmt::format("layout.{}.name: {}: no such tensor of {}, or twice", t, tensor.name,
                         workload->name);
    if (!HasShape(tensor.shape, found->second->shape, prepared, other))
      return fmt::format("layout.{}.shape: {} has {}: expected {} of {}", t, tensor.name,
                         json(tensor.shape).dump(), json(found->second->shape).dump(),
                         workload->name);
    known.erase(found);
  }
  if (known.empty()) return "";
  return fmt::format("layout: expected {}, a tensor of {}", known.begin()->first, workload->name);
}

std::string WhatTensorsContradict(const Trial& trial) {
  if (trial.layout.empty()) return "";
  std::string wrong = WhatCatalogueContradicts(trial);
  const json chosen = trial.config.value("dense_tensors", json());
  if (!wrong.empty() || !chosen.is_object()) return wrong;
  TensorChoice choice;
  choice.max_ndim = static_cast<std::size_t>(std::max(0.0, NumberOf(chosen, "max_ndim")));
  for (const json& name : chosen.value("names", json::array()))
    choice.dense.push_back(name.get<std::string>());
  std::vector<TensorShape> tensors;
  for (const LayoutTensor& tensor : trial.layout)
    tensors.push_back({tensor.name, tensor.shape, static_cast<std::size_t>(tensor.numel)});
  try {
    const GradientLayout layout =
        MakeLayout(tensors, choice, "workload " + TextOf(trial.config, "workload"));
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (layout.tensor(t).dense == trial.layout[t].dense) continue;
      return fmt::format("layout.{}.dense: {} of {}: expected {} by config.dense_tensors", t,
                         trial.layout[t].dense, tensors[t].name, layout.tensor(t).dense);
    }
  } catch (const Error& error) {
    return fmt::format("layout: {}", error.what());
  }
  return "";
}

// "" or an error if the list does not have one entry for each rank or host.
template <class List>
std::string WhatIsWrongWithLength(const char* key, const List& list, std::size_t expected,
                                  const char* of) {
  if (list.size() == expected) return "";
  return fmt::format("{}: {} entries: expected one for each of {} {}", key, list.size(), expected,
                     of);
}

std::string WhatHostsContradict(const Trial& trial) {
  const auto workers = static_cast<std::size_t>(NumberOf(trial.config, "workers"));
  std::vector<std::string> wrong;
  const auto hold = [&](std::string found) {
    if (!found.empty()) wrong.push_back(std::move(found));
  };
  if (trial.machine)
    hold(WhatIsWrongWithLength("machine.placement", trial.machine->placement, workers, "ranks"));
  if (trial.machine && !trial.machine->cards.empty())
    hold(WhatIsWrongWithLength("machine.cards", trial.machine->cards, workers, "ranks"));
  if (!trial.launch || !trial.launch->binding) return wrong.empty() ? "" : wrong.front();
  const LaunchBinding& binding = *trial.launch->binding;
  hold(WhatIsWrongWithLength("launch.binding.hosts", binding.hosts, workers, "ranks"));
  hold(WhatIsWrongWithLength("launch.binding.cores", binding.cores, workers, "ranks"));
  hold(WhatIsWrongWithLength("launch.binding.numa", binding.numa, workers, "ranks"));
  hold(WhatIsWrongWithLength("launch.binding.card", binding.card, workers, "ranks"));
  hold(WhatIsWrongWithLength("launch.binding.interface", binding.interface, workers, "ranks"));
  if (wrong.empty() && trial.machine && trial.machine->placement != binding.hosts)
    hold(SaidAndGiven("machine.placement", trial.machine->placement, binding.hosts,
                      "launch.binding.hosts has"));
  const std::set<std::string> hosts(binding.hosts.begin(), binding.hosts.end());
  std::int64_t nodes = 0;
  for (const Node& node : trial.launch->nodes) nodes += node.count.value_or(1);
  if (!trial.launch->nodes.empty() && nodes != static_cast<std::int64_t>(hosts.size()))
    hold(fmt::format("launch.nodes: {} nodes: expected the {} host(s) of launch.binding.hosts",
                     nodes, hosts.size()));
  const auto hold_hosts = [&](const char* key, const std::vector<std::string>& named) {
    if (std::set(named.begin(), named.end()) != hosts || named.size() != hosts.size())
      hold(fmt::format("{}: {}: expected the hosts of launch.binding.hosts, {}", key,
                       fmt::join(named, ", "), fmt::join(hosts, ", ")));
  };
  if (const auto& network = trial.launch->network) {
    hold_hosts("launch.network.hosts", network->hosts);
    hold(WhatIsWrongWithLength("launch.network.bytes", network->bytes, hosts.size(), "hosts"));
    hold(WhatIsWrongWithLength("launch.network.others", network->others, hosts.size(), "hosts"));
  }
  if (const auto& clocks = trial.launch->clocks) {
    hold_hosts("launch.clocks.hosts", clocks->hosts);
    hold(WhatIsWrongWithLength("launch.clocks.offset_seconds", clocks->offset_seconds, hosts.size(),
                               "hosts"));
  }
  // For ranks on several hosts, the nodes are the system.
  if (wrong.empty() && !trial.system.nodes.empty() && !trial.launch->nodes.empty() &&
      trial.system != SystemOfNodes(trial.launch->nodes))
    hold("launch.nodes: they differ from the nodes of system");
  if (wrong.empty() && trial.system.machine && trial.launch->nodes.size() == 1) {
    // The numbers of cores may differ, because a launcher may bind ranks to some cores.
    const Node &machine = *trial.system.machine, &node = trial.launch->nodes.front();
    if (machine.processor != node.processor)
      hold(SaidAndGiven("system.cpu_model", machine.processor, node.processor, "launch.nodes has"));
    if (machine.memory_gib && node.memory_gib && machine.memory_gib != node.memory_gib)
      hold(SaidAndGiven("system.memory_gib", *machine.memory_gib, *node.memory_gib,
                        "launch.nodes has"));
  }
  return wrong.empty() ? "" : wrong.front();
}

// Repeats the judgement from the readings. A trial lacks the usual time of the reference loop,
// which is therefore computed from the stated slowdown.
std::string WhatReadingsContradict(const Trial& trial) {
  if (!trial.quiet || !trial.quiet->limits) return "";
  const Quiet& said = *trial.quiet;
  std::optional<double> usual;
  if (const auto mean = MeanLoopSeconds(said); mean && said.slowdown.value_or(0) > 0)
    usual = *mean / *said.slowdown;
  const Quiet judged = JudgeQuiet(said, *said.limits, usual);
  if (said.slowdown.has_value() != judged.slowdown.has_value() ||
      (said.slowdown && !AreEqual(*said.slowdown, *judged.slowdown)))
    return SaidAndGiven("quiet.slowdown", json(said.slowdown.value_or(0)),
                        json(judged.slowdown.value_or(0)), "its readings give at least");
  if (said.disturbed != judged.disturbed)
    return SaidAndGiven("quiet.disturbed", said.disturbed, judged.disturbed, "its readings give");
  const bool alike =
      std::ranges::equal(said.causes, judged.causes, [](const auto& a, const auto& b) {
        return a.first == b.first && AreEqual(a.second, b.second);
      });
  if (!alike) return SaidAndGiven("quiet.causes", said.causes, judged.causes, "its readings give");
  return "";
}

// Sums over a rank's rows of steps.npy.
struct StepsOfRank {
  std::size_t steps = 0, measured = 0, warm = 0;  // warm: rows before the first round
  double seconds = 0, sent_bytes = 0;
};

std::map<double, StepsOfRank> SumsByRank(const OpenSeries& steps) {
  std::map<double, StepsOfRank> ranks;
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    const auto value = [&](const char* column) { return steps.Value(column, row); };
    StepsOfRank& rank = ranks[value("rank")];
    ++rank.steps;
    rank.measured += value("measured") != 0;
    rank.warm += value("measured") == 0 && value("round") == 0;
    rank.seconds += value("step_seconds");
    rank.sent_bytes += value("sent_bytes");
  }
  return ranks;
}

// A rank's steps follow one another, and their messages leave one after another.
std::string WhatTimesContradict(const Trial& trial, const std::map<double, StepsOfRank>& ranks) {
  constexpr double kOfOtherClocks = 1.01;
  for (const auto& [rank, sums] : ranks) {
    if (sums.seconds > trial.seconds * kOfOtherClocks)
      return fmt::format("seconds: {}: the steps of rank {:g} took {} together", trial.seconds,
                         rank, sums.seconds);
  }
  const json link = trial.config.value("link", json());
  // Messages of windows also travel between steps.
  if (TextOf(trial.config, "mode") != NameOf(Mode::kEmulated) || !link.is_object() ||
      HasWindows(trial.config))
    return "";
  const double gbps = NumberOf(link, "gbps") + NumberOf(link, "intra_node_gbps");
  if (gbps <= 0) return "";
  for (const auto& [rank, sums] : ranks) {
    const double least = 8e-9 * sums.sent_bytes / gbps;
    if (least > sums.seconds * kOfOtherClocks)
      return fmt::format(
          "steps.npy: rank {:g} sent {:g} bytes in {} s, which config.link carries in {} s", rank,
          sums.sent_bytes, sums.seconds, least);
  }
  return "";
}

// Measured steps follow the warm-up, and in a round the steps that it discards, as many in each.
std::string WhatOrderContradicts(const OpenSeries& steps) {
  struct Round {
    double discarded = 0;
    bool measures = false;
  };
  std::map<std::pair<double, double>, Round> rounds;  // by rank and number
  std::optional<double> of_first;
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    const auto value = [&](const char* column) { return steps.Value(column, row); };
    const double number = value("round");
    Round& round = rounds[{value("rank"), number}];
    if (value("measured") == 0) {
      if (round.measures)
        return fmt::format("steps.npy: measured = 0 in row {}: expected 1 after a measured step",
                           row);
      ++round.discarded;
    } else if (!std::exchange(round.measures, true) && number > 0) {
      if (!of_first) of_first = round.discarded;
      if (round.discarded != *of_first)
        return fmt::format(
            "steps.npy: measured = 1 in row {}: expected {:g} steps of round {:g} "
            "before it, as in the first",
            row, *of_first, number);
    }
  }
  return "";
}

std::string WhatCountsContradict(const Trial& trial, const std::map<double, StepsOfRank>& ranks) {
  const StepsOfRank& first = ranks.begin()->second;
  const double steps = NumberOf(trial.config, "steps"),
               warm = NumberOf(trial.config, "warmup_steps");
  if (steps <= 0) return "";
  const bool ended_early = trial.metrics.contains("steps_to_target");
  const auto measured = static_cast<double>(first.measured);
  if (ended_early ? measured > steps : measured != steps)
    return fmt::format("steps.npy: {} measured steps: expected the {:g} of config.steps",
                       first.measured, steps);
  if (trial.config.contains("warmup_steps") && static_cast<double>(first.warm) != warm)
    return fmt::format("steps.npy: {} steps of warm-up: expected the {:g} of config.warmup_steps",
                       first.warm, warm);
  return "";
}

// Compares the rows of each series with the sampling that trial.json states.
std::string WhatSamplingContradicts(const Trial& trial, const OpenSeriesByFile& series) {
  for (const auto& [file, of] : series) {
    const auto stated = trial.series.find(file);
    if (stated == trial.series.end()) continue;
    std::string given = file == "steps.npy" ? "every step of every rank" : "every evaluation";
    if (file == "spans.npy") {
      std::set<double> steps, ranks;
      for (std::uint64_t row = 0; row < of.header.rows; ++row) {
        steps.insert(of.Value("step", row));
        ranks.insert(of.Value("rank", row));
      }
      given = fmt::format("the last {} measured step(s) of the first {} rank(s)", steps.size(),
                          ranks.size());
    }
    if (stated->second.sampling != given)
      return SaidAndGiven("series." + file + ".sampling", stated->second.sampling, given,
                          "its rows are");
  }
  return "";
}

// "" or the first of these metrics that the trial has.
template <class Names>
std::string WhatMetricIsThere(const Trial& trial, const Names& names, const std::string& of) {
  for (const char* name : names) {
    if (trial.metrics.contains(name))
      return fmt::format("metrics.{}: expected none of {}", name, of);
  }
  return "";
}

// "" or a row of a column with a number that differs from `expected`.
std::string WhatIsNotAll(const OpenSeries& steps, const char* column, double expected,
                         const char* of) {
  for (std::uint64_t row = 0; row < steps.header.rows; ++row) {
    const std::optional<double> value = steps.Number(column, row);
    if (!value || *value == expected) continue;
    return fmt::format("steps.npy: {} = {} in row {}: expected {} of {}", column, *value, row,
                       expected, of);
  }
  return "";
}

std::string WhatModelContradicts(const Trial& trial, const OpenSeriesByFile& series) {
  constexpr const char* kOfModel = "a modelled trial";
  if (TextOf(trial.config, "cluster").empty())
    return "config.cluster: null in mode modelled: expected the cluster that was modelled";
  if (trial.quiet) return "quiet: expected no readings of a machine in a modelled trial";
  if (trial.launch) return "launch: expected none of a modelled trial";
  if (!trial.checks.empty())
    return fmt::format("checks.{}: expected none of a modelled trial", trial.checks.begin()->first);
  constexpr const char* kOfTraining[] = {"loss",       "residual_norm", "tensors_missing",
                                         "final_loss", "final_metric",  "loader_wait_seconds"};
  std::string wrong = WhatMetricIsThere(trial, kOfTraining, kOfModel);
  const auto steps = series.find("steps.npy");
  if (!wrong.empty() || steps == series.end()) return wrong;
  for (const auto& [column, expected] :
       {std::pair("loss", 0.0), {"residual_norm", 0.0}, {"measured", 1.0}}) {
    if (wrong.empty()) wrong = WhatIsNotAll(steps->second, column, expected, kOfModel);
  }
  return wrong;
}

// A workload that sleeps has no losses, and one that the catalogue lacks may have none.
bool HasLosses(const Trial& trial) {
  const workloads::WorkloadDescriptor* workload = WorkloadOf(trial.config);
  return workload != nullptr && !workload->sleeps;
}

std::string WhatRunContradicts(const Trial& trial, const OpenSeriesByFile& series) {
  const std::string mode = TextOf(trial.config, "mode"), of = "mode " + mode;
  if (const std::string cluster = TextOf(trial.config, "cluster"); !cluster.empty())
    return fmt::format("config.cluster: {} in mode {}: expected null", cluster, mode);
  if (!trial.draws.empty())
    return fmt::format("draws.{}: expected none in mode {}", trial.draws.begin()->first, mode);
  constexpr const char* kOfModels[] = {"local_seconds", "wire_seconds", "step_uncertainty"};
  if (std::string wrong = WhatMetricIsThere(trial, kOfModels, of); !wrong.empty()) return wrong;
  const auto steps = series.find("steps.npy");
  if (steps == series.end()) return "";  // counted as a trial without steps
  if (!trial.machine)
    return fmt::format("machine: expected the machine of a trial in mode {}", mode);
  if (!trial.checks.contains("loss_finite"))
    return fmt::format("checks: expected loss_finite in mode {}", mode);
  if (!HasLosses(trial)) return "";
  const OpenSeries& rows = steps->second;
  for (std::uint64_t row = 0; row < rows.header.rows; ++row) {
    if (rows.Number("loss", row).value_or(1) != 0) return "";
  }
  return rows.header.rows == 0
             ? ""
             : fmt::format("steps.npy: loss = 0 in every row: expected losses in mode {}", mode);
}

std::string WhatEvaluatingContradicts(const Trial& trial, const OpenSeriesByFile& series) {
  const auto every = trial.config.find("evaluate_every");
  if (every == trial.config.end()) return "";
  const auto found = series.find("evaluations.npy");
  const bool has_some = found != series.end() && found->second.header.rows > 0;
  if (every->is_number()) {
    if (TextOf(trial.config, "kind") != NameOf(TrialKind::kConvergence))
      return fmt::format("config.evaluate_every: {} in kind {}: expected null", every->dump(),
                         TextOf(trial.config, "kind"));
    if (!series.contains("steps.npy")) return "";  // counted as a trial without steps
    if (!has_some) return "evaluations.npy: expected evaluations in kind convergence";
    for (const char* metric : {"final_metric", "final_loss"}) {
      if (!trial.metrics.contains(metric))
        return fmt::format("metrics: expected {} in kind convergence", metric);
    }
    return "";
  }
  if (TextOf(trial.config, "kind") == NameOf(TrialKind::kConvergence))
    return "config.evaluate_every: null in kind convergence: expected a number of steps";
  if (has_some) return "evaluations.npy: expected no evaluations without config.evaluate_every";
  constexpr const char* kOfEvaluations[] = {
      "final_metric",     "final_loss",        "steps_to_target",     "seconds_to_target",
      "epochs_to_target", "samples_to_target", "sent_bytes_to_target"};
  return WhatMetricIsThere(trial, kOfEvaluations, "kind " + TextOf(trial.config, "kind"));
}

// "" or the first fact of a trial with numbers of its own that no trial of its kind and mode has,
// or that it lacks. A model has no readings, checks, losses or launch. A trial that ran has losses
// and checks, and neither a cluster nor draws. Evaluations are of convergence trials, all of which
// have some. A configuration that lacks the keys of cells and profiles is not looked at.
std::string WhatKindContradicts(const Trial& trial, const OpenSeriesByFile& series) {
  // Precondition of all that follows: whole cells.
  if (!trial.config.contains("method_options")) return "";
  const bool modelled = TextOf(trial.config, "mode") == NameOf(Mode::kModelled);
  std::string wrong = modelled        ? WhatModelContradicts(trial, series)
                      : IsLive(trial) ? WhatRunContradicts(trial, series)
                                      : "";
  return wrong.empty() ? WhatEvaluatingContradicts(trial, series) : wrong;
}

}  // namespace

std::string WhatRecordContradicts(const Trial& trial, const OpenSeriesByFile& series) {
  std::string wrong;
  for (const auto what : {WhatPartsContradict, WhatMethodContradicts, WhatLinkContradicts,
                          WhatTensorsContradict, WhatReadingsContradict}) {
    if (wrong.empty()) wrong = what(trial);
  }
  if (wrong.empty()) wrong = WhatKindContradicts(trial, series);
  if (wrong.empty() && (IsLive(trial) || IsProfile(trial))) wrong = WhatHostsContradict(trial);
  if (!wrong.empty() || !IsLive(trial)) return wrong;
  if (wrong.empty()) wrong = WhatSamplingContradicts(trial, series);
  const auto steps = series.find("steps.npy"), evaluations = series.find("evaluations.npy");
  if (!wrong.empty() || steps == series.end() || steps->second.header.rows == 0) return wrong;
  const std::map<double, StepsOfRank> ranks = SumsByRank(steps->second);
  wrong = WhatTimesContradict(trial, ranks);
  if (wrong.empty()) wrong = WhatCountsContradict(trial, ranks);
  if (wrong.empty()) wrong = WhatOrderContradicts(steps->second);
  if (wrong.empty() && evaluations != series.end())
    wrong = WhatEvaluationsContradict(trial, evaluations->second, steps->second);
  return wrong;
}

}  // namespace sparfuse::harness
