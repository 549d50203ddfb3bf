// Tests tables that have axes of an experiment along rows and columns.
#include "harness/report/tables/pivot.hpp"

#include <gtest/gtest.h>

#include "tests/harness/report/made_results.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

// In two blocks, a step of dense takes 0.1 s, and of wfbp 0.05 s and 0.04 s with 2 and 4 workers.
// syncea is excluded with 4 workers and has not run with 2.
class Pivots : public ::testing::Test {
 protected:
  Pivots()
      : part_(ParseExperiment(
                  TomlFile::Parse("id = \"t\"\n[defaults]\nmode = \"measured\"\nworkload = "
                                  "\"digits-resnet\"\n[[axis]]\nworkers = [2, 4]\n"
                                  "[[axis]]\nmethod = [\"dense\", \"wfbp\", \"syncea\"]\n"
                                  "[[exclude]]\nwhen = { method = \"syncea\", workers = 4 }\n"
                                  "reason = \"no, none\"\n",
                                  "f.toml"),
                  catalog_, "/nonexistent")
                  .parts[0]) {
    for (const Cell& cell : part_.cells) {
      if (cell.config.method == "syncea") continue;
      const double step = cell.config.method == "dense" ? 0.1
                          : cell.config.workers == 2    ? 0.05
                                                        : 0.04;
      for (const int block : {0, 1}) rows_.push_back(RowOf(catalog_, cell, block, step));
    }
    result_ = ResultOf(part_, catalog_, rows_);
  }

  Table Text(const PivotRequest& request) const {
    return PivotTables({result_}, request, catalog_).front();
  }
  std::string Csv(const PivotRequest& request) const {
    return PivotCsv({result_}, request, catalog_);
  }
  std::string ErrorOf(const PivotRequest& request) const {
    return testing::ErrorOf([&] { Text(request); });
  }

  Catalog catalog_ = SmallCatalog();
  Part part_;
  std::vector<TrialRow> rows_;
  PartResult result_;
};

using Row = std::vector<std::string>;

TEST_F(Pivots, HaveAxesAlongRowsAndColumns) {
  const Table table = Text({{"workers"}, {"method"}, {"step_seconds"}});
  EXPECT_EQ(table.title, part_.title + ": step");
  EXPECT_EQ(table.columns, Row({"workers", "dense", "wfbp", "syncea"}));
  EXPECT_EQ(table.alignment, "lrrr");
  ASSERT_EQ(table.rows.size(), 2u);
  // Two blocks: marked, since no column counts them. A cell without a trial says "not run".
  EXPECT_EQ(table.rows[0], Row({"2", "100 ms [1]", "50.0 ms [1]", "not run"}));
  EXPECT_EQ(table.rows[1], Row({"4", "100 ms [1]", "40.0 ms [1]", "– [2]"}));
  ASSERT_EQ(table.notes.size(), 2u);
  EXPECT_TRUE(table.notes[0].starts_with("n = 2"));
  EXPECT_EQ(table.notes[1], "no, none");
}

TEST_F(Pivots, HaveSeveralAxesAndValues) {
  const Table table = Text({{"workload"}, {"method", "workers"}, {"throughput", "vs", "n"}});
  EXPECT_EQ(table.columns,
            Row({"workload", "dense, workers 2", "wfbp, workers 2", "syncea, workers 2",
                 "dense, workers 4", "wfbp, workers 4", "syncea, workers 4"}));
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0][1], "640 images/s ± 0.0 %; –; 2 [1]");
  EXPECT_EQ(table.rows[0][5], "1\u2009600 images/s ± 0.0 %; 2.50x [2.50, 2.50]; 2 [1]");
  EXPECT_EQ(table.title, part_.title + ": throughput; vs dense (95 %); n");
  // The default is the table's first value. A key that is equal in all cells may be an axis, too.
  EXPECT_EQ(Text({{"mode"}, {"method", "workers"}, {}}).rows[0][0], "measured");
}

TEST_F(Pivots, AsNumbersAreInBaseUnits) {
  EXPECT_EQ(Csv({{"workers"}, {"method"}, {"step_seconds", "vs dense", "n"}}),
            "part,workers,dense step_seconds,dense vs throughput,dense n,wfbp step_seconds,"
            "wfbp vs throughput,wfbp n,syncea step_seconds,syncea vs throughput,syncea n\n" +
                part_.id + ",2,0.1,,2,0.05,2.0,2,,,0\n" + part_.id + ",4,0.1,,2,0.04,2.5,2,,,\n");
  const auto rows = PivotNumbers({result_}, {{"workers"}, {"method"}, {"step_seconds"}}, catalog_);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].dump(), "{\"part\":\"" + part_.id +
                                "\",\"workers\":\"4\",\"dense step_seconds\":0.1,"
                                "\"wfbp step_seconds\":0.04,\"syncea step_seconds\":null}");
}

// The usual table has no column of it.
TEST_F(Pivots, HaveAnyMetricThatTrialsStore) {
  for (TrialRow& row : rows_) {
    const bool dense = row.metrics.at("step_seconds") == 0.1;
    row.metrics.Set("compute_utilisation", dense ? 0.25 : 0.75);
  }
  result_ = ResultOf(part_, catalog_, rows_);
  const Table table = Text({{"method"}, {"workers"}, {"compute_utilisation", "n"}});
  EXPECT_EQ(table.title, part_.title + ": compute_utilisation; n");
  EXPECT_EQ(table.rows[0][1], "0.250 ± 0.0 %; 2 [1]");
  EXPECT_EQ(table.rows[1][2], "0.750 ± 0.0 %; 2 [1]");
  EXPECT_EQ(table.rows[2][1], "not run");
  EXPECT_EQ(Csv({{"workers"}, {"method"}, {"compute_utilisation"}}),
            "part,workers,dense compute_utilisation,wfbp compute_utilisation,"
            "syncea compute_utilisation\n" +
                part_.id + ",2,0.25,0.75,\n" + part_.id + ",4,0.25,0.75,\n");
  // A metric that these trials lack.
  EXPECT_EQ(Text({{"method"}, {"workers"}, {"anchor_distance"}}).rows[0][1], "– [1]");
  const std::string near = ErrorOf({{"method"}, {"workers"}, {"compute_utilization"}});
  EXPECT_TRUE(near.ends_with("; did you mean \"compute_utilisation\"?")) << near;
}

TEST_F(Pivots, HeadsNameTheAxisOfABareNumber) {
  const Table table = Text({{"method"}, {"workers", "workload"}, {"n"}});
  EXPECT_EQ(table.columns, Row({"method", "workers 2, digits-resnet", "workers 4, digits-resnet"}));
}

TEST_F(Pivots, MarkAMethodWithPartsInPython) {
  for (Cell& cell : part_.cells) {
    if (cell.config.method == "wfbp") cell.config.method_options.planner = "python:mine.py:Equal";
  }
  const Table table = Text({{"method"}, {"workers"}, {"n"}});
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0].front(), "dense");
  EXPECT_EQ(table.rows[1].front(), "wfbp [2]");
  ASSERT_GE(table.notes.size(), 2u);
  EXPECT_EQ(table.notes[1], "in Python: planner");
  EXPECT_EQ(Text({{"workers"}, {"method"}, {"n"}}).columns,
            Row({"workers", "dense", "wfbp [2]", "syncea"}));
  EXPECT_EQ(PivotNumbers({result_}, {{"method"}, {"workers"}, {"n"}}, catalog_)[1]["method"],
            "wfbp");
}

TEST_F(Pivots, NameWhatIsWrongAndWhatThereIs) {
  const std::string axis = ErrorOf({{"worker"}, {"method"}, {}});
  EXPECT_SAYS(axis,
              "--pivot ROWS = \"worker\": expected axes of the experiment: method, workload, "
              "workers, sparsifier, density");
  EXPECT_SAYS(ErrorOf({{"workers"}, {"methods"}, {}}), "--pivot COLUMNS = \"methods\"");
  EXPECT_SAYS(ErrorOf({{"method"}, {"method"}, {}}), "\"method\" is named twice");
  const std::string value = ErrorOf({{"workers"}, {"method"}, {"speed"}});
  EXPECT_SAYS(value,
              "--columns \"speed\": expected columns of the table: throughput, vs "
              "throughput (\"vs dense (95 %)\"), step_seconds (\"step\")");
  const std::string two = ErrorOf({{"workload"}, {"method"}, {}});
  EXPECT_NE(two.find("two cells of part"), std::string::npos) << two;
  EXPECT_SAYS(two, "they differ in workers (2, 4); expected that axis among ROWS or COLUMNS");
}

}  // namespace
}  // namespace sparfuse::harness
