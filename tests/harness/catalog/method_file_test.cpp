// Tests method files, in the tree and beside an experiment.
#include "harness/catalog/method_file.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/catalog/outside_part.hpp"
#include "harness/catalog/revisions.hpp"
#include "harness/experiment/cells.hpp"
#include "tests/support/experiment_text.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

TEST(MethodFile, NamesFileAndLineOfWhatIsWrong) {
  const std::string good =
      "name = \"m\"\ntitle = \"M\"\npaper = \"p\"\nsummary = \"s\"\nrevision = 2\nstrategy = "
      "\"ahead\"\n"
      "planner = \"by-bytes\"\nplanner_options = { threshold_bytes = 5 }\nsparsifier = \"topk\"\n"
      "feedback = \"residual\"\ncollective = \"sparse-allgather\"\n";
  const Method method = ParseMethodFile("baselines/m.toml", good);
  EXPECT_EQ(method.revision, 2);
  EXPECT_NO_THROW(CheckMethod(SmallCatalog(), method));
  const auto bytes = [&](const json& given) {
    const auto choice = ResolveMethodOptions(SmallCatalog(), method, given);
    return DoubleOption(choice.planner_options, "threshold_bytes");
  };
  EXPECT_EQ(bytes(json::object()), 5);
  EXPECT_EQ(bytes({{"threshold_bytes", 9}}), 9);
  EXPECT_EQ(bytes({{"planner_options", {{"threshold_bytes", 9}}}}), 9);
  EXPECT_THROW(ResolveMethodOptions(SmallCatalog(), method, {{"threshold_byte", 9}}), Error);
  EXPECT_THROW(ParseMethodFile("baselines/other.toml", good), Error);
  Method dense = method;
  dense.sparsifier = "none";
  EXPECT_THROW(CheckMethod(SmallCatalog(), dense), Error);
  testing::ExpectError(
      FailureKind::kConfig, {"baselines/m.toml:12: ", "did you mean \"sparsifier\""},
      [&] { ParseMethodFile("baselines/m.toml", good + "sparsifer = \"topk\"\n"); });
}

TEST(MethodFile, PayloadsAreCodedByTheFileOrTheExperiment) {
  const Catalog catalog = SmallCatalog();
  Method method = catalog.methods[1];  // wfbp
  const auto coding = [&](const Method& of, const json& given) {
    const Options sending = ResolveMethodOptions(catalog, of, given).sending;
    return StringOption(sending, "payload_values") + " " + StringOption(sending, "payload_indices");
  };
  EXPECT_EQ(coding(method, json::object()), "f32 u32");
  EXPECT_EQ(coding(method, {{"payload_values", "f16"}}), "f16 u32");
  method.sending["payload_indices"] = std::string("delta");
  EXPECT_EQ(coding(method, {{"payload_values", "f16"}}), "f16 delta");
  EXPECT_EQ(coding(method, {{"payload_indices", "u32"}}), "f32 u32");

  const auto error = [&](const json& options) -> std::string {
    try {
      ResolveMethodOptions(catalog, method, options);
    } catch (const Error& caught) {
      return caught.what();
    }
    return "no error";
  };
  EXPECT_SAYS(error({{"payload_values", "f8"}}), "payload_values = \"f8\"");
  EXPECT_SAYS(error({{"payload_indices", 16}}), "payload_indices = 16");
  EXPECT_SAYS(error({{"payload_value", "f16"}}), "did you mean \"payload_values\"");
  Method dense = catalog.methods[0];
  dense.sending["payload_values"] = std::string("f16");
  EXPECT_THROW(CheckMethod(catalog, dense), Error);
}

// A method's file beside the experiment's file.
class OutsideMethodTest : public ::testing::Test {
 protected:
  Experiment ParseBeside(const std::string& method) const {
    const std::string text =
        "id = \"t\"\n[defaults]\nmode = \"measured\"\nworkload = \"digits-resnet\"\n"
        "workers = 2\n[[axis]]\nmethod = [\"dense\", \"" +
        method + "\"]\n";
    return ParseExperiment(TomlFile::Parse(text, (folder_.path() / "file.toml").string()),
                           SmallCatalog(), "/nonexistent");
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() / name) << text;
  }
  std::string ErrorBeside(const std::string& method) const {
    return testing::ErrorOf([&] { ParseBeside(method); });
  }
  static std::string FileOf(const std::string& name, int bytes) {
    return "name = \"" + name +
           "\"\ntitle = \"M\"\npaper = \"p\"\nsummary = \"s\"\nrevision = 1\nstrategy = "
           "\"ahead\"\nplanner = \"by-bytes\"\nplanner_options = { threshold_bytes = " +
           std::to_string(bytes) +
           " }\nsparsifier = \"topk\"\nfeedback = \"residual\"\n"
           "collective = \"sparse-allgather\"\n";
  }
  static std::string Edited(std::string text, const std::string& before, const std::string& after) {
    return text.replace(text.find(before), before.size(), after);
  }
  TemporaryFolder folder_;
};

TEST_F(OutsideMethodTest, StandsInTheFileThatTheExperimentNamesAndItsContentIsIdentity) {
  Write("mine.toml", FileOf("mine", 100));
  const Cell cell = ParseBeside("mine.toml").parts[0].cells.at(1);
  EXPECT_EQ(cell.config.method, "mine");
  EXPECT_EQ(cell.config.method_content.size(), 12u);
  EXPECT_EQ(DoubleOption(cell.config.method_options.planner_options, "threshold_bytes"), 100);
  EXPECT_FALSE(RevisionsOf(SmallCatalog(), cell.config).contains("method:mine"));
  Write("mine.toml", FileOf("mine", 100) + "\n# another content\n");
  EXPECT_NE(ParseBeside("mine.toml").parts[0].cells.at(1).config_hash, cell.config_hash);
  std::filesystem::create_directory(folder_.path() / "there");
  Write("there/mine.toml", FileOf("mine", 100));
  EXPECT_EQ(ParseBeside("there/mine.toml").parts[0].cells.at(1).config_hash, cell.config_hash);
  EXPECT_TRUE(Matches("there/mine.toml", cell.json["method"]));
}

TEST_F(OutsideMethodTest, NamesASparsifierInPythonFromItsOwnFolder) {
  std::filesystem::create_directory(folder_.path() / "there");
  Write("there/own.py", "class Own:\n    def select(self, g, k): pass\n");
  Write("there/mine.toml", Edited(FileOf("mine", 100), "\"topk\"", "\"python:own.py:Own\""));
  const Cell cell = ParseBeside("there/mine.toml").parts[0].cells.at(1);
  EXPECT_TRUE(cell.config.sparsifier.starts_with("python:Own@")) << cell.config.sparsifier;
  EXPECT_EQ(FileOfPart(cell.config.sparsifier), folder_.path() / "there/own.py");
  Write("there/own.py", "class Own:\n    def select(self, g, k): return [0]\n");
  EXPECT_NE(ParseBeside("there/mine.toml").parts[0].cells.at(1).config_hash, cell.config_hash);
  Write("there/own.py", "class Owner: pass\n");
  EXPECT_SAYS(ErrorBeside("there/mine.toml"), "there/mine.toml: sparsifier \"python:");
  EXPECT_SAYS(ErrorBeside("there/mine.toml"), "has no \"class Own\"; did you mean \"Owner\"");
}

TEST_F(OutsideMethodTest, IsRefusedWithTheReason) {
  EXPECT_SAYS(ErrorBeside("mine.toml"), "mine.toml: expected the file of a method");
  Write("wfbp.toml", FileOf("wfbp", 100));
  EXPECT_SAYS(ErrorBeside("wfbp.toml"), "is the name of a method of sparfuse");
  Write("mine.toml", FileOf("other", 100));
  EXPECT_SAYS(ErrorBeside("mine.toml"), "mine.toml:1: name = \"other\"");
  Write("mine.toml", FileOf("mine", 100) + "payload_values = \"f8\"\n");
  EXPECT_SAYS(ErrorBeside("mine.toml"), "mine.toml: method mine: payload_values = \"f8\"");
  Write("mine.toml", Edited(FileOf("mine", 100), "\"topk\"", "\"topkk\""));
  EXPECT_SAYS(ErrorBeside("mine.toml"), "mine.toml: unknown sparsifier \"topkk\"; did you mean");
}

}  // namespace
}  // namespace sparfuse::harness
