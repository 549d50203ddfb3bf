#include "harness/bundle/verify.hpp"

#include <fmt/format.h>

#include <map>

#include "core/base/error.hpp"
#include "harness/bundle/bundle_table.hpp"
#include "harness/bundle/recomputed.hpp"
#include "harness/store/patience.hpp"

namespace sparfuse::harness {

using nlohmann::json;

namespace {

void NameProblem(std::vector<std::string>& problems, const auto& check) {
  try {
    check();
  } catch (const Error& error) {
    problems.push_back(error.what());
  }
}

}  // namespace

std::vector<TrialRow> RowsOf(const Bundle& bundle, std::vector<std::string>& problems,
                             const std::function<void(const BundledTrial&)>& look) {
  const BundleContent& content = bundle.content();
  std::map<std::string, std::vector<std::string>> reasons;
  for (const auto& [id, hash] : content.annotations) {
    NameProblem(problems, [&, &id = id] {
      const Annotation annotation = bundle.Annotation(id);
      reasons[annotation.trial_id].push_back(annotation.reason);
    });
  }
  std::vector<TrialRow> rows;
  Patience patience;
  for (const auto& [id, hashes] : content.trials) {
    patience.Note(rows.size(), "trials read", content.trials.size());
    NameProblem(problems, [&, &id = id] {
      const BundledTrial trial = bundle.Trial(id);
      if (look) look(trial);
      TrialRow& row = rows.emplace_back(RowOf(trial.trial));
      if (const auto found = reasons.find(id); found != reasons.end())
        row.annotations = found->second;
    });
  }
  return rows;
}

Verification Verify(const Bundle& bundle) {
  Verification verification;
  verification.trials = json::object();
  std::vector<std::string> contradicted;
  std::vector<TrialRow> rows =
      RowsOf(bundle, verification.problems, [&](const BundledTrial& trial) {
        const Recomputed made = RecomputeMetrics(trial);
        if (!made.differs.empty()) {
          contradicted.push_back(
              fmt::format("{}: trials/{}: {}", bundle.path().string(), trial.id(), made.differs));
        }
        json& entry = verification.trials[trial.id()];
        entry = {{"sha256", bundle.content().trials.at(trial.id())}, {"steps", nullptr}};
        if (!made.steps) return;
        entry["steps"] = {{"first", made.steps->first},
                          {"last", made.steps->last},
                          {"measured", made.steps->measured},
                          {"ranks", made.steps->ranks}};
      });
  verification.problems.insert(verification.problems.end(), contradicted.begin(),
                               contradicted.end());
  verification.table = TableOfTrials(std::move(rows), bundle.version());
  NameProblem(verification.problems, [&] {
    const std::string difference = FirstDifference(bundle.Table(), verification.table);
    if (!difference.empty())
      SPARFUSE_THROW(kData, fmt::format("{}: {}", bundle.path().string(), difference));
  });
  return verification;
}

}  // namespace sparfuse::harness
