// Tests the wording of numbers, and a table's treatment of its rows and notes.
#include <gtest/gtest.h>

#include "harness/wording/numbers.hpp"
#include "harness/wording/table.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

// With n = 1 there are no ends.
Interval Of(double value, double low, double high, std::size_t n = 5) {
  return {value, low, high, n};
}

TEST(Wording, ScalesSecondsAndBytesAndPartsThousands) {
  const struct {
    double value;
    const char* unit;
    const char* text;
  } kCases[] = {{0, "s", "0 s"},
                {12.345, "s", "12.3 s"},
                {0.0123, "s", "12.3 ms"},
                {4.5e-5, "s", "45.0 µs"},
                {999, "B", "999 B"},
                {2.5e6, "B", "2.50 MB"},
                {3412, "images/s", "3\u2009412 images/s"},
                {1234567, "1", "1\u2009234\u2009567"},
                {999.6, "1", "1\u2009000"},
                {0.5, "1", "0.500"},
                {0.00001234, "1", "1.23e-05"},
                {-1234, "1", "-1\u2009234"}};
  for (const auto& each : kCases) EXPECT_EQ(Quantity(each.value, each.unit), each.text);
}

TEST(Wording, AnIntervalOfLikeHalvesIsAPercentageAndALopsidedOneItsEnds) {
  const struct {
    Interval interval;
    const char* text;
  } kCases[] = {{Of(100, 98, 102), "100 images/s ± 2.0 %"},
                {Of(100, 70, 130), "100 images/s ± 30.0 %"},          // long, but not lopsided
                {Of(100, 100 / 1.19, 119), "100 images/s ± 19.0 %"},  // in logarithms
                {Of(100, 100 / 1.21, 121), "100 images/s [82.6, 121]"},
                {Of(100, 40, 115), "100 images/s [40.0, 115]"},  // the lower half is longer
                {Of(100, 99, 130), "100 images/s [99.0, 130]"},
                {Of(100, 50, 150), "100 images/s ± 50.0 %"},
                {Of(100, 49, 151), "100 images/s [49.0, 151]"},  // no percentage can state it
                {Of(981, 245, 3933), "981 images/s [245, 3\u2009933]"},
                {Of(100, -200, 400), "100 images/s [-200, 400]"},
                {Of(100, 99.9, 100.3), "100 images/s ± 0.3 %"}};  // too close to show ends
  for (const auto& each : kCases) EXPECT_EQ(IntervalText(each.interval, "images/s"), each.text);
  EXPECT_EQ(IntervalText(Of(3412, 3341, 3484, 7), "images/s"), "3\u2009412 images/s ± 2.1 %");
  // The ends are in the value's scale.
  EXPECT_EQ(IntervalText(Of(0.5, 0.2, 1.25, 2), "s"), "500 ms [200, 1\u2009250]");
  EXPECT_EQ(IntervalText(Of(0.1, 0.09, 1.5), "s"), "100 ms [90.0, 1\u2009500]");
}

TEST(Wording, ValuesOfAColumnHaveOneUnit) {
  EXPECT_EQ(Quantity(1.5, "s", 0.2), "1\u2009500 ms");
  EXPECT_EQ(Quantity(0.012, "s", 3), "0.0120 s");
  EXPECT_EQ(Quantity(0, "s", 0.2), "0 ms");
  EXPECT_EQ(Quantity(2.5e9, "B", 4e6), "2\u2009500 MB");
  EXPECT_EQ(IntervalText(Of(2, 0.8, 5), "s", 0.1), "2\u2009000 ms [800, 5\u2009000]");
}

TEST(Wording, OneBlockHasNoEnds) {
  const Interval one = Of(3412, 3412, 3412, 1);
  EXPECT_EQ(IntervalText(one, "images/s"), "3\u2009412 images/s");
  EXPECT_EQ(SpreadText(one, "images/s"), "");
  EXPECT_EQ(RatioText(Of(1.314, 1.314, 1.314, 1)), "1.31x");
  EXPECT_EQ(IntervalJson(one)["low"], nullptr);
}

TEST(Wording, RatiosHaveTwoDecimalsAndSmallOnesThreeDigits) {
  EXPECT_EQ(RatioText(Of(1.312, 1.268, 1.354)), "1.31x [1.27, 1.35]");
  EXPECT_EQ(RatioText(Of(0.0123, 0.01, 0.1)), "0.0123x [0.0100, 0.10]");
  EXPECT_EQ(RatioText(std::optional<Interval>()), kNone);
  EXPECT_EQ(RatioText(12.0), "12.00x");
  EXPECT_EQ(ChangeText(0.0254), "+2.5 %");
  EXPECT_EQ(ChangeText(-0.5), "-50.0 %");
}

TEST(Wording, WhatPagesShowIsBesideTheNumber) {
  const nlohmann::json ratio = RatioJson(Of(1.314, 1.27, 1.349));
  EXPECT_EQ(ratio["text"], "1.31x [1.27, 1.35]");
  EXPECT_EQ(ratio["high"], 1.349);
  EXPECT_EQ(IntervalJson(Of(100, 98, 102), "s")["text"], "100 s ± 2.0 %");
  EXPECT_FALSE(IntervalJson(Of(100, 98, 102)).contains("text"));
  EXPECT_EQ(RatioJson(std::nullopt), nullptr);
  EXPECT_EQ(IntervalJson(std::nullopt, "s"), nullptr);
}

TEST(FinishedTable, CountsANoteOnceAndKeepsLooksBesideRows) {
  Table table;
  table.AddColumn("method", 'l');
  table.AddColumn("throughput", 'r');
  table.rows.push_back({"dense", "100"});
  table.AddRow({"wfbp", "timeout"}, "failed");
  EXPECT_EQ(table.NoteOf("a power of two"), 1u);
  EXPECT_EQ(table.NoteOf("another"), 2u);
  EXPECT_EQ(table.NoteOf("a power of two"), 1u);
  const nlohmann::json written = ToJson(table);
  EXPECT_EQ(written["alignment"], "lr");
  EXPECT_EQ(written["looks"], nlohmann::json({"", "failed"}));
  EXPECT_EQ(written["notes"].size(), 2u);
  EXPECT_EQ(written["rows"][1][1], "timeout");
}

TEST(FinishedTable, MarksNumbersOfTwoBlocks) {
  Table table;
  EXPECT_EQ(table.BlocksText(0), "0");
  EXPECT_EQ(table.BlocksText(1), "1");
  EXPECT_EQ(table.BlocksText(7), "7");
  EXPECT_TRUE(table.notes.empty());
  table.notes.push_back("another");
  EXPECT_EQ(table.BlocksText(2), "2 [2]");
  EXPECT_EQ(table.BlocksText(2), "2 [2]");
  ASSERT_EQ(table.notes.size(), 2u);
  EXPECT_TRUE(table.notes[1].starts_with("n = 2: an interval of two blocks says little"));
}

Table TableToRender() {
  Table table;
  table.title = "A_b";
  table.caption = "10 % & more";
  table.AddColumn("method", 'l');
  table.AddColumn("rate", 'r');
  table.rows = {{"a|b", "1\u2009234 ± 2.0 %"}, {"[x]\ny", "–"}};
  table.notes = {"<= 5 µs"};
  return table;
}

TEST(FinishedTable, IsTextForATerminal) {
  EXPECT_EQ(Render(TableToRender(), TableFormat::kText),
            "A_b\n\n"
            "method           rate\n"
            "a|b     1\u2009234 ± 2.0 %\n"
            "[x] y               –\n"
            "\n10 % & more\n"
            "\n[1] <= 5 µs\n");
}

TEST(FinishedTable, IsMarkdownWhoseCellsAreOneLine) {
  EXPECT_EQ(Render(TableToRender(), TableFormat::kMarkdown),
            "### A_b\n\n"
            "| method | rate          |\n"
            "|--------|---------------|\n"
            "| a\\|b   | 1\u2009234 ± 2.0 % |\n"
            "| [x] y  | –             |\n"
            "\n10 % & more\n"
            "\n[1] <= 5 µs\n");
}

// Otherwise, LaTeX would read a row that begins with a bracket as an option of the row before it.
TEST(FinishedTable, IsLatexOfBooktabsWithoutCommandsInItsTexts) {
  EXPECT_EQ(Render(TableToRender(), TableFormat::kLatex),
            "% \\usepackage{booktabs}\n"
            "\\begin{table}\n\\caption{A\\_b. 10 \\% \\& more}\n\\begin{tabular}{lr}\n"
            "\\toprule\nmethod & rate \\\\\n\\midrule\n"
            "a\\textbar{}b & 1\\,234 $\\pm$ 2.0 \\% \\\\\n"
            "{}[x] y & -- \\\\\n"
            "\\bottomrule\n\\end{tabular}\n"
            "\n[1] \\textless{}= 5 $\\mu$s\n"
            "\\end{table}\n");
  Table table;
  table.columns = {"x"};
  table.rows = {{R"(\input{~/a}^#$"x"×≥)"}};
  EXPECT_SAYS(Render(table, TableFormat::kLatex),
              R"(\textbackslash{}input\{\textasciitilde{}/a\}\textasciicircum{}\#\$)"
              R"(''x''$\times$$\geq$ \\)");
}

}  // namespace
}  // namespace sparfuse::harness
