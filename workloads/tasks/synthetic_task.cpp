// Makes up data in the shape of the papers' data sets: normal pixels, uniform tokens, and uniform
// labels and answers.
#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "workloads/data/sampler.hpp"
#include "workloads/tasks/task.hpp"

namespace sparfuse::workloads {
namespace {

class SyntheticTask : public Task {
 public:
  SyntheticTask(std::size_t samples, ForwardPass logits)
      : logits_(std::move(logits)), samples_(samples) {}

  std::size_t training_samples() const override { return samples_; }

  Evaluation Evaluate(std::size_t) override {
    SPARFUSE_THROW(kConfig, "synthetic data cannot be evaluated");
  }

 protected:
  // Chooses one of `choices` for this sample alone.
  static std::int64_t Choose(std::uint64_t key, std::uint64_t index, std::int64_t choices) {
    return static_cast<std::int64_t>(RandomBits(key, index) % static_cast<std::uint64_t>(choices));
  }
  // Returns [samples, extents...]. fill(part, seed of the sample) fills each sample's part.
  template <class Fill>
  static at::Tensor BySample(std::span<const std::uint32_t> samples, std::uint64_t epoch_key,
                             std::vector<std::int64_t> extents, at::ScalarType type, Fill fill) {
    extents.insert(extents.begin(), static_cast<std::int64_t>(samples.size()));
    const at::Tensor batch = at::empty(extents, type);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      at::Tensor part = batch.select(0, static_cast<std::int64_t>(i));
      fill(part, RandomBits(epoch_key, samples[i]));
    }
    return batch;
  }
  static at::Tensor Tokens(std::span<const std::uint32_t> samples, std::uint64_t epoch_key,
                           std::int64_t window, std::int64_t vocabulary) {
    return BySample(samples, epoch_key, {window}, at::kLong,
                    [&](at::Tensor& part, std::uint64_t seed) {
                      std::int64_t* tokens = part.mutable_data_ptr<std::int64_t>();
                      for (std::int64_t t = 0; t < window; ++t) {
                        tokens[t] = Choose(seed, static_cast<std::uint64_t>(t), vocabulary);
                      }
                    });
  }
  static at::Tensor Labels(std::span<const std::uint32_t> samples, std::uint64_t epoch_key,
                           std::int64_t choices) {
    return BySample(samples, ~epoch_key, {}, at::kLong, [&](at::Tensor& part, std::uint64_t seed) {
      part.fill_(Choose(seed, 0, choices));
    });
  }

  const ForwardPass logits_;

 private:
  const std::size_t samples_;
};

class SyntheticImages final : public SyntheticTask {
 public:
  SyntheticImages(const ImageSize& size, std::size_t samples, ForwardPass logits)
      : SyntheticTask(samples, std::move(logits)), size_(size) {}

  Batch MakeBatch(std::span<const std::uint32_t> samples, std::uint64_t epoch_key) const override {
    at::Tensor images =
        BySample(samples, epoch_key, {size_.channels, size_.image, size_.image}, at::kFloat,
                 [](at::Tensor& part, std::uint64_t seed) {
                   part.normal_(0.0, 1.0, at::make_generator<at::CPUGeneratorImpl>(seed));
                 });
    return {std::move(images), Labels(samples, epoch_key, size_.classes)};
  }

  at::Tensor Loss(const Batch& batch, Dropout& dropout) const override {
    return at::cross_entropy_loss(logits_(batch.inputs, dropout), batch.targets);
  }

 private:
  const ImageSize size_;
};

class SyntheticText final : public SyntheticTask {
 public:
  SyntheticText(std::int64_t window, std::int64_t vocabulary, std::size_t samples,
                ForwardPass logits)
      : SyntheticTask(samples, std::move(logits)), window_(window), vocabulary_(vocabulary) {}

  Batch MakeBatch(std::span<const std::uint32_t> samples, std::uint64_t epoch_key) const override {
    const at::Tensor tokens = Tokens(samples, epoch_key, window_ + 1, vocabulary_);
    return {tokens.narrow(1, 0, window_), tokens.narrow(1, 1, window_).flatten()};
  }

  at::Tensor Loss(const Batch& batch, Dropout& dropout) const override {
    const at::Tensor logits = logits_(batch.inputs, dropout);
    return at::cross_entropy_loss(logits.flatten(0, 1), batch.targets);
  }

 private:
  const std::int64_t window_;
  const std::int64_t vocabulary_;
};

class SyntheticQuestions final : public SyntheticTask {
 public:
  SyntheticQuestions(const BertSize& size, std::size_t samples, ForwardPass logits)
      : SyntheticTask(samples, std::move(logits)),
        window_(size.window),
        vocabulary_(size.vocabulary) {}

  Batch MakeBatch(std::span<const std::uint32_t> samples, std::uint64_t epoch_key) const override {
    const at::Tensor words = Tokens(samples, epoch_key, window_, vocabulary_);
    at::Tensor segments = at::ones_like(words);
    segments.narrow(1, 0, window_ / kQuestionPart).fill_(0);
    const at::Tensor first = Labels(samples, epoch_key, window_);
    const at::Tensor last = Labels(samples, epoch_key + 1, window_);
    return {at::stack({words, segments}), at::stack({first, last})};
  }

  at::Tensor Loss(const Batch& batch, Dropout& dropout) const override {
    return AnswerLoss(logits_(batch.inputs, dropout), batch.targets, at::Reduction::Mean);
  }

 private:
  static constexpr std::int64_t kQuestionPart = 6;  // a part of the window: at most 64 words of 384

  const std::int64_t window_;
  const std::int64_t vocabulary_;
};

}  // namespace

std::unique_ptr<Task> MakeSyntheticTask(const ModelSize& size, std::size_t samples,
                                        ForwardPass logits) {
  return std::visit(
      [&](const auto& family) -> std::unique_ptr<Task> {
        if constexpr (requires { family.data; }) {
          return std::make_unique<SyntheticImages>(family.data, samples, std::move(logits));
        } else if constexpr (requires { family.positions; }) {
          return std::make_unique<SyntheticQuestions>(family, samples, std::move(logits));
        } else if constexpr (requires { family.vocabulary; }) {
          return std::make_unique<SyntheticText>(family.window, family.vocabulary, samples,
                                                 std::move(logits));
        } else {
          SPARFUSE_THROW(kInternal, "data of digits-resnet is never made up");
        }
      },
      size);
}

}  // namespace sparfuse::workloads
