// Tests how an experiment file becomes cells, which files are found, and methods that join axes.
#include "harness/experiment/experiment.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "harness/experiment/cells.hpp"
#include "harness/experiment/experiment_keys.hpp"
#include "harness/files/canonical.hpp"
#include "harness/records/cell_keys.hpp"
#include "tests/support/experiment_text.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

TEST(Experiment, AxesMultiplyTheFirstOutermostAndListsOfOneAxisMoveTogether) {
  const auto experiment = Parse(R"(
id = "t"
[defaults]
mode = "measured"
density = 1e-3
[[axis]]
workload = ["digits-resnet", "text-gpt"]
batch_per_worker = [16, 8]
[[axis]]
method = ["dense", "wfbp"]
[[axis]]
workers = [2, 4]
)");
  const auto& cells = experiment.parts.at(0).cells;
  ASSERT_EQ(cells.size(), 8u);
  EXPECT_EQ(experiment.parts[0].id, "main");
  EXPECT_EQ(cells[0].config.workload, "digits-resnet");
  EXPECT_EQ(cells[0].config.workers, 2);
  EXPECT_EQ(cells[1].config.workers, 4);
  EXPECT_EQ(cells[2].config.method, "wfbp");
  EXPECT_EQ(cells[2].config.density, 1e-3);
  EXPECT_EQ(cells[3].config.batch_per_worker, 16);
  EXPECT_EQ(cells[4].config.batch_per_worker, 8);
  std::set<std::string> hashes;
  for (const auto& cell : cells) hashes.insert(cell.config_hash);
  EXPECT_EQ(hashes.size(), 8u);
}

TEST(Experiment, AKeyOfCellsAboveAllTablesIsToldWhereItBelongs) {
  EXPECT_SAYS(ErrorOf("id = \"t\"\ncluster = \"mine\"\n[defaults]\nmode = \"modelled\"\n"),
              ":2: experiment: cluster = \"mine\" is a key of cells: expected it in "
              "[defaults] or an [[axis]]");
  EXPECT_SAYS(ErrorOf("id = \"t\"\nclustr = 3\n"), "unknown key \"clustr\" = 3");
}

TEST(Experiment, DenseStepsComeBeforeThoseThatAreMeasured) {
  const auto of = [](const std::string& line7) {
    return Parse(WfbpWith(line7)).parts.at(0).cells.at(0).config;
  };
  const std::string dense = "method_options = { dense_warmup_steps = 8 }\n";
  EXPECT_EQ(of("").warmup_steps, 5);
  EXPECT_EQ(of(dense).warmup_steps, 13);
  EXPECT_EQ(of(dense + "warmup_steps = 10").warmup_steps, 10);
  EXPECT_EQ(of(dense + "kind = \"convergence\"").warmup_steps, 0);
  const std::string refused = ErrorOf(WfbpWith(dense + "warmup_steps = 9"));
  EXPECT_SAYS(refused, "file.toml:8");
  EXPECT_SAYS(refused, "warmup_steps = 9 with dense_warmup_steps = 8");
  EXPECT_SAYS(refused, "expected at least 10");
  EXPECT_SAYS(ErrorOf(WfbpWith("method_options = { dense_warmup_steps = -1 }")),
              "dense_warmup_steps = -1");
}

TEST(Experiment, AGivenPlanIsTheUnitsOfACell) {
  const auto cell = [](const std::string& line7) {
    return Parse(WfbpWith(line7)).parts.at(0).cells.at(0);
  };
  const Cell given = cell("method_options = { plan = { units = [3, 40] } }");
  EXPECT_EQ(given.config.method_options.planner, "given");
  EXPECT_EQ(StringOption(given.config.method_options.planner_options, "units"), "3,40");
  EXPECT_EQ(CellConfigOf(ToJson(given.config)), given.config);
  std::set<std::string> hashes = {
      cell("").config_hash, given.config_hash,
      cell("method_options = { plan = { units = [40, 3] } }").config_hash};
  EXPECT_EQ(hashes.size(), 3u);
  EXPECT_EQ(cell("").config.method_options.planner, "layer-wise");  // and nothing else changes

  const auto error = [](const std::string& plan) {
    return ErrorOf(WfbpWith("method_options = { plan = " + plan + " }"));
  };
  const std::string sum = error("{ units = [3, 41] }");
  EXPECT_SAYS(sum, "file.toml:7");
  EXPECT_SAYS(sum, "units = \"3,41\": they add up to more; expected the 43 tensors");
  for (const char* wrong :
       {"{}", "3", "{ units = [] }", "{ units = [0, 43] }", "{ units = \"43\" }",
        "{ sizes = [43] }", "{ units = [43], bytes = [4] }"}) {
    EXPECT_SAYS(error(wrong), "expected { units = [...] }, numbers of tensors in ready order");
  }
  EXPECT_SAYS(ErrorOf(WfbpWith("method_options = { plan = { units = [43] }, form = \"authors\" }")),
              "unknown option \"form\"");
  std::string naive = WfbpWith("method_options = { plan = { units = [43] } }");
  naive.replace(naive.find("wfbp"), 4, "safusion-naive");
  EXPECT_SAYS(ErrorOf(naive, BuiltInCatalog()), "which does not send the units of a plan");
}

// The defaults of these keys are the earlier behaviour: cells keep their identity.
TEST(Experiment, KeysThatCameLaterLeaveHashesAsTheyWere) {
  const auto hash = [](const std::string& line7) {
    return Parse(WfbpWith(line7)).parts.at(0).cells.at(0).config_hash;
  };
  json before = ToJson(Parse(WfbpWith("")).parts.at(0).cells.at(0).config);
  for (const char* later : {"dense_warmup_steps", "bloom_policy", "bloom_fpr", "scope"}) {
    ASSERT_EQ(before["method_options"].erase(later), 1u);
  }
  ASSERT_EQ(before["feedback_options"].erase("decay"), 1u);
  EXPECT_EQ(ConfigHash(before), hash(""));
  EXPECT_EQ(hash("feedback_options = { decay = 1.0 }"), hash(""));
  EXPECT_NE(hash("feedback_options = { decay = 0.9 }"), hash(""));
  EXPECT_NE(hash("warmup_steps = 5\nmethod_options = { dense_warmup_steps = 1 }"), hash(""));
  const std::string bloom = "method_options = { payload_indices = \"bloom\"";
  EXPECT_NE(hash(bloom + ", bloom_fpr = 0.01 }"), hash(bloom + " }"));
  EXPECT_NE(hash(bloom + ", bloom_policy = \"p0\" }"), hash(bloom + " }"));
}

TEST(Experiment, AResidualDecaysByAboveZeroUpToOne) {
  const auto config =
      Parse(WfbpWith("feedback_options = { decay = 0.9 }")).parts[0].cells[0].config;
  EXPECT_EQ(DoubleOption(config.feedback_options, "decay"), 0.9);
  for (const char* wrong : {"0", "-0.5", "1.1"}) {
    const std::string error =
        ErrorOf(WfbpWith("feedback_options = { decay = " + std::string(wrong) + " }"));
    EXPECT_SAYS(error, "file.toml:7");
    EXPECT_SAYS(error, "feedback_options");
    EXPECT_SAYS(error, "decay = " + std::string(wrong) + ": expected a number in (0, 1]");
  }
}

TEST(Experiment, ADenseMethodHasOneCellHoweverManyDensities) {
  const auto cells = Parse(WithLine("", "[[axis]]\ndensity = [0.01, 0.001]\n")).parts.at(0).cells;
  EXPECT_EQ(cells.size(), 2u + 4u);
  for (const auto& cell : cells) {
    if (cell.config.method != "dense") continue;
    EXPECT_EQ(cell.config.density, 1);
    EXPECT_EQ(cell.config.sparsifier, "none");
  }
}

TEST(Experiment, AxesAndExclusionsThatCannotBeMeantAreErrors) {
  EXPECT_SAYS(ErrorOf(WithLine("", "[[axis]]\ndensity = [0.1, 0.2]\naccumulation = [1]\n")),
              "equal length");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[axis]]\nworkers = [8]\n")), "on two axes");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[axis]]\naccumulation = [1, 1]\n")), "two cells are the same");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[exclude]]\nwhen = { workers = 8 }\nreason = \"r\"\n")),
              "matches no cell");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[exclude]]\nwhen = { workers = 4 }\n")),
              "the key \"reason\" is missing: expected a string: why");
  EXPECT_SAYS(
      ErrorOf(WithLine("", "[[exclude]]\nwhen = { batch_per_worker = 4 }\nreason = \"r\"\n")),
      "no [defaults] and no [[axis]] sets");
  const auto part =
      Parse(
          WithLine("",
                   "[[exclude]]\nwhen = { method = \"wfbp\", workers = [4, 8] }\nreason = \"r\"\n"))
          .parts.at(0);
  EXPECT_EQ(part.cells.size(), 3u);
  ASSERT_EQ(part.excluded.size(), 1u);
  EXPECT_EQ(part.excluded[0].cell["workers"], 4);
  EXPECT_EQ(part.excluded[0].reason, "r");
}

TEST(Experiment, CellsMatchByAnOptionHoweverDeepItsOwnerKeepsIt) {
  const json given = {{"planner", "by-bytes"}, {"planner_options", {{"threshold_bytes", 5.0}}}};
  EXPECT_TRUE(Matches({{"threshold_bytes", 5}}, given));
  EXPECT_TRUE(Matches({{"threshold_bytes", 5}, {"planner", "by-bytes"}}, given));
  EXPECT_TRUE(Matches({{"threshold_bytes", {4, 5}}}, given));
  EXPECT_TRUE(Matches(given, given));
  EXPECT_FALSE(Matches({{"threshold_bytes", 4}}, given));
  EXPECT_FALSE(Matches({{"units", 5}}, given));
  EXPECT_FALSE(Matches(json::object(), given));
  EXPECT_TRUE(Matches(json::object(), json::object()));
}

TEST(Experiment, PartsInheritDefaultsAndTwinsDifferInModeAndCluster) {
  const auto experiment = Parse(R"(
id = "t"
[defaults]
workload = "digits-resnet"
workers = 2
[repeat]
blocks = 3
seed = 7
[quiet]
other_cpu = 0.1
reruns = 0
[[part]]
id = "one"
defaults = { mode = "measured" }
repeat = { predict = true }
quiet = { slowdown = 1.5 }
[[part.axis]]
method = ["dense", "wfbp"]
[[part]]
id = "two"
defaults = { mode = "measured", kind = "convergence", workers = 1 }
repeat = { blocks = 1 }
[[part.axis]]
method = ["dense"]
)");
  ASSERT_EQ(experiment.parts.size(), 2u);
  EXPECT_EQ(experiment.parts[0].blocks, 3);
  EXPECT_EQ(experiment.parts[0].quiet,
            (QuietLimits{.other_cpu = 0.1, .stolen = 0.02, .slowdown = 1.5, .reruns = 0}));
  EXPECT_EQ(experiment.parts[1].quiet.slowdown, 1.2);
  EXPECT_EQ(experiment.parts[1].blocks, 1);
  EXPECT_EQ(experiment.parts[1].base_seed, 7);
  EXPECT_EQ(experiment.parts[1].cells[0].config.workers, 1);
  EXPECT_EQ(experiment.parts[1].cells[0].config.target,
            workloads::FindWorkload("digits-resnet").target);
  EXPECT_EQ(experiment.parts[0].reference, "dense");
  const auto parts = PartsWithTwins(experiment);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1].id, "one.predicted");
  CellConfig twin = parts[1].cells.at(1).config;
  EXPECT_EQ(twin.mode, Mode::kModelled);
  EXPECT_EQ(twin.cluster, "this-machine");
  twin.mode = Mode::kMeasured;
  twin.cluster.clear();
  EXPECT_EQ(twin, parts[0].cells.at(1).config);
}

TEST(Canonical, EqualMeaningsPrintAlike) {
  EXPECT_EQ(CanonicalJson({{"b", 1.0}, {"a", {0.1, nullptr, true}}}),
            R"({"a":[0.1,null,true],"b":1})");
  // FIPS 180-2, appendix B.1
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(ExperimentKeys, EveryRowSaysWhatItsKeyMeans) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const KeyRow& row : ExperimentKeys()) {
    EXPECT_FALSE(row.table.empty() || row.name.empty() || row.type.empty() || row.meaning.empty())
        << row.table << " " << row.name;
    EXPECT_TRUE(seen.emplace(row.table, row.name).second) << row.table << " " << row.name;
  }
  for (const std::string& key : CellKeyNames()) {
    EXPECT_TRUE(seen.contains({kCellTable, key})) << key;
  }
}

// The defaults that the table states as TOML equal a cell's values without the key.
TEST(ExperimentKeys, DefaultsAreAsStated) {
  const Experiment plain = Parse(WithLine(""));
  std::size_t stated = 0;
  for (const KeyRow& row : ExperimentKeys()) {
    const bool is_toml =
        row.table == kCellTable && !row.fallback.empty() &&
        (std::string_view("0123456789\"[").find(row.fallback[0]) != std::string_view::npos) &&
        row.fallback.find_first_of(";e") == std::string::npos;
    if (!is_toml) continue;
    ++stated;
    const Experiment given = Parse(WithLine(row.name + " = " + row.fallback));
    for (std::size_t i = 0; i < plain.parts[0].cells.size(); ++i) {
      EXPECT_EQ(given.parts[0].cells.at(i).json, plain.parts[0].cells[i].json) << row.name;
    }
  }
  EXPECT_GE(stated, 7u);
}

// The label has those of an axis' keys beside the method's name that distinguish cells of one
// method. Options on an axis of their own, and keys that belong to no method, are left out.
TEST(Labels, NameTheOptionsThatTellCellsOfAMethodApart) {
  const auto part = [](const std::string& axes) {
    const std::string file =
        "id = \"e\"\n[defaults]\nmode = \"modelled\"\ncluster = \"this-machine\"\n"
        "workload = \"digits-resnet\"\nworkers = 2\n" +
        axes;
    const Experiment experiment =
        ParseExperiment(TomlFile::Parse(file, "f.toml"), SmallCatalog(), "/nonexistent");
    std::vector<std::string> labels;
    for (const Cell& cell : experiment.parts.at(0).cells) labels.push_back(cell.label);
    return labels;
  };
  EXPECT_EQ(part("[[axis]]\nmethod = [\"dense\", \"wfbp\", \"wfbp\"]\n"
                 "sparsifier = [\"topk\", \"topk\", \"dgc\"]\n"),
            (std::vector<std::string>{"dense", "wfbp (topk)", "wfbp (dgc)"}));
  EXPECT_EQ(part("[[axis]]\nmethod = [\"wfbp\", \"wfbp\"]\n"
                 "method_options = [{}, { payload_values = \"f16\" }]\n"),
            (std::vector<std::string>{"wfbp", "wfbp (payload values f16)"}));
  const std::string collective = "collective = \"sparcml-recursive-doubling\"";
  EXPECT_EQ(part("[[axis]]\nmethod = [\"wfbp\", \"wfbp\"]\nmethod_options = [{ " + collective +
                 " }, { " + collective + ", dense_switch = \"never\" }]\n"),
            (std::vector<std::string>{"wfbp (sparcml-recursive-doubling)",
                                      "wfbp (sparcml-recursive-doubling, dense switch never)"}));
  EXPECT_EQ(part("[[axis]]\nmethod = [\"wfbp\"]\n[[axis]]\nsparsifier = [\"topk\", \"dgc\"]\n"),
            (std::vector<std::string>{"wfbp", "wfbp"}));
  EXPECT_EQ(part("[[axis]]\nmethod = [\"wfbp\", \"wfbp\"]\ndensity = [0.01, 0.1]\n"),
            (std::vector<std::string>{"wfbp", "wfbp"}));
}

TEST(ExperimentFiles, StandInTheOrderOfTheirNumbers) {
  const TemporaryFolder folder;
  for (const char* name : {"fig14.toml", "fig3.toml", "claims.toml", "fig3b.toml", "notes.md"}) {
    std::ofstream(folder.path() / name) << "\n";
  }
  std::vector<std::string> names;
  for (const auto& file : ExperimentFiles(folder.path())) names.push_back(file.stem());
  EXPECT_EQ(names, (std::vector<std::string>{"claims", "fig3", "fig3b", "fig14"}));
  EXPECT_TRUE(ExperimentFiles(folder.path() / "none").empty());
}

TEST(ExperimentFiles, AreNotThoseOfMethods) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "mine.toml") << "strategy = \"ahead\"\ncollective = 1\n";
  std::ofstream(folder.path() / "broken.toml") << "strategy = \n";
  std::ofstream(folder.path() / "it.toml") << "id = \"it\"\n";
  std::vector<std::string> names;
  for (const auto& file : ExperimentFiles(folder.path())) names.push_back(file.stem());
  EXPECT_EQ(names, (std::vector<std::string>{"broken", "it"}));
}

constexpr const char* kFile = R"(
id = "e"
[defaults]
mode = "modelled"
cluster = "this-machine"
workload = "digits-resnet"
[[axis]]
method = ["dense", "wfbp", "wfbp"]
method_options = [{ threshold_bytes = 1024 }, {}, {}]
workers = [2, 2, 4]
[[figure]]
kind = "grouped_bars"
x = "workers"
y = "throughput"
methods = ["wfbp"]
)";

Part Joined(const std::vector<std::string>& methods) {
  return ParseExperiment(TomlFile::Parse(kFile, "f.toml"), SmallCatalog(), "/nonexistent", {},
                         methods)
      .parts.at(0);
}

TEST(JoinedMethods, TakeEachSettingOfTheAxisOnceAndTheirOwnOptions) {
  const Part part = Joined({"syncea"});
  ASSERT_EQ(part.cells.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(part.cells[i].joined, i >= 3) << i;
  EXPECT_EQ(part.joined, std::vector<std::string>{"syncea"});
  EXPECT_EQ(part.axes[0]["method"].size(), 5u);
  EXPECT_EQ(part.axes[0]["method_options"].size(), 5u);
  EXPECT_EQ(part.axes[0]["workers"].back(), 4);
}

TEST(JoinedMethods, ThatTheAxisHasChangeNothing) {
  const Part part = Joined({"wfbp"});
  EXPECT_EQ(part.cells.size(), 3u);
  EXPECT_TRUE(part.joined.empty());
}

TEST(JoinedMethods, AreAmongThoseThatAFigureChooses) {
  EXPECT_EQ(Joined({"syncea"}).figures[0]["methods"], nlohmann::json({"wfbp", "syncea"}));
}

TEST(JoinedMethods, WithoutMeaningAreExcludedWithTheReason) {
  const Part part = Joined({"no-such-method"});
  EXPECT_EQ(part.cells.size(), 3u);
  ASSERT_EQ(part.excluded.size(), 2u);
  EXPECT_SAYS(part.excluded[0].reason, "unknown method");
}

}  // namespace
}  // namespace sparfuse::harness
