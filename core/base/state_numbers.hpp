// Writes the memory of a state as numbers, and reads it back. One function of the state does both.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.hpp"

namespace sparfuse {

// Doubles hold every float and every whole number up to 2^53 exactly.
class StateNumbers {
 public:
  StateNumbers() = default;  // writes
  explicit StateNumbers(std::vector<double> from) : reads_(true), numbers_(std::move(from)) {}

  // Writes the value, or overwrites it. Throws Error{kConfig} if there is nothing left to read.
  template <class T>
  void operator()(T& value) {
    if (!reads_) return numbers_.push_back(static_cast<double>(value));
    Require(1);
    value = static_cast<T>(numbers_[next_++]);
  }
  // As many values as there are.
  template <class T>
  void All(std::span<T> values) {
    for (T& value : values) (*this)(value);
  }
  // The length, then the values.
  template <class T>
  void All(std::vector<T>& values) {
    std::size_t count = values.size();
    (*this)(count);
    if (reads_) {
      Require(count);
      values.resize(count);
    }
    All(std::span(values));
  }

  // After reading: throws Error{kConfig} if numbers are left.
  void RequireEnd() const {
    SPARFUSE_REQUIRE(!reads_ || next_ == numbers_.size(), "a kept state has ", numbers_.size(),
                     " numbers; expected ", next_);
  }
  std::vector<double> Take() { return std::move(numbers_); }

 private:
  void Require(std::size_t more) const {
    SPARFUSE_REQUIRE(more <= numbers_.size() - next_, "a kept state has ", numbers_.size(),
                     " numbers; expected more: it is of another method or version");
  }

  bool reads_ = false;
  std::size_t next_ = 0;
  std::vector<double> numbers_;
};

}  // namespace sparfuse
