// Tests how options get their values, and the errors for values that do not fit.
#include "core/base/options.hpp"

#include <gtest/gtest.h>

#include "tests/support/errors.hpp"

namespace sparfuse {
namespace {

const std::vector<OptionSpec> kSpecs = {
    {.name = "sample_ratio",
     .fallback = 0.01,
     .min = 0.001,
     .max = 1.0,
     .choices = {},
     .meaning = "fraction"},
    {.name = "iterations",
     .fallback = std::int64_t{10},
     .min = 0,
     .max = 100,
     .choices = {},
     .meaning = "count"},
    {.name = "resample", .fallback = true, .choices = {}, .meaning = "whether"},
    {.name = "mode",
     .fallback = std::string("plain"),
     .choices = {"plain", "fused"},
     .meaning = "which"},
    {.name = "label", .fallback = std::string(""), .choices = {}, .meaning = "any text"},
    {.name = "free", .fallback = 0.0, .choices = {}, .meaning = "any number"}};

std::string ErrorFor(const Options& given) {
  return testing::ErrorOf([&] { ResolveOptions("sparsifier dgc", kSpecs, given); });
}

TEST(ResolveOptions, FillsInDefaults) {
  const Options options = ResolveOptions("sparsifier dgc", kSpecs, {});
  EXPECT_EQ(options.size(), kSpecs.size());
  EXPECT_EQ(DoubleOption(options, "sample_ratio"), 0.01);
  EXPECT_EQ(IntOption(options, "iterations"), 10);
  EXPECT_TRUE(BoolOption(options, "resample"));
  EXPECT_EQ(StringOption(options, "mode"), "plain");
}

TEST(ResolveOptions, TakesWhatIsGiven) {
  const Options options = ResolveOptions("sparsifier dgc", kSpecs,
                                         {{"sample_ratio", 0.5},
                                          {"iterations", std::int64_t{3}},
                                          {"resample", false},
                                          {"mode", std::string("fused")},
                                          {"label", std::string("anything")},
                                          {"free", -1e300}});
  EXPECT_EQ(DoubleOption(options, "sample_ratio"), 0.5);
  EXPECT_EQ(IntOption(options, "iterations"), 3);
  EXPECT_FALSE(BoolOption(options, "resample"));
  EXPECT_EQ(StringOption(options, "mode"), "fused");
  EXPECT_EQ(StringOption(options, "label"), "anything");
  EXPECT_EQ(DoubleOption(options, "free"), -1e300);
}

TEST(ResolveOptions, AcceptsAnIntegerForANumber) {
  const Options options =
      ResolveOptions("sparsifier dgc", kSpecs, {{"sample_ratio", std::int64_t{1}}});
  EXPECT_EQ(DoubleOption(options, "sample_ratio"), 1.0);
}

TEST(ResolveOptions, NamesOwnerKeyValueAndWhatWasExpected) {
  EXPECT_EQ(ErrorFor({{"sample_ration", 0.1}}),
            "sparsifier dgc: unknown option \"sample_ration\"; did you mean \"sample_ratio\"?");
  EXPECT_EQ(ErrorFor({{"sample_ratio", 2.0}}),
            "sparsifier dgc: sample_ratio = 2: expected a number in [0.001, 1]");
  EXPECT_EQ(ErrorFor({{"iterations", std::int64_t{101}}}),
            "sparsifier dgc: iterations = 101: expected a number in [0, 100]");
  EXPECT_EQ(ErrorFor({{"iterations", 2.5}}),
            "sparsifier dgc: iterations = 2.5: expected an integer");
  EXPECT_EQ(ErrorFor({{"resample", std::string("yes")}}),
            "sparsifier dgc: resample = yes: expected true or false");
  EXPECT_EQ(ErrorFor({{"mode", std::string("fuse")}}),
            "sparsifier dgc: mode = \"fuse\"; did you mean \"fused\"?");
  EXPECT_SAYS(ErrorFor({{"sample_ratio", std::nan("")}}), "expected a number");
}

TEST(Suggestion, ListsAllWhereNoneIsNear) {
  const std::vector<std::string> known = {"topk", "randomk", "dgc"};
  EXPECT_EQ(Suggestion("tpok", known), "; did you mean \"topk\"?");
  EXPECT_EQ(Suggestion("quantisation", known), "; known: topk, randomk, dgc");
  EXPECT_EQ(Suggestion("anything", {}), "; it takes none");
}

TEST(NearestName, PrefersTheSmallerEditDistance) {
  const std::vector<std::string> known = {"horovod-fusion", "syncea", "safusion-naive",
                                          "safusion-inter"};
  EXPECT_EQ(NearestName("safusion-intra", known), "safusion-inter");
  EXPECT_EQ(NearestName("horovod_fusion", known), "horovod-fusion");
  EXPECT_EQ(NearestName("x", known), "");
}

TEST(NearestName, CompletesABeginning) {
  const std::vector<std::string> known = {"bert-large-squad-long", "bert-large-squad", "vgg16"};
  EXPECT_EQ(NearestName("bert-large", known), "bert-large-squad");
  EXPECT_EQ(NearestName("ber", known), "");
}

}  // namespace
}  // namespace sparfuse
