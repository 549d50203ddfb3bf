#include "harness/store/trial_row.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <tuple>
#include <unordered_set>

#include "harness/files/canonical.hpp"
#include "harness/machine/binding.hpp"
#include "harness/store/evidence/recomputed.hpp"

namespace sparfuse::harness {

StoredJson::StoredJson(nlohmann::json value) : shared_(std::make_shared<Shared>()) {
  shared_->value = std::move(value);
}

StoredJson StoredJson::OfText(std::string text) {
  StoredJson stored;
  stored.shared_ = std::make_shared<Shared>();
  stored.shared_->text = std::move(text);
  return stored;
}

const nlohmann::json& StoredJson::Value() const {
  static const nlohmann::json null;
  if (!shared_) return null;
  if (!shared_->value) shared_->value = nlohmann::json::parse(shared_->text);
  return *shared_->value;
}

std::string_view StoredJson::Text() const {
  if (!shared_) return "null";
  if (shared_->text.empty()) shared_->text = CanonicalJson(*shared_->value);
  return shared_->text;
}

nlohmann::json& StoredJson::operator[](const std::string& key) {
  *this = StoredJson(nlohmann::json(Value()));
  return (*shared_->value)[key];
}

std::string_view Interned(std::string_view name) {
  static std::mutex mutex;
  static std::unordered_set<std::string> names;  // its elements do not move
  thread_local std::unordered_set<std::string_view> known;
  if (const auto found = known.find(name); found != known.end()) return *found;
  const std::lock_guard lock(mutex);
  return *known.insert(*names.emplace(name).first).first;
}

namespace {

using nlohmann::json;

const json& Member(const json& object, const char* key) {
  static const json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

// The digits that end a trial's id: 11 of "...-b0-11".
std::uint64_t RunningNumber(const std::string& id) {
  const std::size_t first = id.find_last_not_of("0123456789") + 1;
  return first == id.size() ? 0 : std::strtoull(id.c_str() + first, nullptr, 10);
}

// Adds the facts of a launch that may vary among the trials of a cell, and its nodes.
void AddLaunch(const TrialLaunch& launch, json& provenance) {
  if (!launch.nodes.empty()) {
    for (const Node& node : launch.nodes) provenance["nodes"].push_back(ToJson(node));
  }
  if (launch.network && launch.network->hosts.size() > 1) {
    const std::string& interface = launch.network->interface;
    provenance["launch"]["interface"] = interface.empty() ? "as libraries choose" : interface;
  }
  if (!launch.binding) return;
  std::set<std::size_t> counts;
  for (const std::string& cores : launch.binding->cores) counts.insert(ReadRanges(cores).size());
  if (!counts.empty())
    provenance["launch"]["cores_a_rank"] = fmt::format("{}", fmt::join(counts, " or "));
}

StoredJson ProvenanceIn(const Trial& trial) {
  json provenance = {{"software", nullptr},
                     {"source", nullptr},
                     {"machine", nullptr},
                     {"sources", trial.sources},
                     {"environment", trial.environment},
                     {"sampling", trial.sampling.empty() ? json() : json(trial.sampling)}};
  if (trial.software) provenance["software"] = ToJson(*trial.software);
  if (trial.source) provenance["source"] = ToJson(*trial.source);
  if (trial.machine) provenance["machine"] = ToJson(*trial.machine);
  if (trial.launch) AddLaunch(*trial.launch, provenance);
  if (trial.fingerprint) provenance["fingerprint"] = ToJson(*trial.fingerprint);
  if (trial.imported) provenance["imported"] = ToJson(*trial.imported);
  return provenance;
}

}  // namespace

bool TrialRow::disturbed() const { return Member(quiet, "disturbed") == true; }

std::string TrialRow::WhyDisturbed() const { return disturbed() ? TextOf(quiet, "why") : ""; }

TrialRow RowOf(const Trial& trial) {
  TrialRow row;
  row.trial_id = trial.trial_id;
  row.experiment = trial.experiment;
  row.part = trial.part;
  row.kind = TextOf(trial.config, "kind");
  row.mode = TextOf(trial.config, "mode");
  row.method = TextOf(trial.config, "method");
  row.workload = TextOf(trial.config, "workload");
  if (const json& workers = Member(trial.config, "workers"); workers.is_number_integer())
    row.workers = workers.get<int>();
  row.config_hash = trial.config_hash;
  row.system_hash = trial.system_hash;
  row.original_id = trial.original_id;
  if (row.original_id.empty()) row.origin = trial.origin;
  row.status = NameOf(trial.status);
  if (trial.failure) row.failure_kind = trial.failure->kind;
  row.directory = "trials/" + row.trial_id;
  row.started_utc = trial.started_utc;
  row.block = trial.block;
  row.seed = trial.seed;
  row.seconds = trial.seconds;
  row.config = StoredJson(trial.config);
  row.system = StoredJson(ToJson(trial.system));
  row.provenance = ProvenanceIn(trial);
  row.quiet = StoredJson(ToJson(trial.quiet));
  if (trial.launch) {
    row.launch.id = trial.launch->id;
    row.launch.trials = static_cast<std::size_t>(trial.launch->trials);
    row.launch.start_seconds = trial.launch->start_seconds.value_or(0);
  }
  row.launch.rounds = trial.rounds;
  row.launch.draws = trial.draws;
  row.revisions = StoredJson(json(trial.revisions));
  for (const auto& [name, metric] : trial.metrics) {
    if (!metric.value) continue;
    row.metrics.Set(name, *metric.value);
    row.units.Set(name, metric.unit);
  }
  for (const auto& [name, passed] : trial.checks)
    (passed ? row.checks : row.failed_checks).push_back(name);
  return row;
}

std::vector<std::string> TrialRow::WhyLeftOut() const {
  std::vector<std::string> why = annotations;
  if (!contradiction.empty())
    why.push_back("its numbers do not follow from its series: " + contradiction);
  return why;
}

int HostsOf(const TrialRow& trial) {
  std::set<std::string> hosts;
  for (const json& host : Member(Member(trial.provenance, "machine"), "placement"))
    hosts.insert(host.dump());
  return static_cast<int>(hosts.size());
}

bool RanAlike(const TrialRow& one, const TrialRow& other) {
  const int hosts = HostsOf(one), others = HostsOf(other);
  return hosts == 0 || others == 0 || hosts == others;
}

void SortByAge(std::vector<TrialRow>& rows) {
  std::ranges::sort(rows, [](const TrialRow& a, const TrialRow& b) {
    if (a.started_utc != b.started_utc) return a.started_utc < b.started_utc;
    return std::make_tuple(RunningNumber(a.trial_id), std::string_view(a.trial_id)) <
           std::make_tuple(RunningNumber(b.trial_id), std::string_view(b.trial_id));
  });
}

}  // namespace sparfuse::harness
