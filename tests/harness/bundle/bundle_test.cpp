// Tests bundles: merging is a union of sets, whatever order, repetition, kill or hand comes
// between.
#include "harness/bundle/bundle.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "core/base/error.hpp"
#include "harness/bundle/export.hpp"
#include "harness/bundle/merge.hpp"
#include "harness/bundle/verify.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/store_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const json kWrittenBy = {{"commit", std::string(40, 'a')}, {"dirty", false}};

// A store on a machine of so many cores, whose trials are of the earlier kind: their ids say
// nothing of store or system.
class Machine {
 public:
  explicit Machine(int cores) : cores_(cores), store_(folder_.path()) {}

  const Store& store() const { return store_; }
  void Run(int block, double seconds) {
    const StoreLock lock(store_.results());
    json trial = AddTrial(store_, lock, block);
    const fs::path directory = store_.Directory(trial["trial_id"]);
    trial["system"] = {
        {"cores", cores_}, {"cpu_model", "made up"}, {"gpus", json::array()}, {"memory_gib", 8}};
    trial["system_hash"] = ContentHash(trial["system"]);
    trial["seconds"] = seconds;
    trial["metrics"]["step_seconds"]["value"] = seconds / 10;
    trial["machine"] = {{"placement", {"node-a", "node-b"}}};
    json config = trial["config"];
    config["trial_id"] = trial["trial_id"];
    WriteFileDurably(directory / "config.json", WrittenJson(config));
    WriteFileDurably(directory / "log.txt", "token ghp_16C7e42F292c6912E7710c838347Ae178B4a\n");
    WriteFileDurably(directory / "trial.json", WrittenJson(trial));
  }
  std::vector<TrialRow> Rows() const {
    std::vector<std::string> problems;
    std::vector<TrialRow> rows = store_.Rows(problems);
    EXPECT_EQ(problems, std::vector<std::string>());
    return rows;
  }
  // The store's bundle.
  fs::path Bundled(const std::string& name = "bundle.sparfuse") const {
    const fs::path file = outside_.path() / name;
    const Export made(store_, Rows(), {});
    EXPECT_EQ(made.summary().left_out, std::vector<std::string>());
    made.Write(kWrittenBy, file);
    return file;
  }
  MergeSummary Take(const fs::path& file) {
    const StoreLock lock(store_.results());
    MergeSummary summary = Merge(store_, lock, Bundle(file));
    std::vector<std::string> problems;
    store_.OpenIndex(lock, problems);
    EXPECT_EQ(problems, std::vector<std::string>());
    return summary;
  }
  // All files of trials and annotations, with their content.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    for (const char* folder : {"trials", "annotations"}) {
      if (!fs::exists(store_.results() / folder)) continue;
      for (const auto& entry : fs::recursive_directory_iterator(store_.results() / folder)) {
        if (entry.is_regular_file())
          files[fs::relative(entry.path(), store_.results())] = ReadFile(entry.path());
      }
    }
    return files;
  }

 private:
  const TemporaryFolder folder_, outside_;
  const int cores_;
  const Store store_;
};

std::string Flipped(const fs::path& file, std::size_t at) {
  std::string bytes = ReadFile(file);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  return bytes;
}

std::string ErrorOf(const fs::path& file) {
  try {
    const Bundle bundle(file);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Whether every trial is there under the id of bundles and the table is as before.
void ExpectGood(const fs::path& file) {
  const Verification verification = Verify(Bundle(file));
  EXPECT_EQ(verification.problems, std::vector<std::string>());
}

TEST(Merge, IsAUnionOfSets) {
  Machine a(2), b(4), c(2);
  for (int block = 0; block < 3; ++block) {
    a.Run(block, 1.5 + block);
    b.Run(block, 2.5 + block);
  }
  c.Run(0, 4.5);
  const std::vector<fs::path> bundles = {a.Bundled(), b.Bundled(), c.Bundled()};
  std::vector<int> order = {0, 1, 2};
  std::map<std::string, std::string> first;
  fs::path joined;
  do {
    Machine d(8);
    for (const int i : order) {
      d.Take(bundles[static_cast<std::size_t>(i)]);
      EXPECT_EQ(d.Take(bundles[static_cast<std::size_t>(order[0])]).added,
                std::vector<std::string>());
    }
    EXPECT_EQ(d.Rows().size(), 7u);
    if (first.empty()) first = d.Files();
    EXPECT_EQ(d.Files(), first);
    // (A and B) and C
    Machine e(8), f(8);
    e.Take(bundles[static_cast<std::size_t>(order[0])]);
    e.Take(bundles[static_cast<std::size_t>(order[1])]);
    f.Take(e.Bundled());
    f.Take(bundles[static_cast<std::size_t>(order[2])]);
    EXPECT_EQ(f.Files(), first);
    EXPECT_EQ(ReadFile(f.Bundled()), ReadFile(d.Bundled()));
  } while (std::ranges::next_permutation(order).found);
}

TEST(Merge, OnesOwnBundleAddsNothing) {
  Machine a(2), b(4);
  a.Run(0, 1.5);
  a.Run(0, 2.5);
  const auto before = a.Files();
  EXPECT_EQ(a.Take(a.Bundled()).present, 2u);
  EXPECT_EQ(a.Files(), before);
  b.Take(a.Bundled());
  EXPECT_EQ(a.Take(b.Bundled()).present, 2u);
  EXPECT_EQ(a.Files(), before);
}

TEST(Merge, KeepsTrialsOfUnlikeSystemsApart) {
  Machine a(2), b(4);
  a.Run(0, 1.5);
  b.Run(0, 1.5);
  ASSERT_EQ(a.Rows()[0].trial_id, b.Rows()[0].trial_id);
  EXPECT_EQ(b.Take(a.Bundled()).added.size(), 1u);
  const auto rows = b.Rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NE(rows[0].system_hash, rows[1].system_hash);
  ExpectGood(b.Bundled());
  EXPECT_EQ(Verify(Bundle(b.Bundled())).table.size(), 2u);
  const json taken = ReadJsonFile(b.store().Directory(rows[1].trial_id == a.Rows()[0].trial_id
                                                          ? rows[0].trial_id
                                                          : rows[1].trial_id) /
                                  "trial.json");
  EXPECT_EQ(taken["original_id"], a.Rows()[0].trial_id);
  EXPECT_EQ(taken["machine"]["placement"], (json{"host0", "host1"}));
}

TEST(Merge, AnnotationsGoWithTheirTrials) {
  Machine a(2), b(4);
  a.Run(0, 1.5);
  const fs::path before = a.Bundled("before.sparfuse");
  {
    const StoreLock lock(a.store().results());
    a.store().Annotate(lock, a.Rows()[0].trial_id,
                       "a backup ran on node-b, see /users/alice/notes");
  }
  b.Take(before);
  EXPECT_TRUE(b.Rows()[0].counts());
  EXPECT_EQ(b.Take(a.Bundled()).annotations, 1u);
  EXPECT_EQ(b.Rows()[0].annotations, std::vector<std::string>{"a backup ran on HOST, see notes"});
  const auto own = a.Files();
  EXPECT_EQ(a.Take(b.Bundled()).annotations, 0u);
  EXPECT_EQ(a.Files(), own);
  ExpectGood(b.Bundled());
}

TEST(Merge, RefusesOtherBytesOfAnIdAndTakesTheRest) {
  Machine a(2), b(4);
  a.Run(0, 1.5);
  a.Run(1, 2.5);
  b.Take(a.Bundled());
  const fs::path edited = b.store().Directory(b.Rows()[0].trial_id) / "trial.json";
  json trial = ReadJsonFile(edited);
  trial["seconds"] = 99;
  WriteFileDurably(edited, WrittenJson(trial));
  a.Run(2, 3.5);
  const auto before = b.Files();
  const MergeSummary summary = b.Take(a.Bundled());
  EXPECT_EQ(summary.added.size(), 1u);
  EXPECT_EQ(summary.present, 1u);
  ASSERT_EQ(summary.refused.size(), 1u);
  EXPECT_NE(summary.refused[0].find("other bytes (trial.json differs)"), std::string::npos);
  for (const auto& [file, content] : before) EXPECT_EQ(b.Files()[file], content) << file;
}

TEST(Merge, GoesOnAfterAKill) {
  Machine a(2);
  for (int block = 0; block < 3; ++block) a.Run(block, 1.5 + block);
  const fs::path file = a.Bundled();
  Machine whole(4);
  whole.Take(file);
  const auto files = whole.Files();
  const std::string killed = whole.Rows()[1].trial_id;
  // The files of a trial in the order in which they are written, the last one never.
  for (const std::vector<std::string>& written : {std::vector<std::string>{},
                                                  {"config.json.tmp"},
                                                  {"config.json"},
                                                  {"config.json", "trial.json.tmp"}}) {
    Machine b(4);
    const fs::path directory = b.store().Directory(killed);
    MakeDirectories(directory);
    for (const std::string& name : written) {
      const auto found = files.find("trials/" + killed + "/" + name);
      std::ofstream(directory / name) << (found == files.end() ? "half of i" : found->second);
    }
    EXPECT_EQ(b.Take(file).added.size(), 3u);
    EXPECT_EQ(b.Files(), files);
  }
}

TEST(Merge, LeavesWhatIsNotItsOwn) {
  Machine a(2), b(4);
  a.Run(0, 1.5);
  const fs::path file = a.Bundled(), notes = "my notes.txt";
  const std::string id = Bundle(file).content().trials.begin()->first;
  MakeDirectories(b.store().Directory(id));
  std::ofstream(b.store().Directory(id) / notes) << "mine";
  const StoreLock lock(b.store().results());
  EXPECT_EQ(Merge(b.store(), lock, Bundle(file)).refused.size(), 1u);
  EXPECT_EQ(ReadFile(b.store().Directory(id) / notes), "mine");
}

TEST(Bundle, EqualTrialsGiveEqualBytes) {
  Machine a(2);
  a.Run(0, 1.5);
  EXPECT_EQ(ReadFile(a.Bundled("1.sparfuse")), ReadFile(a.Bundled("2.sparfuse")));
  const std::string bytes = ReadFile(a.Bundled());
  for (const char* secret : {"ghp_", "node-a", "log.txt"})
    EXPECT_EQ(bytes.find(secret), std::string::npos) << secret;
}

TEST(Bundle, AnyByteEditedByHandIsFound) {
  Machine a(2);
  a.Run(0, 1.5);
  const fs::path file = a.Bundled(), edited = file.parent_path() / "edited.sparfuse";
  const std::size_t size = ReadFile(file).size();
  for (std::size_t at = 0; at < size; at += 29) {
    std::ofstream(edited, std::ios::binary) << Flipped(file, at);
    bool found = !ErrorOf(edited).empty();
    if (!found) found = !Verify(Bundle(edited)).problems.empty();
    ASSERT_TRUE(found) << "byte " << at;
  }
}

TEST(Bundle, AForgedHashIsFoundByTheTable) {
  Machine a(2);
  a.Run(0, 1.5);
  const fs::path file = a.Bundled(), forged = file.parent_path() / "forged.sparfuse";
  const Bundle bundle(file);
  const std::string id = bundle.content().trials.begin()->first;
  BundledTrial trial = bundle.Trial(id);
  trial.trial["metrics"]["step_seconds"]["value"] = 0.001;
  trial.files["trial.json"] = WrittenJson(trial.trial);
  BundleContent content = bundle.content();
  content.trials[id] = trial.Hashes();
  ArchiveWriter archive(forged);
  archive.Add(kManifest, ManifestText(content, kWrittenBy));
  archive.Add(kTable, WrittenJson(bundle.Table()));
  for (const auto& [name, bytes] : trial.files) archive.Add(MemberOfTrial(id, name), bytes);
  archive.Commit();
  const auto problems = Verify(Bundle(forged)).problems;
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("the bundle has 0.15, its trials give 0.001"), std::string::npos)
      << problems[0];
}

TEST(Bundle, WhatExportWouldNotLetLeaveIsRefused) {
  Machine a(2), b(4);
  a.Run(0, 1.5);
  const fs::path file = a.Bundled(), forged = file.parent_path() / "forged.sparfuse";
  const Bundle bundle(file);
  const std::string id = bundle.content().trials.begin()->first;
  BundledTrial trial = bundle.Trial(id);
  trial.trial["argv"] = {"rm", "-rf"};
  trial.files["trial.json"] = WrittenJson(trial.trial);
  BundleContent content = bundle.content();
  content.trials[id] = trial.Hashes();
  ArchiveWriter archive(forged);
  archive.Add(kManifest, ManifestText(content, kWrittenBy));
  archive.Add(kTable, WrittenJson(bundle.Table()));
  for (const auto& [name, bytes] : trial.files) archive.Add(MemberOfTrial(id, name), bytes);
  archive.Commit();
  EXPECT_EQ(b.Take(forged).refused.size(), 1u);
  EXPECT_TRUE(b.Rows().empty());
}

TEST(Bundle, PlacesOutsideOfTheTrialsAreRefused) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "evil.sparfuse";
  for (const char* id : {"../../evil/x", "/etc/evil/x", "e/../../x", "e//x", "e/p/.hidden", "x"}) {
    BundleContent content;
    content.table = Sha256Hex("[]\n");
    content.trials[id] = {{"trial.json", content.table}, {"config.json", content.table}};
    ArchiveWriter archive(file);
    archive.Add(kManifest, ManifestText(content, kWrittenBy));
    archive.Commit();
    EXPECT_NE(ErrorOf(file).find("expected a trial's id"), std::string::npos) << id;
  }
}

TEST(Bundle, OfTheFutureIsRefusedWithBothVersions) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "future.sparfuse";
  ArchiveWriter archive(file);
  archive.Add(kManifest, WrittenJson({{"format", "sparfuse bundle"},
                                      {"bundle_version", kBundleVersion + 6},
                                      {"written_by", kWrittenBy}}));
  archive.Add("what nobody knows yet", "");
  archive.Commit();
  const std::string error = ErrorOf(file);
  for (const std::string& part : {"bundle_version " + std::to_string(kBundleVersion + 6),
                                  "reads 1 to " + std::to_string(kBundleVersion),
                                  std::string("./sparfuse verify"), std::string(40, 'a')})
    EXPECT_NE(error.find(part), std::string::npos) << error;
}

// Every version that was ever written, as it was written then.
TEST(Bundle, EveryVersionStaysReadable) {
  const fs::path frozen = fs::path(SPARFUSE_SOURCE_DIRECTORY) / "tests/harness/bundle/frozen";
  for (int version = 1; version <= kBundleVersion; ++version) {
    const fs::path file = frozen / ("v" + std::to_string(version) + ".sparfuse");
    SCOPED_TRACE(file);
    ExpectGood(file);
    Machine a(2);
    EXPECT_EQ(a.Take(file).refused, std::vector<std::string>());
    EXPECT_EQ(a.Rows().size(), Bundle(file).content().trials.size());
    EXPECT_GT(a.Rows().size(), 0u);
  }
}

}  // namespace
}  // namespace sparfuse::harness
