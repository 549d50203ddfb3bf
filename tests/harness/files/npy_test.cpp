// Tests the bytes of NumPy files, and the description of values that they cannot hold.
#include "harness/files/npy.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "harness/files/durable_file.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// The table of every_type.npy, which tests/figures/series_test.py reads with numpy.
NpyTable EveryType() {
  NpyTable table("every step");
  table.AddColumn("step", "", std::vector<std::int64_t>{1, -2, std::int64_t{1} << 40});
  table.AddColumn("seconds", "seconds", std::vector<double>{0.5, -1e300, 3.0});
  table.AddColumn("measured", "", std::vector<bool>{false, true, true});
  table.AddColumn("kind", "", std::vector<std::string>{"wait", "", "sparsify"});
  return table;
}

std::string Written(const NpyTable& table) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      (std::string("sparfuse-npy-") +
       ::testing::UnitTest::GetInstance()->current_test_info()->name() +
       std::to_string(::testing::UnitTest::GetInstance()->random_seed()));
  table.Write(path);
  std::string bytes = ReadFile(path);
  std::filesystem::remove(path);
  return bytes;
}

TEST(NpyTable, WritesTheBytesThatNumpyIsTestedToRead) {
  EXPECT_EQ(Written(EveryType()), ReadFile(testing::SourceDirectory() / "tests" / "harness" /
                                           "files" / "every_type.npy"));
}

TEST(NpyTable, RecordsBeginAtAMultipleOf64AndHaveNoPadding) {
  const std::string bytes = Written(EveryType());
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\1\0", 8));
  const std::size_t header = bytes.find('\n') + 1;
  EXPECT_EQ(header % 64, 0u);
  EXPECT_EQ(static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]),
            header - 10);
  EXPECT_EQ(bytes.size() - header, 3 * (8 + 8 + 1 + 4 * 8));  // text is as wide as "sparsify"
}

TEST(NpyTable, ATableWithoutRowsHasItsColumns) {
  NpyTable table("every step");
  table.AddColumn("step", "", std::vector<std::int64_t>{});
  table.AddColumn("kind", "", std::vector<std::string>{});
  EXPECT_SAYS(Written(table),
              "{'descr': [('step', '<i8'), ('kind', '<U1'), ], "
              "'fortran_order': False, 'shape': (0,), }");
}

TEST(NpyTable, BytesThatAreNotAsciiBecomeQuestionMarks) {
  NpyTable table("");
  table.AddColumn("kind", "", std::vector<std::string>{"a\xc3\xa9"});
  const std::string bytes = Written(table);
  EXPECT_EQ(bytes.substr(bytes.size() - 12), std::string("a\0\0\0?\0\0\0?\0\0\0", 12));
}

TEST(NpyTable, DescriptionHoldsWhatTheFileCannot) {
  const NpyTable table = EveryType();
  EXPECT_EQ(table.rows(), 3);
  EXPECT_EQ(table.sampling(), "every step");
  EXPECT_EQ(table.Units(),
            (std::map<std::string, std::string>{
                {"step", ""}, {"seconds", "seconds"}, {"measured", ""}, {"kind", ""}}));
}

TEST(NpyTable, AnErrorOfWritingNamesTheFile) {
  testing::ExpectError(FailureKind::kData, {"/dev/full"}, [&] { EveryType().Write("/dev/full"); });
}

}  // namespace
}  // namespace sparfuse::harness
