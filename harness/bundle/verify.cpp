#include "harness/bundle/verify.hpp"

#include <fmt/format.h>

#include <map>

#include "core/base/error.hpp"
#include "harness/bundle/bundle_table.hpp"
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

std::vector<TrialRow> RowsOf(const Bundle& bundle, std::vector<std::string>& problems) {
  const BundleContent& content = bundle.content();
  std::map<std::string, std::vector<std::string>> reasons;
  for (const auto& [id, hash] : content.annotations) {
    NameProblem(problems, [&, &id = id] {
      const json annotation = bundle.Annotation(id);
      reasons[annotation["trial_id"]].push_back(annotation["reason"]);
    });
  }
  std::vector<TrialRow> rows;
  Patience patience;
  for (const auto& [id, hashes] : content.trials) {
    patience.Note(rows.size(), "trials read", content.trials.size());
    NameProblem(problems, [&, &id = id] {
      TrialRow& row = rows.emplace_back(RowOf(bundle.Trial(id).trial));
      if (const auto found = reasons.find(id); found != reasons.end())
        row.annotations = found->second;
    });
  }
  return rows;
}

Verification Verify(const Bundle& bundle) {
  Verification verification;
  std::vector<TrialRow> rows = RowsOf(bundle, verification.problems);
  verification.table = TableOfTrials(std::move(rows));
  NameProblem(verification.problems, [&] {
    const std::string difference = FirstDifference(bundle.Table(), verification.table);
    if (!difference.empty())
      SPARFUSE_THROW(kData, fmt::format("{}: {}", bundle.path().string(), difference));
  });
  return verification;
}

}  // namespace sparfuse::harness
