#include "harness/bundle/merge.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "core/base/error.hpp"
#include "harness/bundle/verify.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/plain_text.hpp"
#include "harness/store/evidence/recomputed.hpp"
#include "harness/store/origin.hpp"
#include "harness/store/patience.hpp"
#include "harness/store/trial_files.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

using Files = std::map<std::string, std::string>;  // content by name

// Removes and returns the next word of `text`, or the text before it.
std::string_view Take(std::string_view& text) {
  if (text.empty()) return {};
  const bool word = IsOfName(text.front());
  std::size_t end = 0;
  while (end < text.size() && IsOfName(text[end]) == word) ++end;
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end);
  return taken;
}

bool StandsForAName(std::string_view word) {
  return word.find("HOST") != std::string_view::npos || word.find("USER") != std::string_view::npos;
}

bool SameText(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const std::string_view ours = Take(a), other = Take(b);
    if (ours != other && !StandsForAName(ours) && !StandsForAName(other)) return false;
  }
  return a.empty() && b.empty();
}

bool Same(const json& here, const json& there) {
  if (here.is_string() && there.is_string())
    return SameText(here.get_ref<const std::string&>(), there.get_ref<const std::string&>());
  if (here.type() != there.type() || here.size() != there.size() || !here.is_structured())
    return here == there;
  if (here.is_array()) return std::ranges::equal(here, there, Same);
  return std::ranges::all_of(here.items(), [&](const auto& entry) {
    const auto other = there.find(entry.key());
    return other != there.end() && Same(entry.value(), *other);
  });
}

// Drops the origin of an imported number: unlike files may state the same number.
json WithoutSource(json value) {
  if (const auto imported = value.find("imported");
      imported != value.end() && imported->is_object()) {
    for (const char* key : {"file", "sha256", "stated", "doubt"}) imported->erase(key);
  }
  return value;
}

// "" if both are one trial, else the file that differs. Which names were removed depends on who
// knew them, so HOST and USER stand for any word. Imported results are equal whatever file they
// were read from.
std::string WhatDiffers(const Files& here, const Files& there) {
  if (here.size() != there.size()) return "its number of files";
  for (const auto& [file, content] : there) {
    const auto found = here.find(file);
    if (found == here.end()) return file;
    if (found->second == content) continue;
    if (!file.ends_with(".json")) return file;
    if (!Same(WithoutSource(json::parse(found->second)), WithoutSource(json::parse(content))))
      return file;
  }
  return "";
}

// Compares annotations in the same way.
bool AreOneAnnotation(const Annotation& here, const Annotation& there) {
  return Same(ToJson(here), ToJson(there));
}

namespace fs = std::filesystem;

class Merger {
 public:
  Merger(const Store& store, const StoreLock& lock, const Bundle& bundle,
         const std::vector<TrialRow>& rows, const MergeRequest& request)
      : store_(store),
        lock_(lock),
        bundle_(bundle),
        request_(request),
        verified_(Verify(bundle)),
        scrubber_(PrivateNames::OfTrials(rows, store.results())) {}

  MergeSummary Run() {
    summary_.not_checked = WhatIsNotChecked(verified_);
    if (!verified_.table_differs.empty()) {
      summary_.refused.push_back(verified_.table_differs + "; nothing of the bundle was merged");
      return std::move(summary_);
    }
    Patience patience;
    std::size_t done = 0;
    for (const auto& [id, hashes] : bundle_.content().trials) {
      patience.Note(done++, "trials merged", bundle_.content().trials.size());
      Each([&, &id = id] { AddTrial(id); });
    }
    for (const auto& [id, hash] : bundle_.content().annotations)
      Each([&, &id = id] { AddAnnotation(id); });
    return std::move(summary_);
  }

 private:
  // A refused trial does not keep the others out. A full disk ends the merge.
  template <class Add>
  void Each(const Add& add) {
    try {
      add();
    } catch (const Refused& refused) {
      summary_.refused.push_back(refused.why);
    }
  }

  struct Refused {
    std::string why;
  };

  // Returns the result of `read`. Refuses the trial if the bundle has an error.
  template <class Read>
  auto OfBundle(const Read& read) {
    try {
      return read();
    } catch (const Error& error) {
      throw Refused{error.what()};
    }
  }

  void AddTrial(const std::string& id) {
    if (const auto found = verified_.refused.find(id); found != verified_.refused.end())
      throw Refused{found->second};
    const Files files = OfBundle([&] { return bundle_.FilesOf(id); });
    if (IsHere(id, files)) {
      trials_.insert(id);
      ++summary_.present;
      return;
    }
    if (const std::string copied = WhatIsCopied(id, files); !copied.empty())
      throw Refused{fmt::format("{}: {}: a copy", id, copied)};
    const fs::path directory = store_.Directory(id);
    if (SomethingIsAt(directory) && !store_.trash().Take(directory, id)) {
      throw Refused{
          fmt::format("{}: {} exists and is not a trial: move it away", id, directory.string())};
    }
    if (const std::string other = TrialAround(id); !other.empty())
      throw Refused{fmt::format("{}: the store has a trial {}", id, other)};
    MakePlace(id);
    // Written first: it marks the directory as an unfinished trial.
    WriteFileDurably(directory / "config.json", files.at("config.json"));
    for (const auto& [file, content] : files) {
      if (file == "config.json" || file == "trial.json") continue;
      Descriptor written(directory / file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
      written.Write(content);  // Finish syncs it
      written.Close();
    }
    store_.Finish(lock_, id, files.at("trial.json"));
    trials_.insert(id);
    summary_.added.push_back(id);
  }

  // "" or how a trial of the bundle has the steps of a trial of the store.
  std::string WhatIsCopied(const std::string& id, const Files& files) {
    const auto steps = files.find("steps.npy");
    if (steps == files.end()) return "";
    const Trial trial = TrialOf(json::parse(files.at("trial.json")), id + "/trial.json");
    if (!HasNumbers(trial) || !IsLive(trial)) return "";
    const std::optional<TrialSteps> own = ReadTrialSteps(steps->second);
    return own ? StepsHere(steps->second.size()).WhatIsCopied(*own, trial.seed) : "";
  }

  // Steps of the store's trials that have so many bytes, as they were before this merge: Verify has
  // held the bundle's trials to one another.
  const KnownSteps& StepsHere(std::size_t bytes) {
    const auto [found, is_new] = steps_.try_emplace(bytes);
    if (!is_new) return found->second;
    for (const auto& [place, size] : SizesHere()) {
      if (size != bytes) continue;
      const fs::path directory = store_.Directory(place);
      try {
        if (auto steps = ReadTrialSteps(ReadFile(directory / "steps.npy")))
          found->second.Take(place, *std::move(steps), [directory] { return SeedIn(directory); });
      } catch (const Error&) {  // unreadable steps are no trial's
      }
    }
    return found->second;
  }

  static std::optional<std::int64_t> SeedIn(const fs::path& directory) {
    try {
      const json seed = ReadJsonFile(directory / "trial.json").value("seed", json());
      return seed.is_number_integer() ? std::optional(seed.get<std::int64_t>()) : std::nullopt;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // Bytes of steps.npy by the place of its trial, of the trials that were here before this merge.
  const std::map<std::string, std::size_t>& SizesHere() {
    if (sizes_) return *sizes_;
    sizes_.emplace();
    for (const TrialFile& file : ListTrials(store_.trials()).finished) {
      if (std::ranges::count(summary_.added, file.place) > 0) continue;
      std::error_code none;
      const auto size = fs::file_size(store_.Directory(file.place) / "steps.npy", none);
      if (!none) sizes_->emplace(file.place, size);
    }
    return *sizes_;
  }

  // The id of a trial of the store whose directory would contain `id`'s; "" if there is none.
  std::string TrialAround(const std::string& id) const {
    for (std::size_t at = id.rfind('/'); at != std::string::npos; at = id.rfind('/', at - 1)) {
      const std::string around = id.substr(0, at);
      if (SomethingIsAt(store_.Directory(around) / "trial.json") ||
          SomethingIsAt(store_.Directory(around) / "config.json"))
        return around;
    }
    return "";
  }

  // Makes a trial's directory. A file in its way is refused; a full disk ends the merge.
  void MakePlace(const std::string& id) const {
    for (std::size_t at = id.find('/'); at != std::string::npos; at = id.find('/', at + 1)) {
      const fs::path folder = store_.Directory(id.substr(0, at));
      if (SomethingIsAt(folder) && !fs::is_directory(folder))
        throw Refused{fmt::format("{}: {} is not a folder: move it away", id, folder.string())};
    }
    MakeDirectories(store_.Directory(id));
  }

  // Whether the store has the trial. Refuses a different trial with the same id.
  bool IsHere(const std::string& id, const Files& files) const {
    if (!SomethingIsAt(store_.Directory(id) / "trial.json")) return false;
    std::set<std::string> stays;
    Files here;
    try {
      here = BundleTrial(store_, id, scrubber_, stays).files;
    } catch (const Error& error) {
      throw Refused{fmt::format("{}: the store's own cannot be read: {}", id, error.what())};
    }
    const std::string differs = WhatDiffers(here, files);
    if (!differs.empty()) {
      throw Refused{fmt::format(
          "{}: the store has this id with other bytes ({} differs): both are left as they are", id,
          differs)};
    }
    return true;
  }

  // Whether a trial of the store ran here: it never left the store, or has the store's origin.
  bool RanHere(const std::string& id) const {
    const fs::path file = store_.Directory(id) / "trial.json";
    try {
      const Trial trial = TrialOf(ReadJsonFile(file), file.string());
      return trial.redaction == 0 || harness::RanHere(RowOf(trial), store_.results());
    } catch (const Error&) {
      return true;  // an unreadable trial gives no reason to allow it
    }
  }

  void AddAnnotation(const std::string& id) {
    const Annotation annotation = OfBundle([&] { return bundle_.Annotation(id); });
    if (!trials_.contains(annotation.trial_id)) {
      throw Refused{
          fmt::format("annotations/{}: its trial {} was not merged", id, annotation.trial_id)};
    }
    const fs::path file = store_.results() / "annotations" / (id + ".json");
    if (SomethingIsAt(file)) {
      Annotation here;
      try {
        here = AnnotationOf(ReadJsonFile(file), file.string());
      } catch (const Error& error) {
        throw Refused{fmt::format("annotations/{}: {}", id, error.what())};
      }
      if (here.trial_id != annotation.trial_id ||
          !AreOneAnnotation(BundleAnnotation(here, here.trial_id, scrubber_), annotation)) {
        throw Refused{fmt::format(
            "annotations/{}: the store has this id with other bytes: both are left as they are",
            id)};
      }
      return;
    }
    if (RanHere(annotation.trial_id)) {
      summary_.held.push_back(fmt::format("{} ({})", annotation.trial_id, annotation.reason));
      if (!request_.take_annotations) return;
    }
    MakeDirectories(file.parent_path());
    WriteFileDurably(file, WrittenJson(ToJson(annotation)));
    ++summary_.annotations;
  }

  const Store& store_;
  const StoreLock& lock_;
  const Bundle& bundle_;
  const MergeRequest& request_;
  const Verification verified_;
  const TextScrubber scrubber_;
  std::map<std::size_t, KnownSteps> steps_;  // of the store, by their number of bytes
  std::optional<std::map<std::string, std::size_t>> sizes_;
  std::set<std::string> trials_;  // ids of the bundle's trials that the store has by now
  MergeSummary summary_;
};

}  // namespace

MergeSummary Merge(const Store& store, const StoreLock& lock, const Bundle& bundle,
                   const std::vector<TrialRow>& rows, const MergeRequest& request) {
  return Merger(store, lock, bundle, rows, request).Run();
}

}  // namespace sparfuse::harness
