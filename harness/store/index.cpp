#include "harness/store/index.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/base/error.hpp"
#include "harness/catalog/cell_config.hpp"
#include "harness/files/canonical.hpp"

namespace sparfuse::harness {

using nlohmann::json;

// A prepared statement whose parameters are bound in order.
class Statement {
 public:
  Statement(const Index& index, const char* sql) : index_(index) {
    if (sqlite3_prepare_v2(index.database_, sql, -1, &statement_, nullptr) != SQLITE_OK) {
      index_.Fail("prepare");
    }
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(const std::string& text) {
    return Bound(sqlite3_bind_text(statement_, ++bound_, text.c_str(),
                                   static_cast<int>(text.size()), SQLITE_TRANSIENT));
  }
  // Strings, numbers, booleans and null as such, the rest as canonical JSON.
  Statement& Bind(const json& value) {
    if (value.is_null()) return Bound(sqlite3_bind_null(statement_, ++bound_));
    if (value.is_string()) return Bind(value.get_ref<const std::string&>());
    if (value.is_boolean()) return Bound(sqlite3_bind_int(statement_, ++bound_, value.get<bool>()));
    if (value.is_number_integer()) {
      return Bound(sqlite3_bind_int64(statement_, ++bound_, value.get<std::int64_t>()));
    }
    if (value.is_number())
      return Bound(sqlite3_bind_double(statement_, ++bound_, value.get<double>()));
    return Bind(CanonicalJson(value));
  }
  bool Step() {
    const int result = sqlite3_step(statement_);
    if (result != SQLITE_ROW && result != SQLITE_DONE) index_.Fail("run");
    return result == SQLITE_ROW;
  }
  std::string Text(int column) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return text ? text : "";
  }
  double Number(int column) const { return sqlite3_column_double(statement_, column); }
  bool IsNull(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  int Integer(int column) const { return sqlite3_column_int(statement_, column); }

 private:
  Statement& Bound(int result) {
    if (result != SQLITE_OK) index_.Fail("bind");
    return *this;
  }
  const Index& index_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

namespace {

constexpr const char* kSchema = R"(
CREATE TABLE IF NOT EXISTS trial(trial_id TEXT PRIMARY KEY, experiment TEXT, part TEXT, kind TEXT,
  mode TEXT, method TEXT, workload TEXT, sparsifier TEXT, density REAL, workers INTEGER,
  link_gbps REAL, batch_per_worker INTEGER, block INTEGER, seed INTEGER, config_hash TEXT,
  system_hash TEXT, source_commit TEXT, status TEXT, failure_kind TEXT, failure_message TEXT,
  log_tail TEXT, directory TEXT, started_utc TEXT, seconds REAL, config_json TEXT, system_json TEXT,
  provenance_json TEXT);
CREATE INDEX IF NOT EXISTS trial_config ON trial(config_hash);
CREATE TABLE IF NOT EXISTS metric(trial_id TEXT, name TEXT, value REAL, unit TEXT,
  PRIMARY KEY(trial_id, name));
CREATE TABLE IF NOT EXISTS check_result(trial_id TEXT, name TEXT, passed INTEGER,
  PRIMARY KEY(trial_id, name));
CREATE TABLE IF NOT EXISTS revision(trial_id TEXT, part TEXT, revision INTEGER,
  PRIMARY KEY(trial_id, part));
CREATE TABLE IF NOT EXISTS annotation(annotation_id TEXT PRIMARY KEY, trial_id TEXT, reason TEXT,
  created_utc TEXT);
)";

json Member(const json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object[key] : json();
}

// The digits that end a trial's id: 11 of "...-b0-11".
std::uint64_t RunningNumber(const std::string& id) {
  const std::size_t first = id.find_last_not_of("0123456789") + 1;
  return first == id.size() ? 0 : std::strtoull(id.c_str() + first, nullptr, 10);
}

}  // namespace

Index::Index(const std::filesystem::path& path, int flags) : path_(path) {
  if (sqlite3_open_v2(path.c_str(), &database_, flags, nullptr) != SQLITE_OK) Fail("open");
  sqlite3_busy_timeout(database_, 10'000);
}

Index Index::OpenToWrite(const std::filesystem::path& path) {
  Index index(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  index.Execute(kSchema);
  index.Execute(fmt::format("PRAGMA user_version = {}", kTrialSchema).c_str());
  return index;
}

bool Index::IsCurrent(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return true;
  // Writable, so that SQLite rolls back what a kill left half done.
  return Index(path, SQLITE_OPEN_READWRITE).Schema() == kTrialSchema;
}

int Index::Schema() const {
  Statement version(*this, "PRAGMA user_version");
  return version.Step() ? version.Integer(0) : 0;
}

Index Index::OpenToRead(const std::filesystem::path& path) {
  Index index(path, SQLITE_OPEN_READONLY);
  if (index.Schema() != kTrialSchema) {
    SPARFUSE_THROW(kData, fmt::format("{} was written by an older sparfuse, whose trials do not "
                                      "count; `sparfuse index --rebuild` makes it again",
                                      path.string()));
  }
  return index;
}

Index::Index(Index&& other) noexcept
    : path_(std::move(other.path_)), database_(std::exchange(other.database_, nullptr)) {}
Index& Index::operator=(Index&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(database_, other.database_);
  return *this;
}
Index::~Index() { sqlite3_close(database_); }

void Index::Fail(const char* what) const {
  const std::string reason = database_ ? sqlite3_errmsg(database_) : "out of memory";
  SPARFUSE_THROW(kData,
                 fmt::format("{}: SQLite cannot {}: {} (sparfuse index --rebuild makes it again "
                             "from the trial directories)",
                             path_.string(), what, reason));
}

void Index::Execute(const char* sql) {
  if (sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) Fail("write");
}

void Index::AddTrial(const json& trial) {
  const json& config = trial["config"];
  const json link = Member(config, "link");
  const json failure = Member(trial, "failure");
  const std::string id = trial["trial_id"];
  json provenance;
  for (const char* key : {"software", "source", "sources", "argv", "environment", "machine",
                          "layout", "sampling", "launch", "rounds", "quiet"}) {
    provenance[key] = Member(trial, key);
  }
  Execute("BEGIN IMMEDIATE");
  try {
    Statement row(
        *this, "INSERT INTO trial VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    row.Bind(id).Bind(trial["experiment"]).Bind(trial["part"]);
    for (const char* key :
         {"kind", "mode", "method", "workload", "sparsifier", "density", "workers"}) {
      row.Bind(Member(config, key));
    }
    row.Bind(Member(link, "gbps")).Bind(Member(config, "batch_per_worker"));
    row.Bind(trial["block"])
        .Bind(trial["seed"])
        .Bind(trial["config_hash"])
        .Bind(trial["system_hash"]);
    row.Bind(Member(Member(trial, "source"), "commit")).Bind(trial["status"]);
    row.Bind(Member(failure, "kind"))
        .Bind(Member(failure, "message"))
        .Bind(Member(failure, "log_tail"));
    row.Bind("trials/" + id).Bind(trial["started_utc"]).Bind(trial["seconds"]);
    row.Bind(CanonicalJson(config)).Bind(CanonicalJson(Member(trial, "system")));
    row.Bind(CanonicalJson(provenance)).Step();
    const auto insert = [&](const char* sql, const json& table, auto bind) {
      for (const auto& [name, value] : table.items()) {
        Statement statement(*this, sql);
        statement.Bind(id).Bind(name);
        bind(statement, value);
        statement.Step();
      }
    };
    insert("INSERT INTO metric VALUES(?,?,?,?)", trial["metrics"],
           [](Statement& s, const json& value) {
             s.Bind(value["value"]).Bind(Member(value, "unit"));
           });
    insert("INSERT INTO check_result VALUES(?,?,?)", trial["checks"],
           [](Statement& s, const json& value) { s.Bind(value); });
    insert("INSERT INTO revision VALUES(?,?,?)", trial["revisions"],
           [](Statement& s, const json& value) { s.Bind(value); });
    Execute("COMMIT");
  } catch (...) {
    sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
}

void Index::AddAnnotation(const json& annotation) {
  Statement statement(*this, "INSERT INTO annotation VALUES(?,?,?,?)");
  for (const char* key : {"annotation_id", "trial_id", "reason", "created_utc"}) {
    statement.Bind(annotation[key]);
  }
  statement.Step();
}

std::set<std::string> Index::TrialIds() const {
  std::set<std::string> ids;
  Statement statement(*this, "SELECT trial_id FROM trial");
  while (statement.Step()) ids.insert(statement.Text(0));
  return ids;
}

std::set<std::string> Index::AnnotationIds() const {
  std::set<std::string> ids;
  Statement statement(*this, "SELECT annotation_id FROM annotation");
  while (statement.Step()) ids.insert(statement.Text(0));
  return ids;
}

std::vector<TrialRow> Index::Rows() const {
  std::vector<TrialRow> rows;
  std::map<std::string, std::size_t> at;
  Statement trial(
      *this,
      "SELECT trial_id, experiment, part, kind, mode, method, workload, config_hash, "
      "system_hash, status, failure_kind, failure_message, log_tail, directory, started_utc, "
      "workers, block, seconds, config_json, system_json, provenance_json FROM trial");
  while (trial.Step()) {
    TrialRow row;
    std::string* const texts[] = {&row.trial_id, &row.experiment,   &row.part,
                                  &row.kind,     &row.mode,         &row.method,
                                  &row.workload, &row.config_hash,  &row.system_hash,
                                  &row.status,   &row.failure_kind, &row.failure_message,
                                  &row.log_tail, &row.directory,    &row.started_utc};
    int column = 0;
    for (std::string* text : texts) *text = trial.Text(column++);
    row.workers = trial.Integer(column++);
    row.block = trial.Integer(column++);
    row.seconds = trial.Number(column++);
    row.config = json::parse(trial.Text(column++));
    row.system = json::parse(trial.Text(column++));
    row.provenance = json::parse(trial.Text(column++));
    row.quiet = Member(row.provenance, "quiet");
    if (row.provenance.is_object()) row.provenance.erase("quiet");
    rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(), [](const TrialRow& a, const TrialRow& b) {
    const auto age = [](const TrialRow& row) {
      return std::make_tuple(std::string_view(row.started_utc), RunningNumber(row.trial_id),
                             std::string_view(row.trial_id));
    };
    return age(a) < age(b);
  });
  for (std::size_t i = 0; i < rows.size(); ++i) at[rows[i].trial_id] = i;
  const auto each = [&](const char* sql, auto use) {
    Statement statement(*this, sql);
    while (statement.Step()) {
      if (const auto found = at.find(statement.Text(0)); found != at.end()) {
        use(rows[found->second], statement);
      }
    }
  };
  each("SELECT trial_id, name, value, unit FROM metric", [](TrialRow& row, const Statement& s) {
    if (s.IsNull(2)) return;
    row.metrics[s.Text(1)] = s.Number(2);
    row.units[s.Text(1)] = s.Text(3);
  });
  each("SELECT trial_id, name FROM check_result WHERE NOT passed ORDER BY name",
       [](TrialRow& row, const Statement& s) { row.failed_checks.push_back(s.Text(1)); });
  each("SELECT trial_id, part, revision FROM revision",
       [](TrialRow& row, const Statement& s) { row.revisions[s.Text(1)] = s.Integer(2); });
  each("SELECT trial_id, reason FROM annotation ORDER BY annotation_id",
       [](TrialRow& row, const Statement& s) { row.annotations.push_back(s.Text(1)); });
  return rows;
}

RowLaunch LaunchOf(const TrialRow& row) {
  RowLaunch launch;
  if (const json known = Member(row.provenance, "launch"); known.is_object()) {
    launch.id = known.value("id", "");
    launch.trials = std::max<std::size_t>(1, known.value("trials", std::size_t{1}));
    launch.start_seconds = known.value("start_seconds", 0.0);
  }
  if (const json rounds = Member(row.provenance, "rounds"); rounds.is_array()) {
    for (const json& seconds : rounds) launch.rounds.push_back(seconds.get<double>());
  }
  return launch;
}

bool TrialRow::disturbed() const { return Member(quiet, "disturbed") == true; }

std::string TrialRow::WhyDisturbed() const { return disturbed() ? quiet.value("why", "") : ""; }

bool IsOlderTrial(const json& trial) {
  const json schema = Member(trial, "schema");
  return schema.is_number_integer() && schema < kTrialSchema;
}

namespace {

// In how a trial was launched, which modelled trials and those of earlier versions do not have.
std::string WhatIsWrongWithLaunch(const json& trial) {
  const json launch = Member(trial, "launch");
  const json rounds = Member(trial, "rounds");
  const json trials = Member(launch, "trials");
  const json start = Member(launch, "start_seconds");
  if (!launch.is_null() && !(Member(launch, "id").is_string() && trials.is_number_integer() &&
                             trials > 0 && (start.is_null() || start.is_number()))) {
    return "launch: expected an id, the number of its trials, and perhaps start_seconds";
  }
  const bool good = rounds.is_array() && std::ranges::all_of(rounds, [](const json& seconds) {
                      return seconds.is_number() && seconds > 0;
                    });
  return rounds.is_null() || good ? "" : "rounds: expected a list of numbers above 0";
}

}  // namespace

std::string WhatIsWrongWithTrial(const json& trial) {
  if (!trial.is_object()) return "not an object";
  if (Member(trial, "schema") != kTrialSchema) {
    return fmt::format("schema: expected {}", kTrialSchema);
  }
  for (const char* key :
       {"trial_id", "experiment", "part", "status", "config_hash", "system_hash", "started_utc"}) {
    if (!Member(trial, key).is_string()) return fmt::format("{}: expected a string", key);
  }
  for (const char* key : {"config", "metrics", "checks", "revisions"}) {
    if (!Member(trial, key).is_object()) return fmt::format("{}: expected an object", key);
  }
  for (const char* key : {"block", "seed", "seconds"}) {
    if (!Member(trial, key).is_number()) return fmt::format("{}: expected a number", key);
  }
  for (const auto& [name, metric] : trial["metrics"].items()) {
    const json value = Member(metric, "value");
    if (!value.is_number() && !value.is_null()) return "metrics: " + name + ": expected a number";
  }
  if (ConfigHash(trial["config"]) != trial["config_hash"]) {
    return "config_hash: it is not the hash of config";
  }
  return WhatIsWrongWithLaunch(trial);
}

}  // namespace sparfuse::harness
