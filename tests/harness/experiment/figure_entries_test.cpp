// Tests the reading of [published] and [[figure]] in an experiment file.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "core/base/error.hpp"
#include "harness/experiment/experiment.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr const char* kNumbers =
    "paper,artifact,workload,model,dataset,workers,network,method,sparsifier,density,metric,value,"
    "unit,source,"
    "confidence\n"
    "A (X 25),Fig1a,w,ResNet-152,d,8,IB,WFBP,DGC,0.01,throughput,611.1,images/s,\"p 1, "
    "left\",vector\n"
    "A (X 25),Fig1a,w,ResNet-152,d,8,IB,SAF,DGC,0.01,throughput,1143,images/s,p 1,vector\n"
    "A (X 25),Fig1a,w,ResNet-152,d,8,IB,SAF,DGC,0.01,steps,\"1 \"\"or\"\" 2\",1,p 1,vector\n"
    "A (X 25),s5,w,ResNet-152,d,8-64,IB,SAF vs WFBP,DGC,0.01,gain up to,43.05,%,p 2,verbatim\n"
    "A (X 25),s5,w,ViT,d,8-64,IB,SAF vs WFBP,DGC,0.01,gain up to,34.0,%,p 2,verbatim\n"
    "B (Y 24),Fig9,w,VGG,d,8,IB,DGC,DGC,0.01,throughput,9,images/s,p 3,vector\n";

class FigureEntries : public ::testing::Test {
 protected:
  FigureEntries() { std::ofstream(folder_.path() / "published-numbers.csv") << kNumbers; }

  Experiment Parse(const std::string& published, const std::string& figure,
                   const ProfileFolders& profiles = "/nonexistent") const {
    const std::string text = "id = \"e\"\n" + published +
                             "[defaults]\nmode = \"measured\"\nworkers = 2\n"
                             "[[axis]]\nworkload = [\"digits-resnet\", \"text-gpt\"]\n"
                             "[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n[[figure]]\n" +
                             figure;
    return ParseExperiment(TomlFile::Parse(text, "file.toml"), SmallCatalog(), profiles,
                           folder_.path());
  }
  std::string ErrorOf(const std::string& published, const std::string& figure) const {
    return testing::ErrorOf([&] { Parse(published, figure); });
  }

  TemporaryFolder folder_;
};

constexpr const char* kPaper = "[published]\npaper = \"A (X 25)\"\nmethods = { wfbp = \"WFBP\" }\n";
constexpr const char* kBars = "kind = \"grouped_bars\"\n";

void ExpectSays(const std::string& text, const std::string& part) { EXPECT_SAYS(text, part); }

// The user's numbers lie in published/ beside his profiles, under any name that the project's
// folder does not have. A file there with other columns is refused.
TEST_F(FigureEntries, NumbersOfOnesOwnAreReadBesideOnesProfiles) {
  const TemporaryFolder own;
  const std::filesystem::path published = own.path() / "published";
  std::filesystem::create_directories(published);
  const std::string head = std::string(kNumbers).substr(0, std::string(kNumbers).find('\n') + 1);
  std::ofstream(published / "mine.csv")
      << head << "Mine (27),t,w,VGG,d,8,fast,WFBP,none,1.0,throughput,7,images/s,me,read\n";
  std::ofstream(published / "published-numbers.csv")
      << head << "Shadow,t,w,VGG,d,8,fast,WFBP,none,1.0,throughput,7,images/s,me,read\n";
  const ProfileFolders profiles{own.path() / "profiles", "/nonexistent/profiles"};
  const std::string methods = "methods = { wfbp = \"WFBP\" }\n";
  const std::string figure =
      std::string(kBars) + "published = { artifacts = { digits-resnet = \"t\" } }\n";
  const Experiment made = Parse("[published]\npaper = \"Mine (27)\"\n" + methods, figure, profiles);
  const json& rows = made.parts[0].figures[0]["published"]["rows"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["value"], "7");
  const auto error = [&](const std::string& paper) {
    try {
      Parse("[published]\npaper = \"" + paper + "\"\n" + methods, figure, profiles);
    } catch (const Error& refused) {
      return std::string(refused.what());
    }
    return std::string("no error");
  };
  ExpectSays(error("Shadow"), "has no number with paper \"Shadow\"");
  std::ofstream(published / "other.csv") << "a,b\n1,2\n";
  ExpectSays(error("Mine (27)"), "other.csv");
  ExpectSays(error("Mine (27)"), "columns a,b: expected paper,artifact,");
}

// Two networks of one artifact, and a method that is a file beside the experiment.
TEST_F(FigureEntries, ARowOfANetworkStandsBesideTheClusterOfIt) {
  std::ofstream(folder_.path() / "ddl-benchmarks.csv")
      << "paper,artifact,workload,model,dataset,workers,network,method,sparsifier,density,metric,"
         "value,unit,source,confidence\n"
         "D (Z 20),t,w,VGG,d,8,fast,WFBP,none,1.0,throughput,10.5 +- 0.1,samples/s,p,verbatim\n"
         "D (Z 20),t,w,VGG,d,8,slow,WFBP,none,1.0,throughput,5.5 +- 0.1,samples/s,p,verbatim\n";
  const std::string paper = "[published]\npaper = \"D (Z 20)\"\nmethods = { wfbp = \"WFBP\" }\n";
  const std::string artifact = "published = { artifacts = { digits-resnet = \"t\" }";
  const auto experiment =
      Parse(paper, std::string(kBars) + artifact + ", networks = { ours = \"slow\" } }\n");
  const json& rows = experiment.parts[0].figures[0]["published"]["rows"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["cluster"], "ours");
  EXPECT_EQ(rows[0]["value"], "5.5 +- 0.1");
  ExpectSays(ErrorOf(paper, std::string(kBars) + artifact + ", networks = { ours = \"slo\" } }\n"),
             "no number with network \"slo\"; did you mean \"slow\"");
  ExpectSays(ErrorOf("[published]\npaper = \"D (Z 20)\"\nmethods = { \"mine.toml\" = \"WFBP\" }\n",
                     std::string(kBars) + artifact + " }\n"),
             "unknown method \"mine.toml\"");
  ExpectSays(ErrorOf(paper, "kind = \"agreement\"\n"), "agreement: expected published = ");
}

TEST_F(FigureEntries, AFigureGetsTheRowsOfItsArtifactAndMetric) {
  const auto experiment = Parse(
      kPaper, std::string(kBars) + "published = { artifacts = { digits-resnet = \"Fig1a\" } }\n");
  const json& published = experiment.parts[0].figures[0]["published"];
  EXPECT_EQ(published["paper"], "A (X 25)");
  EXPECT_EQ(published["methods"], json::parse(R"({"wfbp": ["WFBP"]})"));
  ASSERT_EQ(published["rows"].size(), 2u);  // "steps" is another metric
  EXPECT_EQ(published["rows"][0]["of"], "digits-resnet");
  EXPECT_EQ(published["rows"][0]["source"], "p 1, left");
  EXPECT_EQ(published["rows"][1]["value"], "1143");
}

TEST_F(FigureEntries, StatedGainsAreThoseOfTheArtifactsModel) {
  const auto experiment =
      Parse(kPaper,
            "kind = \"ablation\"\npublished = { artifacts = { text-gpt = \"Fig1a\" }, stated = "
            "\"s5\" }\n");
  const json& rows = experiment.parts[0].figures[0]["published"]["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2]["value"], "43.05");
  EXPECT_EQ(rows[2]["stated"], true);
  EXPECT_FALSE(rows[0].contains("stated"));
}

TEST_F(FigureEntries, QuotesInsideAFieldAreRead) {
  const auto experiment =
      Parse(kPaper, std::string(kBars) +
                        "workload = \"text-gpt\"\nx = \"workers\"\npublished = { artifact = "
                        "\"Fig1a\", metric = \"steps\", x = \"workers\" }\n");
  const json& rows = experiment.parts[0].figures[0]["published"]["rows"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["value"], "1 \"or\" 2");
  EXPECT_EQ(rows[0]["of"], "text-gpt");
}

TEST_F(FigureEntries, UnknownPaperMethodArtifactAndMetricNameTheNearest) {
  ExpectSays(ErrorOf("[published]\npaper = \"A (X 26)\"\n", kBars),
             "file.toml:3: results/published has no number with paper \"A (X 26)\"; did you "
             "mean \"A (X 25)\"");
  ExpectSays(ErrorOf("[published]\npaper = \"A (X 25)\"\nmethods = { wfpb = \"WFBP\" }\n", kBars),
             "unknown method \"wfpb\"; did you mean \"wfbp\"");
  ExpectSays(ErrorOf("[published]\npaper = \"A (X 25)\"\nmethods = { wfbp = \"WFPB\" }\n", kBars),
             "A (X 25) has no number with method \"WFPB\"; did you mean \"WFBP\"");
  const std::string bars = kBars;
  ExpectSays(ErrorOf(kPaper, bars + "published = { artifacts = { text-gpt = \"Fig1b\" } }\n"),
             "has no number with artifact \"Fig1b\"; did you mean \"Fig1a\"");
  ExpectSays(ErrorOf(kPaper, bars + "published = { artifacts = { text-gtp = \"Fig1a\" } }\n"),
             "no cell of the figure has workload \"text-gtp\"; did you mean \"text-gpt\"");
  ExpectSays(ErrorOf(kPaper,
                     bars + "y = \"loss\"\npublished = { artifacts = { text-gpt = \"Fig1a\" } }\n"),
             "has no number of metric \"loss\"; it has steps, throughput");
  ExpectSays(ErrorOf(kPaper, bars + "published = { artifact = \"Fig1a\" }\n"),
             "the figure shows digits-resnet, text-gpt");
  ExpectSays(ErrorOf("", bars + "published = { artifact = \"Fig1a\" }\n"),
             "expected a table [published]");
}

TEST_F(FigureEntries, KeysAreThoseOfTheKind) {
  ExpectSays(ErrorOf("", "kind = \"bytes\"\nnormalise = \"dense\"\n"),
             "[[figure]] of kind \"bytes\": unknown key \"normalise\"");
  const std::string bars = kBars;
  ExpectSays(ErrorOf("", bars + "normalise = \"wfpb\"\n"), "did you mean \"wfbp\"");
  ExpectSays(ErrorOf("", bars + "x = \"wokers\"\n"), "did you mean \"workers\"");
  ExpectSays(ErrorOf("", bars + "x = \"method_options.planner_options.degree\"\n"),
             "no cell of the figure has it");
  ExpectSays(ErrorOf("", bars + "where = { workers = 4 }\n"), "shows no cell: none matches");
}

TEST_F(FigureEntries, WhatAKindNeedsIsAskedForBeforeAnythingRuns) {
  ExpectSays(ErrorOf("", "kind = \"dual_line\"\n"), "dual_line: expected x = a key of cells");
  ExpectSays(ErrorOf("", "kind = \"ablation\"\nmethods = [\"wfbp\"]\n"),
             "expected cells of two methods or more");
  ExpectSays(ErrorOf("", "kind = \"ablation\"\nmethods = [\"wfbp\", \"dence\"]\n"),
             "no cell of the part has \"dence\"; did you mean \"dense\"");
  EXPECT_EQ(ErrorOf("", "kind = \"sensitivity\"\n"), "no error");  // dense is the reference
  ExpectSays(ErrorOf(kPaper, std::string(kBars) +
                                 "published = { artifacts = { text-gpt = \"Fig1a\" }, stated = "
                                 "\"s5\" }\n"),
             "stated = \"s5\": expected a figure of ratios");
}

TEST_F(FigureEntries, TheUnshapedLinkIsNullForTheFigures) {
  const auto experiment = Parse("", std::string(kBars) + "where = { link = \"none\" }\n");
  EXPECT_TRUE(experiment.parts[0].figures[0]["where"]["link"].is_null());
}

TEST_F(FigureEntries, ADamagedFileOfNumbersIsNamedWithItsLine) {
  std::ofstream(folder_.path() / "published-numbers.csv", std::ios::app) << "A (X 25),Fig1a\n";
  ExpectSays(ErrorOf(kPaper, kBars), "published-numbers.csv:8: 2 fields: expected 15");
}

}  // namespace
}  // namespace sparfuse::harness
