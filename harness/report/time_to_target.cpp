#include "harness/report/time_to_target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "harness/files/durable_file.hpp"
#include "harness/store/evidence/series_file.hpp"
#include "harness/wording/numbers.hpp"
#include "harness/wording/table.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr std::size_t kPairsForARatio = 3;
constexpr std::size_t kOlympicFrom = 5;
constexpr double kNoChance = 0.05;  // level of a one-sided test

// The result of a cell's run of one block.
struct TargetRun {
  std::vector<Evaluated> evaluations;
  bool timed = true;  // false if a disturbance spoiled its times
};

// The evaluations of a trial; empty if it has none, or none with an epoch.
std::vector<Evaluated> EvaluationsIn(const std::filesystem::path& directory) {
  const auto path = directory / "evaluations.npy";
  std::vector<Evaluated> found;
  if (!SomethingIsAt(path)) return found;
  const std::map<std::string, std::string> files = {{"evaluations.npy", ReadFile(path)}};
  for (const auto& [file, series] : OpenAll(files)) {
    for (std::uint64_t row = 0; row < series.header.rows; ++row) {
      const auto at = [&](const char* column) { return series.Number(column, row); };
      const auto step = at("step"), epoch = at("epoch"), seconds = at("seconds"),
                 metric = at("metric");
      if (!step || !epoch || !seconds || !metric) return {};
      found.push_back({.step = *step, .epoch = *epoch, .seconds = *seconds, .metric = *metric});
    }
  }
  return found;
}

std::map<int, TargetRun> RunsOf(const CellResult& cell, const std::filesystem::path& folder) {
  std::map<int, TargetRun> runs;
  for (const auto& [block, trial] : cell.trials) {
    TargetRun run{
        EvaluationsIn(folder / trial->directory),
        cell.disturbed_trials == DisturbedTrials::kCount || !cell.disturbed.contains(block)};
    if (!run.evaluations.empty()) runs.emplace(block, std::move(run));
  }
  return runs;
}

// A quantity by block: until the target for runs that reached it, and until the end for the others.
struct UntilThere {
  std::map<int, double> reached, censored;
};

using Need = std::optional<double> (*)(const TargetRun&, const Evaluated&);

std::optional<double> EpochsOf(const TargetRun&, const Evaluated& at) { return at.epoch; }
std::optional<double> SecondsOf(const TargetRun& run, const Evaluated& at) {
  return run.timed ? std::optional(at.seconds) : std::nullopt;
}

// ours / other, paired by block. The interval if all pairs reached the target, else the bound that
// the censored runs give.
std::string RatioOverText(const UntilThere& ours, const UntilThere& other) {
  std::vector<double> ratios;
  const auto pair = [&](const std::map<int, double>& a, const std::map<int, double>& b) {
    const std::size_t before = ratios.size();
    for (const auto& [block, ratio] : RatiosByBlock(a, b)) ratios.push_back(ratio);
    return ratios.size() > before;
  };
  pair(ours.reached, other.reached);
  const bool above = pair(ours.censored, other.reached);
  const bool below = pair(ours.reached, other.censored);
  const bool open = !RatiosByBlock(ours.censored, other.censored).empty();
  if (ratios.size() < kPairsForARatio || open || (above && below)) return kNone;
  const auto interval = LogInterval(ratios);
  if (above || below) return (above ? "> " : "< ") + RatioText(interval->value);
  return RatioText(interval);
}

// Whether the run needs significantly fewer epochs than the reference: a one-sided t-test of paired
// runs.
bool SignificantlyFewer(const UntilThere& ours, const UntilThere& other) {
  if (!ours.censored.empty() || !other.censored.empty()) return false;
  const std::vector<double> ratios = OfBlocks(RatiosByBlock(ours.reached, other.reached));
  return ratios.size() >= kPairsForARatio && LogInterval(ratios, 1 - 2 * kNoChance)->high < 1;
}

UntilThere Divided(const UntilThere& seconds, const UntilThere& epochs) {
  return {RatiosByBlock(seconds.reached, epochs.reached),
          RatiosByBlock(seconds.censored, epochs.censored)};
}

class Targets {
 public:
  Targets(const json& figure, std::span<const PartResult> results, std::size_t part,
          const std::filesystem::path& folder)
      : figure_(figure), results_(results), result_(results[part]) {
    const std::string& usual = result_.part->reference;
    reference_ = figure.value("reference", usual.empty() ? "dense" : usual);
    for (const std::size_t i : figure["cells"].get<std::vector<std::size_t>>()) {
      auto runs = RunsOf(result_.cells[i], folder);
      if (!runs.empty()) runs_.emplace(i, std::move(runs));
    }
  }

  json Found() const {
    json rows = json::array();
    GroupedTable here, there;
    for (const auto& [setting, cells] : Settings()) {
      const auto reference = ReferenceOf(cells);
      for (const double target : TargetsOf(cells)) {
        std::vector<std::vector<std::string>> measured, modelled;
        for (const std::size_t i : cells) {
          measured.push_back(RowOf(i, reference, target, rows));
          for (auto& row : ModelledRows(i, reference, target)) modelled.push_back(std::move(row));
        }
        const std::string heading = fmt::format("{}, target {:g}", setting, target);
        here.groups.emplace_back(heading, std::move(measured));
        if (!modelled.empty()) there.groups.emplace_back(heading, std::move(modelled));
      }
    }
    json tables = json::array();
    const std::string over = " / " + reference_;
    if (!here.groups.empty()) {
      here.columns = {"method",      "reached",       "epochs",
                      "seconds",     "epochs" + over, "seconds an epoch" + over,
                      "time" + over, "final metric"};
      here.notes = {
          "The first evaluation at or past the target counts" + Resolution() +
              "; of five runs or more, the mean without the least and the greatest, of fewer the "
              "median; in brackets the range.",
          fmt::format("Ratios are geometric means over runs of one seed, from {} pairs on; runs "
                      "that never reached the target give a bound, from their end.",
                      kPairsForARatio),
          "*: significantly fewer epochs than " + reference_ +
              "'s (paired one-sided t-test, 5 %): such a result needs an explanation."};
      tables.push_back(ToJson(here));
    }
    if (!there.groups.empty()) {
      there.columns = {"method", "cluster", "seconds an epoch (modelled)",
                       "seconds to target (modelled)", "time" + over + " (modelled)"};
      there.notes = {
          "Runs here give the epochs; step times are modelled, nothing was timed there."};
      tables.push_back(ToJson(there));
    }
    return {{"reference", reference_}, {"rows", rows}, {"tables", tables}};
  }

 private:
  // Groups cells that differ in the method alone, in order of appearance.
  std::vector<std::pair<std::string, std::vector<std::size_t>>> Settings() const {
    std::vector<std::pair<std::string, std::vector<std::size_t>>> settings;
    for (const auto& [i, runs] : runs_) {
      const std::string words = WordsOf(i);
      auto found = std::ranges::find(settings, words, &decltype(settings)::value_type::first);
      if (found == settings.end()) found = settings.insert(settings.end(), {words, {}});
      found->second.push_back(i);
    }
    return settings;
  }

  std::string WordsOf(std::size_t i) const {
    const CellConfig& config = result_.cells[i].cell->config;
    std::string words = fmt::format("{}, {} workers", config.workload, config.workers);
    if (!config.data.empty()) words = config.data + ", " + words;
    return words;
  }

  std::vector<double> TargetsOf(const std::vector<std::size_t>& cells) const {
    if (figure_.contains("targets")) return figure_["targets"].get<std::vector<double>>();
    std::set<double> targets;
    for (const std::size_t i : cells) {
      if (const auto& target = result_.cells[i].cell->config.target) targets.insert(*target);
    }
    return {targets.begin(), targets.end()};
  }

  std::optional<std::size_t> ReferenceOf(const std::vector<std::size_t>& cells) const {
    const auto found = std::ranges::find_if(
        cells, [&](std::size_t i) { return result_.cells[i].cell->config.method == reference_; });
    return found == cells.end() ? std::nullopt : std::optional(*found);
  }

  UntilThere UntilTargetOf(std::size_t i, double target, Need need) const {
    const auto& workload = workloads::FindWorkload(result_.cells[i].cell->config.workload);
    UntilThere until;
    for (const auto& [block, run] : runs_.at(i)) {
      const Crossing crossing = CrossingOf(run.evaluations, target, workload.higher_is_better);
      if (const auto value = need(run, crossing.at))
        (crossing.reached ? until.reached : until.censored)[block] = *value;
    }
    return until;
  }

  std::vector<std::string> RowOf(std::size_t i, std::optional<std::size_t> reference, double target,
                                 json& rows) const {
    const auto& runs = runs_.at(i);
    const UntilThere epochs = UntilTargetOf(i, target, EpochsOf);
    const UntilThere seconds = UntilTargetOf(i, target, SecondsOf);
    const UntilThere pace = Divided(seconds, epochs);
    json row = {{"target", target},
                {"cell", i},
                {"reached", epochs.reached.size()},
                {"n", runs.size()},
                {"epochs", ByBlockJson(epochs.reached)},
                {"seconds", ByBlockJson(seconds.reached)},
                {"flagged", false}};
    std::string name = result_.cells[i].cell->label;
    std::vector<std::string> over(3, kNone);
    if (reference && *reference != i) {
      const UntilThere their_epochs = UntilTargetOf(*reference, target, EpochsOf);
      const UntilThere their_seconds = UntilTargetOf(*reference, target, SecondsOf);
      over = {RatioOverText(epochs, their_epochs),
              RatioOverText(pace, Divided(their_seconds, their_epochs)),
              RatioOverText(seconds, their_seconds)};
      if (SignificantlyFewer(epochs, their_epochs)) {
        name += " *";
        row["flagged"] = true;
      }
    }
    rows.push_back(std::move(row));
    std::vector<double> final;
    for (const auto& [block, run] : runs) final.push_back(run.evaluations.back().metric);
    return {name,
            fmt::format("{} of {}", epochs.reached.size(), runs.size()),
            TypicalText(OfBlocks(epochs.reached)),
            TypicalText(OfBlocks(seconds.reached)),
            over[0],
            over[1],
            over[2],
            TypicalText(final)};
  }

  // Rows with the time of the epochs on the clusters of the part `modelled`.
  std::vector<std::vector<std::string>> ModelledRows(std::size_t i,
                                                     std::optional<std::size_t> reference,
                                                     double target) const {
    std::vector<std::vector<std::string>> rows;
    const auto part = std::ranges::find_if(results_, [&](const PartResult& each) {
      return figure_.contains("modelled") && each.part->id == figure_["modelled"];
    });
    if (part == results_.end()) return rows;
    const auto modelled = [&](std::size_t of, const std::string& cluster) -> const CellResult* {
      const CellConfig& ours = result_.cells[of].cell->config;
      const auto found = std::ranges::find_if(part->cells, [&](const CellResult& each) {
        const CellConfig& theirs = each.cell->config;
        return theirs.method == ours.method && theirs.workload == ours.workload &&
               theirs.density == ours.density && theirs.cluster == cluster && each.blocks() > 0;
      });
      return found == part->cells.end() ? nullptr : &*found;
    };
    const auto seconds_of = [&](std::size_t of, const CellResult& cell) {
      const Evaluated& last = runs_.at(of).begin()->second.evaluations.back();
      const double epoch = last.epoch > 0 ? last.step / last.epoch * *cell.Mean("step_seconds") : 0;
      UntilThere until = UntilTargetOf(of, target, EpochsOf);
      for (auto* values : {&until.reached, &until.censored}) {
        for (auto& [block, value] : *values) value *= epoch;
      }
      return std::pair(epoch, until);
    };
    std::set<std::string> clusters;
    for (const CellResult& cell : part->cells) clusters.insert(cell.cell->config.cluster);
    for (const std::string& cluster : clusters) {
      const CellResult* cell = modelled(i, cluster);
      if (cell == nullptr) continue;
      const auto [epoch, until] = seconds_of(i, *cell);
      std::string over = kNone;
      const CellResult* base =
          reference && *reference != i ? modelled(*reference, cluster) : nullptr;
      if (base != nullptr) over = RatioOverText(until, seconds_of(*reference, *base).second);
      rows.push_back({result_.cells[i].cell->label, cluster, fmt::format("{:.4g}", epoch),
                      TypicalText(OfBlocks(until.reached)), over});
    }
    return rows;
  }

  // The distance between evaluations.
  std::string Resolution() const {
    double most = 0;
    for (const auto& [i, runs] : runs_) {
      for (const auto& [block, run] : runs) {
        double before = 0;
        for (const Evaluated& at : run.evaluations) {
          most = std::max(most, at.epoch - before);
          before = at.epoch;
        }
      }
    }
    return most > 0 ? fmt::format(" (evaluations are up to {:.2g} epochs apart)", most) : "";
  }

  const json& figure_;
  std::span<const PartResult> results_;
  const PartResult& result_;
  std::string reference_;                                 // name of a method
  std::map<std::size_t, std::map<int, TargetRun>> runs_;  // by cell and block
};

}  // namespace

Crossing CrossingOf(std::span<const Evaluated> evaluations, double target, bool higher_is_better) {
  for (const Evaluated& at : evaluations) {
    if (higher_is_better ? at.metric >= target : at.metric <= target) return {at, true};
  }
  return {evaluations.back(), false};
}

std::string TypicalText(std::vector<double> values) {
  if (values.empty()) return kNone;
  std::ranges::sort(values);
  double typical = Median(values);
  if (values.size() >= kOlympicFrom) {
    typical = std::accumulate(values.begin() + 1, values.end() - 1, 0.0) /
              static_cast<double>(values.size() - 2);
  }
  if (values.size() == 1) return fmt::format("{:.4g}", typical);
  return fmt::format("{:.4g} [{:.4g}, {:.4g}]", typical, values.front(), values.back());
}

json TimeToTargetOf(const json& figure, std::span<const PartResult> results, std::size_t part,
                    const std::filesystem::path& folder) {
  return Targets(figure, results, part, folder).Found();
}

}  // namespace sparfuse::harness
