// Tests that exported series files contain only numbers of known rows.
#include "harness/store/evidence/series_file.hpp"

#include <gtest/gtest.h>

#include "harness/files/durable_file.hpp"
#include "harness/files/npy.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

TEST(SeriesFile, HasNumbersOfKnownRows) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "s.npy";
  NpyTable steps("every step");
  steps.AddColumn("step", "", std::vector<std::int64_t>{0, 1});
  steps.AddColumn("measured", "", std::vector<bool>{false, true});
  steps.AddColumn("loss", "nats", std::vector<double>{2, 1});
  steps.Write(file);
  const std::string good = ReadFile(file);
  EXPECT_EQ(WhatIsWrongWithSeries("steps.npy", good), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", good + "token"), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", good.substr(0, good.size() - 1)), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", "token"), "");
  std::string header = good;
  header[good.find("   ")] = '#';  // within the padding of the header
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", header), "");
  // Any program may write such a file: a header of 64 KiB is read without a call for each
  // character.
  const auto with_header = [](const std::string& text) {
    std::string made("\x93NUMPY\1\0", 8);
    made += static_cast<char>(text.size() % 256);
    made += static_cast<char>(text.size() / 256);
    return made + text;
  };
  const std::string begin = "{'descr': [('a', '<f8'), ], 'fortran_order': False, 'shape': (";
  const std::string padding(65'000, ' ');
  EXPECT_EQ(WhatIsWrongWithSeries("steps.npy", with_header(begin + "0,), }" + padding + "\n")), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", with_header(begin + "0,), }" + padding)), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", with_header(begin + "1,), }\n")), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", with_header(begin + "-1,), }\n")), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", with_header(begin + "99999999999999999999,), }\n")),
            "");
  std::string many = "{'descr': [";
  for (int i = 0; i < 1500; ++i) many += "('label', '<U4096'), ";
  EXPECT_NE(
      WhatIsWrongWithSeries("spans.npy", with_header(many + "], 'fortran_order': False, 'shape': "
                                                            "(750599937895,), }\n")),
      "");
  for (const char* wrong :
       {"", "{'descr': [", "{'descr': [('", "{'descr': [('a", "{'descr': [('a', '",
        "{'descr': [('a', '<f8'), ], 'fortran_order': False, 'shape': ("})
    EXPECT_NE(WhatIsWrongWithSeries("steps.npy", with_header(wrong)), "") << wrong;
  NpyTable spans("the last step");
  spans.AddColumn("label", "", std::vector<std::string>{"conv"});
  spans.Write(file);
  EXPECT_EQ(WhatIsWrongWithSeries("spans.npy", ReadFile(file)), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", ReadFile(file)), "");
}

}  // namespace
}  // namespace sparfuse::harness
