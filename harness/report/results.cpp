#include "harness/report/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/catalog/config_keys.hpp"
#include "harness/catalog/revisions.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

bool SameButForTheMethod(json a, json b) {
  for (const std::string& key : MethodKeys()) {
    a.erase(key);
    b.erase(key);
  }
  return a == b;
}

// What a cell without a trial that counts shows.
void DescribeFailure(const std::vector<const TrialRow*>& trials, bool stale, CellResult& result) {
  if (!result.trials.empty()) return;
  if (trials.empty()) {
    result.failure = stale ? "stale" : "not run";
    return;
  }
  const TrialRow& last = *trials.back();
  result.invalid = last.status == "invalid";
  if (last.status == "ok") {
    result.failure = "called bad";
  } else if (last.status == "failed") {
    result.failure = last.failure_kind.empty() ? "failed" : last.failure_kind;
  } else {
    result.failure = last.status;
  }
}

// The system whose trials are shown: this machine where it has any, else the newest trial's.
std::string ChooseSystem(const Part& part, const std::vector<TrialRow>& rows,
                         const std::string& machine_hash) {
  std::set<std::string> hashes;
  for (const auto& cell : part.cells) {
    if (cell.json["mode"] != "modelled") hashes.insert(cell.config_hash);
  }
  std::string newest = machine_hash;
  for (const auto& row : rows) {
    if (!row.counts() || !hashes.contains(row.config_hash)) continue;
    if (row.system_hash == machine_hash) return machine_hash;
    newest = row.system_hash;
  }
  return newest;
}

// Fills in what the values say: ours, n and the verdict.
void Compare(const std::map<int, double>& of, const std::map<int, double>& over,
             ClaimResult& entry) {
  const Claim& claim = *entry.claim;
  const bool exact = entry.mode == "modelled";
  const bool measured = entry.mode == "measured";
  const bool ratio = claim.compared == Compared::kRatio;
  const auto difference = PairedDifference(of, over);
  entry.n = difference ? difference->n : 0;
  if (claim.compared == Compared::kDifference) {
    entry.ours = difference;
  } else if (claim.compared == Compared::kValue) {
    std::vector<double> values;
    for (const auto& [block, value] : of) values.push_back(value);
    entry.ours = MeanInterval(values);
  } else if (entry.ours = PairedRatio(of, over);
             entry.n > 0 && (!entry.ours || entry.ours->n < entry.n)) {
    entry.ours.reset();  // leaving out the blocks with a 0 would choose among them
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

}  // namespace

bool ClaimResult::fails_strict() const {
  if (claim->stated)
    return verdict != Verdict::kReproduced && verdict != Verdict::kConsistentModelled;
  return verdict != Verdict::kHolds && verdict != Verdict::kInconclusive;
}

std::map<int, double> CellResult::Values(const std::string& metric) const {
  std::map<int, double> values;
  for (const auto& [block, trial] : trials) {
    if (const auto found = trial->metrics.find(metric); found != trial->metrics.end()) {
      values[block] = found->second;
    }
  }
  return values;
}

std::optional<Interval> CellResult::Over(const std::string& metric) const {
  std::vector<double> values;
  for (const auto& [block, value] : Values(metric)) values.push_back(value);
  std::optional<Interval> over = LogInterval(values);
  // What is computed varies as its profile does, not from block to block.
  const auto uncertainty = Mean("step_uncertainty");
  if (over && uncertainty && (metric == "step_seconds" || metric == "throughput")) {
    over->low = over->value * std::exp(-*uncertainty);
    over->high = over->value * std::exp(*uncertainty);
  }
  return over;
}

std::optional<double> CellResult::Mean(const std::string& metric) const {
  const auto values = Values(metric);
  if (values.empty()) return std::nullopt;
  double sum = 0;
  for (const auto& [block, value] : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::optional<std::size_t> PartResult::ReferenceOf(std::size_t i) const {
  const json& config = cells[i].cell->json;
  if (part->reference.empty() || config["method"] == part->reference) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t j = 0; j < cells.size(); ++j) {
    const json& other = cells[j].cell->json;
    if (other["method"] != part->reference || !SameButForTheMethod(config, other)) continue;
    if (other["density"] == config["density"] && other["sparsifier"] == config["sparsifier"])
      return j;
    if (found) continue;  // a sparse reference at several densities: only the same one is compared
    if (other["sparsifier"] == "none") found = j;
  }
  return found;
}

PartResult ResultsOf(const Part& part, const Catalog& catalog, const std::vector<TrialRow>& rows,
                     const std::string& machine_hash) {
  PartResult result;
  result.part = &part;
  const std::string system = ChooseSystem(part, rows, machine_hash);
  std::map<std::string, std::vector<const TrialRow*>> by_config;
  for (const auto& row : rows) by_config[row.config_hash].push_back(&row);
  std::set<std::string> hardware;
  for (const auto& cell : part.cells) {
    CellResult entry;
    entry.cell = &cell;
    const bool modelled = cell.json["mode"] == "modelled";
    const json revisions = RevisionsOf(catalog, cell.config);
    std::vector<const TrialRow*> current;
    bool stale = false;
    for (const TrialRow* row : by_config[cell.config_hash]) {
      if (row->revisions != revisions) {
        stale = true;
      } else if (!modelled && row->system_hash != system) {
        ++result.other_systems;
      } else {
        current.push_back(row);
      }
    }
    // A model's inputs are never mixed either: the newest profile's trials only.
    std::string profile;
    for (const TrialRow* row : current) {
      if (row->counts()) profile = row->system_hash;
    }
    for (const TrialRow* row : current) {
      if (!row->counts() || row->system_hash != profile) continue;
      entry.trials[row->block] = row;
      hardware.insert(HardwareLine(row->system));
    }
    DescribeFailure(current, stale, entry);
    result.cells.push_back(std::move(entry));
  }
  result.hardware.assign(hardware.begin(), hardware.end());
  return result;
}

std::string HardwareLine(const json& system) {
  const json& machine = system.contains("machine") ? system["machine"] : system;
  std::string line;
  if (machine.contains("cpu_model")) {
    line = fmt::format("{}, {} cores, {} GiB", machine["cpu_model"].get<std::string>(),
                       machine["cores"].dump(), machine["memory_gib"].dump());
    for (const auto& gpu : machine["gpus"]) line += ", " + gpu.get<std::string>();
  }
  if (!system.contains("cluster")) return line;
  const std::string cluster = system["cluster"];
  return line.empty() ? "profile " + cluster : "profile of " + line;
}

std::vector<ClaimResult> JudgeClaims(const PartResult& result) {
  std::vector<ClaimResult> judged;
  for (const auto& claim : result.part->claims) {
    const CellResult& of = result.cells[claim.of_cell];
    const CellResult& over = result.cells[claim.over_cell];
    ClaimResult entry;
    entry.claim = &claim;
    entry.mode = "measured";
    for (const char* weaker : {"emulated", "modelled"}) {
      if (of.cell->json["mode"] == weaker || over.cell->json["mode"] == weaker) entry.mode = weaker;
    }
    if (of.invalid || over.invalid) {
      entry.verdict = Verdict::kInvalid;
    } else {
      Compare(of.Values(claim.metric), over.Values(claim.metric), entry);
    }
    judged.push_back(entry);
  }
  return judged;
}

}  // namespace sparfuse::harness
