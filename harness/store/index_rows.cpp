// Reads rows of the index: the reading half of index.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "core/base/error.hpp"
#include "harness/store/index.hpp"
#include "harness/store/statement.hpp"

namespace sparfuse::harness {
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
    if (found != known_.end()) return found->second.value;
    auto kept = std::make_unique<std::string>(text);
    const std::string_view key = *kept;
    return known_.emplace(key, Kept{std::move(kept), Own(text, column)}).first->second.value;
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
  struct Kept {
    std::unique_ptr<std::string> text;
    StoredJson value;
  };
  const std::filesystem::path& index_;
  std::unordered_map<std::string_view, Kept> known_;
};

RowLaunch LaunchIn(const nlohmann::json& stored) {
  RowLaunch launch;
  launch.id = stored.at("id");
  launch.trials = stored.at("trials");
  launch.start_seconds = stored.at("start_seconds");
  launch.rounds = stored.at("rounds").get<std::vector<double>>();
  launch.draws = stored.at("draws").get<decltype(launch.draws)>();
  return launch;
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
  std::sort(rows.begin(), rows.end(),
            [](const TrialRow& a, const TrialRow& b) { return a.trial_id < b.trial_id; });
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
