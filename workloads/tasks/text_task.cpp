// Predicts the next token of a text: trains on windows of its first part, and tests on the rest.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "workloads/data/sampler.hpp"
#include "workloads/models/model_sizes.hpp"
#include "workloads/tasks/task.hpp"

namespace sparfuse::workloads {
namespace {

constexpr std::size_t kEvaluationColumns = 10;  // as in PyTorch's example of a language model

class TextTask final : public Task {
  static constexpr std::size_t kEvaluationBatch = 32;

 public:
  TextTask(TextSource text, ForwardPass logits)
      : text_(std::move(text)), window_(text_.window), logits_(std::move(logits)) {
    if (text_.train.size < 2 * std::max(window_, text_.columns) || text_.test.size <= window_) {
      SPARFUSE_THROW(kData, "text: " + std::to_string(text_.train.size) + " training tokens and " +
                                std::to_string(text_.test.size) +
                                " of test are too few for windows of " + std::to_string(window_));
    }
  }

  // The first window of an epoch starts at one of the first `window` tokens. Whichever it is, the
  // last predicted token must exist.
  std::size_t training_samples() const override {
    if (text_.columns > 0) return text_.columns * WindowsOfColumn(text_.train, text_.columns);
    return (text_.train.size - window_) / window_;
  }

  Batch MakeBatch(std::span<const std::uint32_t> samples, std::uint64_t epoch_key) const override {
    if (text_.columns > 0) {
      std::vector<std::size_t> columns;
      for (const std::uint32_t sample : samples) columns.push_back(sample % text_.columns);
      return WindowsAt(text_.train, text_.columns, columns, samples.front() / text_.columns);
    }
    const std::size_t start = RandomBits(epoch_key, 0) % window_;
    std::vector<std::size_t> begins;
    for (const std::uint32_t sample : samples) begins.push_back(start + sample * window_);
    return Windows(text_.train, begins, window_);
  }

  at::Tensor Loss(const Batch& batch, Dropout& dropout) const override {
    if (text_.columns > 0) {
      if (batch.begins) state_.clear();
      dropout.state = &state_;
    }
    return BatchLoss(batch, at::Reduction::Mean, dropout);
  }

  Evaluation Evaluate(std::size_t max_samples) override {
    const at::NoGradGuard no_graph;
    // The last position of a window predicts the token after it.
    const std::size_t predicted = text_.test.size - 1;
    const std::size_t available = predicted / window_;
    const std::size_t total = max_samples == 0 ? available : std::min(available, max_samples);
    if (text_.columns > 0) return EvaluateColumns(max_samples);
    if (text_.one_of > 1) return EvaluatePart(available);
    const std::size_t rest = text_.to_the_end && total == available ? predicted % window_ : 0;
    double loss = 0;
    std::vector<std::size_t> begins;
    for (std::size_t begin = 0; begin < total; begin += kEvaluationBatch) {
      begins.clear();
      for (std::size_t i = begin; i < std::min(begin + kEvaluationBatch, total); ++i) {
        // Spreads the windows evenly, so that a part of them is a fair sample of the text.
        begins.push_back(i * available / total * window_);
      }
      loss += SumOfLosses(begins, window_);
    }
    if (rest > 0) loss += SumOfLosses({available * window_}, rest);
    loss /= static_cast<double>(total * window_ + rest);
    return {std::exp(loss), loss, total + (rest > 0 ? 1 : 0)};
  }

  std::optional<double> UnigramBaseline() const override {
    std::vector<double> counts(text_.vocabulary_size, 1.0);  // one each, so that none is impossible
    ForEach(text_.train, [&](std::int64_t token) { counts[static_cast<std::size_t>(token)] += 1; });
    const double total = static_cast<double>(text_.train.size + text_.vocabulary_size);
    double loss = 0;
    ForEach(text_.test, [&](std::int64_t token) {
      loss -= std::log(counts[static_cast<std::size_t>(token)] / total);
    });
    return std::exp(loss / static_cast<double>(text_.test.size));
  }

 private:
  template <class Act>
  static void ForEach(const TokenStream& stream, const Act& act) {
    std::vector<std::int64_t> tokens;
    for (std::size_t begin = 0; begin < stream.size; begin += tokens.size()) {
      tokens.resize(std::min<std::size_t>(stream.size - begin, 4096));
      stream.copy(begin, tokens);
      std::ranges::for_each(tokens, act);
    }
  }

  // Evaluates the blocks of rank 0 in a permutation, as the published GPT program does.
  Evaluation EvaluatePart(std::size_t available) const {
    Sampler sampler({.samples = available, .batch = available});
    const std::span<const std::uint32_t> order = sampler.Batch(0, 0);
    double loss = 0;
    std::size_t evaluated = 0;
    for (std::size_t i = 0; i < order.size(); i += text_.one_of, ++evaluated)
      loss += SumOfLosses({order[i] * window_}, window_);
    loss /= static_cast<double>(evaluated * window_);
    return {std::exp(loss), loss, evaluated};
  }

  // Number of windows of a column. The last window may be shorter.
  std::size_t WindowsOfColumn(const TokenStream& stream, std::size_t columns) const {
    return (stream.size / columns - 1 + window_ - 1) / window_;
  }

  // The window-th window of these columns. The remainder after the last column is not read.
  Batch WindowsAt(const TokenStream& stream, std::size_t columns,
                  const std::vector<std::size_t>& chosen, std::size_t window) const {
    const std::size_t length = stream.size / columns;  // length of a column
    std::vector<std::size_t> begins;
    for (const std::size_t column : chosen) begins.push_back(column * length + window * window_);
    Batch batch = Windows(stream, begins, std::min(window_, length - 1 - window * window_));
    batch.begins = window == 0;
    return batch;
  }

  // Uses a fixed number of columns, so that the perplexity does not depend on the batch.
  Evaluation EvaluateColumns(std::size_t max_samples) const {
    const std::size_t columns = std::min(kEvaluationColumns, text_.test.size / (window_ + 1));
    std::size_t windows = WindowsOfColumn(text_.test, columns);
    if (max_samples > 0) windows = std::clamp(max_samples / columns, std::size_t{1}, windows);
    std::vector<std::size_t> all(columns);
    std::iota(all.begin(), all.end(), std::size_t{0});
    std::vector<std::array<at::Tensor, 2>> state;
    double loss = 0, tokens = 0;
    for (std::size_t window = 0; window < windows; ++window) {
      const Batch batch = WindowsAt(text_.test, columns, all, window);
      Dropout none;
      none.state = &state;
      loss += BatchLoss(batch, at::Reduction::Sum, none).item<double>();
      tokens += static_cast<double>(batch.targets.numel());
    }
    loss /= tokens;
    return {std::exp(loss), loss, windows * columns};
  }

  double SumOfLosses(const std::vector<std::size_t>& begins, std::size_t window) const {
    Dropout none;
    return BatchLoss(Windows(text_.test, begins, window), at::Reduction::Sum, none).item<double>();
  }

  // The windows that start at `begins`.
  static Batch Windows(const TokenStream& stream, const std::vector<std::size_t>& begins,
                       std::size_t length) {
    const auto batch = static_cast<std::int64_t>(begins.size());
    const auto window = static_cast<std::int64_t>(length);
    at::Tensor inputs = at::empty({batch, window}, at::kLong);
    at::Tensor targets = at::empty({batch * window}, at::kLong);
    std::vector<std::int64_t> here(length + 1);
    for (std::size_t i = 0; i < begins.size(); ++i) {
      stream.copy(begins[i], here);
      std::copy(here.begin(), here.end() - 1, inputs.mutable_data_ptr<std::int64_t>() + i * length);
      std::copy(here.begin() + 1, here.end(),
                targets.mutable_data_ptr<std::int64_t>() + i * length);
    }
    return {std::move(inputs), std::move(targets)};
  }

  at::Tensor BatchLoss(const Batch& batch, at::Reduction::Reduction reduction,
                       Dropout& dropout) const {
    const at::Tensor logits = logits_(batch.inputs, dropout);
    return at::cross_entropy_loss(logits.view({-1, logits.size(2)}),
                                  batch.targets.to(logits.device()), {}, reduction);
  }

  TextSource text_;
  std::size_t window_;
  ForwardPass logits_;
  mutable std::vector<std::array<at::Tensor, 2>> state_;  // state of training
};

}  // namespace

TextSource SourceOf(TextSet text) {
  const auto all = std::make_shared<const TextSet>(std::move(text));
  const auto stream = [&](std::size_t first, std::size_t size) {
    return TokenStream{size, [all, first](std::size_t begin, std::span<std::int64_t> out) {
                         const auto here = all->tokens().subspan(first + begin, out.size());
                         std::ranges::copy(here, out.begin());
                       }};
  };
  return {stream(0, all->train_count), stream(all->train_count, all->count - all->train_count),
          all->vocabulary_size};
}

std::unique_ptr<Task> MakeTextTask(TextSource text, ForwardPass logits) {
  return std::make_unique<TextTask>(std::move(text), std::move(logits));
}

}  // namespace sparfuse::workloads
