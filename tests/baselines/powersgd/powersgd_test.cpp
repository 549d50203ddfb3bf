// Tests PowerSGD: its approximation, mass over ranks, and linearly dependent columns. As a
// collective: its steps by hand and its bytes.
#include "baselines/powersgd/powersgd.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "baselines/registry.hpp"
#include "core/coding/quantizers/block_codes.hpp"
#include "core/collective/algorithms.hpp"
#include "core/payload/accumulate.hpp"
#include "core/sparsify/adtopk/adtopk.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/exchanges.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

using Shape = std::vector<std::int64_t>;

double SquaredNorm(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return sum;
}

double SquaredError(const std::vector<float>& of, const std::vector<float>& x) {
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    error += std::pow(static_cast<double>(of[i]) - x[i], 2);
  return error;
}

// The ranks of a world, driven as by an engine.
class World {
 public:
  World(const Shape& shape, int rank, int ranks, int threads = 1, bool feedback = true,
        std::uint64_t seed = 5, std::uint32_t id = 3)
      : n_(ElementsOf(shape)),
        id_(id),
        pool_(threads),
        workspaces_(static_cast<std::size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r) {
      workers_.emplace_back(shape, rank, seed);
      residuals_.emplace_back(feedback ? n_ : 0, 0.0f);
      applied_.emplace_back(n_, kNan);
    }
  }

  // gradients[r]: the gradient of rank r. Returns the sum that every rank applies.
  const std::vector<float>& Step(const std::vector<std::vector<float>>& gradients) {
    const TensorInfo info{id_, "fc.weight", {}, step_++};
    ForRanks(gradients,
             [&](PowerSgd& worker, const QuantizeContext& context, const SelectSource& source,
                 std::size_t) { worker.ComputeP(context, source, info); });
    AllReduceMean([](PowerSgd& worker) { return worker.p(); });
    for (PowerSgd& worker : workers_) worker.Orthonormalize();
    ForRanks(gradients,
             [&](PowerSgd& worker, const QuantizeContext& context, const SelectSource& source,
                 std::size_t) { worker.ComputeQ(context, source); });
    AllReduceMean([](PowerSgd& worker) { return worker.q(); });
    ForRanks(gradients,
             [&](PowerSgd& worker, const QuantizeContext& context, const SelectSource& source,
                 std::size_t r) { worker.Reconstruct(context, source, applied_[r]); });
    for (const auto& other : applied_) EXPECT_EQ(Bits(other), Bits(applied_[0]));
    return applied_[0];
  }

  const std::vector<float>& residual(std::size_t rank = 0) const { return residuals_[rank]; }
  const PowerSgd& worker() const { return workers_[0]; }

 private:
  template <class Body>
  void ForRanks(const std::vector<std::vector<float>>& gradients, const Body& body) {
    for (std::size_t r = 0; r < workers_.size(); ++r) {
      body(workers_[r], QuantizeContext{&pool_, &workspaces_[r], static_cast<int>(r)},
           SelectSource{{gradients[r].data(), n_, {}},
                        {residuals_[r].data(), residuals_[r].size(), {}}},
           r);
    }
  }

  template <class Part>
  void AllReduceMean(const Part& part) {
    std::vector<float> sum(part(workers_[0]).size(), 0.0f);
    for (PowerSgd& worker : workers_) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part(worker)[i];
    }
    for (float& s : sum) s /= static_cast<float>(workers_.size());
    for (PowerSgd& worker : workers_) std::copy(sum.begin(), sum.end(), part(worker).begin());
  }

  std::size_t n_;
  std::uint32_t id_;
  ThreadPool pool_;
  std::vector<Workspace> workspaces_;
  std::vector<PowerSgd> workers_;
  std::vector<std::vector<float>> residuals_;
  std::vector<std::vector<float>> applied_;
  std::uint64_t step_ = 0;
};

// sum over c of scale[c] * left[c] right[c]', in double.
std::vector<float> LowRankMatrix(std::size_t rows, std::size_t cols,
                                 const std::vector<double>& scales) {
  std::vector<double> sum(rows * cols, 0.0);
  for (std::size_t c = 0; c < scales.size(); ++c) {
    const auto left = MakeData("gaussian", rows, static_cast<std::uint32_t>(10 + c));
    const auto right = MakeData("gaussian", cols, static_cast<std::uint32_t>(50 + c));
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < cols; ++j) {
        sum[i * cols + j] += scales[c] * static_cast<double>(left[i]) * right[j];
      }
    }
  }
  return {sum.begin(), sum.end()};
}

// The squared singular values of a matrix, largest first: eigenvalues of x x' by Jacobi rotations.
std::vector<double> SquaredSingularValues(const std::vector<float>& x, std::size_t rows) {
  const std::size_t cols = x.size() / rows;
  std::vector<double> a(rows * rows, 0.0);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < rows; ++j) {
      for (std::size_t k = 0; k < cols; ++k) {
        a[i * rows + j] += static_cast<double>(x[i * cols + k]) * x[j * cols + k];
      }
    }
  }
  for (int sweep = 0; sweep < 30; ++sweep) {
    for (std::size_t p = 0; p < rows; ++p) {
      for (std::size_t q = p + 1; q < rows; ++q) {
        const double angle =
            0.5 * std::atan2(2 * a[p * rows + q], a[q * rows + q] - a[p * rows + p]);
        const double c = std::cos(angle), s = std::sin(angle);
        for (std::size_t k = 0; k < rows; ++k) {
          const double kp = a[k * rows + p], kq = a[k * rows + q];
          a[k * rows + p] = c * kp - s * kq;
          a[k * rows + q] = s * kp + c * kq;
        }
        for (std::size_t k = 0; k < rows; ++k) {
          const double pk = a[p * rows + k], qk = a[q * rows + k];
          a[p * rows + k] = c * pk - s * qk;
          a[q * rows + k] = s * pk + c * qk;
        }
      }
    }
  }
  std::vector<double> values(rows);
  for (std::size_t i = 0; i < rows; ++i) values[i] = a[i * rows + i];
  std::sort(values.rbegin(), values.rend());
  return values;
}

TEST(PowerSgd, ReproducesAMatrixOfItsRankInOneStep) {
  for (const auto& [rows, cols] : {std::pair<std::size_t, std::size_t>{7, 9},
                                   {64, 576},
                                   {130, 1025},
                                   {1030, 33},
                                   {3, 20'000},
                                   {20'000, 5}}) {
    const Shape shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(cols)};
    for (const int rank : {1, 2}) {
      const auto x = LowRankMatrix(
          rows, cols, rank == 1 ? std::vector<double>{1} : std::vector<double>{1, 0.5});
      World world(shape, rank, 1);
      const auto& applied = world.Step({x});
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(world.residual()[i], x[i] - applied[i]);
      }
      EXPECT_LE(std::sqrt(SquaredError(applied, x) / SquaredNorm(x)), 1e-5)
          << rows << "x" << cols << " " << rank;
    }
  }
}

// Vogels et al., section 3: with a warm start the steps are a power iteration, which finds the best
// approximation of the rank. By Eckart & Young, its squared error is the tail of the squared
// singular values.
TEST(PowerSgd, WarmStartFindsTheBestApproximationOfAFixedMatrix) {
  constexpr std::size_t kRows = 24, kCols = 70;
  constexpr int kRank = 3;
  const auto x = LowRankMatrix(kRows, kCols, {3, 2, 1.4, 0.5, 0.3, 0.2, 0.1, 0.05});
  const auto values = SquaredSingularValues(x, kRows);
  double best = 0;
  for (std::size_t i = kRank; i < kRows; ++i) best += values[i];
  World world({kRows, kCols}, kRank, 1, 1, false);
  double first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    last = SquaredError(world.Step({x}), x);
    if (step == 0) first = last;
    EXPECT_GE(last, best * (1 - 1e-4)) << "better than the best";
  }
  EXPECT_LE(last, best * 1.0001);
  EXPECT_GT(first, best * 1.05) << "the first step found it: the test shows nothing";
}

// Sum over ranks of residuals + ranks * applied = sum of inputs, over several steps.
TEST(PowerSgd, ConservesMassOverRanks) {
  constexpr int kRanks = 3;
  const Shape shape = {48, 5, 3, 3};
  const std::size_t n = ElementsOf(shape);
  World world(shape, 2, kRanks, 2);
  std::vector<double> put_in(n, 0.0), taken_out(n, 0.0);
  for (std::uint32_t step = 0; step < 10; ++step) {
    std::vector<std::vector<float>> gradients;
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      gradients.push_back(MakeData("gaussian", n, 100 * step + r));
      for (std::size_t i = 0; i < n; ++i) put_in[i] += static_cast<double>(gradients[r][i]);
    }
    const auto& applied = world.Step(gradients);
    for (std::size_t i = 0; i < n; ++i) taken_out[i] += kRanks * static_cast<double>(applied[i]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    double left = 0;
    for (std::size_t r = 0; r < kRanks; ++r) left += static_cast<double>(world.residual(r)[i]);
    // Thirty additions of numbers up to about ten, each rounded to 2^-24 of its value.
    ASSERT_NEAR(left + taken_out[i], put_in[i], 5e-5) << i;
  }
}

TEST(PowerSgd, OrthonormalizesTheColumnsOfP) {
  for (const char* data : {"gaussian", "layers", "sparse"}) {
    PowerSgd state(Shape{500, 300}, 8, 1);
    const auto columns = MakeData(data, 8 * 500, 3);
    std::copy(columns.begin(), columns.end(), state.p().begin());
    state.Orthonormalize();
    for (std::size_t a = 0; a < 8; ++a) {
      for (std::size_t b = 0; b <= a; ++b) {
        double dot = 0;
        for (std::size_t i = 0; i < 500; ++i) {
          dot += static_cast<double>(state.p()[a * 500 + i]) * state.p()[b * 500 + i];
        }
        EXPECT_NEAR(dot, a == b ? 1 : 0, 1e-6) << data << " " << a << " " << b;
      }
    }
  }
}

TEST(PowerSgd, ADependentColumnBecomesZero) {
  PowerSgd state(Shape{50, 60}, 3, 1);
  const auto base = MakeData("gaussian", 50, 3);
  for (std::size_t i = 0; i < 50; ++i) {
    state.p()[i] = base[i];
    state.p()[50 + i] = -3 * base[i];
    state.p()[100 + i] = 0;
  }
  state.Orthonormalize();
  EXPECT_NEAR(SquaredNorm(state.p().first(50)), 1, 1e-6);
  EXPECT_EQ(SquaredNorm(state.p().subspan(50)), 0);
}

// A zero gradient makes Q zero; no power iteration recovers from that by itself.
TEST(PowerSgd, ComesBackFromAZeroMatrix) {
  const Shape shape = {40, 50};
  const std::vector<float> zeros(2000, 0.0f);
  World world(shape, 2, 2);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(world.Step({zeros, zeros}), zeros);
    EXPECT_EQ(world.residual(), zeros);
  }
  const auto x = LowRankMatrix(40, 50, {1, 0.5});
  EXPECT_LE(SquaredError(world.Step({x, x}), x), 1e-10 * SquaredNorm(x));
}

TEST(PowerSgd, IsDeterministicOnEveryPoolAndInstructionSet) {
  for (const Shape& shape : {Shape{37, 1111}, Shape{1111, 37}, Shape{130, 2050}}) {
    const std::size_t n = ElementsOf(shape);
    std::vector<float> applied;
    std::vector<float> residual;
    for (const Isa isa : SupportedIsas()) {
      const ScopedIsa scope(isa);
      for (const int threads : {1, 2, 3}) {
        World world(shape, 3, 1, threads);
        world.Step({MakeData("gaussian", n, 1)});
        const auto& out = world.Step({MakeData("laplace", n, 2)});
        if (applied.empty()) {
          applied = out;
          residual = world.residual();
        }
        ASSERT_EQ(Bits(out), Bits(applied)) << IsaName(isa) << " threads=" << threads;
        ASSERT_EQ(Bits(world.residual()), Bits(residual));
      }
    }
  }
}

TEST(PowerSgd, CompressesMatricesThatAreLargerThanTheirFactors) {
  for (const Shape& small : {Shape{}, {1'000'000}, {1, 1000}, {2, 2}, {0, 5}}) {
    EXPECT_FALSE(PowerSgd::Compresses(small, 1)) << ::testing::PrintToString(small);
  }
  EXPECT_TRUE(PowerSgd::Compresses(Shape{3, 4}, 1));
  EXPECT_FALSE(PowerSgd::Compresses(Shape{3, 4}, 2));
  EXPECT_TRUE(PowerSgd::Compresses(Shape{64, 3, 7, 7}, 4));
  const PowerSgd state(Shape{64, 3, 7, 7}, 4, 1);
  EXPECT_EQ(state.rows(), 64u);
  EXPECT_EQ(state.cols(), 147u);
  EXPECT_EQ(state.p().size(), 4u * 64u);
  EXPECT_EQ(state.q().size(), 4u * 147u);
}

TEST(PowerSgd, RefusesWhatIsNotFinite) {
  for (const float bad : {kNan, kInfinity}) {
    for (const bool feedback : {false, true}) {
      auto x = MakeData("gaussian", 2000, 1);
      x[777] = bad;
      World world({40, 50}, 2, 1, 2, feedback);
      SCOPED_TRACE(::testing::Message() << bad);
      ExpectError(FailureKind::kNumeric, {"fc.weight", "element 777"}, [&] { world.Step({x}); });
    }
  }
  World world({40, 50}, 2, 1);
  EXPECT_THROW(world.Step({std::vector<float>(2000, std::numeric_limits<float>::max())}), Error);
}

TEST(PowerSgd, DescribesItself) {
  const LowRankDescriptor& descriptor = PowerSgdDescriptor();
  EXPECT_EQ(descriptor.name, "powersgd");
  EXPECT_EQ(IntOption(ResolveOptions("powersgd", descriptor.options, {}), "rank"), 4);
  EXPECT_THROW(
      ResolveOptions("powersgd", descriptor.options, {{"rank", std::int64_t{kMaxLowRank + 1}}}),
      Error);
}

constexpr int kRank = 2;
const std::vector<std::int64_t> kWide = {8, 30};
const std::vector<std::int64_t> kVector = {5};
const std::vector<std::int64_t> kKernel = {20, 3, 4};

// Three tensors: 240, 5 and 240 elements.
std::vector<ExchangedTensor> Tensors() {
  return {{3, 0, 240, kWide}, {4, 240, 5, kVector}, {5, 245, 240, kKernel}};
}

Sent MadeUp(std::size_t ranks, unsigned seed) {
  return Accumulated(Noises(ranks, 485, 10 * seed), 485, Tensors());
}

std::unique_ptr<Collective> Factors() {
  return MakeCollective(FindCollective("powersgd-factors"), {{"rank", std::int64_t{kRank}}});
}

TEST(PowerSgdFactors, AreThoseOfItsStepsTakenByHand) {
  constexpr std::size_t kRanks = 3;
  const auto collective = Factors();
  const std::vector<Sent> steps = {MadeUp(kRanks, 1), MadeUp(kRanks, 2), MadeUp(kRanks, 3)};
  const auto outcomes = RunExchanges(*collective, steps);
  World wide(kWide, kRank, kRanks, 1, false, 1, 3);
  World kernel(kKernel, kRank, kRanks, 1, false, 1, 5);
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const auto from = [&](std::ptrdiff_t begin) {
      Vectors x;
      for (const auto& all : steps[s].accumulated)
        x.emplace_back(all.begin() + begin, all.begin() + begin + 240);
      return x;
    };
    const std::vector<float>& of_wide = wide.Step(from(0));
    const std::vector<float>& of_kernel = kernel.Step(from(245));
    for (const Outcome& outcome : outcomes[s]) {
      ASSERT_EQ(outcome.applied, outcomes[s][0].applied);
      for (std::size_t i = 0; i < 240; ++i) {
        ASSERT_NEAR(outcome.applied[i], kRanks * of_wide[i], 1e-4);
        ASSERT_NEAR(outcome.applied[245 + i], kRanks * of_kernel[i], 1e-4);
      }
    }
    for (std::size_t i = 240; i < 245; ++i) {
      float sum = 0;
      for (const auto& x : steps[s].accumulated) sum += x[i];
      EXPECT_NEAR(outcomes[s][0].applied[i], sum, 1e-5) << "a vector is sent as it is";
    }
  }
}

TEST(PowerSgdFactors, ResidualsAndWhatIsAppliedAreWhatHadAccumulated) {
  const Sent sent = MadeUp(4, 7);
  const auto outcomes = RunExchanges(*Factors(), {sent});
  for (std::size_t i = 0; i < sent.elements; ++i) {
    double left = outcomes[0][0].applied[i];
    for (const Outcome& outcome : outcomes[0]) left += outcome.returned[i];
    ASSERT_NEAR(left, 0, 1e-5) << i;
  }
}

// Each matrix sends 4 r (rows + cols) bytes and the vector 4 an element, each 2 (P - 1) / P times.
TEST(PowerSgdFactors, SendFactorsAlone) {
  const Sent sent = MadeUp(5, 7);
  const auto collective = Factors();
  const auto outcomes = RunExchanges(*collective, {sent})[0];
  ExpectCounted(*collective, sent, 0, outcomes, {5, 1});
  EXPECT_EQ(BytesSent(outcomes), 2 * 4 * 4u * (kRank * (8 + 30) + 5 + kRank * (20 + 12)));
}

std::unique_ptr<Collective> Blocks(const char* codes, std::int64_t levels = 1) {
  return MakeCollective(FindCollective("powersgd-blocks"), {{"rank", std::int64_t{kRank}},
                                                            {"codes", std::string(codes)},
                                                            {"block", std::int64_t{32}},
                                                            {"levels", levels}});
}

// P Q' is of the factors as all have them, so what rounding takes from a matrix stays in residuals.
// A vector loses it: a block of int4 is off by half a code at each encoding.
TEST(PowerSgdBlocks, KeepTheErrorOfFactorsInResiduals) {
  const Sent sent = MadeUp(4, 7);
  const auto exact = RunExchanges(*Factors(), {sent})[0];
  for (const auto& [codes, far] : {std::pair{"int8", 0.6}, {"fp8", 3.0}, {"int4", 8.0}}) {
    SCOPED_TRACE(codes);
    const auto outcomes = RunExchanges(*Blocks(codes), {sent})[0];
    double difference = 0;
    for (std::size_t i = 0; i < sent.elements; ++i) {
      double left = outcomes[0].applied[i];
      for (const Outcome& outcome : outcomes) {
        ASSERT_EQ(outcome.applied[i], outcomes[0].applied[i]);
        left += outcome.returned[i];
      }
      const bool vector = i >= 240 && i < 245;
      ASSERT_NEAR(left, 0, vector ? far : 1e-5) << i;
      difference =
          std::max<double>(difference, std::abs(outcomes[0].applied[i] - exact[0].applied[i]));
    }
    EXPECT_GT(difference, 1e-3);
    EXPECT_LT(difference, far);
  }
}

// A shard has 4 bytes a block of 32 and a byte an element, and goes to each other rank twice.
TEST(PowerSgdBlocks, SendCodesAndScales) {
  const Sent sent = MadeUp(4, 7);
  for (const int per_node : {1, 2}) {
    const auto collective = Blocks("int8", per_node);
    const auto outcomes = RunExchanges(*collective, {sent}, per_node)[0];
    ExpectCounted(*collective, sent, 0, outcomes, {4, per_node});
    std::uint64_t expected = 0;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      for (const std::size_t floats : {kRank * 8 + 5 + kRank * 20, kRank * 30 + kRank * 12}) {
        const Shards shards{floats, 4};
        expected += 2 * 3 * BlockForm{BlockCode::kInt8, 32}.Bytes(shards.Size(rank));
      }
    }
    if (per_node == 1) {
      EXPECT_EQ(BytesSent(outcomes), expected);
    }
  }
}

// By hand, for factors of rank r: x Q, x' P and P Q' take r multiplications an element each. Two
// Gram-Schmidt passes over P's columns take r (2 r + 1) a row; vectors take none. Each all-reduce
// is a ring of 2 (P - 1) steps whose chunks together are the factors.
TEST(PowerSgdFactors, RoundsAreProductsOrthogonalisationAndTwoAllReduces) {
  constexpr std::size_t kRanks = 8, kRows = 1024, kCols = 4096, kOfVector = 1024;
  const std::int64_t matrix[] = {kRows, kCols}, vector[] = {kOfVector};
  const ExchangedTensor tensors[] = {{0, 0, kRows * kCols, matrix},
                                     {1, kRows * kCols, kOfVector, vector}};
  ExchangeSizes sizes;
  sizes.shape.elements = kRows * kCols + kOfVector;
  sizes.shape.tensors = tensors;
  sizes.payload_bytes.assign(kRanks, 0);
  for (const std::size_t r : {1, 4, 32}) {
    const auto collective = MakeCollective(FindCollective("powersgd-factors"),
                                           {{"rank", static_cast<std::int64_t>(r)}});
    const RoundPlan plan = collective->Rounds(sizes, {static_cast<int>(kRanks), 1});
    std::uint64_t steps = 0;
    for (const Round& round : plan.rounds) steps += round.repeat;
    EXPECT_EQ(WorkOf(plan, Work::kMultiply), 3 * r * kRows * kCols + r * (2 * r + 1) * kRows);
    EXPECT_EQ(steps, 2 * 2 * (kRanks - 1));
    const std::uint64_t floats = (r * kRows + kOfVector) + r * kCols;
    EXPECT_EQ(BytesOf(plan), 2 * (kRanks - 1) * 4 * floats / kRanks);
  }
}

}  // namespace
}  // namespace sparfuse::testing
