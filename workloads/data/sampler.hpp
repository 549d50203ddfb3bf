// Draws the training samples that a rank takes at a step. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sparfuse::workloads {

// The `index`-th 64 random bits of the stream `key` (SplitMix64): equal on every machine.
std::uint64_t RandomBits(std::uint64_t key, std::uint64_t index);

// Deals a data set to ranks. Each epoch is a permutation from the seed, equal on all ranks. Step s
// of an epoch takes its next world * accumulation * batch samples. Rank r takes the r-th of `world`
// parts of these, and micro-step m the m-th batch of that part. So the ranks' samples are disjoint,
// and all ranks have equally many steps. The remainder of an epoch is dropped, or with `wrap` makes
// a smaller last step: the epoch's first samples join it until it divides among ranks and
// micro-steps.
//
// With `columns`, samples are the windows of that many columns of a text: number w * columns + c is
// window w of column c. Step s of an epoch takes window s of every column; the columns are permuted
// by epoch and dealt to ranks.
class Sampler {
 public:
  struct Config {
    std::size_t samples = 0;  // of the training data, all ranks together
    std::size_t batch = 0;    // of one rank and micro-step
    int rank = 0;
    int world = 1;
    int accumulation = 1;
    std::uint64_t seed = 0;
    bool wrap = false;
    std::size_t columns = 0;  // of a text that is read on; 0: samples have no order
  };

  // Throws Error{kConfig} unless 0 <= rank < world, accumulation >= 1, batch >= 1 and the samples
  // suffice for one step. Columns count those of one step.
  explicit Sampler(const Config& config);

  std::uint64_t steps_per_epoch() const noexcept { return steps_per_epoch_; }
  std::uint64_t EpochOf(std::uint64_t step) const noexcept { return step / steps_per_epoch_; }

  // This rank's samples, [batch] or, of a smaller step, fewer; valid until the next call. A
  // function of the arguments alone. Cost: O(samples) where the epoch differs from the last call's,
  // else O(1).
  std::span<const std::uint32_t> Batch(std::uint64_t step, int micro_step);

 private:
  Config config_;
  std::uint64_t steps_per_epoch_ = 0;
  std::uint64_t permuted_epoch_;
  std::vector<std::uint32_t> permutation_;  // of samples, or of columns
  std::vector<std::uint32_t> windows_;      // of a step, if there are columns
};

}  // namespace sparfuse::workloads
