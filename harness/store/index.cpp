#include "harness/store/index.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "harness/store/evidence/recomputed.hpp"

namespace sparfuse::harness {

// Runs a prepared statement. Parameters are bound in order; Run() makes it ready to be bound again.
class Statement {
 public:
  Statement(const Index& index, const char* sql) : index_(index) {
    if (sqlite3_prepare_v2(index.database_, sql, -1, &statement_, nullptr) != SQLITE_OK)
      index_.Fail("prepare");
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // A bound text must live until Run or the last Step.
  Statement& Bind(std::string_view text) {
    return Bound(sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                                   SQLITE_STATIC));
  }
  Statement& BindInteger(std::int64_t number) {
    return Bound(sqlite3_bind_int64(statement_, ++bound_, number));
  }
  Statement& BindNumber(double number) {
    return Bound(sqlite3_bind_double(statement_, ++bound_, number));
  }
  // A string, a number or null.
  Statement& BindJson(const nlohmann::json& value) {
    if (value.is_string()) return Bind(std::string_view(value.get_ref<const std::string&>()));
    if (value.is_number_integer()) return BindInteger(value.get<std::int64_t>());
    if (value.is_number()) return BindNumber(value.get<double>());
    return Bound(sqlite3_bind_null(statement_, ++bound_));
  }
  bool Step() {
    const int result = sqlite3_step(statement_);
    if (result != SQLITE_ROW && result != SQLITE_DONE) index_.Fail("run", statement_);
    return result == SQLITE_ROW;
  }
  void Run() {
    Step();
    bound_ = 0;
    sqlite3_reset(statement_);
  }

  // Valid until the next Step.
  std::string_view View(int column) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    const int size = sqlite3_column_bytes(statement_, column);
    return text ? std::string_view(text, static_cast<std::size_t>(size)) : std::string_view();
  }
  std::string Text(int column) const { return std::string(View(column)); }
  double Number(int column) const { return sqlite3_column_double(statement_, column); }
  std::int64_t Integer(int column) const { return sqlite3_column_int64(statement_, column); }

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

using nlohmann::json;

// Raised if the tables change, or the checks that find contradictions in trials. An index with
// another number is rebuilt.
constexpr int kIndexVersion = 10;

constexpr const char* kSchema = R"(
CREATE TABLE IF NOT EXISTS trial(trial_id TEXT PRIMARY KEY, experiment TEXT, part TEXT, kind TEXT,
  mode TEXT, method TEXT, workload TEXT, sparsifier TEXT, density REAL, workers INTEGER,
  link_gbps REAL, batch_per_worker INTEGER, block INTEGER, seed INTEGER, config_hash TEXT,
  system_hash TEXT, origin TEXT, original_id TEXT, source_commit TEXT, status TEXT,
  failure_kind TEXT, directory TEXT, started_utc TEXT, seconds REAL, config_json TEXT, system_json TEXT,
  provenance_json TEXT, revisions_json TEXT, launch_json TEXT, quiet_json TEXT, contradiction TEXT, file_mtime_ns INTEGER, file_size INTEGER,
  file_inode INTEGER);
CREATE INDEX IF NOT EXISTS trial_config ON trial(config_hash);
CREATE TABLE IF NOT EXISTS metric(trial_id TEXT, name TEXT, value REAL, unit TEXT,
  PRIMARY KEY(trial_id, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS check_result(trial_id TEXT, name TEXT, passed INTEGER,
  PRIMARY KEY(trial_id, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revision(trial_id TEXT, part TEXT, revision INTEGER,
  PRIMARY KEY(trial_id, part)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS annotation(annotation_id TEXT PRIMARY KEY, trial_id TEXT, reason TEXT,
  created_utc TEXT);
CREATE TABLE IF NOT EXISTS left_out(place TEXT PRIMARY KEY, problem TEXT, file_mtime_ns INTEGER,
  file_size INTEGER, file_inode INTEGER);
)";

const std::vector<std::string> kTables = {"annotation", "check_result", "left_out",
                                          "metric",     "revision",     "trial"};

std::string LaunchText(const RowLaunch& launch) {
  return json{{"id", launch.id},
              {"trials", launch.trials},
              {"start_seconds", launch.start_seconds},
              {"rounds", launch.rounds},
              {"draws", launch.draws}}
      .dump();
}

void BindStamp(Statement& statement, const FileStamp& stamp) {
  statement.BindInteger(stamp.mtime_ns).BindInteger(stamp.size).BindInteger(stamp.inode);
}

}  // namespace

struct Index::Writer {
  explicit Writer(const Index& index)
      : trial(index,
              "INSERT INTO trial VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,"
              "?,?,?,?,?)"),
        metric(index, "INSERT INTO metric VALUES(?,?,?,?)"),
        check(index, "INSERT INTO check_result VALUES(?,?,?)"),
        revision(index, "INSERT INTO revision VALUES(?,?,?)") {}
  Statement trial, metric, check, revision;
};

Index::Index(const std::filesystem::path& path, int flags) : path_(path) {
  IsThere(path);
  if (sqlite3_open_v2(path.c_str(), &database_, flags, nullptr) != SQLITE_OK) Fail("open");
  sqlite3_busy_timeout(database_, 5000);
}

Index Index::OpenToWrite(const std::filesystem::path& path) {
  Index index(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  if (index.WhyNotCurrent()) {
    index.InOneTransaction([&] {
      index.Execute(kSchema);
      index.Execute(fmt::format("PRAGMA user_version = {}", kIndexVersion).c_str());
    });
  }
  return index;
}

Index Index::Create(const std::filesystem::path& path) {
  for (const char* suffix : {"", "-journal"}) ::unlink((path.string() + suffix).c_str());
  Index index = OpenToWrite(path);
  index.Execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16000");
  return index;
}

bool Index::IsThere(const std::filesystem::path& path) {
  std::error_code none;
  const auto status = std::filesystem::status(path, none);
  if (status.type() == std::filesystem::file_type::not_found) return false;
  if (std::filesystem::is_regular_file(status)) return true;
  SPARFUSE_THROW(
      kData, fmt::format("{} is {}: expected the index, a file; move it away, and "
                         "`sparfuse index --rebuild` makes the index from the trials",
                         path.string(),
                         std::filesystem::is_directory(status) ? "a folder" : "no regular file"));
}

std::optional<Index::NotCurrent> Index::WhyNotCurrent(const std::filesystem::path& path) {
  if (!IsThere(path)) return std::nullopt;
  return Index(path, SQLITE_OPEN_READWRITE).WhyNotCurrent();
}

std::optional<Index::NotCurrent> Index::WhyNotCurrent() const {
  Statement version(*this, "PRAGMA user_version");
  version.Step();
  std::vector<std::string> missing;
  Statement table(*this, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?");
  for (const std::string& name : kTables) {
    table.Bind(name).Step();
    if (table.Integer(0) == 0) missing.push_back(name);
    table.Run();
  }
  if (missing.size() == kTables.size()) return NotCurrent{"it is empty"};
  if (version.Integer(0) != kIndexVersion)
    return NotCurrent{"it was written by another version of sparfuse"};
  if (missing.empty()) return std::nullopt;
  return NotCurrent{fmt::format("it has no table {}", fmt::join(missing, ", ")), true};
}

Index Index::OpenToRead(const std::filesystem::path& path) {
  Index index(path, SQLITE_OPEN_READWRITE);
  if (const auto found = index.WhyNotCurrent()) {
    SPARFUSE_THROW(kData, fmt::format("{}: {}; `sparfuse index --rebuild` makes it again from the "
                                      "trial directories",
                                      path.string(), found->why));
  }
  index.Execute("BEGIN");  // all reads see one state
  return index;
}

Index::Index(Index&& other) noexcept
    : path_(std::move(other.path_)), database_(std::exchange(other.database_, nullptr)) {}
Index& Index::operator=(Index&& other) noexcept {
  writer_.reset();  // its statements refer to the other object
  other.writer_.reset();
  std::swap(path_, other.path_);
  std::swap(database_, other.database_);
  return *this;
}
Index::~Index() {
  writer_.reset();
  sqlite3_close(database_);
}

void Index::Fail(const char* what, sqlite3_stmt* failed) const {
  const std::string reason = database_ ? sqlite3_errmsg(database_) : "out of memory";
  const int code = database_ ? sqlite3_errcode(database_) & 0xff : SQLITE_NOMEM;
  if (failed) sqlite3_reset(failed);
  const char* remedy = "";
  switch (code) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      remedy = "; another program has it open for writing: close that, and run the command again";
      break;
    case SQLITE_NOMEM:
    case SQLITE_FULL:
    case SQLITE_IOERR:
      break;  // an error of the disk
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
      remedy = "; check that you may write to this file and its folder";
      break;
    default:
      remedy = " (sparfuse index --rebuild makes it again from the trial directories)";
  }
  SPARFUSE_THROW(kData,
                 fmt::format("{}: SQLite cannot {}: {}{}", path_.string(), what, reason, remedy));
}

void Index::Execute(const char* sql) const {
  if (sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) Fail("write");
}

void Index::RollBack() const { sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr); }

void Index::AddTrial(const Trial& trial) {
  TrialRow row = RowOf(trial);
  row.stamp = StampOf(path_.parent_path() / row.directory / "trial.json");
  InOneTransaction([&] { AddTrial(row); });
}

void Index::AddTrial(const TrialRow& row) {
  if (!writer_) writer_ = std::make_unique<Writer>(*this);
  const std::string& id = row.trial_id;
  const json density = MemberIn(row.config, "density"),
             batch = MemberIn(row.config, "batch_per_worker"),
             sparsifier = MemberIn(row.config, "sparsifier"), link = MemberIn(row.config, "link"),
             gbps = MemberIn(link, "gbps"), commit = MemberIn(row.provenance["source"], "commit");
  writer_->trial.Bind(id).Bind(row.experiment).Bind(row.part).Bind(row.kind).Bind(row.mode);
  writer_->trial.Bind(row.method).Bind(row.workload).BindJson(sparsifier).BindJson(density);
  writer_->trial.BindInteger(row.workers).BindJson(gbps).BindJson(batch);
  writer_->trial.BindInteger(row.block).BindInteger(row.seed);
  writer_->trial.Bind(row.config_hash).Bind(row.system_hash).Bind(row.origin).Bind(row.original_id);
  writer_->trial.BindJson(commit).Bind(row.status);
  writer_->trial.Bind(row.failure_kind);
  writer_->trial.Bind(row.directory).Bind(row.started_utc).BindNumber(row.seconds);
  writer_->trial.Bind(row.config.Text()).Bind(row.system.Text()).Bind(row.provenance.Text());
  writer_->trial.Bind(row.revisions.Text());
  const std::string launch = LaunchText(row.launch);  // bound text must outlive Run
  writer_->trial.Bind(launch).Bind(row.quiet.Text()).Bind(row.contradiction);
  BindStamp(writer_->trial, row.stamp);
  writer_->trial.Run();
  for (const auto& [name, value] : row.metrics) {
    const auto unit = row.units.find(name);
    writer_->metric.Bind(id).Bind(name).BindNumber(value);
    writer_->metric.Bind(unit == row.units.end() ? std::string_view() : unit->second).Run();
  }
  for (const auto& [names, passed] : {std::pair(&row.checks, 1), {&row.failed_checks, 0}}) {
    for (const std::string& name : *names)
      writer_->check.Bind(id).Bind(name).BindInteger(passed).Run();
  }
  for (const auto& [part, revision] : row.revisions.Value().items())
    writer_->revision.Bind(id).Bind(part).BindJson(revision).Run();
}

void Index::AddLeftOut(const std::string& place, const IndexedFile& file) {
  Statement statement(*this, "INSERT INTO left_out VALUES(?,?,?,?,?)");
  statement.Bind(place).Bind(file.problem);
  BindStamp(statement, file.stamp);
  statement.Run();
}

void Index::RemoveTrial(const std::string& place) {
  for (const char* sql :
       {"DELETE FROM trial WHERE trial_id = ?", "DELETE FROM metric WHERE trial_id = ?",
        "DELETE FROM check_result WHERE trial_id = ?", "DELETE FROM revision WHERE trial_id = ?",
        "DELETE FROM left_out WHERE place = ?"}) {
    Statement(*this, sql).Bind(place).Run();
  }
}

void Index::AddAnnotation(const Annotation& annotation) {
  Statement statement(*this, "INSERT INTO annotation VALUES(?,?,?,?)");
  statement.Bind(annotation.annotation_id).Bind(annotation.trial_id).Bind(annotation.reason);
  statement.Bind(annotation.created_utc).Run();
}

void Index::RemoveAnnotation(const std::string& id) {
  Statement(*this, "DELETE FROM annotation WHERE annotation_id = ?").Bind(id).Run();
}

namespace {

FileStamp StampIn(const Statement& row, int column) {
  return {row.Integer(column), row.Integer(column + 1), row.Integer(column + 2)};
}

// Shares one StoredJson among equal texts.
class SharedTexts {
 public:
  explicit SharedTexts(const std::filesystem::path& index) : index_(index) {}

  const StoredJson& Of(std::string_view text, const char* column) {
    const auto found = known_.find(text);
    if (found != known_.end()) return found->second;
    return known_.emplace(text, Own(text, column)).first->second;
  }
  // Makes one for a text that no other trial has.
  StoredJson Own(std::string_view text, const char* column) const {
    if (!nlohmann::json::accept(text)) {
      SPARFUSE_THROW(kData, fmt::format("{}: broken JSON in its column {} (sparfuse index "
                                        "--rebuild makes it again from the trial directories)",
                                        index_.string(), column));
    }
    return StoredJson::OfText(std::string(text));
  }

 private:
  const std::filesystem::path& index_;
  std::map<std::string, StoredJson, std::less<>> known_;
};

RowLaunch LaunchIn(const nlohmann::json& stored) {
  return {stored.at("id"), stored.at("trials"), stored.at("start_seconds"), stored.at("rounds"),
          stored.at("draws")};
}

// Joins the rows of a query with `rows`. The query is ordered by its first column, `rows` by
// trial_id.
template <class Use>
void Join(std::vector<TrialRow>& rows, Statement& query, const Use& use) {
  std::size_t at = 0;
  while (query.Step()) {
    const std::string_view id = query.View(0);
    int order = -1;
    while (at < rows.size() && (order = rows[at].trial_id.compare(id)) < 0) ++at;
    if (at < rows.size() && order == 0) use(rows[at], query);
  }
}

}  // namespace

std::map<std::string, IndexedFile> Index::LeftOut() const {
  std::map<std::string, IndexedFile> files;
  Statement row(*this, "SELECT place, file_mtime_ns, file_size, file_inode, problem FROM left_out");
  while (row.Step()) files[row.Text(0)] = {StampIn(row, 1), true, row.Text(4)};
  return files;
}

std::map<std::string, IndexedFile> Index::Files() const {
  std::map<std::string, IndexedFile> files = LeftOut();
  Statement row(*this, "SELECT trial_id, file_mtime_ns, file_size, file_inode FROM trial");
  while (row.Step()) files[row.Text(0)] = {StampIn(row, 1), false, ""};
  return files;
}

std::set<std::string> Index::AnnotationIds() const {
  std::set<std::string> ids;
  Statement statement(*this, "SELECT annotation_id FROM annotation");
  while (statement.Step()) ids.insert(statement.Text(0));
  return ids;
}

std::vector<TrialRow> Index::Rows() const {
  std::vector<TrialRow> rows;
  SharedTexts texts(path_);
  Statement trial(*this,
                  "SELECT trial_id, experiment, part, kind, mode, method, workload, config_hash, "
                  "system_hash, origin, original_id, status, failure_kind, directory, "
                  " started_utc, workers, block, seed, seconds, config_json, system_json, "
                  "provenance_json, revisions_json, "
                  "launch_json, quiet_json, contradiction, "
                  "file_mtime_ns, file_size, file_inode FROM trial");
  while (trial.Step()) {
    TrialRow& row = rows.emplace_back();
    std::string* const words[] = {
        &row.trial_id,    &row.experiment, &row.part,         &row.kind,        &row.mode,
        &row.method,      &row.workload,   &row.config_hash,  &row.system_hash, &row.origin,
        &row.original_id, &row.status,     &row.failure_kind, &row.directory,   &row.started_utc};
    int column = 0;
    for (std::string* word : words) *word = trial.View(column++);
    row.workers = static_cast<int>(trial.Integer(column++));
    row.block = static_cast<int>(trial.Integer(column++));
    row.seed = trial.Integer(column++);
    row.seconds = trial.Number(column++);
    row.config = texts.Of(trial.View(column++), "config_json");
    row.system = texts.Of(trial.View(column++), "system_json");
    row.provenance = texts.Of(trial.View(column++), "provenance_json");
    row.revisions = texts.Of(trial.View(column++), "revisions_json");
    row.launch = LaunchIn(texts.Own(trial.View(column++), "launch_json"));
    row.quiet = texts.Own(trial.View(column++), "quiet_json");
    row.contradiction = trial.View(column++);
    row.stamp = StampIn(trial, column);
  }
  std::ranges::sort(rows, {}, &TrialRow::trial_id);
  Statement metric(*this, "SELECT trial_id, name, value, unit FROM metric ORDER BY trial_id, name");
  Join(rows, metric, [](TrialRow& row, const Statement& s) {
    row.metrics.Set(s.View(1), s.Number(2));
    row.units.Set(s.View(1), s.View(3));
  });
  Statement failed(*this,
                   "SELECT trial_id, name FROM check_result WHERE NOT passed ORDER BY trial_id, "
                   "name");
  Join(rows, failed,
       [](TrialRow& row, const Statement& s) { row.failed_checks.push_back(s.Text(1)); });
  Statement annotation(*this,
                       "SELECT trial_id, reason FROM annotation ORDER BY trial_id, annotation_id");
  Join(rows, annotation,
       [](TrialRow& row, const Statement& s) { row.annotations.push_back(s.Text(1)); });
  SortByAge(rows);
  return rows;
}

}  // namespace sparfuse::harness
