// Tests model tables: their content and the mistakes in files. Also tests that a table of a catalog
// workload is modelled like the workload itself.
#include "harness/catalog/model_table.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/fusion/layout.hpp"
#include "harness/catalog/revisions.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/experiment/cells.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "tests/support/calibrated_clusters.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/tree/source_directory.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ErrorOf;
using workloads::WorkloadDescriptor;
namespace fs = std::filesystem;

const fs::path kProfiles = testing::SourceDirectory() / "results" / "profiles";

// Two layers in ready order: the last layer first, and the bias of each first.
json Small() {
  return json::parse(R"({
    "name": "mine", "unit": "tokens", "units_per_sample": 128, "batch_per_worker": 4,
    "family": "bert", "source": "by hand",
    "tensors": [
      {"name": "out.bias", "shape": [10], "macs": 0},
      {"name": "out.weight", "shape": [10, 64], "macs": 81920},
      {"name": "in.weight", "shape": [64, 3, 2], "macs": 49152.5}
    ]})");
}

WorkloadDescriptor Parse(const json& table) {
  return ParseModelTable("folder/mine.json", table.dump());
}

TEST(ModelTable, SaysNamesShapesMacsAndOrder) {
  const WorkloadDescriptor workload = Parse(Small());
  EXPECT_EQ(workload.unit, "tokens");
  EXPECT_EQ(workload.units_per_sample, 128u);
  EXPECT_EQ(workload.batch_per_worker, 4u);
  EXPECT_EQ(workload.family(), "bert");
  EXPECT_EQ(workload.summary, "by hand");
  const auto& layers = workload.table->layers;
  ASSERT_EQ(layers.tensors.size(), 3u);
  EXPECT_EQ(layers.tensors[0].name, "out.bias");
  EXPECT_EQ(layers.tensors[2].shape, (std::vector<std::int64_t>{64, 3, 2}));
  EXPECT_EQ(layers.tensors[2].numel, 384u);
  EXPECT_EQ(layers.numel(), 10u + 640u + 384u);
  EXPECT_EQ(layers.macs(), 81920 + 49152.5);
  EXPECT_FALSE(workload.table->times);
  EXPECT_EQ(workload.table->broadcast_bytes, 0);
}

TEST(ModelTable, SaysWhatIsBroadcastBeforeForward) {
  json table = Small();
  table["broadcast_bytes"] = 516;
  EXPECT_EQ(Parse(table).table->broadcast_bytes, 516);
}

TEST(ModelTable, WithoutAFamilyIsOfItsOwn) {
  json table = Small();
  table.erase("family");
  EXPECT_EQ(Parse(table).family(), "table");
}

TEST(ModelTable, ReadyNumbersOrderTensorsAndTheirTimes) {
  json table = Small();
  const int ready[] = {2, 0, 1};
  const double times[] = {30, 10.5, 20};
  for (int i = 0; i < 3; ++i) {
    table["tensors"][i]["ready"] = ready[i];
    table["tensors"][i]["backward_us"] = times[i];
  }
  table["forward_us"] = 25;
  table["batch"] = 8;
  table["measured_on"] = "a card";
  const WorkloadDescriptor workload = Parse(table);
  std::vector<std::string> names;
  for (const auto& tensor : workload.table->layers.tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"out.weight", "in.weight", "out.bias"}));
  const auto& measured = *workload.table->times;
  EXPECT_EQ(measured.backward_us, (std::vector<double>{10.5, 20, 30}));
  EXPECT_EQ(measured.forward_us, 25);
  EXPECT_EQ(measured.update_us, std::nullopt);
  EXPECT_EQ(measured.batch, 8u);
  EXPECT_EQ(measured.measured_on, "a card");
}

// A mistake, and the texts of its error besides the file's name.
struct Mistake {
  const char* pointer;
  json value;  // null: the member is erased
  std::vector<const char*> says;
};

TEST(ModelTable, MistakesNameFileKeyValueAndWhatWasExpected) {
  const std::vector<Mistake> mistakes = {
      {"/nmae", 1, {"unknown key \"nmae\" = 1", "did you mean \"name\"?"}},
      {"/name", "other", {"name = \"other\"", "the file's name, \"mine\""}},
      {"/name", nullptr, {"\"name\" is missing"}},
      {"/unit", "", {"unit = \"\"", "a string that is not empty"}},
      {"/units_per_sample", 0, {"units_per_sample = 0", "an integer from 1 to 1000000000"}},
      {"/batch_per_worker", 1.5, {"batch_per_worker = 1.5", "an integer from 1 to 1000000"}},
      {"/source", nullptr, {"\"source\" is missing"}},
      {"/broadcast_bytes", -1, {"broadcast_bytes = -1", "an integer from 0 to 1000000000000"}},
      {"/broadcast_bytes", "516", {"broadcast_bytes = \"516\"", "an integer"}},
      {"/family", "resnot", {"unknown family \"resnot\"", "did you mean \"resnet\"?"}},
      {"/tensors", json::array(), {"tensors = []", "at least one tensor"}},
      {"/tensors", nullptr, {"\"tensors\" is missing"}},
      {"/tensors/1", 7, {"tensors[1] = 7", "an object"}},
      {"/tensors/1/mac", 7, {"tensors[1] \"out.weight\"", "unknown key \"mac\" = 7", "\"macs\""}},
      {"/tensors/1/name", "out.bias", {"name = \"out.bias\"", "tensors[0]"}},
      {"/tensors/1/shape", nullptr, {"tensors[1] \"out.weight\"", "\"shape\" is missing"}},
      {"/tensors/1/shape", json::array(), {"shape = []", "a scalar is [1]"}},
      {"/tensors/1/shape", {10, 0}, {"shape = [10,0]", "integers from 1"}},
      {"/tensors/1/shape", {10, "64"}, {"shape = [10,\"64\"]"}},
      {"/tensors/1/shape", {65536, 65536}, {"shape = [65536,65536]", "at most 4294967295"}},
      {"/tensors/1/macs", nullptr, {"\"macs\" is missing"}},
      {"/tensors/1/macs", -1, {"tensors[1] \"out.weight\"", "macs = -1", "a number from 0"}},
      {"/tensors/1/ready", 1, {"tensors[0] \"out.bias\"", "\"ready\" is missing", "or in none"}},
      {"/tensors/1/backward_us", 1, {"tensors[0]", "\"backward_us\" is missing"}},
      {"/forward_us", 5, {"\"batch\" is missing"}},
      {"/measured_on", "a card", {"measured_on = \"a card\"", "beside forward_us"}}};
  for (const Mistake& mistake : mistakes) {
    json table = Small();
    const json::json_pointer at(mistake.pointer);
    if (mistake.value.is_null()) {
      table[at.parent_pointer()].erase(at.back());
    } else {
      table[at] = mistake.value;
    }
    const std::string error = ErrorOf([&] { Parse(table); });
    EXPECT_SAYS(error, "folder/mine.json: ");
    for (const char* part : mistake.says) EXPECT_SAYS(error, part);
  }
}

TEST(ModelTable, HasAsManyTensorsAsPlannersTake) {
  const auto table_of = [](std::size_t tensors) {
    json table = Small();
    json list = json::array();
    for (std::size_t t = 0; t < tensors; ++t)
      list.push_back({{"name", std::to_string(t)}, {"shape", {1}}, {"macs", 1}});
    table["tensors"] = std::move(list);
    return table;
  };
  EXPECT_EQ(Parse(table_of(kMostTensors)).table->layers.tensors.size(), kMostTensors);
  EXPECT_EQ(ErrorOf([&] { Parse(table_of(kMostTensors + 1)); }),
            "folder/mine.json: tensors has 100001 entries: expected at most 100000");
}

TEST(ModelTable, AReadyOrderHasEachPlaceOnce) {
  const auto error = [](std::vector<int> ready) {
    json table = Small();
    for (std::size_t i = 0; i < ready.size(); ++i) table["tensors"][i]["ready"] = ready[i];
    return ErrorOf([&] { Parse(table); });
  };
  EXPECT_EQ(error({0, 2, 1}), "no error");
  EXPECT_SAYS(error({0, 2, 2}),
              "tensors[2] \"in.weight\": ready = 2: expected each of 0 to 2 once: "
              "tensors[1] has it, too");
  EXPECT_SAYS(error({0, 1, 3}), "ready = 3: expected an integer from 0 to 2");
  EXPECT_SAYS(error({-1, 1, 2}), "ready = -1: expected an integer from 0 to 2");
}

TEST(ModelTable, NeedsWorkAndTimesToSpread) {
  json table = Small();
  for (json& tensor : table["tensors"]) tensor["macs"] = 0;
  EXPECT_SAYS(ErrorOf([&] { Parse(table); }), "macs of all tensors are 0");
  table = Small();
  for (json& tensor : table["tensors"]) tensor["backward_us"] = 0;
  EXPECT_SAYS(ErrorOf([&] { Parse(table); }), "backward_us of all tensors are 0");
}

TEST(ModelTable, TextThatIsNoTableIsRefused) {
  const auto error = [](const char* text, const char* path = "folder/mine.json") {
    return ErrorOf([&] { ParseModelTable(path, text); });
  };
  const auto cut = [] { ParseModelTable("folder/mine.json", "{\"name\": "); };
  EXPECT_SAYS(ErrorOf(cut, FailureKind::kData), "folder/mine.json: not valid JSON");
  EXPECT_SAYS(error("[]"), "folder/mine.json: expected an object");
  EXPECT_SAYS(error("{\"name\": \"mine\", \"unit\": \"a\", \"unit\": \"b\"}"),
              "folder/mine.json: the key \"unit\" is twice");
  EXPECT_SAYS(error("{}", "folder/mi ne.json"), "its name, \"mi ne\": expected up to 100 letters");
}

// Tables beside an experiment file.
class TableWorkload : public ::testing::Test {
 protected:
  std::string Write(const std::string& file, const json& table) const {
    fs::create_directories((folder_.path() / file).parent_path());
    std::ofstream(folder_.path() / file) << table.dump();
    return "table:" + file;
  }
  Experiment Parse(const std::string& workloads, const std::string& more = "",
                   const std::string& mode = "modelled",
                   const std::string& cluster = "cluster = \"safusion-local\"\n") const {
    const std::string text = "id = \"t\"\n" +
                             testing::CalibrationLine(kProfiles, "safusion-local") +
                             "[defaults]\nmode = \"" + mode +
                             "\"\nmethod = \"wfbp\"\nsparsifier = \"dgc\"\nworkers = 8\n" +
                             cluster + "[[axis]]\nworkload = [" + workloads + "]\n" + more;
    return ParseExperiment(TomlFile::Parse(text, (folder_.path() / "t.toml").string()),
                           SmallCatalog(), kProfiles);
  }
  template <class... Given>
  std::string ErrorOf(Given... given) const {
    return testing::ErrorOf([&] { Parse(given...); });
  }

  TemporaryFolder folder_;
};

TEST_F(TableWorkload, ItsContentIsItsIdentityAndNotItsPlace) {
  Write("mine.json", Small());
  const Cell cell = Parse("\"table:mine.json\"").parts[0].cells.at(0);
  ASSERT_EQ(cell.config.workload.size(), std::string("table:mine@").size() + 12);
  EXPECT_TRUE(cell.config.workload.starts_with("table:mine@"));
  EXPECT_EQ(cell.config.batch_per_worker, 4);
  EXPECT_EQ(RevisionsOf(SmallCatalog(), cell.config).at("workload:" + cell.config.workload),
            kModelTableRevision);
  Write("there/mine.json", Small());
  EXPECT_EQ(Parse("\"table:there/mine.json\"").parts[0].cells.at(0).config_hash, cell.config_hash);
  json edited = Small();
  edited["tensors"][1]["macs"] = 1;
  Write("mine.json", edited);
  const Cell other = Parse("\"table:mine.json\"").parts[0].cells.at(0);
  EXPECT_NE(other.config_hash, cell.config_hash);
  EXPECT_EQ(workloads::LayersOf(other.config.workload).tensors[1].macs, 1);
  EXPECT_EQ(workloads::LayersOf(cell.config.workload).tensors[1].macs, 81920);
  // Claims and figures refer to it by the file's name.
  EXPECT_TRUE(Matches("table:there/mine.json", cell.json["workload"]));
  EXPECT_FALSE(Matches("table:there/yours.json", cell.json["workload"]));
  EXPECT_EQ(WorkloadLabel(cell.config.workload), "mine");
  EXPECT_EQ(WorkloadLabel("digits-resnet"), "digits-resnet");
}

TEST_F(TableWorkload, IsLookedForBesideTheExperimentAndThenWhereTheProgramRuns) {
  json elsewhere = Small();
  elsewhere["units_per_sample"] = 1;
  const TemporaryFolder here;
  const fs::path before = fs::current_path();
  fs::current_path(here.path());
  std::ofstream(here.path() / "mine.json") << elsewhere.dump();
  const std::string found = Parse("\"table:mine.json\"").parts[0].cells.at(0).config.workload;
  EXPECT_EQ(workloads::FindWorkload(found).units_per_sample, 1u);
  Write("mine.json", Small());
  const std::string beside = Parse("\"table:mine.json\"").parts[0].cells.at(0).config.workload;
  EXPECT_EQ(workloads::FindWorkload(beside).units_per_sample, 128u);
  const std::string absent = ErrorOf("\"table:absent.json\"");
  EXPECT_SAYS(absent, "t.toml:10: workload = \"table:absent.json\"");
  EXPECT_SAYS(absent, (folder_.path() / "absent.json").string());
  EXPECT_SAYS(absent, (fs::current_path() / "absent.json").string());
  fs::current_path(before);
}

TEST_F(TableWorkload, IsRefusedWithTheReason) {
  Write("mine.json", Small());
  const std::string mine = "\"table:mine.json\"";
  EXPECT_SAYS(ErrorOf(mine, "", "measured", ""),
              "t.toml:9: workload = \"table:mine.json\" in mode measured: a table lists a model's "
              "tensors and cannot train it; expected mode = \"modelled\"");
  EXPECT_SAYS(ErrorOf(mine, "", "modelled", "cluster = \"this-machine\"\n"),
              "cluster = \"this-machine\" with a model table");
  EXPECT_SAYS(
      ErrorOf(mine, "", "modelled", "cluster = \"safusion-local\"\nkind = \"convergence\"\n"),
      "kind = \"convergence\" in mode modelled");
  EXPECT_SAYS(ErrorOf("\"table:mine\""), "expected \"table:FILE.json\"");
  EXPECT_SAYS(ErrorOf("\"table:mine@0123456789ab\""), "sparfuse computes the hash");
  EXPECT_SAYS(ErrorOf("\"mine.json\""), "expected \"table:mine.json\"");
  json alone = Small();
  alone.erase("family");
  Write("mine.json", alone);
  EXPECT_SAYS(ErrorOf(mine), "of family table");
  EXPECT_SAYS(ErrorOf(mine), "the key \"family\" of its file, naming one of them");
  alone["unit"] = 3;
  Write("mine.json", alone);
  EXPECT_SAYS(ErrorOf(mine), "t.toml:10: workload = \"table:mine.json\"");
  EXPECT_SAYS(ErrorOf(mine), (folder_.path() / "mine.json").string() + ": unit = 3: expected");
  const std::string profiled =
      testing::ErrorOf([] { NeedTrainable(SmallCatalog(), "table:mine.json"); });
  EXPECT_SAYS(profiled, "workload \"table:mine.json\"");
  EXPECT_SAYS(profiled, "cannot train it");
}

TEST_F(TableWorkload, OfOneNameStandsInAPartOnce) {
  Write("a/mine.json", Small());
  json other = Small();
  other["source"] = "by another hand";
  Write("b/mine.json", other);
  EXPECT_SAYS(ErrorOf("\"table:a/mine.json\", \"table:b/mine.json\""), "have one name");
}

// The table of a catalog workload, in the form of a file.
json TableOf(const std::string& workload, const std::string& name) {
  const WorkloadDescriptor& described = workloads::FindWorkload(workload);
  json table = {{"name", name},
                {"unit", described.unit},
                {"units_per_sample", described.units_per_sample},
                {"batch_per_worker", described.batch_per_worker},
                {"family", described.family()},
                {"source", "the catalog"},
                {"tensors", json::array()}};
  for (const auto& tensor : workloads::LayersOf(workload).tensors) {
    table["tensors"].push_back(
        {{"name", tensor.name}, {"shape", tensor.shape}, {"macs", tensor.macs}});
  }
  return table;
}

TEST_F(TableWorkload, OfWhatTheCatalogHasIsModelledAsTheCatalogsOwn) {
  const DeclaredCluster& local = LoadDeclaredCluster(kProfiles, "safusion-local");
  for (const std::string workload : {"resnet50-imagenet", "bert-base-squad"}) {
    Write("copy.json", TableOf(workload, "copy"));
    const auto cells = Parse("\"" + workload + "\", \"table:copy.json\"").parts[0].cells;
    ASSERT_EQ(cells.size(), 2u);
    std::vector<Outcome> outcomes;
    for (const Cell& cell : cells) {
      outcomes.push_back(RunModelledTrial(
          {cell.config, 1, 0, "t"}, DeclaredProfile(local, cell.config), nullptr, folder_.path()));
    }
    EXPECT_EQ(outcomes[1].metrics, outcomes[0].metrics) << workload;
    EXPECT_EQ(outcomes[1].layout, outcomes[0].layout);
    EXPECT_EQ(outcomes[1].table["source"], "the catalog");
    EXPECT_TRUE(outcomes[0].table.is_null());
  }
}

TEST_F(TableWorkload, MeasuredTimesSayHowBackwardIsSpread) {
  const DeclaredCluster& local = LoadDeclaredCluster(kProfiles, "safusion-local");
  json table = Small();
  const auto backward = [&] {
    Write("mine.json", table);
    const Cell cell = Parse("\"table:mine.json\"").parts[0].cells.at(0);
    const json profile = ToJson(DeclaredProfile(local, cell.config).front().profile);
    std::vector<double> seconds;
    for (const json& tensor : profile.at("backward").at("tensors"))
      seconds.push_back(tensor.at("seconds"));
    return seconds;
  };
  const std::vector<double> by_macs = backward();
  EXPECT_EQ(by_macs[0], 0);
  EXPECT_NEAR(by_macs[1] / by_macs[2], 81920 / 49152.5, 1e-12);
  table["batch"] = 4;
  table["measured_on"] = "a card";
  const double times[] = {5, 10, 25};
  for (int i = 0; i < 3; ++i) table["tensors"][i]["backward_us"] = times[i];
  const std::vector<double> measured = backward();
  const double all = by_macs[1] + by_macs[2];  // the total time is unchanged
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(measured[i], all * times[i] / 40, 1e-12 * all);
}

}  // namespace
}  // namespace sparfuse::harness
