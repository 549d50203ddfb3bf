// Classifies images: trains on images that are shifted at random by up to a pixel, and tests on
// others.
#include <algorithm>
#include <utility>

#include "workloads/data/sampler.hpp"
#include "workloads/tasks/task.hpp"

namespace sparfuse::workloads {
namespace {

constexpr std::int64_t kMaxShift = 1;  // pixel
// Mean and standard deviation of the training pixels, on a scale of 0 to 1.
constexpr float kPixelMean = 0.13f;
constexpr float kPixelDeviation = 0.31f;

class ImageTask final : public Task {
  static constexpr std::size_t kEvaluationBatch = 100;

 public:
  ImageTask(ImageSet images, ForwardPass logits)
      : images_(std::move(images)), logits_(std::move(logits)) {}

  std::size_t training_samples() const override { return images_.train_count; }

  Batch MakeBatch(std::span<const std::uint32_t> samples, std::uint64_t epoch_key) const override {
    at::Tensor batch = EmptyBatch(samples.size());
    at::Tensor labels = at::empty({static_cast<std::int64_t>(samples.size())}, at::kLong);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::uint64_t bits = RandomBits(epoch_key, samples[i]);
      constexpr std::uint64_t kShifts = 2 * kMaxShift + 1;
      Fill(batch, i, samples[i], static_cast<std::int64_t>(bits % kShifts) - kMaxShift,
           static_cast<std::int64_t>((bits >> 32) % kShifts) - kMaxShift);
      labels.mutable_data_ptr<std::int64_t>()[i] = images_.label(samples[i]);
    }
    return {std::move(batch), std::move(labels)};
  }

  at::Tensor Loss(const Batch& batch, Dropout& dropout) const override {
    return at::cross_entropy_loss(logits_(batch.inputs, dropout), batch.targets);
  }

  Evaluation Evaluate(std::size_t max_samples) override {
    const at::NoGradGuard no_graph;
    const std::size_t available = images_.count - images_.train_count;
    const std::size_t total = max_samples == 0 ? available : std::min(available, max_samples);
    double loss = 0;
    std::size_t correct = 0;
    for (std::size_t begin = 0; begin < total; begin += kEvaluationBatch) {
      const std::size_t size = std::min(kEvaluationBatch, total - begin);
      at::Tensor batch = EmptyBatch(size);
      at::Tensor labels = at::empty({static_cast<std::int64_t>(size)}, at::kLong);
      for (std::size_t i = 0; i < size; ++i) {
        const std::size_t image = TestImage(begin + i);
        Fill(batch, i, image, 0, 0);
        labels.mutable_data_ptr<std::int64_t>()[i] = images_.label(image);
      }
      Dropout none;
      const at::Tensor logits = logits_(batch, none);
      labels = labels.to(logits.device());
      loss += at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum).item<double>();
      correct += static_cast<std::size_t>(logits.argmax(1).eq(labels).sum().item<std::int64_t>());
    }
    const auto samples = static_cast<double>(total);
    return {static_cast<double>(correct) / samples, loss / samples, total};
  }

 private:
  at::Tensor EmptyBatch(std::size_t size) const {
    return at::empty({static_cast<std::int64_t>(size), 1, static_cast<std::int64_t>(images_.height),
                      static_cast<std::int64_t>(images_.width)},
                     at::kFloat);
  }

  // Test images are sorted by class in the file. A stride that is prime to their number mixes them,
  // so that a part of them is a fair sample.
  std::size_t TestImage(std::size_t position) const {
    constexpr std::size_t kStride = 7919;
    return images_.train_count + position * kStride % (images_.count - images_.train_count);
  }

  // Writes image `image`, shifted by (down, right) pixels over a black border, at batch[slot].
  void Fill(at::Tensor& batch, std::size_t slot, std::size_t image, std::int64_t down,
            std::int64_t right) const {
    const auto height = static_cast<std::int64_t>(images_.height);
    const auto width = static_cast<std::int64_t>(images_.width);
    const std::span<const std::uint8_t> pixels = images_.pixels(image);
    float* out = batch.mutable_data_ptr<float>() + static_cast<std::int64_t>(slot) * height * width;
    constexpr float kScale = 1.0f / (255.0f * kPixelDeviation);
    constexpr float kBlack = -kPixelMean / kPixelDeviation;
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int64_t from_y = y - down, from_x = x - right;
        const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
        const std::uint8_t pixel =
            inside ? pixels[static_cast<std::size_t>(from_y * width + from_x)] : std::uint8_t{0};
        out[y * width + x] = static_cast<float>(pixel) * kScale + kBlack;
      }
    }
  }

  ImageSet images_;
  ForwardPass logits_;
};

}  // namespace

std::unique_ptr<Task> MakeImageTask(ImageSet images, ForwardPass logits) {
  return std::make_unique<ImageTask>(std::move(images), std::move(logits));
}

}  // namespace sparfuse::workloads
