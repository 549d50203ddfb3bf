// Sums payloads one by one, as elements with indices until these take as many bytes as a dense
// range.
//
// Gathers blocks of known unequal sizes on all ranks, in ceil(log2 P) rounds.
//
// Source: J. Bruck et al., Efficient Algorithms for All-to-All Communications in Multiport
//         Message-Passing Systems, IEEE TPDS 8(11), 1997 (concatenation).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/options.hpp"
#include "core/collective/collective.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/collective/rounds.hpp"
#include "core/device/device.hpp"
#include "core/payload/payload.hpp"
#include "core/payload/sums.hpp"
#include "core/transport/communicator.hpp"
#include "core/transport/task.hpp"

namespace sparfuse::baselines {

// "sparcml-recursive-doubling". A rank below P' notes the bytes sent in each of the log2 P' rounds;
// other ranks note as many zeros. Then all note the bytes of the sum. Notes nothing on one rank.
CollectiveDescriptor SparcmlRecursiveDoubling();

// "sparcml-split-allgather". A rank notes three numbers of elements: sent to other owners, received
// from other ranks for its region, and in the region's sum. Notes nothing on one rank.
CollectiveDescriptor SparcmlSplitAllgather();

// When a sum of sparse payloads, with `count` of `elements` elements, becomes dense.
enum class DenseSwitch : std::uint8_t {
  kNever,
  kBytes,      // if its sparse form takes no fewer bytes: 8 count >= 4 elements
  kPublished,  // from a third of the elements on, as in the code of Ok-Topk's authors
};

inline bool IsDense(DenseSwitch rule, std::size_t count, std::size_t elements) {
  if (elements == 0 || rule == DenseSwitch::kNever) return false;
  return rule == DenseSwitch::kPublished ? 3 * count >= elements
                                         : count * kSparseElementBytes >= elements * sizeof(float);
}

// Bytes of such a sum. By kBytes a sparse sum is always shorter than a dense one, so the length of
// a message tells its form.
inline std::size_t SumBytes(DenseSwitch rule, std::size_t count, std::size_t elements) {
  return IsDense(rule, count, elements) ? elements * sizeof(float) : count * kSparseElementBytes;
}

// The rule named by the option "dense_switch" of a collective.
DenseSwitch DenseSwitchOf(const Options& resolved);

// Gives Apply the dense sum of the whole range.
inline void GiveDense(std::span<const std::byte> sum, ExchangeBuffers& buffers) {
  buffers.payloads.clear();
  buffers.sums = {reinterpret_cast<const float*>(sum.data()), buffers.shape.elements};
}

// Makes `room` hold `bytes`. Its content is lost if it has to grow.
inline void Reserve(Buffer<std::byte>& room, std::size_t bytes) {
  // Sums of one range differ from step to step: an eighth more spares most of them from growing.
  if (room.size() < bytes) room = Buffer<std::byte>(bytes + bytes / 8);
}

class PartialSum {
 public:
  // elements: of the range; indices are below it. rule: kNever or kBytes. room: memory for
  // message(), which outlives the sum.
  PartialSum(std::size_t elements, DenseSwitch rule, Buffer<std::byte>& room)
      : elements_(elements), rule_(rule), room_(room) {}

  // Begins with a payload, which outlives the sum.
  void Start(std::span<const std::byte> own);
  // Adds another sum of the range, given as its message(). a.Add(b) and b.Add(a) give equal bits.
  // Throws Error{kComm} if the message does not consist of whole elements or, while this sum or the
  // other one is dense, has an index beyond the range. Cost: O(elements of both), once O(n) when
  // the sum becomes dense.
  void Add(std::span<const std::byte> message);

  bool dense() const { return dense_; }
  // The sum: a payload with increasing indices, or, if dense(), [elements] floats. Valid until the
  // next call of Start or Add.
  std::span<const std::byte> message() const { return message_; }

 private:
  bool IsDenseMessage(std::span<const std::byte> message) const {
    return rule_ == DenseSwitch::kBytes && elements_ > 0 &&
           message.size() == elements_ * sizeof(float);
  }
  std::span<float> Floats() const { return {reinterpret_cast<float*>(room_.data()), elements_}; }
  void BecomeDense();
  // Adds to the dense sum.
  void Scatter(const SparsePayload& from);

  std::size_t elements_;
  DenseSwitch rule_;
  Buffer<std::byte>& room_;
  bool dense_ = false;
  SparsePayload sparse_;  // a view of Start's payload or of merged_
  SparseSums merged_;
  SparseSums next_;
  std::span<const std::byte> message_;
};

// Block r, of rank r, is bytes begins[r] ... begins[r + 1] - 1 of `data`.
//
//   data    in: the rank's own block; out: all of them.
//   begins  [P + 1] ascending, equal on all ranks; data.size() is the last one.
//
// When rank r holds m blocks from its own on, modulo P, it still misses P - m. It sends
// min(m, P - m) blocks to rank r - m and gets as many from rank r + m. Blocks lie at their place in
// `data`, so a message that would run over the end is sent as two. Throws Error{kComm} if a message
// has another length.
Task GatherBlocks(Communicator& communicator, std::span<std::byte> data,
                  std::span<const std::uint64_t> begins, int tag);
// The begins of blocks that all have `bytes`.
inline std::vector<std::uint64_t> EqualBlocks(std::size_t ranks, std::uint64_t bytes) {
  std::vector<std::uint64_t> begins(ranks + 1);
  for (std::size_t rank = 0; rank <= ranks; ++rank) begins[rank] = rank * bytes;
  return begins;
}

// Appends the rounds of GatherBlocks to `plan`, and counts them in plan.per_rank.
void AddGatherRounds(std::span<const std::uint64_t> begins, const Topology& topology,
                     RoundPlan& plan);

}  // namespace sparfuse::baselines
