#include "harness/store/store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <future>
#include <set>
#include <system_error>
#include <thread>

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/base/expression.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/records/trial.hpp"
#include "harness/store/evidence/recomputed.hpp"
#include "harness/store/patience.hpp"
#include "harness/store/scrubber.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr auto kKeepTrash = std::chrono::hours(7 * 24);

// The differences between the index and the directories.
struct Difference {
  std::vector<TrialFile> to_read;      // new files, or changed since the index read them
  std::vector<std::string> to_remove;  // places that are gone or read again

  bool none() const { return to_read.empty() && to_remove.empty(); }
};

Difference DifferenceOf(const std::vector<TrialFile>& found,
                        const std::map<std::string, IndexedFile>& known) {
  Difference difference;
  auto at = known.begin();
  for (const TrialFile& file : found) {  // both are sorted by place
    while (at != known.end() && at->first < file.place)
      difference.to_remove.push_back((at++)->first);
    const bool is_known = at != known.end() && at->first == file.place;
    if (!is_known || at->second.stamp != file.stamp) {
      difference.to_read.push_back(file);
      if (is_known) difference.to_remove.push_back(file.place);
    }
    if (is_known) ++at;
  }
  while (at != known.end()) difference.to_remove.push_back((at++)->first);
  return difference;
}

std::string OlderTrials(const fs::path& trials, std::size_t count) {
  return fmt::format(
      "{}: {} trial(s) were written by an older sparfuse and do not count: `sparfuse run` runs "
      "them again; delete the old ones to silence this line",
      trials.string(), count);
}

void NameLeftOut(const fs::path& trials, const std::map<std::string, IndexedFile>& left_out,
                 std::vector<std::string>& problems) {
  std::size_t older = 0;
  for (const auto& [place, file] : left_out) {
    older += file.problem.empty();
    if (!file.problem.empty()) problems.push_back(file.problem);
  }
  if (older > 0) problems.push_back(OlderTrials(trials, older));
}

std::set<std::string> IdsOf(const std::vector<Annotation>& annotations) {
  std::set<std::string> ids;
  for (const Annotation& annotation : annotations) ids.insert(annotation.annotation_id);
  return ids;
}

void FollowAnnotations(Index& index, const std::vector<Annotation>& annotations) {
  const std::set<std::string> known = index.AnnotationIds(), found = IdsOf(annotations);
  for (const Annotation& annotation : annotations) {
    if (!known.contains(annotation.annotation_id)) index.AddAnnotation(annotation);
  }
  for (const std::string& id : known) {
    if (!found.contains(id)) index.RemoveAnnotation(id);
  }
}

void Append(const std::vector<std::string>& more, std::vector<std::string>& problems) {
  problems.insert(problems.end(), more.begin(), more.end());
}

constexpr std::size_t kBatch = 256;  // files whose content is in memory at once, for two batches

// A trial.json that was read, and checked for the facts on which readers rely.
struct ReadTrial {
  TrialRow row;         // valid if `problem` is "" and `older` false
  std::string problem;  // why it is left out: a sentence that begins with the file
  bool older = false;   // of an older schema: left out, and counted by the caller
};

// "" or how trial.json contradicts the trial's original configuration.
std::string WhatItsConfigContradicts(const fs::path& directory, const json& trial) {
  const fs::path file = directory / "config.json";
  if (!SomethingIsAt(file)) return "";
  try {
    return WhatConfigContradicts(ReadJsonFile(file), trial, file.native());
  } catch (const Error& error) {
    return error.what();
  }
}

ReadTrial Read(const fs::path& trials, const TrialFile& file) {
  ReadTrial read;
  const fs::path directory = trials / file.place;
  const auto leave_out = [&](const std::string& where, const std::string& why) {
    read.problem = fmt::format("{}: {}; left out", where, why);
  };
  try {
    const std::string name = (directory / "trial.json").string();
    const json stored = ReadJsonFile(name, "layout");  // the layout is a third of it, and in no row
    if (IsOlderTrial(stored)) {
      read.older = true;
      return read;
    }
    const Trial trial = TrialOf(stored, name);
    if (trial.trial_id != file.place) {
      leave_out(name, fmt::format("trial_id: expected \"{}\", its place", file.place));
    } else if (const std::string wrong = WhatItsConfigContradicts(directory, stored);
               !wrong.empty()) {
      leave_out(directory.string(), wrong);
    } else {
      read.row = RowOf(trial);
      read.row.contradiction = RecomputeMetrics(trial, directory).differs;
      read.row.stamp = file.stamp;
      // The index needs these texts. They are made here, where several threads run.
      for (const StoredJson* text : {&read.row.config, &read.row.system, &read.row.provenance,
                                     &read.row.revisions, &read.row.quiet})
        text->Text();
    }
  } catch (const Error& error) {
    read.problem = fmt::format("{}; left out", error.what());
  } catch (const std::exception& error) {  // such an error does not name the file
    leave_out((directory / "trial.json").string(), error.what());
  }
  return read;
}

std::vector<ReadTrial> ReadAtOnce(const fs::path& trials, std::span<const TrialFile> files) {
  std::vector<ReadTrial> read(files.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < files.size();) read[i] = Read(trials, files[i]);
  };
  const auto most = static_cast<std::size_t>(Processors());
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < std::min(most, files.size() / 8 + 1); ++i) others.emplace_back(work);
  work();
  others.clear();  // joins
  return read;
}

// Reads `files` on all cores and hands each to `use`, on the caller's thread and in their order.
void ReadTrialFiles(const fs::path& trials, std::span<const TrialFile> files,
                    const std::function<void(const TrialFile&, ReadTrial)>& use) {
  Patience patience;
  const auto batch = [&](std::size_t begin) {
    return files.subspan(begin, std::min(kBatch, files.size() - begin));
  };
  // Reads the next batch while the caller uses one.
  std::vector<ReadTrial> read = ReadAtOnce(trials, batch(0));
  for (std::size_t begin = 0; begin < files.size(); begin += kBatch) {
    std::future<std::vector<ReadTrial>> next;
    if (begin + kBatch < files.size()) {
      next = std::async(std::launch::async,
                        [&, begin] { return ReadAtOnce(trials, batch(begin + kBatch)); });
    }
    for (std::size_t i = 0; i < read.size(); ++i) use(files[begin + i], std::move(read[i]));
    patience.Note(begin + read.size(), "trials read", files.size());
    if (next.valid()) read = next.get();
  }
}

// The rows of a read-only index, updated to the directories.
std::vector<TrialRow> RowsBeside(const fs::path& trials, std::vector<TrialRow> indexed,
                                 std::map<std::string, IndexedFile> left_out,
                                 const Difference& difference,
                                 const std::vector<Annotation>& annotations,
                                 std::vector<std::string>& problems) {
  const std::set<std::string> removed(difference.to_remove.begin(), difference.to_remove.end());
  std::erase_if(indexed, [&](const TrialRow& row) { return removed.contains(row.trial_id); });
  std::erase_if(left_out, [&](const auto& file) { return removed.contains(file.first); });
  ReadTrialFiles(trials, difference.to_read, [&](const TrialFile& file, ReadTrial read) {
    if (read.older || !read.problem.empty()) {
      left_out[file.place] = {file.stamp, true, read.problem};
    } else {
      indexed.push_back(std::move(read.row));
    }
  });
  std::map<std::string, std::vector<std::string>> reasons;
  for (const Annotation& annotation : annotations)
    reasons[annotation.trial_id].push_back(annotation.reason);
  for (TrialRow& row : indexed) {
    row.annotations.clear();
    if (const auto found = reasons.find(row.trial_id); found != reasons.end())
      Append(found->second, row.annotations);
  }
  NameLeftOut(trials, left_out, problems);
  SortByAge(indexed);
  return indexed;
}

}  // namespace

std::string Store::CreateTrial(const StoreLock&, const std::string& experiment,
                               const std::string& part, const std::string& stem) const {
  const fs::path parent = trials() / experiment / part;
  MakeDirectories(parent);
  for (int number = 1;; ++number) {
    const std::string name = fmt::format("{}-{}", stem, number);
    std::error_code error;
    if (fs::create_directory(parent / name, error)) {
      return fmt::format("{}/{}/{}", experiment, part, name);
    }
    if (error) {
      SPARFUSE_THROW(kData, fmt::format("cannot make the directory {}: {} (errno {})",
                                        (parent / name).string(), error.message(), error.value()));
    }
  }
}

void Store::Finish(const StoreLock& lock, const Trial& trial) const {
  const json written = ToJson(trial);
  try {
    TrialOf(written);
  } catch (const Error& error) {
    SPARFUSE_THROW(kInternal, std::string("a trial that no reader would accept: ") + error.what());
  }
  Finish(lock, trial.trial_id, written.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

void Store::Finish(const StoreLock&, const std::string& trial_id, const std::string& text) const {
  const fs::path directory = Directory(trial_id);
  SyncDirectory(directory);
  WriteFileDurably(directory / "trial.json", text);
}

void Store::Amend(const StoreLock& lock, const std::string& trial_id, const json& more) const {
  const fs::path file = Directory(trial_id) / "trial.json";
  json trial = ReadJsonFile(file);
  trial.merge_patch(more);
  Finish(lock, TrialOf(trial, file.string()));
}

void Store::Discard(const StoreLock&, const std::string& trial_id) const {
  trash().Take(Directory(trial_id), trial_id);
}

SweptTrials Store::RemoveUnfinished(const StoreLock&) const {
  SweptTrials swept;
  std::error_code none;
  const TrialListing listing = ListTrials(trials());
  for (const std::string& place : listing.unfinished) {
    const auto taken = trash().Take(Directory(place), place);
    if (taken) swept.unfinished.push_back(place);
    if (taken && !taken->empty()) swept.in_trash.push_back(*taken);
    if (!taken && !fs::is_empty(Directory(place), none)) swept.unknown.push_back(Directory(place));
  }
  for (const std::string& place : listing.unknown) {  // unless it was moved with a trial
    if (fs::exists(fs::symlink_status(Directory(place), none)))
      swept.unknown.push_back(Directory(place));
  }
  trash().Empty(kKeepTrash);
  return swept;
}

std::vector<Annotation> Store::ReadAnnotations(std::vector<std::string>& problems) const {
  std::vector<fs::path> files;
  if (const fs::path folder = results_ / "annotations"; SomethingIsAt(folder)) {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed)) {
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
    if (failed) problems.push_back(fmt::format("{}: {}", folder.string(), failed.message()));
  }
  std::ranges::sort(files);
  std::vector<Annotation> annotations;
  for (const auto& file : files) {
    try {
      Annotation annotation = AnnotationOf(ReadJsonFile(file), file.string());
      if (annotation.annotation_id != file.stem().string()) {
        SPARFUSE_THROW(kData, fmt::format("{}: annotation_id = \"{}\": expected the file's name",
                                          file.string(), annotation.annotation_id));
      }
      annotations.push_back(std::move(annotation));
    } catch (const Error& error) {
      problems.push_back(fmt::format("{}; left out", error.what()));
    }
  }
  return annotations;
}

Annotation Store::Annotate(const StoreLock& lock, const std::string& trial_id,
                           const std::string& reason) const {
  if (reason.empty()) SPARFUSE_THROW(kConfig, "annotate: expected a reason that is not empty");
  if (trial_id.starts_with('/') || trial_id.find("..") != std::string::npos ||
      !SomethingIsAt(Directory(trial_id) / "trial.json")) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("no trial \"{}\" in {}: expected an id that `sparfuse status` "
                               "prints",
                               trial_id, results_.string()));
  }
  const std::string now = UtcNow();
  const std::string id = now + "-" + Sha256Hex(trial_id + "\n" + reason + "\n" + now).substr(0, 8);
  const Annotation annotation{id, trial_id, reason, now, 0};
  PrivateFacts facts = ReadPrivateFacts(Directory(trial_id));
  facts.AddUsers(CurrentUsers());
  WritePrivateFacts(Directory(trial_id), facts);
  MakeDirectories(results_ / "annotations");
  WriteFileDurably(results_ / "annotations" / (id + ".json"), ToJson(annotation).dump(1) + "\n");
  std::vector<std::string> problems;
  OpenIndex(lock, problems);
  return annotation;
}

void Store::Follow(Index& index, std::vector<std::string>& problems) const {
  const TrialListing listing = ListTrials(trials());
  Append(listing.problems, problems);
  const std::vector<Annotation> annotations = ReadAnnotations(problems);
  const Difference difference = DifferenceOf(listing.finished, index.Files());
  if (!difference.none() || IdsOf(annotations) != index.AnnotationIds()) {
    index.InOneTransaction([&] {
      for (const std::string& place : difference.to_remove) index.RemoveTrial(place);
      ReadTrialFiles(trials(), difference.to_read, [&](const TrialFile& file, ReadTrial read) {
        if (read.older || !read.problem.empty()) {
          index.AddLeftOut(file.place, {file.stamp, true, read.problem});
        } else {
          index.AddTrial(read.row);
        }
      });
      FollowAnnotations(index, annotations);
    });
  }
  NameLeftOut(trials(), index.LeftOut(), problems);
}

Index Store::OpenIndex(const StoreLock& lock, std::vector<std::string>& problems) const {
  if (const auto found = Index::WhyNotCurrent(index_path())) {
    if (found->damaged) {
      problems.push_back(
          fmt::format("{}: {}: made again from the trials", index_path().string(), found->why));
    }
    RebuildIndex(lock, problems);
    return Index::OpenToWrite(index_path());
  }
  Index index = Index::OpenToWrite(index_path());
  Follow(index, problems);
  return index;
}

void Store::RebuildIndex(const StoreLock&, std::vector<std::string>& problems) const {
  Index::IsThere(index_path());
  const fs::path fresh = results_ / "index.sqlite.new";
  try {
    Index index = Index::Create(fresh);
    Follow(index, problems);
  } catch (...) {
    ::unlink(fresh.c_str());  // half an index would fill the disk further
    throw;
  }
  ::unlink((index_path().string() + "-journal").c_str());  // journal of the replaced file
  fs::rename(fresh, index_path());
  SyncDirectory(results_);
}

std::vector<TrialRow> Store::Rows(std::vector<std::string>& problems) const {
  const TrialListing listing = ListTrials(trials());
  const bool has_index = Index::IsThere(index_path());
  if (listing.finished.empty() && listing.problems.empty() && !has_index) return {};
  std::vector<std::string> unread;  // the problems that OpenIndex would name
  const std::vector<Annotation> annotations = ReadAnnotations(unread);
  Append(listing.problems, unread);
  std::vector<TrialRow> rows;
  std::map<std::string, IndexedFile> left_out, known;
  bool follows = false;
  if (has_index && !Index::WhyNotCurrent(index_path())) {
    const Index index = Index::OpenToRead(index_path());
    known = index.Files();
    left_out = index.LeftOut();
    follows =
        DifferenceOf(listing.finished, known).none() && IdsOf(annotations) == index.AnnotationIds();
    rows = index.Rows();
  }
  if (!follows && ::access(results_.c_str(), W_OK) == 0) {
    try {
      std::vector<std::string> named;
      if (auto lock = StoreLock::TryLock(results_)) {
        const Index index = OpenIndex(*lock, named);
        lock.reset();
        Append(named, problems);
        return index.Rows();
      }
    } catch (const Error& error) {  // a full disk: trials missing in the index are still read
      unread.push_back(fmt::format("{}; the trials are read without it", error.what()));
    }
  }
  Append(unread, problems);
  return RowsBeside(trials(), std::move(rows), std::move(left_out),
                    DifferenceOf(listing.finished, known), annotations, problems);
}

std::vector<TrialRow> Store::ReadRows() const {
  if (!Index::IsThere(index_path())) return {};
  return Index::OpenToRead(index_path()).Rows();
}

namespace {

// A folder of the trash is named after the second of its creation: 20260131T123456Z.
std::string StampNow() {
  std::string stamp;
  for (const char c : UtcNow().substr(0, 19)) {
    if (c != '-' && c != ':') stamp += c;
  }
  return stamp + "Z";
}

// The time in a stamp; nothing if `name` is no stamp.
std::optional<std::time_t> TimeOf(const std::string& name) {
  std::tm utc{};
  const char* end = ::strptime(name.c_str(), "%Y%m%dT%H%M%SZ", &utc);
  const bool whole = end != nullptr && *end == '\0' && name.size() == 16;
  return whole ? std::optional(::timegm(&utc)) : std::nullopt;
}

bool IsFolder(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(fs::symlink_status(path, none));  // a link to a folder does not count
}

// Whether a trial's directory may have this name: "...-b3-1".
bool IsTrialName(std::string_view name) {
  static const Expression kEnd("-b[0-9]+-[0-9]+$", "the name of a trial");
  return kEnd.FoundIn(name);
}

enum class Is { kOurs, kEmpty, kUnknown };

Is Recognise(const fs::path& directory, const std::string& place) {
  if (!IsFolder(directory)) return Is::kUnknown;
  std::error_code error;
  if (fs::exists(fs::symlink_status(directory / "trial.json", error))) return Is::kUnknown;
  if (fs::exists(fs::symlink_status(directory / "config.json", error))) {
    try {
      const nlohmann::json config = ReadJsonFile(directory / "config.json");
      const bool ours =
          config.is_object() && config.contains("trial_id") && config["trial_id"] == place;
      return ours ? Is::kOurs : Is::kUnknown;
    } catch (const Error&) {
      return Is::kUnknown;  // our files are whole or missing, so it is another's
    }
  }
  if (!IsTrialName(directory.filename().string())) return Is::kUnknown;
  bool any = false;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().filename() != "config.json.tmp") return Is::kUnknown;
    any = true;
  }
  return error ? Is::kUnknown : any ? Is::kOurs : Is::kEmpty;
}

[[noreturn]] void Fail(const fs::path& from, const fs::path& to, const std::error_code& error) {
  SPARFUSE_THROW(
      kData, fmt::format("cannot move {} to {}: {}", from.string(), to.string(), error.message()));
}

}  // namespace

std::optional<fs::path> Trash::Take(const fs::path& directory, const std::string& place) const {
  const Is is = Recognise(directory, place);
  if (is == Is::kUnknown) return std::nullopt;
  if (is == Is::kEmpty) {
    ::rmdir(directory.c_str());  // fails if a file has appeared meanwhile
    return fs::path();
  }
  const std::string stamp = StampNow();
  fs::path to = folder_ / stamp / place;
  for (int number = 2; fs::exists(fs::symlink_status(to)); ++number)
    to = folder_ / stamp / (place + "." + std::to_string(number));
  MakeDirectories(to.parent_path());
  std::error_code error;
  fs::rename(directory, to, error);
  if (error == std::errc::cross_device_link) {  // the experiment's folder is a link
    error.clear();
    fs::copy(directory, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
    if (error) Fail(directory, to, error);
    fs::remove_all(directory, error);
  }
  if (error) Fail(directory, to, error);
  return to;
}

std::vector<fs::path> Trash::Empty(std::chrono::hours age) const {
  std::vector<fs::path> old;
  std::error_code none;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() - age);
  for (const auto& entry : fs::directory_iterator(folder_, none)) {
    const auto made = TimeOf(entry.path().filename().string());
    if (made && *made <= now && IsFolder(entry.path())) old.push_back(entry.path());
  }
  std::ranges::sort(old);
  for (const fs::path& folder : old) fs::remove_all(folder);
  return old;
}

}  // namespace sparfuse::harness
