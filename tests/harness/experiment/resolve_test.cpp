// Tests how the keys of a cell are resolved, and errors that name file, line, key, value and
// reason.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "harness/experiment/experiment.hpp"
#include "harness/records/cell_keys.hpp"
#include "tests/support/experiment_text.hpp"

namespace sparfuse::harness {
namespace {

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
              "\"nccl-allgather\" belongs to transport nccl: it can be neither delayed nor run "
              "over another; expected one of sparfuse's collectives in mode measured over mpi");
  const std::string over_nccl = "device = \"cuda\"\ntransport = \"nccl\"\n";
  // NCCL lacks this collective, so that it is staged through host memory.
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
              "machines of their own exist only in models");
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
  EXPECT_SAYS(ErrorOf(with_mode("modelled", "cluster = \"this-machine\"\nbroadcast_bytes = 100")),
              "broadcast_bytes = 100: expected it with a declared cluster only");
  EXPECT_SAYS(ErrorOf(with_mode("measured", "broadcast_bytes = -1")),
              "broadcast_bytes = -1: expected an integer from 0 to 1000000000000");
  EXPECT_EQ(ErrorOf(with_mode("measured", "broadcast_bytes = 0")), "no error");
  EXPECT_SAYS(ErrorOf(with_mode("emulated", "")), "expected { gbps, alpha_us }");
  EXPECT_SAYS(ErrorOf(with_mode("emulated", "link = { gbps = 1, alpha_us = 99 }")), "at least 100");
  EXPECT_SAYS(ErrorOf(with_mode("emulated", "link = { gbps = 0, alpha_us = 100 }")),
              "gbps from 0.001 to 100000");
}

TEST(Experiment, EmulatedNodesOfSeveralRanksNeedLinksWithinThem) {
  const auto error = [](const std::string& line5) {
    std::string text = WithLine(line5);
    return ErrorOf(text.replace(text.find("measured"), 8, "emulated"));
  };
  const std::string between = "link = { gbps = 1, alpha_us = 100";
  EXPECT_EQ(error(between + " }"), "no error");
  EXPECT_SAYS(error("ranks_per_node = 2\n" + between + " }"),
              "ranks_per_node = 2 in mode emulated: expected intra_node_gbps and intra_node_us");
  EXPECT_EQ(
      error("ranks_per_node = 2\n" + between + ", intra_node_gbps = 10, intra_node_us = 100 }"),
      "no error");
  EXPECT_SAYS(error(between + ", intra_node_gbps = 10, intra_node_us = 99 }"),
              "intra_node_us = 99: expected at least 100: sleeping cannot emulate less");
  EXPECT_SAYS(error(between + ", intra_node_gbps = 10 }"),
              "with intra_node_gbps and intra_node_us");
  EXPECT_SAYS(error(between + ", intra_node_gbps = 0, intra_node_us = 100 }"), "0.001 to 100000");
  EXPECT_SAYS(error(between + ", intra_node_gbsp = 1 }"), "with intra_node_gbps and intra_node_us");
}

TEST(Experiment, LinksWithinNodesArePartOfACellsIdentityWhereTheyAreSaid) {
  std::string text = WithLine("link = { gbps = 1, alpha_us = 100 }");
  text.replace(text.find("measured"), 8, "emulated");
  const std::string plain = Parse(text).parts[0].cells[0].config_hash;
  text.replace(text.find("100 }"), 5, "100, intra_node_gbps = 10, intra_node_us = 200 }");
  const Cell cell = Parse(text).parts[0].cells[0];
  EXPECT_NE(cell.config_hash, plain);
  EXPECT_EQ(CellConfigOf(cell.json).link, (LinkShape{1, 100, 0, 10, 200}));
  EXPECT_EQ(LinkWords(cell.config.link), "1 Gbit/s, 10 within nodes");
}

// The file of a cluster whose links sleeping may or may not be able to emulate.
class EmulatedCluster : public ::testing::Test {
 protected:
  EmulatedCluster()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("emulated-cluster-" + std::to_string(getpid()))) {}
  ~EmulatedCluster() override { std::filesystem::remove_all(folder_); }

  // An experiment on two nodes with two ranks each.
  Experiment Read(const std::string& inter_node_us, const std::string& more) const {
    const auto input = [](const std::string& name, const std::string& value) {
      return name + " = { value = " + value + ", kind = \"declared\", source = \"-\" }\n";
    };
    // A process reads a cluster's file once, so that each file has its own folder.
    static int made = 0;
    const std::filesystem::path folder = folder_ / std::to_string(made++);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "pair.toml")
        << "title = \"Pair\"\nsource = \"-\"\nhardware = \"-\"\nnodes = 2\nranks_per_node = 2\n"
        << "[input]\n"
        << input("compute_tflops", "10") << input("inter_node_gbps", "1")
        << input("inter_node_efficiency", "0.8") << input("network_cards", "2")
        << input("inter_node_us", inter_node_us) << input("intra_node_gbps", "10")
        << input("intra_node_us", "100") << input("memory_gbytes_per_s", "500")
        << input("kernel_us", "5") << input("host_link_gbytes_per_s", "10")
        << input("host_memory_gbytes_per_s", "50") << input("selection_us", "10")
        << input("selection_ns_an_element", "0.1") << input("exchange_host_us", "0");
    const std::string text =
        "id = \"t\"\n[defaults]\ncluster = \"pair\"\nworkload = \"digits-resnet\"\nworkers = 4\n" +
        more + "[[axis]]\nmode = [\"emulated\"]\n[[axis]]\nmethod = [\"dense\"]\n";
    return ParseExperiment(TomlFile::Parse(text, "file.toml"), BuiltInCatalog(), {folder, folder},
                           "/nonexistent");
  }
  std::string ErrorOfReading(const std::string& inter_node_us, const std::string& more) const {
    return testing::ErrorOf([&] { Read(inter_node_us, more); });
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(EmulatedCluster, LendsItsLinksAndItsNodes) {
  const CellConfig cell = Read("150", "").parts[0].cells[0].config;
  EXPECT_EQ(cell.ranks_per_node, 2);
  EXPECT_EQ(cell.link, (LinkShape{1.6, 150, 0, 10, 100}));  // two cards at 80 %
  EXPECT_EQ(cell.cluster, "");
  // A link of the cell replaces the link between nodes.
  EXPECT_EQ(Read("4", "link = { gbps = 0.5, alpha_us = 300 }\n").parts[0].cells[0].config.link,
            (LinkShape{0.5, 300, 0, 10, 100}));
}

TEST_F(EmulatedCluster, IsRefusedWhereSleepingCannotEmulateIt) {
  EXPECT_SAYS(ErrorOfReading("4", ""),
              "alpha_us = 4: expected at least 100: sleeping cannot emulate less; it comes from "
              "cluster pair");
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

// The workload knows its share of non-zeros, by the samples of a step; a given density has
// priority.
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

}  // namespace
}  // namespace sparfuse::harness
