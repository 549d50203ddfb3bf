// Tests SAFusion's plans: the published code's, the paper's, and the plans from a profile.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/cost/authors_tables.hpp"
#include "core/fusion/plan_times.hpp"
#include "core/safusion/planner.hpp"
#include "tests/support/model_layouts.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::testing {
namespace {

constexpr double kDensity = 0.5;

// Two ranks, so that an exchange is one round. A payload of e elements takes startup + e *
// seconds_per_element.
struct Profile {
  GradientLayout layout;
  BackwardProfile backward;
  CostModel cost;
  Topology topology{2, 1};

  Profile(double startup, double seconds_per_element, double select) {
    cost.selection["topk"].Add(kDensity, PiecewiseLinear({{0, select}}));
    cost.links.fill({PiecewiseLinear({{0, startup}, {8, startup + seconds_per_element}}), 0});
  }
  // Adds a tensor that sends `kept` elements.
  void Add(std::size_t kept, double backward_seconds, bool dense = false) {
    const std::size_t numel = dense ? kept : 2 * kept;
    layout.Add("t" + std::to_string(layout.tensors()), {static_cast<std::int64_t>(numel)}, numel,
               dense);
    backward.backward_seconds.push_back(backward_seconds);
  }
  PlanInput Input(Sparsified sparsified = Sparsified::kAhead) const {
    return InputOf(layout, topology, kDensity, sparsified, backward, cost);
  }
};

Profile Alike(std::size_t tensors, std::size_t kept, double backward, double startup,
              double select) {
  Profile profile(startup, 1, select);
  for (std::size_t t = 0; t < tensors; ++t) profile.Add(kept, backward);
  return profile;
}

Profile RandomProfile(std::size_t tensors, std::mt19937& random) {
  std::uniform_real_distribution<double> uniform;
  Profile profile(uniform(random) * 5, uniform(random), uniform(random));
  const double backward = uniform(random) * 8;
  for (std::size_t t = 0; t < tensors; ++t) {
    const auto kept = static_cast<std::size_t>(1 + std::exp(4 * uniform(random)));
    profile.Add(kept, backward * uniform(random), t % 5 == 4);
  }
  return profile;
}

Options Form(const char* form) { return {{"form", std::string(form)}}; }

// The end of the plan's last exchange. A rank computes on one thread and exchanges on another.
double EndSeconds(const Plan& plan, const PlanInput& input, double slowness = 1) {
  const PlanTimes times(input, "test");
  double ready = 0;
  double end = 0;
  for (const Unit& unit : plan.units) {
    std::uint64_t bytes = 0;
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      const double density = plan.TensorOf(input.layout, t).density;
      ready += times.Backward(t) + times.Sparsify(t, density);
      bytes += PlannedPayloadBytes(input.layout, t, density);
    }
    const double exchange = input.sparsified == Sparsified::kNever
                                ? times.Reduce(input.layout.RangeOf(unit.first, unit.last).size())
                                : times.Gather(bytes);
    end = std::max(end, ready) + slowness * exchange;
  }
  return end;
}

TEST(AuthorsTables, GiveThePublishedTimes) {
  EXPECT_DOUBLE_EQ(AuthorsCommunicationSeconds(2359296, 0.1), 0.01845196591907077);
  EXPECT_DOUBLE_EQ(AuthorsCommunicationSeconds(16777216, 0.01), 0.01440970894495646);
  EXPECT_DOUBLE_EQ(AuthorsCommunicationSeconds(25557032, 1), 1.0040418791325887);
  EXPECT_DOUBLE_EQ(AuthorsCommunicationSeconds(1, 1), 0.005115201187133789);
  EXPECT_DOUBLE_EQ(AuthorsCompressionSeconds("topk", 2359296), 0.00024788411458333335);
  EXPECT_DOUBLE_EQ(AuthorsCompressionSeconds("topk", 512), 7.677078247070312e-05);
  EXPECT_DOUBLE_EQ(AuthorsCompressionSeconds("sidco", 256000), 4.5180e-4);
  EXPECT_DOUBLE_EQ(AuthorsBackwardSeconds("vgg16", 1, 4), 0.015516927047648 / 4);
  EXPECT_EQ(AuthorsBackwardSeconds("", 1, 4), 0);
  EXPECT_THROW(AuthorsCompressionSeconds("mstopk", 512), Error);
}

TEST(AuthorsTables, GoOnAsTheyEnd) {
  const double at_100_mb = 1.005709457397461;
  const double at_150_mb = 1.5160596132278443;
  EXPECT_NEAR(AuthorsCommunicationSeconds(256 * 200000, 1), 2 * at_150_mb - at_100_mb, 1e-12);
}

TEST(AuthorsPlanner, ReproducesTheGoldenPlans) {
  using Lengths = std::vector<std::size_t>;
  const auto repeat = [](Lengths lengths, std::size_t times, std::size_t length, std::size_t last) {
    lengths.insert(lengths.end(), times, length);
    lengths.push_back(last);
    return lengths;
  };
  struct Golden {
    GradientLayout layout;
    const char* model;
    double density;
    Lengths lengths;
  };
  const Golden golden[] = {
      {ResNet50Cifar(), "resnet50", 0.1, {3, 8, 66, 85}},
      {ResNet50Cifar(), "resnet50", 0.05, {3, 8, 30, 30, 30, 61}},
      {ResNet50Cifar(), "resnet50", 0.01, {3, 8, 18, 18, 18, 18, 79}},
      {ResNet50Cifar(), "resnet50", 1.0, {3, 20, 139}},
      {ResNet101Cifar(), "resnet101", 0.1, {3, 8, 80, 224}},
      {ResNet101Cifar(), "resnet101", 0.05, repeat({3, 8}, 4, 44, 128)},
      {ResNet101Cifar(), "resnet101", 0.01, repeat({3, 8}, 9, 18, 142)},
      {ResNet152Cifar(), "resnet152", 0.1, {3, 10, 156, 299}},
      {ResNet152Cifar(), "resnet152", 0.05, {3, 10, 96, 96, 96, 167}},
      {ResNet152Cifar(), "resnet152", 0.01, repeat({3, 10}, 4, 60, 215)},
      {ResNet152ImageNet(), "resnet152", 0.1, {3, 28, 2, 145, 145, 145}},
      {ResNet152ImageNet(), "resnet152", 0.05, {3, 20, 248, 197}},
      {ResNet152ImageNet(), "resnet152", 0.01, repeat({3, 10}, 4, 62, 207)},
      {Vgg16Cifar(), "vgg16", 0.1, {3, 4, 52}},
      {Vgg16Cifar(), "vgg16", 0.05, {3, 4, 52}},
      {Vgg16Cifar(), "vgg16", 0.01, {3, 4, 20, 32}},
      {Vgg19Cifar(), "vgg19", 0.1, {3, 3, 65}},
      {Vgg19Cifar(), "vgg19", 0.05, {3, 3, 65}},
      {Vgg19Cifar(), "vgg19", 0.01, {3, 3, 20, 20, 25}},
      {LstmWikiText2(), "lstm", 0.1, {2, 9, 1}},
      {LstmWikiText2(), "lstm", 0.05, {2, 9, 1, 0}},
      {LstmWikiText2(), "lstm", 0.01, {2, 9, 1, 0}},
      {TransformerWikiText2(), "transformer", 0.1, {2, 1, 1, 96}},
      {TransformerWikiText2(), "transformer", 0.05, {2, 1, 1, 32, 32, 32}},
      {TransformerWikiText2(), "transformer", 0.01, {2, 1, 1, 32, 32, 32}},
      {BertBase(true), "bert_base", 0.1, {3, 16, 2, 60, 60, 61}},
      {BertBase(true), "bert_base", 0.05, {3, 16, 180, 3}},
      {BertBase(true), "bert_base", 0.01, {3, 16, 134, 49}},
  };
  for (const Golden& each : golden) {
    EXPECT_EQ(AuthorsBufferLengths(each.layout, each.model, each.density), each.lengths)
        << each.model << " at density " << each.density;
    Lengths held = each.lengths;
    --held.front();
    if (held.back() == 0) held.pop_back();
    Lengths planned;
    const Plan plan =
        PlanOf("safusion", {each.layout, {8, 1}, each.density, Sparsified::kAhead},
               {{"form", std::string("authors")}, {"model", std::string(each.model)}});
    CheckPlan(plan, each.layout);
    for (const Unit& unit : plan.units) planned.push_back(unit.last - unit.first);
    EXPECT_EQ(planned, held) << each.model << " at density " << each.density;
  }
}

// A model without published times computes in no time: two tensors save more time than they take.
TEST(AuthorsPlanner, PlansAnyLayout) {
  std::mt19937 random(1);
  for (std::size_t tensors = 1; tensors <= 60; ++tensors) {
    for (const char* model : {"", "resnet50", "lstm", "transformer"}) {
      for (const double density : {0.001, 0.1, 1.0}) {
        GradientLayout layout;
        for (std::size_t t = 0; t < tensors; ++t) {
          const std::size_t numel = 1 + random() % (t % 7 == 0 ? 100'000'000 : 5'000);
          layout.Add("t", {static_cast<std::int64_t>(numel)}, numel);
        }
        const Plan plan = PlanOf("safusion", {layout, {8, 1}, density, Sparsified::kAhead},
                                 {{"form", std::string("authors")}, {"model", std::string(model)}});
        EXPECT_NO_THROW(CheckPlan(plan, layout)) << tensors << " tensors, model " << model;
        if (*model == '\0' && tensors >= 2) {
          EXPECT_EQ(plan.units.front().last, 2u);
        }
      }
    }
  }
}

// One element a tensor, one second of backward, 2 s + 1 s an element on the wire.
// Eq. 2: 2 + 4 is not below 2 * 3, but 3 + 5 < 3 * 3: three tensors, sent in 5 s.
// Eq. 1: five more take 5 s of backward and are sent in 7 s; seven more cover these 7 s.
TEST(PaperPlanner, GrowsABufferUntilItCoversTheOneBefore) {
  EXPECT_EQ(PlanOf("safusion", Alike(15, 1, 1, 2, 0).Input(), Form("paper")).UnitSizes(), "3,5,7");
  // A second of selection for each tensor in addition: three cover 5 s and are sent in 5 s.
  EXPECT_EQ(PlanOf("safusion", Alike(9, 1, 1, 2, 1).Input(), Form("paper")).UnitSizes(), "3,3,3");
}

// Two more tensors than above. After 5 + 7 + 9 s of communication and 14 s of computation, the
// third buffer is still being sent; so it is merged with the fourth.
TEST(PaperPlanner, MergesTheTailThatIsNotCovered) {
  EXPECT_EQ(PlanOf("safusion", Alike(17, 1, 1, 2, 0).Input(), Form("paper")).UnitSizes(), "3,5,9");
}

TEST(PaperPlanner, FusesAllWhereOneByOneIsNeverSlower) {
  EXPECT_EQ(PlanOf("safusion", Alike(15, 1, 1, 0, 0).Input(), Form("paper")).UnitSizes(), "15");
}

TEST(PaperPlanner, FusesAllWhereNothingIsComputed) {
  EXPECT_EQ(PlanOf("safusion", Alike(15, 1, 0, 2, 0).Input(), Form("paper")).UnitSizes(), "15");
}

// A dense tensor sends all of its elements, each with its index.
TEST(PaperPlanner, CountsWhatDenseTensorsSend) {
  Profile profile(2, 1, 0);
  for (std::size_t t = 0; t < 3; ++t) profile.Add(1, 1);
  for (std::size_t t = 0; t < 5; ++t) profile.Add(2, 1, true);  // sent in 2 + 10 s
  for (std::size_t t = 0; t < 13; ++t) profile.Add(1, 1);
  EXPECT_EQ(PlanOf("safusion", profile.Input(), Form("paper")).UnitSizes(), "3,5,13");
}

// Two tensors in one exchange are sent before the third is ready. Only the third is exposed: 30 + 3
// s.
TEST(ProfiledPlanner, HidesAllButTheLastExchange) {
  const Profile profile = Alike(3, 1, 10, 2, 0);
  const Plan plan = PlanOf("safusion", profile.Input(), {{"tolerance", 0.0}});
  EXPECT_EQ(plan.UnitSizes(), "2,1");
  EXPECT_DOUBLE_EQ(EndSeconds(plan, profile.Input()), 33);
  // Eq. 2 never holds: 30 + 5 s.
  const Plan paper = PlanOf("safusion", profile.Input(), Form("paper"));
  EXPECT_DOUBLE_EQ(EndSeconds(paper, profile.Input()), 35);
}

// 10 elements a tensor, sent in 1 s + 1 s an element. The wire is always busy, so the first
// exchange begins as soon as it can, and there is only one more start-up: 1 + 11 + 31 s.
TEST(ProfiledPlanner, BeginsEarlyWhereTheWireIsBusy) {
  const Profile profile = Alike(4, 10, 1, 1, 0);
  const Plan plan = PlanOf("safusion", profile.Input(), {{"tolerance", 0.0}});
  EXPECT_EQ(plan.UnitSizes(), "1,3");
  EXPECT_DOUBLE_EQ(EndSeconds(plan, profile.Input()), 43);
}

TEST(ProfiledPlanner, SendsAllAtOnceWhereNothingIsComputed) {
  EXPECT_EQ(PlanOf("safusion", Alike(15, 1, 0, 2, 0).Input()).UnitSizes(), "15");
  EXPECT_EQ(PlanOf("safusion", Alike(15, 1, 0, 0, 0).Input()).UnitSizes(), "15");
}

TEST(ProfiledPlanner, EndsEarliestOfAllPartitionsWithTheFewestBuffers) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t tensors = 1 + random() % 9;
    const Profile profile = RandomProfile(tensors, random);
    for (const Sparsified sparsified : {Sparsified::kAhead, Sparsified::kNever}) {
      const PlanInput input = profile.Input(sparsified);
      const double density = sparsified == Sparsified::kNever ? 1.0 : kDensity;
      const Plan plan = PlanOf("safusion", input, {{"tolerance", 0.0}});
      const double end = EndSeconds(plan, input);
      for (std::size_t cuts = 0; cuts < std::size_t{1} << (tensors - 1); ++cuts) {
        Plan other;
        for (std::size_t first = 0, t = 1; t <= tensors; ++t) {
          if (t < tensors && (cuts >> (t - 1) & 1) == 0) continue;
          other.units.push_back({first, t, sparsified, density});
          first = t;
        }
        const double other_end = EndSeconds(other, input);
        ASSERT_LE(end, other_end * (1 + 1e-8)) << plan.UnitSizes() << ", " << other.UnitSizes();
        if (other_end <= end * (1 + 1e-12)) {
          EXPECT_LE(plan.units.size(), other.units.size()) << other.UnitSizes();
        }
      }
    }
  }
}

TEST(ProfiledPlanner, TradesAPercentForWhatStaysEarlyWhenExchangesAreSlow) {
  std::mt19937 random(4);
  int traded = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const Profile profile = RandomProfile(1 + random() % 30, random);
    const PlanInput input = profile.Input();
    const Plan exact = PlanOf("safusion", input, {{"tolerance", 0.0}});
    const Plan plan = PlanOf("safusion", input);
    EXPECT_LE(EndSeconds(plan, input), 1.01 * EndSeconds(exact, input) * (1 + 1e-9));
    EXPECT_LE(EndSeconds(plan, input, 2), EndSeconds(exact, input, 2) * (1 + 1e-9));
    traded += plan != exact;
  }
  EXPECT_GT(traded, 0);
}

TEST(ProfiledPlanner, IsNeverLaterThanThePlansItReplaces) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 100; ++trial) {
    const Profile profile = RandomProfile(1 + random() % 60, random);
    const PlanInput input = profile.Input();
    const double end = EndSeconds(PlanOf("safusion", input, {{"tolerance", 0.0}}), input);
    const double limit = end * (1 - 1e-8);
    EXPECT_GE(EndSeconds(PlanOf("by-count", input), input), limit);
    EXPECT_GE(EndSeconds(PlanOf("whole-model", input), input), limit);
    EXPECT_GE(EndSeconds(PlanOf("layer-wise", input), input), limit);
    EXPECT_GE(EndSeconds(PlanOf("safusion", input, Form("paper")), input), limit);
  }
}

TEST(SafusionPlanner, CoversEveryLayoutTheSameWayTwice) {
  std::mt19937 random(4);
  for (std::size_t tensors = 1; tensors <= 40; ++tensors) {
    const Profile profile = RandomProfile(tensors, random);
    for (const char* form : {"profiled", "paper", "authors"}) {
      for (const Sparsified sparsified :
           {Sparsified::kAhead, Sparsified::kBehind, Sparsified::kNever}) {
        const Plan plan = PlanOf("safusion", profile.Input(sparsified), Form(form));
        EXPECT_NO_THROW(CheckPlan(plan, profile.layout)) << form << ", " << tensors;
        EXPECT_EQ(plan, PlanOf("safusion", profile.Input(sparsified), Form(form)));
        for (const Unit& unit : plan.units) {
          EXPECT_EQ(unit.sparsified, sparsified);
          EXPECT_EQ(unit.density, sparsified == Sparsified::kNever ? 1.0 : kDensity);
        }
      }
    }
  }
}

TEST(SafusionPlanner, SaysWhetherItNeedsAProfile) {
  const PlannerDescriptor& planner = FindPlanner("safusion");
  Profile profile = Alike(3, 1, 1, 2, 0);
  PlanInput input = profile.Input();
  input.backward = nullptr;
  for (const char* form : {"profiled", "paper"}) {
    EXPECT_TRUE(planner.needs_profile(ResolveOptions("safusion", planner.options, Form(form))));
    EXPECT_THROW(PlanOf("safusion", input, Form(form)), Error);
  }
  EXPECT_FALSE(planner.needs_profile(ResolveOptions("safusion", planner.options, Form("authors"))));
  EXPECT_NO_THROW(PlanOf("safusion", input, Form("authors")));
  EXPECT_THROW(PlanOf("safusion", input, Form("v2")), Error);
}

}  // namespace
}  // namespace sparfuse::testing
