// Implements the block of kernel.hpp by emulated threads.
#pragma once

#include <cstring>

#include "core/device/emulated/emulated_grid.hpp"
#include "core/device/kernel.hpp"

namespace sparfuse::gpu {

template <int Threads>
class EmulatedBlock {
 public:
  static constexpr int kThreads = Threads;
  static constexpr int kWarps = Threads / kWarp;
  static_assert(Threads % kWarp == 0 && Threads >= kWarp && Threads <= 1024);

  explicit EmulatedBlock(EmulatedThread& self) : self_(self) {}

  unsigned thread() const { return self_.thread; }
  unsigned lane() const { return self_.thread % kWarp; }
  unsigned warp() const { return self_.thread / kWarp; }
  unsigned block() const { return self_.block; }
  unsigned blocks() const { return self_.blocks; }

  void Sync() const { self_.SyncBlock(); }
  void SyncWarp() const { self_.SyncWarp(); }

  std::uint32_t Ballot(bool predicate) const {
    std::uint64_t* const values = ShareInWarp<std::uint64_t>(predicate);
    std::uint32_t mask = 0;
    for (unsigned i = 0; i < kWarp; ++i) mask |= static_cast<std::uint32_t>(values[i]) << i;
    return mask;
  }
  template <class T>
  T Shuffle(T value, unsigned lane) const {
    return At<T>(ShareInWarp(value), lane % kWarp);
  }
  template <class T>
  T ShuffleUp(T value, unsigned distance) const {
    std::uint64_t* const values = ShareInWarp(value);
    return lane() < distance ? value : At<T>(values, lane() - distance);
  }
  template <class T>
  T ShuffleXor(T value, unsigned mask) const {
    return At<T>(ShareInWarp(value), lane() ^ mask);
  }

  template <class T>
  T Sum(T value) const {
    return Reduce(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  T Max(T value) const {
    return Reduce(value, [](T a, T b) { return a < b ? b : a; });
  }
  template <class T>
  T ExclusiveSum(T value, T* total) const {
    std::uint64_t* const values = ShareInBlock(value);
    T before{};
    T sum{};
    for (unsigned t = 0; t < kThreads; ++t) {
      if (t == thread()) before = sum;
      sum += At<T>(values, t);
    }
    *total = sum;
    self_.SyncBlock();
    return before;
  }

  template <class T>
  T AtomicAdd(T* at, T value) const {
    const T before = *at;
    *at = before + value;
    return before;
  }
  template <class T>
  T AtomicMax(T* at, T value) const {
    const T before = *at;
    if (before < value) *at = value;
    return before;
  }
  template <class T>
  T AtomicOr(T* at, T value) const {
    const T before = *at;
    *at = before | value;
    return before;
  }
  template <class T>
  T LoadAcquire(T* at) const {
    return *at;
  }
  template <class T>
  void StoreRelease(T* at, T value) const {
    *at = value;
  }
  template <class T>
  T LoadRelaxed(T* at) const {
    return *at;
  }
  template <class T>
  void StoreRelaxed(T* at, T value) const {
    *at = value;
  }
  template <class T>
  T LoadStreaming(const T* at) const {
    return *at;
  }
  void Pause() const { self_.Yield(); }

 private:
  template <class T>
  static T At(const std::uint64_t* values, unsigned i) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    T value;
    std::memcpy(&value, values + i, sizeof(T));
    return value;
  }
  // Two copies take turns: a thread may be one call ahead of another that still reads, not two.
  template <class T>
  std::uint64_t* Share(T value) const {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    self_.turn = !self_.turn;
    std::uint64_t* const values = self_.Exchange(self_.turn);
    std::memcpy(values + thread(), &value, sizeof(T));
    return values;
  }
  template <class T>
  std::uint64_t* ShareInWarp(T value) const {
    std::uint64_t* const values = Share(value) + warp() * kWarp;
    self_.SyncWarp();
    return values;
  }
  template <class T>
  std::uint64_t* ShareInBlock(T value) const {
    self_.SyncBlock();  // lanes of a warp may be at another turn than those of the next
    self_.turn = false;
    std::uint64_t* const values = Share(value);
    self_.SyncBlock();
    return values;
  }
  // The order of additions of CudaBlock.
  template <class T, class Combine>
  T Reduce(T value, Combine combine) const {
    for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) {
      value = combine(value, ShuffleXor(value, mask));
    }
    std::uint64_t* const values = ShareInBlock(value);
    T all = At<T>(values, 0);
    for (unsigned w = 1; w < kWarps; ++w) all = combine(all, At<T>(values, w * kWarp));
    self_.SyncBlock();
    return all;
  }

  EmulatedThread& self_;
};

}  // namespace sparfuse::gpu
