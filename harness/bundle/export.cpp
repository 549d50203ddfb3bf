#include "harness/bundle/export.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "core/base/error.hpp"
#include "harness/bundle/bundle_table.hpp"
#include "harness/files/canonical.hpp"
#include "harness/store/patience.hpp"

namespace sparfuse::harness {

using nlohmann::json;

Export::Export(const Store& store, const std::vector<TrialRow>& rows, PrivateNames names)
    : store_(store), names_(std::move(names)) {
  std::vector<TrialRow> redacted;
  std::map<std::string, std::string> ids;        // within bundles, by id
  std::map<std::string, PrivateNames> names_of;  // by id within bundles
  Patience patience;
  for (const TrialRow& row : rows) {
    patience.Note(redacted.size(), "trials looked through", rows.size());
    try {
      const BundledTrial trial = BundleTrial(store, row.trial_id, names_, summary_.met);
      auto hashes = trial.Hashes();
      const auto [known, is_new] = summary_.content.trials.try_emplace(trial.id, hashes);
      if (!is_new) {
        // A trial and the copy of it that came back under its other id.
        if (known->second != hashes)
          SPARFUSE_THROW(kData, fmt::format("{} and {} would have one id", row.trial_id,
                                            places_.at(trial.id)));
        ids[row.trial_id] = trial.id;
        continue;
      }
      places_[trial.id] = row.trial_id;
      ids[row.trial_id] = trial.id;
      names_of[trial.id] = trial.names;
      redacted.push_back(RowOf(trial.trial));
    } catch (const Error& error) {
      summary_.left_out.push_back(error.what());
    }
  }
  std::map<std::string, std::vector<std::string>> reasons;  // by id within bundles
  for (const json& annotation : store.ReadAnnotations(summary_.left_out)) {
    const auto found = ids.find(annotation["trial_id"]);
    if (found == ids.end()) continue;
    const json leaves =
        BundleAnnotation(annotation, found->second, names_of[found->second], summary_.met);
    if (!leaves.contains("annotation_id") || !leaves.contains("reason") ||
        !leaves.contains("created_utc")) {
      summary_.left_out.push_back(fmt::format("annotations/{}.json: its id or time is no word",
                                              annotation["annotation_id"].get<std::string>()));
      continue;
    }
    const std::string id = leaves["annotation_id"];
    annotations_[id] = WrittenJson(leaves);
    summary_.content.annotations[id] = Sha256Hex(annotations_[id]);
    reasons[found->second].push_back(leaves["reason"]);
  }
  for (TrialRow& row : redacted) {
    if (const auto found = reasons.find(row.trial_id); found != reasons.end())
      row.annotations = found->second;
  }
  table_ = WrittenJson(TableOfTrials(std::move(redacted), kBundleVersion));
  summary_.content.table = Sha256Hex(table_);
}

void Export::Write(const json& written_by, const std::filesystem::path& out) const {
  // By name of the member, as archives are ordered: id and file.
  std::map<std::string, std::pair<std::string, std::string>> members = {{kTable, {}}};
  for (const auto& [id, files] : summary_.content.trials) {
    for (const auto& [file, hash] : files) members[MemberOfTrial(id, file)] = {id, file};
  }
  for (const auto& [id, text] : annotations_) members[MemberOfAnnotation(id)] = {id, ""};
  ArchiveWriter archive(out);
  archive.Add(kManifest, ManifestText(summary_.content, written_by));
  BundledTrial trial;  // that the last member was of
  Redactions met;
  Patience patience;
  std::size_t written = 0;
  for (const auto& [member, of] : members) {
    const auto& [id, file] = of;
    if (member == kTable) {
      archive.Add(member, table_);
    } else if (file.empty()) {
      archive.Add(member, annotations_.at(id));
    } else {
      if (trial.id != id) {
        patience.Note(written++, "trials written", summary_.content.trials.size());
        trial = BundleTrial(store_, places_.at(id), names_, met);
        if (trial.id != id || trial.Hashes() != summary_.content.trials.at(id)) {
          SPARFUSE_THROW(kData, fmt::format("{} has changed while it was exported: run the command "
                                            "again",
                                            store_.Directory(places_.at(id)).string()));
        }
      }
      archive.Add(member, trial.files.at(file));
    }
  }
  archive.Commit();
}

}  // namespace sparfuse::harness
