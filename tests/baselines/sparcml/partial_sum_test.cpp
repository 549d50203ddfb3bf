// Tests sums that change their form: by hand, and that partners come to equal bits.
#include "baselines/sparcml/partial_sum.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/base/error.hpp"
#include "tests/support/exchanges.hpp"

namespace sparfuse::baselines {
namespace {

using testing::PayloadOf;
using testing::SparseVector;

// A sum with the memory that it needs.
struct Made {
  Made(std::size_t elements, DenseSwitch rule, const SparseVector& own)
      : own(PayloadOf(own)), sum(elements, rule, room) {
    sum.Start(this->own);
  }
  SparseVector elements() const {
    std::vector<float> dense(1000);
    if (sum.dense()) {
      std::memcpy(dense.data(), sum.message().data(), sum.message().size());
    } else {
      testing::AddTo(dense, sum.message());
    }
    SparseVector elements;
    for (std::uint32_t i = 0; i < dense.size(); ++i) {
      if (dense[i] != 0.0f) elements[i] = dense[i];
    }
    return elements;
  }

  std::vector<std::byte> own;
  Buffer<std::byte> room;
  PartialSum sum;
};

// Of six elements, three take as much with indices as all without.
TEST(PartialSum, BecomesDenseWhereThatTakesNoMore) {
  Made made(6, DenseSwitch::kBytes, {{1, 1}});
  EXPECT_FALSE(made.sum.dense());
  EXPECT_EQ(made.sum.message().data(), made.own.data());  // nothing is copied
  made.sum.Add(PayloadOf({{1, 2}, {4, 5}}));
  EXPECT_FALSE(made.sum.dense());
  EXPECT_EQ(made.elements(), (SparseVector{{1, 3}, {4, 5}}));
  made.sum.Add(PayloadOf({{0, -1}}));
  EXPECT_TRUE(made.sum.dense());
  EXPECT_EQ(made.sum.message().size(), 24u);
  EXPECT_EQ(made.elements(), (SparseVector{{0, -1}, {1, 3}, {4, 5}}));
  made.sum.Add(PayloadOf({{4, 1}}));  // sparse to dense
  const Made other(6, DenseSwitch::kBytes, {{2, 1}, {3, 1}, {4, 1}});
  EXPECT_TRUE(other.sum.dense());
  made.sum.Add(other.sum.message());  // dense to dense
  EXPECT_EQ(made.elements(), (SparseVector{{0, -1}, {1, 3}, {2, 1}, {3, 1}, {4, 7}}));
}

TEST(PartialSum, StaysSparseWhereItMay) {
  Made made(2, DenseSwitch::kNever, {{0, 1}, {1, 1}});
  made.sum.Add(PayloadOf({{0, 1}, {1, 1}}));
  EXPECT_FALSE(made.sum.dense());
  EXPECT_EQ(made.elements(), (SparseVector{{0, 2}, {1, 2}}));
}

// Sums that round, and zeros of either sign; every pair of forms.
TEST(PartialSum, GivesPartnersEqualBits) {
  std::mt19937 random(1);
  for (const std::size_t count : {3, 40, 60}) {
    for (const std::size_t other : {3, 40, 60}) {
      const auto draw = [&](std::size_t size) {
        SparseVector elements;
        while (elements.size() < size) {
          const auto value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 7;
          elements[static_cast<std::uint32_t>(random() % 100)] = random() % 5 == 0 ? -0.0f : value;
        }
        return elements;
      };
      Made a(100, DenseSwitch::kBytes, draw(count));
      Made b(100, DenseSwitch::kBytes, draw(other));
      const std::vector<std::byte> of_a(a.sum.message().begin(), a.sum.message().end());
      Buffer<float> aligned(b.sum.message().size() / sizeof(float));
      std::memcpy(aligned.data(), b.sum.message().data(), b.sum.message().size());
      b.sum.Add(of_a);
      a.sum.Add(std::as_bytes(aligned.host()));
      ASSERT_EQ(a.sum.dense(), b.sum.dense());
      ASSERT_EQ(a.sum.message().size(), b.sum.message().size());
      EXPECT_EQ(std::memcmp(a.sum.message().data(), b.sum.message().data(), a.sum.message().size()),
                0)
          << count << " and " << other;
    }
  }
}

TEST(PartialSum, RefusesWhatIsNoSum) {
  Made sparse(100, DenseSwitch::kBytes, {{1, 1}});
  EXPECT_THROW(sparse.sum.Add(std::vector<std::byte>(12)), Error);
  Made dense(2, DenseSwitch::kBytes, {{0, 1}, {1, 1}});
  EXPECT_THROW(dense.sum.Add(PayloadOf({{2, 1}, {3, 1}, {4, 1}})), Error);
}

}  // namespace
}  // namespace sparfuse::baselines
