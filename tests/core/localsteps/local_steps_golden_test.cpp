// Compares parameters, anchors and outer state of local steps with reference histories. Some are
// computed in double precision from the papers' equations, others are recorded by torchft.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/methods/windows.hpp"

namespace sparfuse::testing {
namespace {

constexpr float kClose = 4e-6f;  // float32 after eight steps of numbers up to 7

void ExpectClose(const Floats& got, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], kClose) << what;
}

// Two ranks; the gradient of rank r is A_r (w - C_r).
Windows Quadratic(Options strategy) {
  Windows windows;
  windows.strategy = std::move(strategy);
  windows.gradient = [](int rank, const Floats& w, int) {
    static const Floats kA[] = {{1, 2, .5f, 1}, {2, 1, 1, .5f}};
    static const Floats kC[] = {{1, -1, 2, 0}, {3, 1, -2, 1}};
    Floats gradient(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) gradient[i] = kA[rank][i] * (w[i] - kC[rank][i]);
    return gradient;
  };
  windows.start = [](int) { return Floats{.5f, .25f, -.5f, 1}; };
  return windows;
}

TEST(LocalSteps, AverageParametersAtTheEndOfAWindow) {
  const auto ranks = Train(Quadratic({{"every", Whole(4)}}));
  ExpectClose(ranks[0].parameters[2], {.6355, -.36, -.1434375, .729}, "rank 0, step 3");
  ExpectClose(ranks[1].parameters[2], {1.72, .45325, -.9065, 1}, "rank 1, step 3");
  for (const auto& rank : ranks) {
    ExpectClose(rank.parameters[3], {1.323975, .0099625, -.5260578125, .82805}, "step 4");
    ExpectClose(rank.parameters[7], {1.7630300787, -.1179414819, -.5452182035, .7016146277},
                "step 8");
  }
}

TEST(LocalSteps, KeepTheMomentumOfTheInnerOptimizer) {
  Windows windows = Quadratic({{"every", Whole(4)}});
  windows.inner = [] { return Sgd(0.1f, 0.9f); };
  for (const auto& rank : Train(windows)) {
    ExpectClose(rank.parameters[7], {3.17796932, -.41586572, -.5260505145, .1548645981}, "step 8");
  }
}

TEST(LocalSteps, DiLoCoIsNesterovOnTheAverageDifference) {
  const WindowOptions diloco{.every = 4, .outer = "nesterov", .rate = .7, .momentum = .9};
  for (const auto& rank : Train(Quadratic(diloco))) {
    ExpectClose(rank.parameters[3], {1.59588675, -.069249875, -.5346568906, .7713065}, "step 4");
    ExpectClose(rank.parameters[7], {2.4780824763, -.3262480323, -.571887712, .5256281749},
                "step 8");
    ExpectClose(rank.outer[7], {-1.0536090047, .3069336709, .0403362731, .2661705452}, "b");
    EXPECT_EQ(rank.parameters[7], rank.anchors[7]);
  }
  Windows adam = Quadratic(diloco);
  adam.inner = [] { return AdamW(.1, .9, .99, 1e-8, .01); };
  for (const auto& rank : Train(adam)) {
    ExpectClose(rank.parameters[3], {1.0196538942, .2465235173, -.4966922157, .7006566126},
                "step 4");
    ExpectClose(rank.parameters[7], {1.6260157177, .2402607336, -.491747015, .4800972395},
                "step 8");
    ExpectClose(rank.outer[7], {-.6409877204, .0059470215, -.0048962751, .2724463227}, "b");
  }
}

TEST(LocalSteps, MomentumIsSlowMo) {
  const WindowOptions slowmo{.every = 4, .outer = "momentum", .rate = .7, .momentum = .5};
  for (const auto& rank : Train(Quadratic(slowmo))) {
    ExpectClose(rank.parameters[7], {1.7533454886, -.1151202011, -.5422214353, .7213896676},
                "step 8");
    ExpectClose(rank.outer[7], {-.9665185551, .2815627873, .0342585237, .2260647606}, "b");
  }
}

// BMUF's Nesterov form, in terms of its global model: D = 1, momentum .5, rate 1.
TEST(LocalSteps, NesterovIsBmuf) {
  Windows windows;
  windows.workers = 1;
  windows.tensors = {1};
  windows.strategy = WindowOptions{.outer = "nesterov", .momentum = .5};
  windows.gradient = [](int, const Floats&, int) { return Floats{1}; };
  windows.inner = [] { return Sgd(1); };
  windows.start = [](int) { return Floats{0}; };
  windows.steps = 3;
  const auto ranks = Train(windows);
  EXPECT_EQ(ranks[0].anchors, (std::vector<Floats>{{-1.5f}, {-3.25f}, {-5.125f}}));
}

TEST(LocalSteps, StreamFragmentsWithDelayAndMix) {
  Windows windows = Quadratic(WindowOptions{4, 1, "nesterov", .5, .4, .9});
  windows.tensors = {2, 2};
  windows.planner = {{"fragments", Whole(2)}};
  const auto ranks = Train(windows);
  ExpectClose(ranks[0].parameters[1], {.652, -.00825, -.25625, .81}, "rank 0, step 2");
  ExpectClose(ranks[1].parameters[1], {1.0545, .288, -.785, 1}, "rank 1, step 2");
  ExpectClose(ranks[0].parameters[7], {1.0307871928, -.5463592192, -.1941920216, .6296154482},
              "rank 0, step 8");
  ExpectClose(ranks[1].parameters[7], {2.2023884032, .4104266932, -.8622736528, .8538954768},
              "rank 1, step 8");
  for (const auto& rank : ranks) {
    ExpectClose(rank.anchors[1], {.709, .1835, -.5, 1}, "a, step 2");
    ExpectClose(rank.anchors[7], {1.30434056, .01140664, -.5332475544, .7497298805}, "a, step 8");
    ExpectClose(rank.outer[7], {-.913606, .267886, .0306053347, .2579869994}, "b, step 8");
  }
}

TEST(LocalSteps, LagBehindByAWindow) {
  const WindowOptions lagging{.every = 2, .delay = 2, .outer = "momentum", .momentum = .5};
  for (const auto& rank : Train(Quadratic(lagging))) {
    ExpectClose(rank.parameters[1], {.5, .25, -.5, 1}, "step 2");
    ExpectClose(rank.anchors[1], {.5, .25, -.5, 1}, "a, step 2");
    ExpectClose(rank.parameters[3], {.9975, .09625, -.520625, .905}, "step 4");
    ExpectClose(rank.parameters[7], {2.4775625, -.36115625, -.5846914062, .60990625}, "step 8");
  }
}

TEST(LocalSteps, AreElastic) {
  WindowOptions elastic{.every = 2, .outer = "elastic", .rate = .25};
  const auto now = Train(Quadratic(elastic));
  ExpectClose(now[0].parameters[7], {.9305425039, -.4374350217, -.0622849433, .6295499336}, "0");
  ExpectClose(now[1].parameters[7], {1.9784896605, .4049839902, -.9791678957, .9403636155}, "1");
  ExpectClose(now[0].anchors[7], {1.3703783022, .0049139439, -.520678526, .8069633393}, "a");
  elastic.delay = 1;
  const auto late = Train(Quadratic(elastic));
  ExpectClose(late[0].parameters[7], {.8914835559, -.4742039172, .0025341078, .6049102319}, "0");
  ExpectClose(late[1].parameters[7], {2.0291512719, .4492893964, -1.0338330897, .953818125}, "1");
  ExpectClose(late[0].anchors[7], {1.2717053953, .0319030305, -.5186150492, .8309903656}, "a");
  EXPECT_EQ(late[0].anchors, late[1].anchors);
}

TEST(LocalSteps, AverageInTheShadowOfTraining) {
  const auto ranks = Train(Quadratic({{"every", Whole(2)}, {"delay", Whole(1)}, {"mix", .5}}));
  ExpectClose(ranks[0].parameters[7], {1.319191945, -.2815112063, -.316605422, .6860230773}, "0");
  ExpectClose(ranks[1].parameters[7], {1.8378349125, .1445991675, -.7611507652, .8344466653}, "1");
  ExpectClose(ranks[0].anchors[7], {1.528283425, -.0558476125, -.5382236555, .7754066979}, "mean");
}

// Histories that torchft's tests record (diloco_regression_test): two layers of one element, one
// fragment each. The gradient is 2, the inner rate 1, the outer optimizer SGD of rate 2, the window
// six steps.
struct Recorded {
  int delay;
  double mix;
  std::vector<float> first, second;  // [steps] before steps 0, 1, ...
  std::vector<float> anchors;        // of the first layer, after steps 3, 6, 9 and 12
};

TEST(LocalSteps, AreTorchftsBitForBit) {
  const std::vector<Recorded> cases = {
      {0,
       0,
       {1, -1, -3, -11, -13, -15, -17, -19, -21, -35},
       {1, -1, -3, -5, -7, -9, -23, -25, -27, -29, -31, -33, -47},
       {-11, -23, -35, -47}},
      {0,
       .5,
       {1, -1, -3, -8, -10, -12, -14, -16, -18, -24.5f},
       {1, -1, -3, -5, -7, -9, -17},
       {-11, -23, -29, -35}},
      {0, 1, {1, -1, -3, -5, -7, -9, -11, -13}, {1, -1, -3, -5, -7, -9, -11}, {-11, -23, -23, -23}},
      {1, 0, {1, -1, -3, -7, -9}, {1, -1, -3, -5, -7, -9, -19}, {-7, -19, -27, -39}},
      {1, .5, {1, -1, -3, -6}, {1, -1, -3, -5, -7, -9, -15}, {-7, -19, -25, -31}},
      {1, 1, {1, -1, -3, -5, -7}, {1, -1, -3, -5, -7, -9}, {-7, -19, -23, -23}},
      // By hand, since a mix of a half does not tell its two sides apart.
      {0,
       .25,
       {1, -1, -3, -9.5f, -11.5f, -13.5f, -15.5f, -17.5f, -19.5f, -29.375f},
       {1, -1, -3, -5, -7, -9, -20},
       {-11, -23, -32, -41}}};
  for (const Recorded& recorded : cases) {
    SCOPED_TRACE(std::to_string(recorded.delay) + ", " + std::to_string(recorded.mix));
    Windows windows;
    windows.tensors = {1, 1};
    windows.planner = {{"fragments", Whole(2)}};
    windows.strategy = WindowOptions{6, recorded.delay, "sgd", recorded.mix, 2};
    windows.gradient = [](int, const Floats&, int) { return Floats{2, 2}; };
    windows.inner = [] { return Sgd(1); };
    windows.start = [](int) { return Floats{1, 1}; };
    windows.steps = 15;
    for (const auto& rank : Train(windows)) {
      std::vector<float> first = {1}, second = {1};
      for (const Floats& w : rank.parameters) {
        first.push_back(w[0]);
        second.push_back(w[1]);
      }
      first.resize(recorded.first.size());
      second.resize(recorded.second.size());
      EXPECT_EQ(first, recorded.first);
      EXPECT_EQ(second, recorded.second);
      // torchft records the anchor of the fragment that was synchronised: the first at 3 and 9, the
      // second at 6 and 12.
      EXPECT_EQ((std::vector<float>{rank.anchors[2][0], rank.anchors[5][1], rank.anchors[8][0],
                                    rank.anchors[11][1]}),
                recorded.anchors);
    }
  }
}

}  // namespace
}  // namespace sparfuse::testing
