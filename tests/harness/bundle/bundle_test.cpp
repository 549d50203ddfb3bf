// Tests bundles: merging is a union of sets, in any order, with repetitions and kills, and through
// any third store.
#include "harness/bundle/bundle.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>

#include "core/base/error.hpp"
#include "harness/bundle/merge.hpp"
#include "harness/bundle/verify.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/npy.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/store/evidence/series_file.hpp"
#include "harness/store/step_log.hpp"
#include "tests/harness/bundle/computer.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/store_fixture.hpp"
#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string Flipped(const fs::path& file, std::size_t at) {
  std::string bytes = ReadFile(file);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  return bytes;
}

std::string ErrorOf(const fs::path& file) {
  return testing::ErrorOf([&] { const Bundle bundle(file); }, FailureKind::kData);
}

TEST(Merge, IsAUnionOfSets) {
  Computer a(2), b(4), c(2);
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
    Computer d(8);
    for (const int i : order) {
      d.Take(bundles[static_cast<std::size_t>(i)]);
      EXPECT_EQ(d.Take(bundles[static_cast<std::size_t>(order[0])]).added,
                std::vector<std::string>());
    }
    EXPECT_EQ(d.Rows().size(), 7u);
    if (first.empty()) first = d.Files();
    EXPECT_EQ(d.Files(), first);
    // (A and B) and C
    Computer e(8), f(8);
    e.Take(bundles[static_cast<std::size_t>(order[0])]);
    e.Take(bundles[static_cast<std::size_t>(order[1])]);
    f.Take(e.Bundled());
    f.Take(bundles[static_cast<std::size_t>(order[2])]);
    EXPECT_EQ(f.Files(), first);
    EXPECT_EQ(ReadFile(f.Bundled()), ReadFile(d.Bundled()));
  } while (std::ranges::next_permutation(order).found);
}

// Stores with equal and unequal systems, with launches over hosts and annotations. A store that
// takes these subsets has the same files in any order.
TEST(Merge, IsAUnionOfWhateverSubsets) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 draw(seed);
    Computer stores[] = {Computer(2, "0a1b2c3d"), Computer(2, "1a1b2c3d"), Computer(4),
                         Computer(2)};
    for (Computer& store : stores) {
      for (int block = 0; block < 4; ++block) {
        store.Run(
            block, 1 + block + 0.1 * static_cast<double>(draw() % 10),
            [&](const fs::path& directory, json& trial) {
              if (draw() % 2 == 0) WriteTwoSteps(directory, trial);
              const char* second = draw() % 2 == 0 ? "host0" : "host1";
              trial["machine"]["placement"] = {"host0", second};
              trial["launch"] = {{"id", trial["trial_id"]}, {"trials", 1}, {"failed_on", second}};
            });
      }
      for (const TrialRow& row : store.Rows()) {
        if (draw() % 3 == 0) store.Annotate(row.trial_id, "node-b was full");
      }
    }
    // Subsets that overlap, also of stores that have merged before.
    std::vector<fs::path> bundles;
    std::vector<std::unique_ptr<Computer>> between;
    for (int i = 0; i < 6; ++i) {
      const Computer& from = i < 4 || between.empty() ? stores[draw() % 4] : *between.back();
      std::vector<TrialRow> rows = from.Rows();
      std::erase_if(rows, [&](const TrialRow&) { return draw() % 3 == 0; });
      bundles.push_back(from.BundledOf(rows, "subset" + std::to_string(i) + ".sparfuse"));
      auto next = std::make_unique<Computer>(8);
      for (const fs::path& each : bundles) {
        if (draw() % 2 == 0) next->Take(each);
      }
      between.push_back(std::move(next));
    }
    std::map<std::string, std::string> first;
    fs::path whole;
    for (int order = 0; order < 4; ++order) {
      std::ranges::shuffle(bundles, draw);
      Computer taken(8);
      for (const fs::path& each : bundles) {
        EXPECT_EQ(taken.Take(each).refused, std::vector<std::string>());
        if (draw() % 2 == 0) taken.Take(bundles[draw() % bundles.size()]);
      }
      if (first.empty()) first = taken.Files();
      EXPECT_EQ(taken.Files(), first);
      ExpectGood(taken.Bundled());
      // Merged back into its origin, it changes none of the store's own files.
      for (Computer& store : stores) {
        const auto own = store.Files();
        const MergeSummary home = store.Take(taken.Bundled());
        EXPECT_EQ(home.refused, std::vector<std::string>());
        for (const auto& [file, content] : own) EXPECT_EQ(store.Files().at(file), content);
      }
    }
  }
}

TEST(Merge, OnesOwnBundleAddsNothing) {
  Computer a(2), b(4);
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
  Computer a(2), b(4);
  a.Run(0, 1.5);
  b.Run(0, 1.5);
  EXPECT_EQ(b.Take(a.Bundled()).added.size(), 1u);
  const auto rows = b.Rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NE(rows[0].system_hash, rows[1].system_hash);
  ExpectGood(b.Bundled());
  EXPECT_EQ(Verify(Bundle(b.Bundled())).table.size(), 2u);
}

TEST(Merge, AnnotationsGoWithTheirTrials) {
  Computer a(2), b(4);
  a.Run(0, 1.5);
  const fs::path before = a.Bundled("before.sparfuse");
  a.Annotate(a.Rows()[0].trial_id, "a backup ran on node-b, see /users/alice/notes");
  const PrivateNames names = PrivateNames::OfTrials(a.Rows(), a.store().results());
  b.Take(before);
  EXPECT_TRUE(b.Rows()[0].counts());
  EXPECT_EQ(b.Take(a.Bundled("b.sparfuse", names)).annotations, 1u);
  EXPECT_EQ(b.Rows()[0].annotations, std::vector<std::string>{"a backup ran on HOST, see notes"});
  const auto own = a.Files();
  EXPECT_EQ(a.Take(b.Bundled()).annotations, 0u);
  EXPECT_EQ(a.Files(), own);
  ExpectGood(b.Bundled());
}

// Exporters and importers know different private names; trials with different names removed are the
// same trial.
TEST(Merge, OtherNamesThatWereRemovedAreNoOtherBytes) {
  Computer a(2), b(4);
  a.Run(0, 1.5, [](const fs::path&, json& trial) {
    trial["sampling"] = "by alice and bob on node-a.cluster.org";
  });
  a.Annotate(a.Rows()[0].trial_id, "alice: backup, by bob");
  const auto own = a.Files();
  PrivateNames of_alice, of_bob;
  of_alice.users = {"alice"};
  of_bob.users = {"bob"};
  const fs::path first = a.Bundled("1.sparfuse", of_alice),
                 second = a.Bundled("2.sparfuse", of_bob);
  ASSERT_NE(ReadFile(first), ReadFile(second));
  EXPECT_EQ(b.Take(first).added.size(), 1u);
  for (const fs::path& file : {first, second, b.Bundled()}) {
    EXPECT_EQ(b.Take(file).refused, std::vector<std::string>());
    EXPECT_EQ(a.Take(file).refused, std::vector<std::string>());
  }
  EXPECT_EQ(a.Files(), own);
  EXPECT_EQ(b.Rows()[0].annotations, std::vector<std::string>{"USER: backup, by bob"});
}

// The private names of a store are the hosts of all its trials and all its users. No trial's text
// keeps a name of another trial.
TEST(Merge, NamesAreThoseOfTheStore) {
  Computer a(2, "0a1b2c3d");
  const auto with = [](std::vector<std::string> hosts, std::vector<std::string> users) {
    return [=](const fs::path& directory, json&) {
      PrivateFacts facts;
      facts.hosts = hosts;
      facts.users = users;
      WritePrivateFacts(directory, facts);
    };
  };
  a.Run(0, 1.5, with({"node7.cluster.example.org", "node8", "login3.example.org"}, {}));
  a.Run(1, 1.5, with({"node9"}, {"carol"}));
  for (const TrialRow& row : a.Rows())
    a.Annotate(row.trial_id, "node7 was rebooted by carol after node8.");
  a.Annotate(a.Rows()[0].trial_id, "login3, node9: full");
  const PrivateNames names = PrivateNames::OfTrials(a.Rows(), a.store().results());
  const auto problems = Verify(Bundle(a.Bundled("b.sparfuse", names))).problems;
  EXPECT_EQ(problems, std::vector<std::string>());
  const std::string bytes = ReadFile(a.Bundled("b.sparfuse", names));
  for (const char* name : {"node7", "node8", "node9", "login3", "carol", "example.org"})
    EXPECT_EQ(bytes.find(name), std::string::npos) << name;
  EXPECT_SAYS(bytes, "HOST was rebooted by USER after HOST.");
}

TEST(Merge, RefusesOtherBytesOfAnIdAndTakesTheRest) {
  Computer a(2), b(4);
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
  EXPECT_SAYS(summary.refused[0], "other bytes (trial.json differs)");
  for (const auto& [file, content] : before) EXPECT_EQ(b.Files()[file], content) << file;
}

TEST(Merge, GoesOnAfterAKill) {
  Computer a(2);
  for (int block = 0; block < 3; ++block) a.Run(block, 1.5 + block);
  const fs::path file = a.Bundled();
  Computer whole(4);
  whole.Take(file);
  const auto files = whole.Files();
  const std::string killed = whole.Rows()[1].trial_id;
  // The files of a trial in the order of writing, without the last one.
  for (const std::vector<std::string>& written : {std::vector<std::string>{},
                                                  {"config.json.tmp"},
                                                  {"config.json"},
                                                  {"config.json", "trial.json.tmp"}}) {
    Computer b(4);
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
  Computer a(2), b(4);
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
  Computer a(2);
  a.Run(0, 1.5);
  EXPECT_EQ(ReadFile(a.Bundled("1.sparfuse")), ReadFile(a.Bundled("2.sparfuse")));
  const std::string bytes = ReadFile(a.Bundled());
  for (const char* secret : {"ghp_", "node-a", "log.txt", "private.json"})
    EXPECT_EQ(bytes.find(secret), std::string::npos) << secret;
}

TEST(Bundle, AnyByteEditedByHandIsFound) {
  Computer a(2);
  a.Run(0, 1.5);
  const fs::path file = a.Bundled(), edited = file.parent_path() / "edited.sparfuse";
  const std::size_t size = ReadFile(file).size();
  for (std::size_t at = 0; at < size; at += 29) {
    std::ofstream(edited, std::ios::binary) << Flipped(file, at);
    bool found = ErrorOf(edited) != "no error";
    if (!found) found = !Verify(Bundle(edited)).problems.empty();
    ASSERT_TRUE(found) << "byte " << at;
  }
}

TEST(Bundle, MetricsThatWereForgedWithAllTheirHashesAreFoundByTheSteps) {
  Computer a(2, "0a1b2c3d");
  a.Run(0, 1.5, WriteTwoSteps);
  const fs::path file = a.Bundled();
  ExpectGood(file);
  EXPECT_EQ(Verify(Bundle(file)).trials.begin()->second.steps,
            (StepRange{.first = 0, .last = 1, .measured = 2, .ranks = 2}));
  const auto edited = [&](const char* metric, double times) {
    return Verify(Bundle(Forged(file,
                                [&](json& trial) {
                                  json& value = trial["metrics"][metric]["value"];
                                  value = times * value.get<double>();
                                })))
        .problems;
  };
  EXPECT_EQ(edited("step_seconds", 1), std::vector<std::string>());
  for (const char* metric : {"step_seconds", "payload_bytes", "other_seconds", "loss"}) {
    const auto problems = edited(metric, 0.9);
    ASSERT_EQ(problems.size(), 1u) << metric;
    EXPECT_SAYS(problems[0], std::string(metric) + ": trial.json has");
  }
  EXPECT_EQ(Verify(Bundle(Forged(file,
                                 [](json& trial) {
                                   trial["rounds"] = {0.1, 0.2};
                                 })))
                .problems.size(),
            1u);
}

// Of a workload of the catalogue, or of one that it lacks.
TEST(Bundle, AThroughputIsOfWholeSamplesOverTheStepAndOfTheCataloguesUnits) {
  for (const auto& [workload, throughput, said] :
       {std::tuple("", 300.0, "throughput: 300 is not a whole number"),
        {"digits-resnet", 2 * 64 / 0.3, "makes 2 units a sample"}}) {
    Computer a(2, "0a1b2c3d");
    a.Run(0, 1.5, [of = std::string(workload)](const fs::path& directory, json& trial) {
      WriteTwoSteps(directory, trial);
      if (!of.empty()) trial["config"]["workload"] = of;
      trial["config"]["batch_per_worker"] = 32;
      trial["config"]["accumulation"] = 1;
      trial["config_hash"] = ConfigHash(trial["config"]);
    });
    ExpectGood(a.Bundled());
    const auto problems = Verify(Bundle(Forged(a.Bundled(), [value = throughput](json& trial) {
                            trial["metrics"]["throughput"]["value"] = value;
                          }))).problems;
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_SAYS(problems[0], said);
  }
}

// One bad trial disables no check: the table is checked against the other trials.
TEST(Bundle, AnUnreadableTrialDoesNotHideAForgedTable) {
  Computer a(2, "0a1b2c3d"), c(4, "1a1b2c3d"), b(2);
  a.Run(0, 1.5);
  c.Run(0, 2.5);
  a.Take(c.Bundled());
  const fs::path file = a.Bundled(), forged = file.parent_path() / "forged.sparfuse";
  const Bundle bundle(file);
  for (const bool with_table : {false, true}) {
    BundleContent content = bundle.content();
    std::map<std::string, std::string> members;
    for (const auto& [id, hashes] : content.trials) {
      std::map<std::string, std::string> files = bundle.FilesOf(id);
      if (id == content.trials.begin()->first) files["trial.json"] = "{}\n";
      for (const auto& [name, bytes] : files) {
        members[MemberOfTrial(id, name)] = bytes;
        content.trials[id][name] = Sha256Hex(bytes);
      }
    }
    json table = bundle.Table();
    for (json& row : table) {
      if (with_table) row["metrics"]["step_seconds"]["value"] = 0.001;
    }
    members[kTableMember] = WrittenJson(table);
    content.table = Sha256Hex(members[kTableMember]);
    WriteBundle(forged, content, members);
    const MergeSummary merged = b.Take(forged);
    EXPECT_EQ(merged.added.size(), with_table ? 0u : 1u);
    EXPECT_EQ(Verify(Bundle(forged)).table_differs.empty(), !with_table);
    fs::remove_all(b.store().trials());
  }
}

TEST(Merge, AnnotationsOfOthersTakeNoOwnTrialOutUnasked) {
  Computer a(2, "0a1b2c3d"), b(4);
  a.Run(0, 1.5);
  b.Take(a.Bundled("before.sparfuse"));
  const std::string id = a.Rows()[0].trial_id;
  b.Annotate(id, "too good");
  const fs::path file = b.Bundled();
  const MergeSummary held = a.Take(file);
  EXPECT_EQ(held.held, std::vector<std::string>{id + " (too good)"});
  EXPECT_EQ(held.annotations, 0u);
  EXPECT_EQ(held.refused, std::vector<std::string>());
  EXPECT_TRUE(a.Rows()[0].counts());
  {
    const StoreLock lock(a.store().results());
    const MergeSummary taken = Merge(a.store(), lock, Bundle(file), {}, {.take_annotations = true});
    EXPECT_EQ(taken.held.size(), 1u);
    EXPECT_EQ(taken.annotations, 1u);
  }
  EXPECT_EQ(a.Rows()[0].annotations, std::vector<std::string>{"too good"});
}

TEST(Export, ATrialThatListsASeriesWithoutItStays) {
  Computer a(2, "0a1b2c3d");
  a.Run(0, 1.5, WriteTwoSteps);
  const TrialRow row = a.Rows()[0];
  for (const bool is_there : {true, false}) {
    const fs::path steps = a.store().Directory(row.trial_id) / "steps.npy";
    is_there ? fs::resize_file(steps, 100) : static_cast<void>(fs::remove(steps));
    const Export made(a.store(), {row}, {});
    EXPECT_TRUE(made.summary().content.trials.empty());
    ASSERT_EQ(made.summary().left_out.size(), 1u);
    for (const std::string& part :
         {row.trial_id, std::string("steps.npy"), std::string("sparfuse annotate")})
      EXPECT_SAYS(made.summary().left_out[0], part);
  }
}

// A store that was edited by hand is marked too, without reading its series again.
TEST(Store, MarksTrialsWhoseNumbersAreNotOfTheirSeries) {
  Computer a(2, "0a1b2c3d");
  a.Run(0, 1.5, [](const fs::path& directory, json& trial) {
    WriteTwoSteps(directory, trial);
    trial["metrics"]["step_seconds"]["value"] = 0.01;
  });
  a.Run(1, 1.5, WriteTwoSteps);
  const std::vector<TrialRow> rows = a.Rows();
  EXPECT_TRUE(rows[0].contradiction.starts_with("step_seconds: trial.json has 0.01"))
      << rows[0].contradiction;
  EXPECT_TRUE(rows[0].annotations.empty());
  EXPECT_FALSE(rows[0].counts());
  EXPECT_TRUE(rows[1].counts());
  EXPECT_EQ(a.store().ReadRows()[0].contradiction, rows[0].contradiction);
  EXPECT_EQ(Export(a.store(), rows, {}).summary().left_out.size(), 1u);
}

TEST(Bundle, ASecondManifestIsRefused) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "twice.sparfuse";
  BundleContent content;
  content.table = Sha256Hex("[]\n");
  ArchiveWriter archive(file);
  archive.Add(kManifest, ManifestText(content, kWrittenBy));
  archive.Add(kManifest, ManifestText(content, kWrittenBy));
  archive.Add(kTableMember, "[]\n");
  archive.Commit();
  EXPECT_SAYS(ErrorOf(file), "a second manifest.json");
}

TEST(Bundle, ClustersOfLikeNodesAreTwoRowsOfItsTable) {
  Computer a(2, "0a1b2c3d"), b(2, "1a1b2c3d"), c(8);
  a.Run(0, 1.5);
  b.Run(0, 2.5);
  c.Take(a.Bundled());
  c.Take(b.Bundled());
  const Verification verification = Verify(Bundle(c.Bundled()));
  EXPECT_EQ(verification.problems, std::vector<std::string>());
  ASSERT_EQ(verification.table.size(), 2u);
  EXPECT_EQ(verification.table[0]["system"].get<std::string>().substr(12), "@0a1b2c3d");
  EXPECT_EQ(verification.table[1]["system"].get<std::string>().substr(12), "@1a1b2c3d");
}

TEST(Bundle, AForgedHashIsFoundByTheTable) {
  Computer a(2);
  a.Run(0, 1.5);
  const fs::path file = a.Bundled();
  const Bundle bundle(file);
  const std::string id = bundle.content().trials.begin()->first;
  BundledTrial trial = bundle.Trial(id);
  trial.trial.metrics["step_seconds"].value = 0.001;
  trial.files["trial.json"] = WrittenJson(ToJson(trial.trial));
  json outcome = json::parse(trial.files["outcome.json"]);
  outcome["metrics"]["step_seconds"]["value"] = 0.001;
  trial.files["outcome.json"] = WrittenJson(outcome);
  const fs::path forged = Forged(file, id, trial, WrittenJson(bundle.Table()));
  const auto problems = Verify(Bundle(forged)).problems;
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_SAYS(problems[0], "the bundle has 0.15, its trials give 0.001");
}

TEST(Bundle, WhatExportWouldNotLetLeaveIsRefused) {
  Computer a(2), b(4);
  a.Run(0, 1.5);
  const fs::path file = a.Bundled();
  const Bundle bundle(file);
  const std::string id = bundle.content().trials.begin()->first;
  BundledTrial trial = bundle.Trial(id);
  json edited = json::parse(trial.files["trial.json"]);
  edited["argv"] = {"rm", "-rf"};
  trial.files["trial.json"] = WrittenJson(edited);
  const fs::path forged = Forged(file, id, trial, WrittenJson(bundle.Table()));
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
    WriteBundle(file, content);
    EXPECT_SAYS(ErrorOf(file), "expected a trial's id") << id;
  }
}

TEST(Bundle, TrialsBeneathATrialAreRefused) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "evil.sparfuse";
  BundleContent content;
  content.table = Sha256Hex("[]\n");
  for (const char* id : {"e/p/x", "e/p/x/trial.json/y"})
    content.trials[id] = {{"trial.json", content.table}, {"config.json", content.table}};
  WriteBundle(file, content);
  EXPECT_SAYS(ErrorOf(file), "expected no trial beneath another");
}

TEST(Bundle, ATrialLiesWhereItSaysAndInNoTrialOfTheStore) {
  Computer a(2, "0a1b2c3d"), b(4), other(2, "1a1b2c3d");
  a.Run(0, 1.5);
  b.Run(0, 1.5);
  other.Run(0, 3.5);
  const std::string own = b.Rows()[0].trial_id;  // e/p/NAME
  const auto before = b.Files();
  // Renames a trial by hand, complete and with all hashes.
  const auto named = [&](const std::string& id, const std::string& part) {
    const Bundle bundle(a.Bundled());
    BundledTrial trial = bundle.Trial(bundle.content().trials.begin()->first);
    trial.trial.trial_id = id;
    trial.trial.part = part;
    json config = json::parse(trial.files["config.json"]);
    config["trial_id"] = id;
    trial.files["config.json"] = WrittenJson(config);
    trial.files["trial.json"] = WrittenJson(ToJson(trial.trial));
    return Forged(a.Bundled(), id, trial);
  };
  for (const auto& [id, part] : {std::pair(own + "/sub", std::string("p")),
                                 {own + "/sub", own.substr(2)},
                                 {own + "/trial.json/y", own.substr(2) + "/trial.json"},
                                 {"e/x/y", "p"},
                                 {"e/p/q/y", "p"}}) {
    EXPECT_EQ(b.Take(named(id, part)).refused.size(), 1u) << id;
    EXPECT_EQ(b.Files(), before) << id;
  }
  // A user's file in the place of one trial does not keep other trials out.
  std::ofstream(b.store().Directory("e") / "q") << "mine";
  EXPECT_EQ(b.Take(named("e/q/y", "q")).refused.size(), 1u);
  EXPECT_EQ(b.Take(other.Bundled()).added.size(), 1u);
}

TEST(Bundle, OfTheFutureIsRefusedWithBothVersions) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "future.sparfuse";
  ArchiveWriter archive(file);
  archive.Add(kManifest, WrittenJson({{"format", "sparfuse bundle"},
                                      {"bundle_version", kBundleVersion + 6},
                                      {"written_by", ToJson(kWrittenBy)}}));
  archive.Add("what nobody knows yet", "");
  archive.Commit();
  const std::string error = ErrorOf(file);
  for (const std::string& part : {"bundle_version " + std::to_string(kBundleVersion + 6),
                                  "reads 1 to " + std::to_string(kBundleVersion),
                                  std::string("./sparfuse verify"), std::string(40, 'a')})
    EXPECT_SAYS(error, part);
}

// Every version ever released, with the bytes of its time.
TEST(Bundle, EveryVersionStaysReadable) {
  const fs::path frozen = testing::SourceDirectory() / "tests/harness/bundle/frozen";
  for (int version = 1; version <= kBundleVersion; ++version) {
    const fs::path file = frozen / ("v" + std::to_string(version) + ".sparfuse");
    SCOPED_TRACE(file);
    ExpectGood(file);
    Computer a(2);
    EXPECT_EQ(a.Take(file).refused, std::vector<std::string>());
    EXPECT_EQ(a.Rows().size(), Bundle(file).content().trials.size());
    EXPECT_GT(a.Rows().size(), 0u);
  }
}

}  // namespace
}  // namespace sparfuse::harness
