#include "harness/report/results.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "harness/catalog/metrics.hpp"
#include "harness/catalog/revisions.hpp"
#include "harness/files/canonical.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/records/node.hpp"
#include "harness/records/profile.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Sets the failure that a cell shows if none of its trials counts.
void DescribeFailure(bool stale, CellResult& result) {
  if (!result.trials.empty()) return;
  if (result.set_aside.empty()) {
    result.failure = stale ? "stale" : "not run";
    return;
  }
  const TrialRow& last = *result.set_aside.back();
  result.invalid = last.status == "invalid";
  result.failure = FailureOf(last);
}

// The requirements that a row must meet to belong to an experiment's cells as they are now.
struct Wanted {
  std::map<std::string, json> revisions;                       // by config hash
  std::map<std::string, std::vector<const TrialRow*>> trials;  // by config hash, oldest first
  std::map<std::string, std::string> machines;                 // by system hash
  std::string machine;                                         // only this machine's trials count

  Wanted(const std::vector<Part>& parts, const Catalog& catalog, const std::vector<TrialRow>& rows,
         const std::string& machine_hash)
      : machine(machine_hash) {
    for (const Part& part : parts) {
      for (const Cell& cell : part.cells) {
        if (!revisions.contains(cell.config_hash))
          revisions[cell.config_hash] = RevisionsOf(catalog, cell.config);
      }
    }
    bool here = false;
    for (const TrialRow& row : rows) {
      const auto current = revisions.find(row.config_hash);
      if (current == revisions.end()) continue;
      trials[row.config_hash].push_back(&row);
      const auto [known, is_new] = machines.try_emplace(row.system_hash);
      if (is_new) known->second = MachineOf(row);
      const std::string& made_by = known->second;
      if (!row.counts() || row.revisions != current->second || made_by.empty()) continue;
      here = here || made_by == machine_hash;
      if (!here) machine = made_by;
    }
    if (here) machine = machine_hash;
  }
};

CellResult ResultOf(const Cell& cell, Wanted& wanted, DisturbedTrials disturbed_trials,
                    PartResult& part) {
  CellResult result;
  result.cell = &cell;
  result.disturbed_trials = disturbed_trials;
  std::vector<const TrialRow*> current;
  bool stale = false;
  for (const TrialRow* row : wanted.trials[cell.config_hash]) {
    const std::string& machine = wanted.machines.at(row->system_hash);
    if (row->revisions != wanted.revisions.at(cell.config_hash)) {
      stale = true;
      ++part.older_revisions;
    } else if (!machine.empty() && machine != wanted.machine) {
      ++part.other_systems;
    } else {
      current.push_back(row);
    }
  }
  // Only rows like the newest trial are used: numbers of hosts and a model's inputs are not mixed.
  const TrialRow* newest = nullptr;
  for (const TrialRow* row : current) {
    if (row->counts()) newest = row;
  }
  for (const TrialRow* row : current) {
    if (newest != nullptr && !RanAlike(*row, *newest)) {
      ++part.other_systems;
    } else if (row->counts() && row->system_hash != newest->system_hash) {
      ++part.older_profiles;
    } else {
      AddTrial(result, *row);
    }
  }
  DescribeFailure(stale, result);
  return result;
}

// The step times by round of two trials of a block. Empty if they did not take turns with each
// other.
std::pair<std::vector<double>, std::vector<double>> RoundsInTurn(const TrialRow& of,
                                                                 const TrialRow& over) {
  RowLaunch ours = of.launch;
  RowLaunch other = over.launch;
  if (ours.id.empty() || ours.id != other.id) return {};
  // After the common rounds, the longer trial ran alone or with others.
  const std::size_t common = std::min(ours.rounds.size(), other.rounds.size());
  ours.rounds.resize(common);
  other.rounds.resize(common);
  return {std::move(ours.rounds), std::move(other.rounds)};
}

// Sets ours, n and the verdict from the values of both cells.
void Compare(const CellResult& of_cell, const CellResult& over_cell, ClaimResult& entry) {
  const Claim& claim = *entry.claim;
  const auto of = of_cell.Values(claim.metric);
  const auto over = over_cell.Values(claim.metric);
  const bool exact = entry.mode == "modelled";
  const bool measured = entry.mode == "measured";
  const bool ratio = claim.compared == Compared::kRatio;
  const auto difference = PairedDifference(of, over);
  entry.n = difference ? difference->n : 0;
  if (claim.compared == Compared::kDifference) {
    entry.ours = difference;
  } else if (claim.compared == Compared::kValue) {
    entry.ours = MeanInterval(OfBlocks(of));
  } else if (entry.ours = RatioOf(of_cell, over_cell, claim.metric);
             entry.n > 0 && (!entry.ours || entry.ours->n < entry.n)) {
    entry.ours.reset();  // dropping the blocks with a 0 would choose among them
    entry.verdict = Verdict::kInconclusive;
    return;
  }
  if (!claim.stated) {
    entry.verdict = JudgeBound(entry.ours, claim.bound,
                               ratio ? kReproducedWithin * claim.bound.value : 0, exact);
  } else if (ratio) {
    entry.verdict = Judge(entry.ours, claim.judged(), measured, exact);
  } else {
    entry.verdict = JudgeDifference(entry.ours, claim.judged(), measured, exact);
  }
}

// The draws of a modelled metric that a declared cluster's inputs leave open. A throughput has the
// draws of step_seconds, inverted.
std::vector<double> DrawsOf(const CellResult& result, const std::string& metric) {
  if (result.trials.size() != 1) return {};
  const auto& draws = result.trials.begin()->second->launch.draws;
  const bool rate = metric == "throughput";
  const auto found = draws.find(rate ? "step_seconds" : metric);
  if (found == draws.end()) return {};
  std::vector<double> values = found->second;
  if (rate) {
    for (double& value : values) value = 1 / value;
  }
  return values;
}

// Imported cells of the part's workloads and kind. A part of twins has none.
std::vector<ImportedCell> ImportedBeside(const Part& part, const std::vector<TrialRow>& rows) {
  if (part.cells.empty() || IsOfTwins(part)) return {};
  std::set<std::string> workloads;
  for (const Cell& cell : part.cells) workloads.insert(cell.config.workload);
  std::vector<ImportedCell> cells = ImportedCells(rows);
  std::erase_if(cells, [&](const ImportedCell& cell) {
    return !workloads.contains(cell.any->workload) ||
           cell.any->kind != part.cells.front().json.value("kind", std::string());
  });
  return cells;
}

// Disturbed throughput trials are not drawn. Disturbed convergence trials are.
bool LeavesOutDisturbed(const CellResult& cell) {
  return cell.cell->config.kind == TrialKind::kThroughput && cell.blocks() < cell.trials.size();
}

// The median size of the cells' errors, by the model or by a formula; none without cells, or if one
// of them lacks the formula's time.
std::optional<double> MedianError(const std::vector<PredictedCell>& cells, bool oversubscribed,
                                  std::optional<double> PredictedCell::*formula = nullptr) {
  std::vector<double> errors;
  for (const auto& cell : cells) {
    if (cell.oversubscribed != oversubscribed) continue;
    const auto seconds = formula == nullptr ? std::optional(cell.predicted) : cell.*formula;
    if (!seconds) return std::nullopt;
    errors.push_back(std::abs(*seconds / cell.live.value - 1));
  }
  return errors.empty() ? std::nullopt : std::optional(Median(errors));
}

}  // namespace

bool ClaimResult::fails_strict() const {
  if (claim->stated)
    return verdict != Verdict::kReproduced && verdict != Verdict::kConsistentModelled;
  return verdict != Verdict::kHolds && verdict != Verdict::kInconclusive;
}

void AddTrial(CellResult& result, const TrialRow& trial) {
  if (!trial.counts()) {
    result.set_aside.push_back(&trial);
    return;
  }
  const bool disturbed = trial.disturbed();
  const int block = trial.paired_block();
  const TrialRow*& counts = result.trials[block];
  if (disturbed && counts != nullptr && !counts->disturbed()) return;
  counts = &trial;
  if (disturbed) {
    result.disturbed.insert(block);
  } else {
    result.disturbed.erase(block);
  }
}

std::map<int, double> CellResult::Values(const std::string& metric) const {
  const bool all = disturbed_trials == DisturbedTrials::kCount || !IsTimed(metric);
  std::map<int, double> values;
  for (const auto& [block, trial] : trials) {
    if (!all && disturbed.contains(block)) continue;
    if (const auto found = trial->metrics.find(metric); found != trial->metrics.end()) {
      values[block] = found->second;
    }
  }
  return values;
}

std::map<int, double> CellResult::ValuesApart(const std::string& metric) const {
  CellResult all = *this;
  all.disturbed_trials = DisturbedTrials::kCount;
  std::map<int, double> values = all.Values(metric);
  for (const auto& [block, value] : Values(metric)) values.erase(block);
  return values;
}

std::size_t CellResult::blocks() const {
  return trials.size() - (disturbed_trials == DisturbedTrials::kApart ? disturbed.size() : 0);
}

std::optional<Interval> CellResult::Over(const std::string& metric) const {
  std::optional<Interval> over = LogInterval(OfBlocks(Values(metric)));
  if (const std::vector<double> draws = DrawsOf(*this, metric); over && !draws.empty()) {
    // A throughput is the work of a step over its time.
    const auto step = Mean("step_seconds");
    const double scale = metric == "throughput" && step ? over->value * *step : 1;
    return BandOfDraws(over->value, draws, scale);
  }
  // A modelled value varies as its profile does, not from block to block.
  const auto uncertainty = Mean("step_uncertainty");
  if (over && uncertainty && (metric == "step_seconds" || metric == "throughput")) {
    over->low = over->value * std::exp(-*uncertainty);
    over->high = over->value * std::exp(*uncertainty);
  }
  return over;
}

std::optional<Interval> CellResult::Average(const std::string& metric) const {
  return MeanInterval(OfBlocks(Values(metric)));
}

std::optional<double> CellResult::Mean(const std::string& metric) const {
  const auto average = Average(metric);
  return average ? std::optional(average->value) : std::nullopt;
}

bool CellResult::MissedTarget(const std::string& metric) const {
  const auto missed = [](const auto& each) {
    const TrialRow& trial = *each.second;
    return !trial.metrics.contains("steps_to_target") &&  // every trial states it that reached one
           trial.config.value("target", json()).is_number();
  };
  return IsToTarget(metric) && !trials.empty() && std::ranges::all_of(trials, missed);
}

std::map<int, const TrialRow*> DrawnTrials(const CellResult& cell) {
  auto trials = cell.trials;
  if (LeavesOutDisturbed(cell)) {
    std::erase_if(trials, [&](const auto& each) { return cell.disturbed.contains(each.first); });
  }
  return trials;
}

std::string ShownFailure(const CellResult& cell) {
  return LeavesOutDisturbed(cell) && cell.OnlyDisturbed() ? "disturbed" : cell.failure;
}

bool CellResult::Oversubscribed() const {
  if (trials.empty() || cell->config.modelled()) return false;
  const TrialRow& any = *trials.begin()->second;
  const CellConfig& config = cell->config;
  int cores = any.system.value("cores", 0), ranks = config.workers;
  for (const json& node : any.system.value("nodes", json::array())) {
    const int its = node.value("cores", 0);
    cores = cores == 0 ? its : std::min(cores, its);
    ranks = std::min(config.workers, config.ranks_per_node);
  }
  return cores > 0 && ranks * config.threads_per_worker > cores;
}

std::map<int, double> RatiosByBlock(const CellResult& of, const CellResult& over,
                                    const std::string& metric) {
  const auto ours = of.Values(metric);
  const auto other = over.Values(metric);
  std::map<int, double> ratios = RatiosByBlock(ours, other);
  if (metric != "step_seconds" && metric != "throughput") return ratios;
  const auto steps = RatiosByBlock(of.Values("step_seconds"), over.Values("step_seconds"));
  for (auto& [block, ratio] : ratios) {
    const auto [a, b] = RoundsInTurn(*of.trials.at(block), *over.trials.at(block));
    if (a.empty() || !steps.contains(block)) continue;
    const double rounds = RatioOfRounds(a, b);
    // A ratio of throughputs includes the work per step, in which cells may differ.
    ratio = metric == "throughput" ? ratio * steps.at(block) / rounds : rounds;
  }
  return ratios;
}

std::optional<Interval> RatioOf(const CellResult& of, const CellResult& over,
                                const std::string& metric) {
  const auto ratio = LogInterval(OfBlocks(RatiosByBlock(of, over, metric)));
  std::vector<double> ours = DrawsOf(of, metric);
  const std::vector<double> other = DrawsOf(over, metric);
  // Draws of the same number use the same values for inputs of the same name.
  if (!ratio || ours.empty() || ours.size() != other.size()) return ratio;
  for (std::size_t draw = 0; draw < ours.size(); ++draw) ours[draw] /= other[draw];
  if (!std::ranges::all_of(ours, [](double each) { return std::isfinite(each) && each > 0; }))
    return ratio;
  // A ratio of throughputs includes the work per step, in which cells may differ.
  double scale = 1;
  if (metric == "throughput") {
    const auto steps = LogInterval(OfBlocks(RatiosByBlock(of, over, "step_seconds")));
    if (steps) scale = ratio->value * steps->value;
  }
  return BandOfDraws(ratio->value, std::move(ours), scale);
}

std::size_t BlocksInTurn(const CellResult& of, const CellResult& over) {
  return static_cast<std::size_t>(std::ranges::count_if(of.trials, [&](const auto& trial) {
    const auto other = over.trials.find(trial.first);
    return other != over.trials.end() && !RoundsInTurn(*trial.second, *other->second).first.empty();
  }));
}

std::optional<std::size_t> PartResult::CounterpartOf(std::size_t i,
                                                     const std::string& method) const {
  const CellConfig& config = cells[i].cell->config;
  if (config.method == method) return i;
  std::vector<std::size_t> alike, dense, unlike, of_density;
  for (std::size_t j = 0; j < cells.size(); ++j) {
    const CellConfig& other = cells[j].cell->config;
    if (other.method != method || settings[i] != settings[j]) continue;
    if (other.density == config.density && other.sparsifier == config.sparsifier) {
      alike.push_back(j);
    } else {
      (other.sparsifier == "none" ? dense : unlike).push_back(j);
      if (other.density == config.density) of_density.push_back(j);
    }
  }
  if (alike.size() > 1) {  // options of the sparsifier or kinds of feedback differ
    std::erase_if(alike, [&](std::size_t j) {
      const auto keys = SparsityKeys();
      return !std::ranges::all_of(keys, [&](const std::string& key) {
        return cells[j].cell->json.at(key) == cells[i].cell->json.at(key);
      });
    });
  }
  // A dense cell has no density. It is compared with the one cell of its setting, whatever its
  // density.
  const bool of_dense = config.sparsifier == "none" && dense.empty();
  const auto& found = !alike.empty()   ? alike
                      : of_dense       ? unlike
                      : !dense.empty() ? dense
                                       : of_density;
  return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

std::optional<Interval> PartResult::RatioTo(std::size_t i, const std::string& method,
                                            const std::string& metric) const {
  const auto over = CounterpartOf(i, method);
  return over ? RatioOf(cells[i], cells[*over], metric) : std::nullopt;
}

std::optional<std::size_t> PartResult::ReferenceOf(std::size_t i) const {
  if (part->reference.empty() || cells[i].cell->config.method == part->reference)
    return std::nullopt;
  return CounterpartOf(i, part->reference);
}

std::vector<ImportedCell> ImportedCells(const std::vector<TrialRow>& rows) {
  using Key = std::tuple<std::string, std::string, std::string, int, std::string, std::string>;
  std::map<Key, ImportedCell> cells;
  for (const TrialRow& row : rows) {
    if (!row.imported() || !row.counts()) continue;
    ImportedCell& cell =
        cells[{row.part, row.workload, row.method, row.workers, row.config_hash, row.system_hash}];
    const auto same_run = cell.result.trials.find(row.paired_block());
    if (same_run != cell.result.trials.end() && same_run->second->metrics != row.metrics) {
      cell.contradicting.push_back(same_run->second);  // the later row is the one shown
    }
    cell.any = &row;
    AddTrial(cell.result, row);
  }
  std::vector<ImportedCell> list;
  for (auto& [key, cell] : cells) list.push_back(std::move(cell));
  return list;
}

std::vector<PartResult> ResultsOf(const std::vector<Part>& parts, const Catalog& catalog,
                                  const std::vector<TrialRow>& rows,
                                  const std::string& machine_hash, DisturbedTrials disturbed) {
  Wanted wanted(parts, catalog, rows, machine_hash);
  std::vector<PartResult> results;
  for (const Part& part : parts) {
    PartResult result;
    result.part = &part;
    std::set<std::string> hardware;
    for (const Cell& cell : part.cells) {
      result.settings.push_back(CanonicalWithout(cell.json, MethodKeys()));
      result.cells.push_back(ResultOf(cell, wanted, disturbed, result));
      for (const auto& [block, trial] : result.cells.back().trials)
        hardware.insert(HardwareLine(*trial));
    }
    result.hardware.assign(hardware.begin(), hardware.end());
    result.imported = ImportedBeside(part, rows);
    results.push_back(std::move(result));
  }
  return results;
}

std::string MachineOf(const TrialRow& row) {
  if (row.imported()) return "";
  if (!row.system.contains("cluster")) return row.system_hash;
  return row.system.contains("machine") ? ContentHash(row.system["machine"]) : "";
}

std::string FailureOf(const TrialRow& trial) {
  if (trial.status == "ok")
    return trial.annotations.empty() ? "numbers that its series do not give" : "called bad";
  if (trial.status == "failed" && !trial.failure_kind.empty()) return trial.failure_kind;
  if (trial.status == "invalid" && !trial.failed_checks.empty())
    return fmt::format("invalid ({})", fmt::join(trial.failed_checks, ", "));
  return trial.status;
}

std::string HardwareLine(const json& system) {
  const json nothing;
  const auto in = [&](const json& table, const char* key) -> const json& {
    return table.is_object() && table.contains(key) ? table[key] : nothing;
  };
  const json& machine = in(system, "machine").is_object() ? system["machine"] : system;
  std::string line;
  for (const json& node : in(machine, "nodes")) {
    line += (line.empty() ? "nodes of " : "; and of ") + HardwareLine(node);
  }
  if (in(system, "kind") == kImported && in(system, "name").is_string() &&
      in(system, "source").is_string()) {
    return fmt::format("{}: {} ({})", kImported, in(system, "name").get<std::string>(),
                       in(system, "source").get<std::string>());
  }
  if (const json& cpu = in(machine, "cpu_model"); cpu.is_string()) {
    line = fmt::format("{}, {} cores, {} GiB", cpu.get<std::string>(), in(machine, "cores").dump(),
                       in(machine, "memory_gib").dump());
    if (const json& gpus = in(machine, "gpus"); gpus.is_array()) {
      for (const json& gpu : gpus) line += ", " + (gpu.is_string() ? gpu.get<std::string>() : "?");
    }
    if (machine.contains("network")) {
      const std::string network = NetworkLine(NodeOf(machine));
      if (!network.empty()) line += ", network " + network;
    }
  }
  const json& cluster = in(system, "cluster");
  if (!cluster.is_string()) return line;
  return line.empty() ? "profile " + cluster.get<std::string>() : "profile of " + line;
}

std::string HardwareLine(const TrialRow& trial) {
  const json& system = trial.system;
  const std::string line = HardwareLine(system);
  if (!system.is_object() || !system.contains("cluster") || system.contains("machine")) return line;
  // A system states the kind of its numbers only if its file's form does not imply it.
  if (const json kind = system.value("kind", json()); kind.is_string())
    return fmt::format("{} ({})", line, kind.get<std::string>());
  const json& provenance = trial.provenance;
  if (!provenance.is_object()) return line;
  const json machine = provenance.value("machine", json());
  if (!machine.is_object()) return line;
  if (machine.contains("hardware")) return line + " (declared)";
  return machine.contains("cores") ? fmt::format("{} ({})", line, kMeasured) : line;
}

std::string WeakerMode(const CellResult& of, const CellResult& over) {
  return NameOf(std::max(of.cell->config.mode, over.cell->config.mode));
}

std::vector<ClaimResult> JudgeClaims(const PartResult& result) {
  std::vector<ClaimResult> judged;
  for (const auto& claim : result.part->claims) {
    const CellResult& of = result.cells[claim.of_cell];
    const CellResult& over = result.cells[claim.over_cell];
    ClaimResult entry;
    entry.claim = &claim;
    entry.mode = WeakerMode(of, over);
    if (of.invalid || over.invalid) {
      entry.verdict = Verdict::kInvalid;
    } else {
      Compare(of, over, entry);
      const bool apart =
          !of.ValuesApart(claim.metric).empty() || !over.ValuesApart(claim.metric).empty();
      if (entry.verdict == Verdict::kNotRun && apart) entry.verdict = Verdict::kDisturbed;
      const bool ran = !of.trials.empty() && !over.trials.empty();
      if (ran && (of.MissedTarget(claim.metric) || over.MissedTarget(claim.metric)))
        entry.verdict = Verdict::kTargetNotReached;
    }
    judged.push_back(entry);
  }
  return judged;
}

PredictionSummary ComparePrediction(const PartResult& live, const PartResult& twins,
                                    const std::set<std::size_t>* shown) {
  PredictionSummary summary;
  std::size_t twin = 0;  // PredictedPart keeps the cells' order
  for (std::size_t i = 0; i < live.cells.size(); ++i) {
    const CellResult& result = live.cells[i];
    const CellConfig& config = result.cell->config;
    if (config.kind != TrialKind::kThroughput || config.modelled()) continue;
    const CellResult& predicted = twins.cells.at(twin++);
    if (shown != nullptr && !shown->contains(i)) continue;
    const auto seconds = result.Over("step_seconds");
    const auto model = predicted.Mean("step_seconds");
    if (!seconds || !model) continue;
    PredictedCell cell{result.cell, i, twin - 1, *seconds, *model, result.Oversubscribed(), {}, {}};
    const auto local = predicted.Mean("local_seconds"), wire = predicted.Mean("wire_seconds");
    if (local && wire) {
      cell.longest = std::max(*local, *wire);
      cell.sum = *local + *wire;
    }
    summary.cells.push_back(std::move(cell));
  }
  summary.median_error = MedianError(summary.cells, false);
  summary.oversubscribed_median_error = MedianError(summary.cells, true);
  summary.longest_median_error = MedianError(summary.cells, false, &PredictedCell::longest);
  summary.sum_median_error = MedianError(summary.cells, false, &PredictedCell::sum);
  for (std::size_t i = 0; i < summary.cells.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto& a = summary.cells[i];
      const auto& b = summary.cells[j];
      if (a.oversubscribed || b.oversubscribed ||
          live.settings[a.position] != live.settings[b.position]) {
        continue;
      }
      // A single block gives no interval that could overlap.
      if (!a.live.has_bounds() || !b.live.has_bounds()) continue;
      if (a.live.low <= b.live.high && b.live.low <= a.live.high) continue;
      ++summary.ordered_pairs;
      summary.agreeing_pairs += (a.live.value < b.live.value) == (a.predicted < b.predicted);
    }
  }
  return summary;
}

}  // namespace sparfuse::harness
