// Predicts the next token of a text: trains on windows of its first part, and tests on the rest.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "workloads/data/sampler.hpp"
#include "workloads/models/model_sizes.hpp"
#include "workloads/tasks/task.hpp"

namespace sparfuse::workloads {
namespace {

constexpr std::size_t kEvaluationBatch = 32;

class TextTask final : public Task {
 public:
  TextTask(TextSet text, ForwardPass logits) : text_(std::move(text)), logits_(std::move(logits)) {
    if (text_.train_count < 2 * kTextWindow || text_.count - text_.train_count <= kTextWindow) {
      SPARFUSE_THROW(kData, "text: " + std::to_string(text_.train_count) + " training tokens of " +
                                std::to_string(text_.count) + " are too few for windows of " +
                                std::to_string(kTextWindow));
    }
  }

  // The first window of an epoch starts at one of the first kTextWindow tokens, and the last token
  // predicted has to exist whichever that is.
  std::size_t training_samples() const override {
    return (text_.train_count - kTextWindow) / kTextWindow;
  }

  Batch MakeBatch(std::span<const std::uint32_t> samples, std::uint64_t epoch_key) const override {
    const std::size_t start = RandomBits(epoch_key, 0) % kTextWindow;
    std::vector<std::size_t> begins;
    for (const std::uint32_t sample : samples) begins.push_back(start + sample * kTextWindow);
    return Windows(begins);
  }

  at::Tensor Loss(const Batch& batch, Dropout& dropout) const override {
    return BatchLoss(batch, at::Reduction::Mean, dropout);
  }

  Evaluation Evaluate(std::size_t max_samples) override {
    const at::NoGradGuard no_graph;
    // The last position of a window predicts the token after it.
    const std::size_t available = (text_.count - text_.train_count - 1) / kTextWindow;
    const std::size_t total = max_samples == 0 ? available : std::min(available, max_samples);
    double loss = 0;
    std::vector<std::size_t> begins;
    for (std::size_t begin = 0; begin < total; begin += kEvaluationBatch) {
      begins.clear();
      for (std::size_t i = begin; i < std::min(begin + kEvaluationBatch, total); ++i) {
        // Evenly spread, so that a part of the windows is a fair sample of the text.
        begins.push_back(text_.train_count + i * available / total * kTextWindow);
      }
      Dropout none;
      loss += BatchLoss(Windows(begins), at::Reduction::Sum, none).item<double>();
    }
    loss /= static_cast<double>(total * kTextWindow);
    return {std::exp(loss), loss, total};
  }

  std::optional<double> UnigramBaseline() const override {
    std::vector<double> counts(text_.vocabulary_size, 1.0);  // one each, so that none is impossible
    const std::span<const std::uint8_t> tokens = text_.tokens();
    for (const std::uint8_t token : tokens.first(text_.train_count)) counts[token] += 1.0;
    const double total = static_cast<double>(text_.train_count + text_.vocabulary_size);
    double loss = 0;
    for (const std::uint8_t token : tokens.subspan(text_.train_count)) {
      loss -= std::log(counts[token] / total);
    }
    return std::exp(loss / static_cast<double>(text_.count - text_.train_count));
  }

 private:
  // The windows that start at `begins`.
  Batch Windows(const std::vector<std::size_t>& begins) const {
    const auto batch = static_cast<std::int64_t>(begins.size());
    const auto window = static_cast<std::int64_t>(kTextWindow);
    at::Tensor inputs = at::empty({batch, window}, at::kLong);
    at::Tensor targets = at::empty({batch * window}, at::kLong);
    const std::span<const std::uint8_t> tokens = text_.tokens();
    for (std::size_t i = 0; i < begins.size(); ++i) {
      const auto here = tokens.subspan(begins[i], kTextWindow + 1);
      std::copy(here.begin(), here.end() - 1,
                inputs.mutable_data_ptr<std::int64_t>() + i * kTextWindow);
      std::copy(here.begin() + 1, here.end(),
                targets.mutable_data_ptr<std::int64_t>() + i * kTextWindow);
    }
    return {std::move(inputs), std::move(targets)};
  }

  at::Tensor BatchLoss(const Batch& batch, at::Reduction::Reduction reduction,
                       Dropout& dropout) const {
    const at::Tensor logits = logits_(batch.inputs, dropout);
    return at::cross_entropy_loss(logits.view({-1, logits.size(2)}),
                                  batch.targets.to(logits.device()), {}, reduction);
  }

  TextSet text_;
  ForwardPass logits_;
};

}  // namespace

std::unique_ptr<Task> MakeTextTask(TextSet text, ForwardPass logits) {
  return std::make_unique<TextTask>(std::move(text), std::move(logits));
}

}  // namespace sparfuse::workloads
