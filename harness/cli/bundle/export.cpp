// Writes trials into a bundle for other machines: `sparfuse export`.
#include "harness/bundle/export.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "core/base/error.hpp"
#include "harness/cli/bundle/bundles.hpp"
#include "harness/files/canonical.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

bool IsOf(const TrialRow& row, const std::string& experiment) {
  return row.experiment == experiment || row.experiment.starts_with(experiment + "/");
}

// The trials of all that is named: experiments, papers, files. What has no trial is a mistake.
std::vector<TrialRow> TrialsOf(Program& program, std::vector<TrialRow> rows,
                               const std::vector<std::string>& names) {
  std::set<std::string> ids;
  for (const std::string& name : names) {
    const std::string id = name.ends_with(".toml") ? program.Load(name).id : name;
    const bool any = std::ranges::any_of(rows, [&](const auto& row) { return IsOf(row, id); });
    if (id.empty() || !any) {
      std::set<std::string> known;
      for (const TrialRow& row : rows) known.insert(row.experiment);
      const std::vector<std::string> list(known.begin(), known.end());
      SPARFUSE_THROW(kConfig,
                     fmt::format("no trial of \"{}\" in {}{}: expected one of {}", id,
                                 program.store().results().string(), Suggestion(id, list),
                                 list.empty() ? "none" : fmt::format("{}", fmt::join(list, ", "))));
    }
    ids.insert(id);
  }
  std::erase_if(rows, [&](const TrialRow& row) {
    return std::ranges::none_of(ids, [&](const std::string& id) { return IsOf(row, id); });
  });
  return rows;
}

void Show(const Export& bundle, bool as_json) {
  const LeavingKeys leaves = KeysThatLeave();
  const std::set<std::string>& stays = bundle.summary().stays;
  if (as_json) {
    PrintJson({{"leaves", leaves}, {"stays", stays}});
    return;
  }
  fmt::print("leaves:\n");
  for (const auto& [key, how] : leaves) fmt::print("  {:8} {}\n", how, key);
  std::map<std::string, std::size_t> series;
  for (const auto& [id, files] : bundle.summary().content.trials) {
    for (const auto& [file, hash] : files) series[file] += file.ends_with(".npy");
  }
  for (const auto& [file, trials] : series) {
    if (trials > 0) fmt::print("  series   {}, of {} trial(s)\n", file, trials);
  }
  fmt::print("stays here:\n");
  for (const std::string& key : stays) fmt::print("  {}\n", key);
}

}  // namespace

int ExportVerb(Program& program, const ExportRequest& request) {
  if (request.out.empty() && !request.show)
    SPARFUSE_THROW(kConfig, "export: expected --out FILE.sparfuse, --show, or both");
  if (!request.out.empty() && request.out.extension() != ".sparfuse") {
    SPARFUSE_THROW(kConfig, fmt::format("--out {}: expected a name that ends in .sparfuse",
                                        request.out.string()));
  }
  std::vector<TrialRow> rows = program.Rows();
  PrivateNames names = NamesOf(program.store(), rows);
  const Export bundle(program.store(), TrialsOf(program, std::move(rows), request.names),
                      std::move(names));
  const ExportSummary& summary = bundle.summary();
  for (const std::string& why : summary.left_out)
    fmt::print(stderr, "warning: {}; left out\n", why);
  if (request.show) Show(bundle, program.json());
  if (request.out.empty()) return kDone;
  bundle.Write(DescribeSource(program.root()), request.out);
  const auto bytes = std::filesystem::file_size(request.out);
  if (program.json() && !request.show) {
    PrintJson({{"file", request.out.string()},
               {"bytes", bytes},
               {"trials", summary.content.trials.size()},
               {"annotations", summary.content.annotations.size()},
               {"left_out", summary.left_out}});
  } else if (!program.json()) {
    fmt::print("{}: {} trial(s), {} annotation(s), {} bytes{}\n", request.out.string(),
               summary.content.trials.size(), summary.content.annotations.size(), bytes,
               request.show ? "" : "; --show lists what left");
  }
  return summary.left_out.empty() ? kDone : kTrialFailed;
}

}  // namespace sparfuse::harness
