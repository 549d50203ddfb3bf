// Tests the scripts given to Slurm, and the reading of its answers and of the jobs' records.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/run/live/submitted_blocks.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
TEST(JobScript, IsAnArrayOfBlocksOneAtATime) {
  EXPECT_EQ(Ranges({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  JobScript script;
  script.name = "sparfuse-t-1";
  script.blocks = {0, 2};
  script.nodes = 4;
  script.ranks_per_node = 8;
  script.options = "--time=2:00:00 -p gpu";
  script.after = {"5", "6"};
  script.log_folder = "/r/submitted/t";
  script.threads = 4;
  script.cards = 8;
  script.command = {"/opt/sparfuse", "run", "/a b/t.toml"};
  EXPECT_EQ(script.Text(),
            "#!/bin/sh\n"
            "#SBATCH --nodes=4\n"
            "#SBATCH --ntasks-per-node=8\n"
            "#SBATCH --cpus-per-task=4\n"
            "#SBATCH --gpus-per-node=8\n"
            "#SBATCH --signal=B:TERM@60\n"
            "#SBATCH --time=2:00:00 -p gpu\n"
            "#SBATCH --job-name=sparfuse-t-1\n"
            "#SBATCH --array=0,2%1\n"
            "#SBATCH --dependency=afterany:5:6\n"
            "#SBATCH --output=\"/r/submitted/t/%A_%a.log\"\n"
            "exec /opt/sparfuse run '/a b/t.toml' --block \"$SLURM_ARRAY_TASK_ID\"\n");
  script.log_folder = "/my r/100%/\"t\"";
  testing::ExpectIn("#SBATCH --output=\"/my r/100%%/\\\"t\\\"/%A_%a.log\"\n", script.Text());
}

TEST(JobScript, FitsTheBiggestCells) {
  TrialPlan plan;
  CellConfig config;
  config.workers = 8;
  config.ranks_per_node = 2;
  config.threads_per_worker = 3;
  plan.trials.push_back({});
  plan.trials.back().config = config;
  config.workers = 4;
  config.ranks_per_node = 4;
  config.threads_per_worker = 1;
  plan.trials.push_back({});
  plan.trials.back().config = config;
  JobScript script;
  script.command = {"run"};
  FitTo(plan, script);
  EXPECT_EQ((std::vector{script.nodes, script.ranks_per_node, script.threads, script.cards}),
            (std::vector{4, 4, 3, 0}));
  EXPECT_EQ(script.Text().find("gpus"), std::string::npos);
  plan.trials.back().config.device = Place::kCuda;
  FitTo(plan, script);
  EXPECT_EQ(script.cards, 4);
}

TEST(BlockQueue, ReadsWhatSlurmPrints) {
  const auto queue = ParseQueue(
                         "a|1|PENDING|7|(JobArrayTaskLimit)\na|0|RUNNING|7|n[1-2]\n"
                         "b|N/A|RUNNING|8|n3\n\nb|3|RUNNING|9|n4\n")
                         .at("a");
  ASSERT_EQ(queue.size(), 2u);
  EXPECT_TRUE(queue.at(0).running);
  EXPECT_EQ(queue.at(0).where, "n[1-2]");
  EXPECT_FALSE(queue.at(1).running);
  EXPECT_EQ(queue.at(1).where, "JobArrayTaskLimit");
  const auto ended = ParseAccounting("7_0|COMPLETED\n7_1|TIMEOUT\n9_1|NODE_FAIL\n7|x\n");
  EXPECT_EQ(ended.at(1), "NODE_FAIL");
  EXPECT_EQ(ended.size(), 2u);
}

// Has its own squeue, which prints a file.
class Submitted : public ::testing::Test {
 protected:
  Submitted() {
    fs::create_directories(blocks_.folder());
    const fs::path programs = folder_.path() / "bin";
    fs::create_directories(programs);
    Program(programs / "squeue", "echo >>" + (folder_.path() / "asked").string() + "; cat " +
                                     (folder_.path() / "queue").string());
    Program(programs / "sacct", "exit 1");
    path_ = std::getenv("PATH");
    setenv("PATH", (programs.string() + ":" + path_).c_str(), 1);
    Queue("");
  }
  ~Submitted() override { setenv("PATH", path_.c_str(), 1); }

  static void Program(const fs::path& file, const std::string& text) {
    std::ofstream(file) << "#!/bin/sh\n" << text << "\n";
    fs::permissions(file, fs::perms::owner_all);
  }
  void Queue(const std::string& text) const { std::ofstream(folder_.path() / "queue") << text; }
  BlockState::Kind StateOf(int block) const { return blocks_.States(work_).at(block).kind; }

  TemporaryFolder folder_;
  SubmittedBlocks blocks_{folder_.path(), "paper/t"};
  std::map<int, std::string> work_ = {{0, "a"}, {1, "b"}};
  std::string path_;
};

TEST_F(Submitted, ABlockIsQueuedRunsAndEnds) {
  EXPECT_EQ(StateOf(0), BlockState::Kind::kNew);
  blocks_.Write({"sparfuse-t-1", "", {0, 1}, "/s.sh", "2026-01-01T00:00:00.000Z"});
  Queue("sparfuse-t-1|0|RUNNING|7|n1\nsparfuse-t-1|1|PENDING|7|(Resources)\nmine|0|RUNNING|8|n1\n");
  EXPECT_EQ(StateOf(0), BlockState::Kind::kRunning);
  EXPECT_EQ(StateOf(1), BlockState::Kind::kQueued);
  EXPECT_FALSE(blocks_.States(work_).at(0).is_open());
  EXPECT_EQ(blocks_.States(work_).at(0).job, "7");  // sbatch did not live to report it
  EXPECT_EQ(OpenJobs(folder_.path()), std::set<std::string>{"7"});
  blocks_.WriteEnd(0, "a", 0);
  Queue("sparfuse-t-1|1|PENDING|7|(Resources)\n");
  EXPECT_EQ(StateOf(0), BlockState::Kind::kDone);
  Queue("");
  EXPECT_EQ(StateOf(1), BlockState::Kind::kEnded);
  blocks_.WriteEnd(1, "b", 2);
  EXPECT_EQ(StateOf(1), BlockState::Kind::kFailed);
  EXPECT_TRUE(blocks_.States(work_).at(1).is_open());
  work_[0] = "another cell";
  EXPECT_TRUE(blocks_.States(work_).at(0).is_open());
}

TEST_F(Submitted, SqueueIsAskedOnceHoweverOftenWasSubmitted) {
  for (const char* name : {"sparfuse-t-1", "sparfuse-t-2", "sparfuse-t-3"})
    blocks_.Write({name, "7", {0}, "/s.sh", "2026-01-01T00:00:00.000Z"});
  Queue("sparfuse-t-2|0|RUNNING|8|n1\n");
  EXPECT_EQ(OpenJobs(folder_.path()), std::set<std::string>{"8"});
  EXPECT_EQ(ReadFile(folder_.path() / "asked"), "\n");
  EXPECT_EQ(StateOf(0), BlockState::Kind::kRunning);
  EXPECT_EQ(ReadFile(folder_.path() / "asked"), "\n\n");
}

// Without an answer, running jobs are unknown: submitting again might run them twice.
TEST_F(Submitted, SqueueHasToAnswer) {
  blocks_.Write({"sparfuse-t-1", "7", {0}, "/s.sh", "2026-01-01T00:00:00.000Z"});
  fs::remove(folder_.path() / "queue");
  testing::ExpectIn("squeue does not list queued jobs",
                    testing::ErrorOf([&] { blocks_.States(work_); }));
}

}  // namespace
}  // namespace sparfuse::harness
