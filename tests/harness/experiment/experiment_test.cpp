// Tests experiment files: what they expand to, and the errors that name file, line, key and value.
#include "harness/experiment/experiment.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "harness/catalog/config_keys.hpp"
#include "harness/catalog/revisions.hpp"
#include "harness/experiment/cells.hpp"
#include "harness/experiment/experiment_keys.hpp"
#include "harness/files/canonical.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

Experiment Parse(const std::string& text) {
  return ParseExperiment(TomlFile::Parse(text, "file.toml"), SmallCatalog(), "/nonexistent");
}

std::string ErrorOf(const std::string& text, const Catalog& catalog = SmallCatalog()) {
  try {
    ParseExperiment(TomlFile::Parse(text, "file.toml"), catalog, "/nonexistent");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kConfig);
    return error.what();
  }
  return "no error";
}

// Line 1: id, 2: [defaults], 3: mode and workload, 4: workers, 5: `line5`, 6: [[axis]], 7: methods.
std::string WithLine(const std::string& line5, const std::string& more = "") {
  return "id = \"t\"\n[defaults]\nmode = \"measured\"\nworkload = \"digits-resnet\"\n" + line5 +
         "\n[[axis]]\nmethod = [\"dense\", \"wfbp\"]\n[[axis]]\nworkers = [2, 4]\n" + more;
}

#define EXPECT_SAYS(text, part)                              \
  EXPECT_NE(std::string(text).find(part), std::string::npos) \
      << "in: " << (text) << "\nexpected: " << (part)

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

// Line 7 is `line7`.
std::string WfbpWith(const std::string& line7) {
  return "id = \"t\"\n[defaults]\nmode = \"measured\"\nworkload = \"digits-resnet\"\n"
         "method = \"wfbp\"\nworkers = 2\n" +
         line7 + "\n";
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
  EXPECT_EQ(cell("").config.method_options.planner, "layer-wise");  // and nothing else is there

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

// What these keys' defaults do was done before there were any: cells keep their identity.
TEST(Experiment, KeysThatCameLaterLeaveHashesAsTheyWere) {
  const auto hash = [](const std::string& line7) {
    return Parse(WfbpWith(line7)).parts.at(0).cells.at(0).config_hash;
  };
  json before = ToJson(Parse(WfbpWith("")).parts.at(0).cells.at(0).config);
  ASSERT_EQ(before["method_options"].erase("dense_warmup_steps"), 1u);
  ASSERT_EQ(before["feedback_options"].erase("decay"), 1u);
  EXPECT_EQ(ConfigHash(before), hash(""));
  EXPECT_EQ(hash("feedback_options = { decay = 1.0 }"), hash(""));
  EXPECT_NE(hash("feedback_options = { decay = 0.9 }"), hash(""));
  EXPECT_NE(hash("warmup_steps = 5\nmethod_options = { dense_warmup_steps = 1 }"), hash(""));
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

TEST(Experiment, EveryDefaultIsResolved) {
  const CellConfig config = Parse(WithLine("")).parts.at(0).cells.at(2).config;
  const auto& workload = workloads::FindWorkload("digits-resnet");
  EXPECT_EQ(config.method, "wfbp");
  EXPECT_EQ(config.sparsifier, "topk");
  EXPECT_EQ(config.feedback, "residual");
  EXPECT_EQ(config.batch_per_worker, static_cast<int>(workload.batch_per_worker));
  EXPECT_EQ(config.recipe, ResolveOptions("recipe", RecipeOf(workload), {}));
  EXPECT_EQ(config.method_options.planner, "layer-wise");
  EXPECT_EQ(config.dense_tensors, DenseTensors());
  EXPECT_FALSE(config.target.has_value());
}

TEST(Experiment, MeasuredDenseTakesTheBackendsOwnAllReduceAndEmulatedTheRing) {
  const std::string text = WithLine("");
  EXPECT_EQ(Parse(text).parts[0].cells[0].config.method_options.collective, "native-allreduce");
  std::string emulated = text;
  emulated.replace(emulated.find("measured"), 8, "emulated");
  emulated.insert(emulated.find("workload ="), "link = { gbps = 1, alpha_us = 100 }\n");
  EXPECT_EQ(Parse(emulated).parts[0].cells[0].config.method_options.collective, "ring-allreduce");
  EXPECT_SAYS(
      ErrorOf(emulated + "[[axis]]\nmethod_options = [{ collective = \"native-allreduce\" }]\n"),
      "can be neither delayed");
}

TEST(Experiment, DeviceAndPrecisionAreTheHostsFloatsWhereTheFileSaysNothing) {
  const auto plain = Parse(WithLine("")).parts.at(0).cells;
  const auto given = Parse(WithLine("device = \"cpu\"\nprecision = \"fp32\"")).parts.at(0).cells;
  ASSERT_EQ(plain.size(), given.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(plain[i].json["device"], "cpu");
    EXPECT_EQ(plain[i].json["precision"], "fp32");
    EXPECT_EQ(plain[i].config_hash, given[i].config_hash);
  }
  const auto others =
      Parse(WithLine("device = \"cuda\"", "[[axis]]\nprecision = [\"fp32\", \"tf32\", \"bf16\"]\n"))
          .parts.at(0)
          .cells;
  std::set<std::string> hashes = {plain[0].config_hash};
  for (const auto& cell : others) {
    EXPECT_EQ(cell.config.device, Place::kCuda);
    hashes.insert(cell.config_hash);
  }
  EXPECT_EQ(hashes.size(), 1 + 3 * plain.size());
  EXPECT_EQ(Parse(WithLine("precision = \"bf16\"")).parts[0].cells[0].config.precision,
            Precision::kBf16);
}

TEST(Experiment, APrecisionOrDeviceThatIsLeftOutIsStillFoundByItsName) {
  const std::string axis = "[[axis]]\ndevice = [\"cpu\", \"cuda\"]\n";
  const auto claims = Parse(WithLine("", axis + R"(
[[claim]]
quote    = "A card is faster"
metric   = "throughput"
for_each = ["method", "workers"]
of       = { device = "cuda" }
over     = { device = "cpu" }
expect   = "more"
)"))
                          .parts.at(0)
                          .claims;
  ASSERT_EQ(claims.size(), 4u);
  for (const Claim& claim : claims) EXPECT_NE(claim.of_cell, claim.over_cell);
}

TEST(Experiment, ACardIsAskedForWhereItCanBeUsed) {
  const auto error = [](const char* mode, const std::string& line5) {
    std::string text = WithLine(line5);
    text.replace(text.find("measured"), 8, mode);
    if (mode == std::string("emulated"))
      text.insert(text.find("workload ="), "link = { gbps = 1, alpha_us = 100 }\n");
    if (mode == std::string("modelled"))
      text.insert(text.find("workload ="), "cluster = \"this-machine\"\n");
    return ErrorOf(text);
  };
  EXPECT_SAYS(error("emulated", "device = \"cuda\""),
              "device = \"cuda\" in mode emulated: a shaped");
  EXPECT_SAYS(error("modelled", "device = \"cuda\""),
              "device = \"cuda\" in mode modelled: the model");
  EXPECT_SAYS(error("modelled", "precision = \"bf16\""), "precision = \"bf16\" in mode modelled");
  EXPECT_SAYS(error("measured", "precision = \"tf32\""), "file.toml:5: precision = \"tf32\" with");
  EXPECT_SAYS(error("measured", "transport = \"nccl\""),
              "transport = \"nccl\" with device = \"cpu\"");
  EXPECT_SAYS(error("emulated", "transport = \"nccl\""), "in mode emulated: NCCL sends");
  EXPECT_SAYS(error("measured", "device = \"cuda\"\ntransport = \"threads\""),
              "transport = \"threads\" with device = \"cuda\"");
  EXPECT_SAYS(error("measured", "device = \"gpu\""), "device = \"gpu\": expected one of cpu, cuda");
  EXPECT_SAYS(error("measured", "precision = \"bf61\""), "did you mean \"bf16\"");
  EXPECT_EQ(error("emulated", "precision = \"bf16\""), "no error");
}

TEST(Experiment, OverNcclTheCollectivesAreItsOwn) {
  const auto collectives = [](const std::string& line5) {
    std::set<std::string> found;
    const Experiment parsed = Parse(WithLine(line5));
    for (const auto& cell : parsed.parts.at(0).cells)
      found.insert(cell.config.method_options.collective);
    return found;
  };
  EXPECT_EQ(collectives("device = \"cuda\"\ntransport = \"nccl\""),
            (std::set<std::string>{"native-allreduce", "nccl-allgather"}));
  EXPECT_EQ(collectives("device = \"cuda\""),
            (std::set<std::string>{"native-allreduce", "sparse-allgather"}));
  EXPECT_EQ(collectives("transport = \"threads\""),
            (std::set<std::string>{"ring-allreduce", "sparse-allgather"}));
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

TEST(Experiment, ErrorsNameFileLineKeyValueAndTheNearestName) {
  const std::string misspelt = ErrorOf(WithLine("densty = 0.01"));
  EXPECT_SAYS(misspelt, "file.toml:5: ");
  EXPECT_SAYS(misspelt, "\"densty\"");
  EXPECT_SAYS(misspelt, "did you mean \"density\"");
  for (const char* value : {"0", "2", "-0.5", "\"a lot\"", "true"}) {
    const std::string wrong = ErrorOf(WithLine(std::string("density = ") + value));
    EXPECT_SAYS(wrong, "file.toml:5: ");
    EXPECT_SAYS(wrong, std::string("density = ") + value);
    EXPECT_SAYS(wrong, "a number in (0, 1]");
  }
  EXPECT_SAYS(ErrorOf(WithLine("density = nan")), "file.toml:5: ");
  std::string method = WithLine("");
  method.replace(method.find("\"wfbp\""), 6, "\"wfpb\"");
  EXPECT_SAYS(ErrorOf(method), "file.toml:7: ");
  EXPECT_SAYS(ErrorOf(method), "did you mean \"wfbp\"");
  EXPECT_SAYS(ErrorOf(WithLine("sparsifier = \"topq\"")), "file.toml:5: sparsifier = \"topq\"");
  EXPECT_SAYS(ErrorOf(WithLine("recipe = { learning_rat = 1 }")), "did you mean \"learning_rate\"");
  EXPECT_SAYS(ErrorOf(WithLine("threads_per_worker = 0")), "file.toml:5: ");
  EXPECT_SAYS(ErrorOf(WithLine("kind = \"throughputs\"")), "did you mean \"throughput\"");
  EXPECT_SAYS(ErrorOf("id = \"t\"\n[defaults\n"), "file.toml:2: not valid TOML");
  EXPECT_SAYS(ErrorOf(WithLine("", "[repat]\nblocks = 2\n")), "did you mean \"repeat\"");
  EXPECT_SAYS(ErrorOf(WithLine("", "[repeat]\nblocks = 0\n")),
              "blocks = 0: expected an integer from 1 to 10000");
  EXPECT_SAYS(ErrorOf(WithLine("", "[quiet]\nother_cpu = 1.5\n")),
              "other_cpu = 1.5: expected a number from 0.001 to 1");
  EXPECT_SAYS(ErrorOf(WithLine("", "[quiet]\nslowdown = 1\n")),
              "slowdown = 1: expected a number from 1.001 to 100");
  EXPECT_SAYS(ErrorOf(WithLine("", "[quiet]\nstolen_cpu = 0.1\n")), "stolen");
  EXPECT_SAYS(ErrorOf(WithLine("", "[quiet]\nreruns = -1\n")), "reruns = -1: expected");
  std::string workers = WithLine("");
  workers.replace(workers.find("[2, 4]"), 6, "[0, 4]");
  EXPECT_SAYS(ErrorOf(workers), "file.toml:9: workers = 0: expected an integer from 1 to 65536");
}

TEST(Experiment, ImpossiblePairsAreRefusedWithTheReason) {
  EXPECT_SAYS(ErrorOf(WithLine("link = { gbps = 1, alpha_us = 100 }")), "in mode measured");
  EXPECT_SAYS(ErrorOf(WithLine("cluster = \"this-machine\"")), "in mode measured");
  EXPECT_SAYS(ErrorOf(WithLine("method_options = { collective = \"sparse-allgather\" }")),
              "takes sparse payloads");
  std::string sparse_only = WithLine("method_options = { collective = \"ring-allreduce\" }");
  sparse_only.replace(sparse_only.find("\"dense\", "), 9, "");
  EXPECT_SAYS(ErrorOf(sparse_only), "not unequal indices");
  std::string own_to_nccl = WithLine("method_options = { collective = \"nccl-allgather\" }");
  own_to_nccl.replace(own_to_nccl.find("\"dense\", "), 9, "");
  EXPECT_SAYS(ErrorOf(own_to_nccl),
              "\"nccl-allgather\" is the own of transport nccl: it can be neither delayed nor run "
              "over another; expected one of sparfuse's in mode measured over mpi");
  const std::string over_nccl = "device = \"cuda\"\ntransport = \"nccl\"\n";
  // Staged through host memory, where NCCL has none of its own.
  std::string staged =
      WithLine(over_nccl + "method_options = { collective = \"sparse-allgather\" }");
  staged.replace(staged.find("\"dense\", "), 9, "");
  EXPECT_EQ(ErrorOf(staged), "no error");
  EXPECT_SAYS(ErrorOf(WithLine("sparsifier = \"none\"")), "sends sparse payloads");
  EXPECT_SAYS(ErrorOf(WithLine("method_options = { payload_values = \"f16\" }")),
              "payload_values = f16: strategy \"dense-units\" sends dense gradients");
  EXPECT_SAYS(ErrorOf(WithLine("ranks_per_node = 3")), "expected a divisor of workers");
  std::string servers = WithLine("method_options = { dedicated = true }");
  servers.replace(servers.find("[\"dense\", \"wfbp\"]"), 17, "[\"ps\"]");
  EXPECT_SAYS(ErrorOf(servers, BuiltInCatalog()),
              "the collective \"parameter-server\" in mode measured: dedicated = true: servers on "
              "machines of their own are modelled alone");
  EXPECT_SAYS(ErrorOf(WithLine("target = 0.9")), "kind = \"convergence\" only");
  std::string fused = WithLine("no_feedback_tensors = [\"bias\"]");
  fused.replace(fused.find("wfbp"), 4, "syncea");
  EXPECT_SAYS(ErrorOf(fused), "selects from fused buffers");
  const auto with_mode = [](const std::string& mode, const std::string& line5) {
    std::string text = WithLine(line5);
    return text.replace(text.find("measured"), 8, mode);
  };
  EXPECT_SAYS(ErrorOf(with_mode("modelled", "")), "cluster is missing");
  EXPECT_SAYS(ErrorOf(with_mode("modelled", "cluster = \"this-machin\"")),
              "did you mean \"this-machine\"");
  EXPECT_SAYS(ErrorOf(with_mode("modelled", "cluster = \"this-machine\"\nkind = \"convergence\"")),
              "moves no gradients");
  EXPECT_SAYS(ErrorOf(with_mode("emulated", "")), "expected { gbps, alpha_us }");
  EXPECT_SAYS(ErrorOf(with_mode("emulated", "link = { gbps = 1, alpha_us = 99 }")), "at least 100");
  EXPECT_SAYS(ErrorOf(with_mode("emulated", "link = { gbps = 0, alpha_us = 100 }")),
              "gbps = a number from 0.001 to 100000");
}

TEST(Experiment, NothingConvergesOrRunsOnADeviceWhereComputeSleeps) {
  std::string text = WithLine("kind = \"convergence\"");
  text.replace(text.find("digits-resnet"), 13, "recorded-resnet");
  EXPECT_SAYS(ErrorOf(text), "workload = \"recorded-resnet\"");
  EXPECT_SAYS(ErrorOf(text), "workload = \"digits-resnet\", which has real data");
  text.replace(text.find("kind = \"convergence\""), 20, "device = \"cuda\"");
  EXPECT_SAYS(ErrorOf(text), "its compute sleeps on the host; expected device = \"cpu\"");
}

TEST(Experiment, NothingConvergesOnDataThatIsMadeUp) {
  std::string text = WithLine("kind = \"convergence\"");
  text.replace(text.find("digits-resnet"), 13, "resnet50-imagenet");
  EXPECT_SAYS(ErrorOf(text), ":5");
  EXPECT_SAYS(ErrorOf(text), "workload = \"resnet50-imagenet\"");
  EXPECT_SAYS(ErrorOf(text), "workload = \"resnet-small\", which has real data");
  text.replace(text.find("convergence"), 11, "throughput");
  EXPECT_EQ(ErrorOf(text), "no error");
}

TEST(Experiment, AxesAndExclusionsThatCannotBeMeantAreErrors) {
  EXPECT_SAYS(ErrorOf(WithLine("", "[[axis]]\ndensity = [0.1, 0.2]\naccumulation = [1]\n")),
              "equal length");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[axis]]\nworkers = [8]\n")), "on two axes");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[axis]]\naccumulation = [1, 1]\n")), "two cells are the same");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[exclude]]\nwhen = { workers = 8 }\nreason = \"r\"\n")),
              "matches no cell");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[exclude]]\nwhen = { workers = 4 }\n")), "expected a reason");
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

TEST(Experiment, ClaimsMustMatchOneCellEach) {
  const std::string claim =
      "[[claim]]\nquote = \"q\"\nmetric = \"throughput\"\nof = { method = \"wfbp\", workers = 4 }\n"
      "over = { method = \"dense\", workers = 4 }\nstated = 1.5\n";
  const auto part = Parse(WithLine("", claim)).parts.at(0);
  ASSERT_EQ(part.claims.size(), 1u);
  EXPECT_EQ(part.cells[part.claims[0].of_cell].config.method, "wfbp");
  EXPECT_EQ(part.claims[0].judged(), 1.5);
  std::string wide = claim;
  wide.replace(wide.find(", workers = 4 }\nover"), 16, " }\n");
  EXPECT_SAYS(ErrorOf(WithLine("", wide)), "matches 2 cells");
  std::string metric = claim;
  metric.replace(metric.find("throughput"), 10, "throughputs");
  EXPECT_SAYS(ErrorOf(WithLine("", metric)), "did you mean \"throughput\"");
  EXPECT_SAYS(ErrorOf(WithLine("", "[figure]\nkind = \"bars\"\n")), "unknown kind of figure");
}

TEST(Experiment, AClaimStandsForEachCombinationOfItsKeys) {
  const auto claims = Parse(WithLine("", R"(
[[claim]]
quote = "faster"
metric = "throughput"
for_each = ["workers"]
of = { method = "wfbp" }
over = { method = "dense" }
expect = "more"
[[claim]]
quote = "everything sends"
metric = "tensors_missing"
for_each = ["method", "workers"]
of = { method = ["wfbp", "dense"], workers = 4 }
equals = 0
[[claim]]
quote = "scales"
metric = "step_seconds"
for_each = ["method", "workers"]
of = { workers = 4 }
over = { workers = 2 }
difference = true
at_most = 0.5
)"))
                          .parts.at(0)
                          .claims;
  ASSERT_EQ(claims.size(), 6u);
  const auto part = Parse(WithLine("")).parts.at(0);
  const auto cell = [&](std::size_t i) { return part.cells.at(i).config; };
  EXPECT_EQ(claims[0].compared, Compared::kRatio);
  EXPECT_EQ(claims[0].bound.comparison, Comparison::kMore);
  EXPECT_EQ(claims[0].bound.value, 1);
  EXPECT_EQ(claims[1].quote, "faster (workers 4)");
  EXPECT_EQ(claims[1].sentence, "faster");
  EXPECT_EQ(claims[1].setting, "workers 4");
  EXPECT_EQ(cell(claims[1].of_cell).method, "wfbp");
  EXPECT_EQ(cell(claims[1].of_cell).workers, 4);
  EXPECT_EQ(cell(claims[1].over_cell).method, "dense");
  EXPECT_EQ(cell(claims[1].over_cell).workers, 4);
  EXPECT_EQ(claims[2].compared, Compared::kValue);
  EXPECT_EQ(claims[3].quote, "everything sends (wfbp, workers 4)");
  EXPECT_EQ(claims[4].compared, Compared::kDifference);
  EXPECT_EQ(cell(claims[5].of_cell).method, cell(claims[5].over_cell).method);
  EXPECT_EQ(cell(claims[5].over_cell).workers, 2);
  EXPECT_EQ(claims[5].bound.value, 0.5);
}

TEST(Experiment, ErrorsOfClaimsSayWhatIsExpected) {
  const auto error = [](const std::string& lines, bool over = true) {
    return ErrorOf(WithLine(
        "",
        "[[claim]]\nquote = \"q\"\nmetric = \"throughput\"\n"
        "of = { method = \"wfbp\", workers = 4 }\n" +
            std::string(over ? "over = { method = \"dense\", workers = 4 }\n" : "") + lines));
  };
  EXPECT_EQ(error("expect = \"less\""), "no error");
  EXPECT_SAYS(error(""), "file.toml:10: [[claim]]: nothing is expected: expected exactly one of");
  EXPECT_SAYS(error("stated = 2\nexpect = \"less\""), "stated, expect together");
  EXPECT_SAYS(error("expect = \"lower\""),
              "file.toml:15: expect = \"lower\": expected one of less, at_most, at_least, more");
  EXPECT_SAYS(error("expect = \"less\"", false), "expect: expected over = { ... } beside it");
  EXPECT_SAYS(error("stated = 2", false), "file.toml:14: stated: expected over");
  EXPECT_SAYS(error("stated = 0"), "stated = 0: expected a number from 1e-09 to 1000000000");
  EXPECT_SAYS(error("difference = true\nstated = 0"), "a difference that is not 0");
  EXPECT_EQ(error("difference = true\nstated = -0.5"), "no error");
  EXPECT_SAYS(error("difference = true\nequals = 0", false), "difference = true: expected over");
  EXPECT_SAYS(error("equals = \"none\"", false), "equals = \"none\": expected a number");
  EXPECT_SAYS(error("equals = 0\nfigure = 2", false), "figure = 2: expected stated = ... beside");
  EXPECT_SAYS(error("expect = \"less\"\nfor_each = [\"worker\"]"),
              "for_each = [\"worker\"]: expected a list of keys");
  EXPECT_SAYS(error("at_leest = 0", false), "did you mean \"at_least\"");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[claim]]\nquote = \"q\"\nmetric = \"loss\"\nequals = 0\n")),
              "of = nothing: expected { key = value, ... }");
}

TEST(Experiment, AFileSaysWhatItDoesNotRunHowLongItTakesAndWhatItIsCalibratedWith) {
  const std::string head = "minutes = 2.5\ncalibration = [\"SAFusion (HPDC 25)/Fig15a/WFBP\"]\n";
  const auto claim = [](const std::string& source) {
    return "[[claim]]\nquote = \"q\"\nmetric = \"throughput\"\nsource = \"" + source +
           "\"\nof = { method = \"wfbp\", workers = 2 }\n"
           "over = { method = \"dense\", workers = 2 }\nstated = 2\n";
  };
  const auto experiment =
      Parse(head + WithLine("", claim("SAFusion (HPDC 25)/Fig14a") +
                                    "[[not_run]]\nwhat = \"a GPU\"\nreason = \"there is none\"\n"));
  EXPECT_EQ(experiment.minutes, 2.5);
  EXPECT_EQ(experiment.calibration, std::vector<std::string>{"SAFusion (HPDC 25)/Fig15a/WFBP"});
  ASSERT_EQ(experiment.not_run.size(), 1u);
  EXPECT_EQ(experiment.not_run[0].what, "a GPU");
  EXPECT_EQ(experiment.not_run[0].reason, "there is none");
  EXPECT_EQ(experiment.parts[0].claims.at(0).source, "SAFusion (HPDC 25)/Fig14a");
  EXPECT_EQ(experiment.cells(), 4u);

  EXPECT_SAYS(ErrorOf(head + WithLine("", claim("SAFusion (HPDC 25)/Fig15a/WFBP"))),
              "file.toml:2: [[claim]] \"q\" of part main has source = \"SAFusion (HPDC "
              "25)/Fig15a/WFBP\", which calibration names");
  EXPECT_SAYS(ErrorOf("minutes = 0\n" + WithLine("")),
              "minutes = 0: expected a number from 0.001 to 1000000");
  EXPECT_SAYS(ErrorOf("calibration = [\"Fig15a\"]\n" + WithLine("")),
              "calibration = [\"Fig15a\"]: expected a list of published numbers");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[not_run]]\nwhat = \"a GPU\"\n")), "reason");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[not_run]]\nwhy = \"\"\n")), "why");
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
  try {
    ParseMethodFile("baselines/m.toml", good + "sparsifer = \"topk\"\n");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_SAYS(error.what(), "baselines/m.toml:12: ");
    EXPECT_SAYS(error.what(), "did you mean \"sparsifier\"");
  }
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

// A method's file beside the experiment's.
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
    try {
      ParseBeside(method);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  static std::string FileOf(const std::string& name, int bytes) {
    return "name = \"" + name +
           "\"\ntitle = \"M\"\npaper = \"p\"\nsummary = \"s\"\nrevision = 1\nstrategy = "
           "\"ahead\"\nplanner = \"by-bytes\"\nplanner_options = { threshold_bytes = " +
           std::to_string(bytes) +
           " }\nsparsifier = \"topk\"\nfeedback = \"residual\"\n"
           "collective = \"sparse-allgather\"\n";
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

TEST_F(OutsideMethodTest, IsRefusedWithTheReason) {
  EXPECT_SAYS(ErrorBeside("mine.toml"), "is not there; expected the file of a method");
  Write("wfbp.toml", FileOf("wfbp", 100));
  EXPECT_SAYS(ErrorBeside("wfbp.toml"), "is the name of a method of sparfuse");
  Write("mine.toml", FileOf("other", 100));
  EXPECT_SAYS(ErrorBeside("mine.toml"), "mine.toml:1: name = \"other\"");
  Write("mine.toml", FileOf("mine", 100) + "payload_values = \"f8\"\n");
  EXPECT_SAYS(ErrorBeside("mine.toml"), "file of method \"mine\"");
}

TEST(ExperimentKeys, EveryRowSaysWhatItsKeyMeans) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const KeyRow& row : ExperimentKeys()) {
    EXPECT_FALSE(row.table.empty() || row.name.empty() || row.type.empty() || row.meaning.empty())
        << row.table << " " << row.name;
    EXPECT_TRUE(seen.emplace(row.table, row.name).second) << row.table << " " << row.name;
  }
  for (const std::string& key : ConfigKeyNames()) {
    EXPECT_TRUE(seen.contains({kCellTable, key})) << key;
  }
}

// The defaults that the table states as TOML are those that a cell has without the key.
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

// What is not 0 is known of the workload, by the samples of a step; a density that is given counts.
TEST(Density, OfNonzerosIsTheWorkloadsOwn) {
  const auto density = [](const std::string& more) {
    const std::string file =
        "id = \"e\"\n[defaults]\nmode = \"modelled\"\ncluster = \"this-machine\"\n"
        "method = \"wfbp\"\nworkers = 2\n" +
        more;
    return ParseExperiment(TomlFile::Parse(file, "f.toml"), BuiltInCatalog(), "/nonexistent")
        .parts.at(0)
        .cells.at(0)
        .config.density;
  };
  const std::string trigrams = "workload = \"text-trigram\"\nsparsifier = \"nonzeros\"\n";
  EXPECT_DOUBLE_EQ(density(trigrams), 0.00538);
  EXPECT_DOUBLE_EQ(density(trigrams + "batch_per_worker = 4\naccumulation = 2\n"), 0.00297);
  EXPECT_EQ(density(trigrams + "density = 0.5\n"), 0.5);
  EXPECT_EQ(density("workload = \"text-trigram\"\n"), 0.01);
  EXPECT_EQ(density("workload = \"text-lstm\"\nsparsifier = \"nonzeros\"\n"), 0.01);
}

// Of what an axis says beside a method's name, that tells cells of one method apart; options on an
// axis of their own, and keys that are no method's, do not.
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

}  // namespace
}  // namespace sparfuse::harness
