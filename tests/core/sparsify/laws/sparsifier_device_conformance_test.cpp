// Tests the laws that every sparsifier obeys on a device, in addition to
// sparsifier_conformance_test.cpp: above all, that it selects the host's elements. A sparsifier
// without kernels is staged through the host and obeys them too.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "core/device/emulated/runtime_emulated.hpp"
#include "core/sparsify/adtopk/adtopk.hpp"
#include "tests/support/devices/device_selection.hpp"
#include "tests/support/devices/gpu_graph.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::testing {
namespace {

// The emulated device is slow. Unless all cases are requested, it gets three shapes and two
// sparsifiers, whose kernels are most of all kernels.
bool EveryCaseOn(DeviceKind device) {
  return device == DeviceKind::kCuda || UnderTest().chosen || TestsEverything();
}

// A threshold computed on a device is within 1e-6 of the host's. Elements that only one of them
// selects are within 1e-5 of the threshold. If both stop at a count, one may stop earlier by as
// many elements.
constexpr double kBand = 1e-5;

class SparsifierDeviceLaws : public ::testing::TestWithParam<std::tuple<std::string, DeviceKind>> {
 protected:
  void SetUp() override {
    const std::string why = WhyNotOn(std::get<1>(GetParam()));
    if (!why.empty()) GTEST_SKIP() << why;
  }
  void TearDown() override {
    if (device().kind == DeviceKind::kEmulated)
      gpu::SetEmulatedMemory(static_cast<std::size_t>(-1));
  }

  const std::string& name() const { return std::get<0>(GetParam()); }
  Device device() const { return {std::get<1>(GetParam()), 0}; }
  const SparsifierDescriptor& descriptor() const { return UnderTest().find(name()); }
  bool on_a_card() const { return device().kind == DeviceKind::kCuda; }

  // Whether host and device must agree bit for bit.
  bool ExpectsEqual(const Sparsifier& sparsifier) const {
    return descriptor().exact_count || !sparsifier.SelectsOnDevice();
  }

  static void ExpectLawful(const SparsifierDescriptor& descriptor, const std::vector<float>& x,
                           const Selected& selected, DeviceSelection& selection) {
    testing::ExpectLawful(descriptor, x, selected, selection.Count());
    ASSERT_EQ(Bits(selection.Residual()), Bits(Unsent(x, selected)));
  }

  static void ExpectNearlyEqual(const std::vector<float>& x, const Selected& selected,
                                const Selected& expected) {
    std::vector<std::uint32_t> only_one;
    std::set_symmetric_difference(selected.indices.begin(), selected.indices.end(),
                                  expected.indices.begin(), expected.indices.end(),
                                  std::back_inserter(only_one));
    const double threshold = SmallestMagnitude(expected.values);
    std::size_t in_band = 0;
    for (const std::uint32_t i : only_one) {
      in_band += std::abs(std::abs(double{x[i]}) - threshold) <= kBand * threshold ? 1 : 0;
    }
    const bool cut = selected.indices.size() == expected.indices.size();
    ASSERT_LE(only_one.size() - in_band, cut ? in_band : 0)
        << only_one.size() << " differ, " << in_band << " of them at the threshold " << threshold;
  }
};

// A selection without a predicate.
Selected RunWithout(DeviceSelection& selection, const std::vector<float>& gradient,
                    std::uint64_t step) {
  selection.Give(gradient);
  selection.Launch(step);
  return selection.Take(step);
}

TEST_P(SparsifierDeviceLaws, SelectsWhatTheHostSelects) {
  struct Case {
    std::vector<std::int64_t> shape;
    std::vector<double> densities;
    std::vector<std::string> data;
  };
  std::vector<Case> cases = {{{33}, {0.3, 1.0}, {"few-values"}},
                             {{9000}, {0.01}, {"gaussian", "equal", "spike", "layers"}},
                             {{8, 3, 7, 7}, {0.3}, {"few-values", "denormal"}},
                             {{1025}, {1e-9, 0.1, 1.0}, {"gaussian", "zeros"}},
                             {{1}, {0.01}, {"gaussian"}},
                             {{9, 1000}, {0.01}, {"laplace", "alternating"}},
                             {{300, 1}, {0.1}, {"sparse"}}};
  if (!EveryCaseOn(device().kind) || kSanitized) cases.resize(3);
  if (on_a_card()) {
    cases.push_back({{kLargeShape}, {0.001, 0.01, 0.3}, DataNames()});
    cases.push_back({{1000, 5120}, {0.01, 0.05}, {"gaussian", "few-values", "layers"}});
    cases.push_back({{512, 512, 3, 3}, {0.01}, {"gaussian", "sparse", "clustered"}});
  }
  const std::set<std::string> continuous = {"gaussian", "laplace", "layers", "clustered"};
  const auto host_form = MakeSparsifier(name());
  const auto device_form = MakeSparsifier(name());
  const bool equal = ExpectsEqual(*device_form);
  for (const Case& c : cases) {
    const std::size_t n = ElementsOf(c.shape);
    for (const double density : c.densities) {
      for (const std::string& data : c.data) {
        SCOPED_TRACE("n=" + std::to_string(n) + " dimensions=" + std::to_string(c.shape.size()) +
                     " density=" + std::to_string(density) + " " + data);
        Selection host(*host_form, n, density, 1, true, c.shape);
        DeviceSelection device_side(*device_form, device(), n, density, true, 0, 0, 0, c.shape);
        const auto drawn = MakeData(data, n, 1);
        for (std::uint64_t step = 0; step < 3; ++step) {
          auto gradient = drawn;
          std::rotate(gradient.begin(), gradient.begin() + static_cast<long>(step * n / 5),
                      gradient.end());
          const std::vector<float> x = device_side.WithResidual(gradient);
          const Selected expected = host.Run(gradient, step);
          const Selected selected = RunWithout(device_side, gradient, step);
          ExpectLawful(descriptor(), x, selected, device_side);
          if (HasFatalFailure()) return;
          if (equal) {
            ASSERT_EQ(selected.indices, expected.indices) << "step " << step;
          } else if (continuous.contains(data)) {
            ExpectNearlyEqual(x, selected, expected);
            if (HasFatalFailure()) return;
            // The next step starts from equal residuals.
            device_side.SetResidual(host.residual());
          } else {
            break;  // equal elements may all differ between the two
          }
        }
      }
    }
  }
}

TEST_P(SparsifierDeviceLaws, SelectsWithoutAResidualToo) {
  constexpr std::size_t kN = 3001;
  const auto device_form = MakeSparsifier(name());
  Selection host(MakeSparsifier(name()), kN, 0.02, 1, false);
  DeviceSelection device_side(*device_form, device(), kN, 0.02, false);
  for (std::uint64_t step = 0; step < 2; ++step) {
    const auto x = MakeData("gaussian", kN, step);
    const Selected expected = host.Run(x, step);
    const Selected selected = RunWithout(device_side, x, step);
    if (ExpectsEqual(*device_form)) {
      ASSERT_TRUE(Same(selected, expected));
    } else {
      ExpectNearlyEqual(x, selected, expected);
    }
  }
  EXPECT_EQ(device_side.counters().selections, 2u);
}

// A selection that is not wanted leaves the slot, the residual, the report and the sparsifier's
// state unchanged: the steps around it select the same as without it.
TEST_P(SparsifierDeviceLaws, ChangesNothingWhereThePredicateIsZero) {
  const std::vector<std::int64_t> shape = {20, 100};
  constexpr std::size_t kN = 2000;
  const auto sparsifier = MakeSparsifier(name());
  DeviceSelection plain(*sparsifier, device(), kN, 0.05, true, 0, 0, 0, shape);
  DeviceSelection asked(*sparsifier, device(), kN, 0.05, true, 0, 0, 0, shape);
  const auto data = [](std::uint64_t step) { return MakeData("gaussian", kN, step); };
  asked.SetResidual(data(9));
  plain.SetResidual(data(9));
  asked.SetOnlyIf(0);
  asked.Give(data(0));
  asked.Launch(0, 7, DeviceSelection::Predicate::kGiven);
  EXPECT_TRUE(asked.UntouchedFrom(0));
  EXPECT_EQ(asked.ReadReport().count, 0u);
  EXPECT_EQ(asked.ReadReport().fallbacks, 0u);
  EXPECT_EQ(asked.ReadReport().candidates, 0u);
  EXPECT_EQ(Bits(asked.Residual()), Bits(data(9)));
  asked.SetOnlyIf(1);
  for (std::uint64_t step = 0; step < 3; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    asked.Give(data(step));
    asked.Launch(step, 7, DeviceSelection::Predicate::kGiven);
    const Selected selected = asked.Take(step);
    const Selected expected = RunWithout(plain, data(step), step);
    ASSERT_EQ(selected.indices, expected.indices);
    ASSERT_EQ(Bits(asked.Residual()), Bits(plain.Residual()));
    asked.SetOnlyIf(0);
    asked.Launch(step, 7, DeviceSelection::Predicate::kGiven);
    ASSERT_EQ(Bits(asked.Residual()), Bits(plain.Residual()));
    asked.SetOnlyIf(1);
  }
}

// The gradient arrives late, on another stream. The selection's own stream waits for it, and so
// does the whole selection.
TEST_P(SparsifierDeviceLaws, WorksInTheOrderOfItsStream) {
  constexpr std::size_t kN = 2000;
  const auto sparsifier = MakeSparsifier(name());
  DeviceSelection plain(*sparsifier, device(), kN, 0.05, true);
  DeviceSelection late(*sparsifier, device(), kN, 0.05, true);
  const gpu::GpuStream compute(device());
  gpu::GpuEvent ready(device());
  const gpu::PinnedBuffer<float> pinned(kN, device(), "a gradient");
  for (std::uint64_t step = 0; step < 2; ++step) {
    const auto x = MakeData("gaussian", kN, step);
    late.Give(std::vector<float>(kN, 1.0f));
    std::copy(x.begin(), x.end(), pinned.data());
    if (!on_a_card()) {
      gpu::emulated::Enqueue(compute.view(),
                             [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    }
    late.CopyGradient(compute.view(), pinned.data());
    ready.Record(compute.view());
    gpu::StreamWait(late.stream(), ready);
    late.Launch(step);
    const Selected selected = late.Take(step);
    ASSERT_EQ(selected.indices, RunWithout(plain, x, step).indices);
    ASSERT_EQ(Bits(late.Residual()), Bits(plain.Residual()));
  }
}

// Only sparsifiers with kernels: a staged selection waits for the device, which a graph cannot do.
TEST_P(SparsifierDeviceLaws, CanBeRecordedAsAGraph) {
  constexpr std::size_t kN = 5000;
  const auto sparsifier = MakeSparsifier(name());
  if (!sparsifier->SelectsOnDevice()) return;
  DeviceSelection plain(*sparsifier, device(), kN, 0.02, true);
  DeviceSelection recorded(*sparsifier, device(), kN, 0.02, true);
  const auto data = [](std::uint64_t step) { return MakeData("gaussian", kN, step); };
  for (std::uint64_t step = 0; step < 4; ++step) {
    RunWithout(plain, data(step), step);
    RunWithout(recorded, data(step), step);
  }
  recorded.Give(data(4));
  const GpuGraph graph(recorded.stream(), [&] { recorded.Launch(4); });
  graph.Launch(recorded.stream());
  const Selected selected = recorded.Take(4);
  const Selected expected = RunWithout(plain, data(4), 4);
  EXPECT_TRUE(Same(selected, expected));
  EXPECT_EQ(Bits(recorded.Residual()), Bits(plain.Residual()));
}

// Runs two steps first, since some methods alternate two kinds of steps.
TEST_P(SparsifierDeviceLaws, AllocatesNothingAfterItsFirstSteps) {
  if (on_a_card()) return;  // only the emulated device counts its allocations
  const std::vector<std::int64_t> shape = {40, 100};
  constexpr std::size_t kN = 4000;
  DeviceSelection selection(MakeSparsifier(name()), device(), kN, 0.05, true, 0, 0, 0, shape);
  std::size_t before = 0;
  for (std::uint64_t step = 0; step < 5; ++step) {
    selection.Give(MakeData(step == 3 ? "sparse" : "gaussian", kN, 1));
    if (step == 2) before = gpu::EmulatedAllocations();
    selection.Launch(step);
    selection.Take(step);
  }
  EXPECT_EQ(gpu::EmulatedAllocations(), before);
}

TEST_P(SparsifierDeviceLaws, NamesWhatIsNotFinite) {
  const auto sparsifier = MakeSparsifier(name());
  const std::string at_end = "element 2998 ";
  for (const float bad : {kNan, -kInfinity}) {
    for (const double density : {0.01, 1.0}) {
      for (const bool feedback : {false, true}) {
        constexpr std::size_t kN = 3001;
        DeviceSelection selection(*sparsifier, device(), kN, density, feedback);
        auto gradient = MakeData("gaussian", kN, 1);
        gradient[2998] = bad;
        gradient[3000] = bad;
        SCOPED_TRACE(::testing::Message() << bad << ", density " << density);
        ExpectError(FailureKind::kNumeric, {"conv1.weight", "step 9", at_end},
                    [&] { RunWithout(selection, gradient, 9); });
      }
    }
  }
}

// The error names the allocation that fails, and the next selection, with room, is unaffected.
TEST_P(SparsifierDeviceLaws, NamesWhatThereIsNoMemoryFor) {
  if (on_a_card()) return;  // a card is shared, and filling it takes longer than the test
  constexpr std::size_t kN = 3001;
  const auto sparsifier = MakeSparsifier(name());
  const auto x = MakeData("gaussian", kN, 1);
  DeviceSelection first(*sparsifier, device(), kN, 0.02, true);
  first.Give(x);
  gpu::SetEmulatedMemory(gpu::EmulatedMemoryInUse() + 16);
  try {
    first.Launch(0);
    first.Take(0);
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.kind(), FailureKind::kOutOfMemory) << what;
    EXPECT_SAYS(what, " for the workspace of selections");
  }
  gpu::SetEmulatedMemory(static_cast<std::size_t>(-1));
  DeviceSelection second(*sparsifier, device(), kN, 0.02, true);
  DeviceSelection third(*sparsifier, device(), kN, 0.02, true);
  EXPECT_EQ(RunWithout(second, x, 0).indices, RunWithout(third, x, 0).indices);
}

TEST_P(SparsifierDeviceLaws, RefusesArgumentsThatMakeNoSense) {
  const auto sparsifier = MakeSparsifier(name());
  const gpu::GpuStream stream(device());
  DeviceWorkspace workspace(device());
  ThreadPool pool(1);
  Workspace host_workspace;
  SelectCounters counters;
  const SelectContext host{&pool, &host_workspace, &counters, {}};
  const Buffer<float> x(100, device());
  const Buffer<std::uint32_t> indices(100, device());
  const Buffer<float> values(100, device());
  const Buffer<SlotReport> report(1, device());
  struct Case {
    std::size_t n;
    double density;
    std::size_t capacity;
  };
  for (const Case& c :
       {Case{0, 0.5, 100}, Case{std::size_t{1} << 32, 0.5, 100}, Case{100, 0.0, 100},
        Case{100, -1.0, 100}, Case{100, 2.0, 100}, Case{100, 0.5, 10}}) {
    DeviceSlot slot{indices.data(), values.data(), c.capacity, report.data()};
    SCOPED_TRACE(::testing::Message() << "n=" << c.n << ", density " << c.density);
    ExpectError(FailureKind::kConfig, {"fc.bias"}, [&] {
      sparsifier->SelectOnDevice({stream.view(), &workspace, nullptr, &host},
                                 {{x.data(), c.n, stream.view()}, {}}, c.density,
                                 {0, "fc.bias", {}, 0}, nullptr, slot);
    });
  }
}

// The program without a device does not instantiate this suite.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SparsifierDeviceLaws);

std::vector<std::tuple<std::string, DeviceKind>> OnDevices() {
  std::vector<std::tuple<std::string, DeviceKind>> cases;
  for (const DeviceKind device : UnderTest().devices) {
    for (const std::string& name : UnderTest().names) {
      if (EveryCaseOn(device) || name == "topk" || name == "dgc") cases.emplace_back(name, device);
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, SparsifierDeviceLaws, ::testing::ValuesIn(OnDevices()), NameOfTuple);

}  // namespace
}  // namespace sparfuse::testing
