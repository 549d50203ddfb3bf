// Tests what is taken over of the record that rank 0 leaves of a launch's hosts, and what is said
// of it.
#include "harness/run/live/hosts/host_record.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ExpectIn;

json Traffic(const std::vector<std::string>& others) {
  return {{"interface", nullptr}, {"bytes", {{"eth0", {{"sent", 1}}}}}, {"others", others}};
}

TEST(HostRecord, AHostWithTrafficOnASecondInterfaceIsNamed) {
  json launch = {{"network", TrafficOfHosts({"n1", "n2"}, {Traffic({}), Traffic({"ib0", "x"})})}};
  EXPECT_EQ(launch["network"]["others"], json::parse(R"([[], ["ib0", "x"]])"));
  EXPECT_EQ(launch["network"]["bytes"].size(), 2U);
  const auto said = WarningsOfHosts(launch);
  ASSERT_EQ(said.size(), 1U);
  ExpectIn("n2: beside the busiest interface also ib0, x had traffic", said[0]);
  launch["network"]["interface"] = "eth0";
  ExpectIn("beside eth0 also", WarningsOfHosts(launch)[0]);
  launch["network"]["others"] = {json::array(), json::array()};
  EXPECT_TRUE(WarningsOfHosts(launch).empty());
  launch["warnings"] = {"peers are hidden"};
  EXPECT_EQ(WarningsOfHosts(launch), std::vector<std::string>{"peers are hidden"});
}

TEST(HostRecord, WhatRanksReadStandsInThePlaceOfThisHostAlone) {
  const TemporaryFolder folder;
  const json here = TrafficOfHosts({"login"}, {Traffic({})});
  json launch = {{"id", "t.1"}};
  TakeHostRecord(folder.path(), here, launch);
  EXPECT_EQ(launch["network"], here);
  EXPECT_EQ(launch["id"], "t.1");

  const auto file = folder.path() / kHostRecord;
  const json ranks = TrafficOfHosts({"n1", "n2"}, {Traffic({}), Traffic({})});
  std::ofstream(file) << json{{"network", ranks}, {"binding", {{"hosts", {"n1", "n2"}}}}};
  launch = {{"id", "t.1"}};
  TakeHostRecord(folder.path(), here, launch);
  EXPECT_EQ(launch["network"], ranks);
  EXPECT_EQ(launch["binding"]["hosts"].size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(file));

  std::ofstream(file) << "{\"binding\": ";  // of a rank that was killed
  launch = {{"id", "t.1"}};
  TakeHostRecord(folder.path(), here, launch);
  EXPECT_EQ(launch["network"], here);
}

}  // namespace
}  // namespace sparfuse::harness
