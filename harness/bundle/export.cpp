#include "harness/bundle/export.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "core/base/error.hpp"
#include "harness/bundle/bundle_table.hpp"
#include "harness/files/canonical.hpp"
#include "harness/store/evidence/recomputed.hpp"
#include "harness/store/patience.hpp"

namespace sparfuse::harness {

Export::Export(const Store& store, const std::vector<TrialRow>& rows, PrivateNames names)
    : store_(store), scrubber_(std::move(names)) {
  std::vector<TrialRow> leaving;
  Patience patience;
  for (const TrialRow& row : rows) {
    patience.Note(leaving.size(), "trials looked through", rows.size());
    try {
      const BundledTrial trial = BundleTrial(store, row.trial_id, scrubber_, summary_.stays);
      if (trial.id() != row.trial_id)
        SPARFUSE_THROW(kData, fmt::format("{}: its id is not the path of a trial", row.trial_id));
      const Recomputed numbers = RecomputeMetrics(trial.trial, trial.files);
      if (!numbers.differs.empty())
        SPARFUSE_THROW(kData, fmt::format("{}: {}: its receivers would refuse it", row.trial_id,
                                          numbers.differs));
      summary_.content.trials[trial.id()] = trial.Hashes();
      leaving.push_back(RowOf(trial.trial));
    } catch (const Error& error) {
      summary_.left_out.push_back(error.what());
    }
  }
  std::map<std::string, std::vector<std::string>> reasons;  // by trial
  for (const Annotation& annotation : store.ReadAnnotations(summary_.left_out)) {
    if (!summary_.content.trials.contains(annotation.trial_id)) continue;
    const Annotation leaves = BundleAnnotation(annotation, annotation.trial_id, scrubber_);
    if (leaves.annotation_id != annotation.annotation_id) {
      summary_.left_out.push_back(
          fmt::format("annotations/{}.json: its id is not one word", annotation.annotation_id));
      continue;
    }
    const std::string& id = leaves.annotation_id;
    annotations_[id] = WrittenJson(ToJson(leaves));
    summary_.content.annotations[id] = Sha256Hex(annotations_[id]);
    reasons[leaves.trial_id].push_back(leaves.reason);
  }
  for (TrialRow& row : leaving) {
    if (const auto found = reasons.find(row.trial_id); found != reasons.end())
      row.annotations = found->second;
  }
  table_ = WrittenJson(TableOfTrials(std::move(leaving), kBundleVersion));
  summary_.content.table = Sha256Hex(table_);
}

void Export::Write(const SourceState& written_by, const std::filesystem::path& out) const {
  // By member name, in the order of archives, with id and file.
  std::map<std::string, std::pair<std::string, std::string>> members = {{kTableMember, {}}};
  for (const auto& [id, files] : summary_.content.trials) {
    for (const auto& [file, hash] : files) members[MemberOfTrial(id, file)] = {id, file};
  }
  for (const auto& [id, text] : annotations_) members[MemberOfAnnotation(id)] = {id, ""};
  ArchiveWriter archive(out);
  archive.Add(kManifest, ManifestText(summary_.content, written_by));
  BundledTrial trial;  // trial of the last member
  std::set<std::string> stays;
  Patience patience;
  std::size_t written = 0;
  for (const auto& [member, of] : members) {
    const auto& [id, file] = of;
    if (member == kTableMember) {
      archive.Add(member, table_);
    } else if (file.empty()) {
      archive.Add(member, annotations_.at(id));
    } else {
      if (trial.id() != id) {
        patience.Note(written++, "trials written", summary_.content.trials.size());
        trial = BundleTrial(store_, id, scrubber_, stays);
        if (trial.Hashes() != summary_.content.trials.at(id)) {
          SPARFUSE_THROW(kData, fmt::format("{} has changed while it was exported: run the command "
                                            "again",
                                            store_.Directory(id).string()));
        }
      }
      archive.Add(member, trial.files.at(file));
    }
  }
  archive.Commit();
}

}  // namespace sparfuse::harness
