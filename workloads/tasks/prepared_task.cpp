// Trains on prepared data: images that are cropped, flipped and rotated at random, or texts.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "workloads/data/image.hpp"
#include "workloads/data/sampler.hpp"
#include "workloads/tasks/task.hpp"

namespace sparfuse::workloads {
namespace {

constexpr std::size_t kPadding = 4;      // pixels around small images
constexpr double kMostDegrees = 15;      // of rotation
constexpr std::size_t kSmallImage = 64;  // pixels; larger images are not padded and cropped
constexpr double kTestMargin = 256.0 / 224.0;

// Mean and deviation of a channel on a scale of 0 to 1.
struct Pixels {
  std::array<float, 3> mean, deviation;
};
constexpr Pixels kCifarPixels{{0.50707516f, 0.48654887f, 0.44091784f},
                              {0.26733429f, 0.25643846f, 0.27615047f}};
constexpr Pixels kImageNetPixels{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
constexpr Pixels kVitPixels{{0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f}};

class PreparedImages final : public Task {
  static constexpr std::size_t kEvaluationBatch = 100;

 public:
  PreparedImages(const ImageSize& size, std::shared_ptr<const PreparedData> data,
                 PreparedTaskConfig config, ForwardPass logits)
      : side_(static_cast<std::size_t>(size.image)),
        channels_(static_cast<std::size_t>(size.channels)),
        data_(std::move(data)),
        config_(std::move(config)),
        kind_(config_.recipe.augmentation),
        logits_(std::move(logits)) {
    if (kind_ == "by-size") kind_ = side_ <= kSmallImage ? "cifar" : "imagenet";
    pixels_ = kind_ == "vit" ? kVitPixels : side_ <= kSmallImage ? kCifarPixels : kImageNetPixels;
  }

  std::size_t training_samples() const override { return data_->count("train"); }

  Batch MakeBatch(std::span<const std::uint32_t> samples, std::uint64_t epoch_key) const override {
    return Make("train", std::vector<std::size_t>(samples.begin(), samples.end()), &epoch_key);
  }

  at::Tensor Loss(const Batch& batch, Dropout& dropout) const override {
    return at::cross_entropy_loss(logits_(batch.inputs, dropout), batch.targets);
  }

  Evaluation Evaluate(std::size_t max_samples) override {
    const at::NoGradGuard no_graph;
    const std::size_t available = data_->count("test");
    const std::size_t total = max_samples == 0 ? available : std::min(available, max_samples);
    std::vector<char> right;
    double loss = 0;
    for (std::size_t begin = 0; begin < total; begin += kEvaluationBatch) {
      std::vector<std::size_t> images;
      // Spreads the images evenly, as classes may lie one after the other.
      for (std::size_t i = begin; i < std::min(begin + kEvaluationBatch, total); ++i)
        images.push_back(i * available / total);
      const Batch batch = Make("test", images, nullptr);
      Dropout none;
      const at::Tensor logits = logits_(batch.inputs, none);
      const at::Tensor labels = batch.targets.to(logits.device());
      loss += at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum).item<double>();
      const at::Tensor good = logits.argmax(1).eq(labels).to(at::kCPU, at::kByte);
      const std::uint8_t* each = good.const_data_ptr<std::uint8_t>();
      right.insert(right.end(), each, each + images.size());
    }
    const auto samples = static_cast<double>(total);
    const double counted = static_cast<double>(std::ranges::count(right, char{1})) / samples;
    const bool shipped = config_.recipe.metric_form == "as-shipped";
    return {shipped ? MeanOfBatches(right) : counted, loss / samples, total};
  }

 private:
  // Follows the published programs: each rank takes every world-th image of a permutation, and the
  // first images again if the division leaves a remainder. All batches count alike, even a smaller
  // last one.
  double MeanOfBatches(const std::vector<char>& right) const {
    std::vector<std::uint32_t> order;
    Sampler sampler({.samples = right.size(), .batch = right.size(), .seed = 0});
    const auto permuted = sampler.Batch(0, 0);
    order.assign(permuted.begin(), permuted.end());
    const auto world = static_cast<std::size_t>(config_.world);
    const std::size_t each = (order.size() + world - 1) / world;
    double sum = 0;
    std::size_t batches = 0;
    for (std::size_t rank = 0; rank < world; ++rank) {
      for (std::size_t begin = 0; begin < each; begin += config_.batch, ++batches) {
        const std::size_t end = std::min(each, begin + config_.batch);
        double good = 0;
        for (std::size_t i = begin; i < end; ++i)
          good += right[order[(i * world + rank) % order.size()]];
        sum += good / static_cast<double>(end - begin);
      }
    }
    return sum / static_cast<double>(batches);
  }

  // Makes the batch in host memory. Each of n threads makes every n-th image, which depends on its
  // number and the epoch alone.
  Batch Make(std::string_view split, const std::vector<std::size_t>& images,
             const std::uint64_t* epoch_key) const {
    const auto n = static_cast<std::int64_t>(images.size());
    const auto side = static_cast<std::int64_t>(side_);
    at::Tensor inputs =
        at::empty({n, static_cast<std::int64_t>(channels_), side, side}, at::kFloat);
    at::Tensor labels = at::empty({n}, at::kLong);
    float* const out = inputs.mutable_data_ptr<float>();
    std::int64_t* const classes = labels.mutable_data_ptr<std::int64_t>();
    const auto threads = static_cast<std::size_t>(std::max(1, config_.threads));
    const auto part = [&, epoch_key](std::size_t first) {
      for (std::size_t i = first; i < images.size(); i += threads) {
        Image image = Decode(split, images[i]);
        image = epoch_key == nullptr ? ForTest(image) : ForTraining(image, *epoch_key, images[i]);
        Normalise(image, out + i * channels_ * side_ * side_);
        classes[i] = data_->Label(split, images[i]);
      }
    };
    std::vector<std::future<void>> others;
    for (std::size_t t = 1; t < threads; ++t)
      others.push_back(std::async(std::launch::async, part, t));
    part(0);
    for (std::future<void>& other : others) other.get();
    return {std::move(inputs), std::move(labels)};
  }

  Image Decode(std::string_view split, std::size_t number) const {
    const auto record = data_->Record(split, number);
    if (data_->meta().coding != "planes") {
      return DecodeImage(record, std::string(split) + " image " + std::to_string(number));
    }
    const std::vector<std::size_t>& shape = data_->meta().shape;  // channels, height, width
    const std::size_t plane = shape[1] * shape[2];
    Image image{shape[2], shape[1], std::vector<std::uint8_t>(3 * plane)};
    for (std::size_t i = 0; i < plane; ++i) {
      for (std::size_t c = 0; c < 3; ++c)
        image.pixels[3 * i + c] = record[(shape[0] == 1 ? 0 : c) * plane + i];
    }
    return image;
  }

  Image ForTest(const Image& image) const {
    if (image.width == side_ && image.height == side_) return image;
    if (kind_ == "vit") return Resized(image, side_, side_);
    const double margin = kind_ == "imagenet" ? kTestMargin : 1;
    const auto shorter =
        static_cast<std::size_t>(std::nearbyint(margin * static_cast<double>(side_)));
    return Centre(ShortSideOf(image, shorter), side_);
  }

  Image ForTraining(const Image& image, std::uint64_t epoch_key, std::size_t number) const {
    Draws draws(epoch_key, number);
    if (kind_ == "none") return ForTest(image);
    if (kind_ == "imagenet" || kind_ == "vit") {
      const Box part = RandomPart(image.width, image.height, draws);
      return Flipped(Resized(Cropped(image, part), side_, side_), draws);
    }
    const Image whole = ForTest(image);
    const std::size_t padded = side_ + 2 * kPadding;
    Image wide{padded, padded, std::vector<std::uint8_t>(3 * padded * padded)};
    for (std::size_t y = 0; y < side_; ++y)
      std::memcpy(wide.at(kPadding, kPadding + y), whole.at(0, y), 3 * side_);
    const std::size_t x = draws.Choose(2 * kPadding + 1), y = draws.Choose(2 * kPadding + 1);
    Image part = Flipped(Cropped(wide, {x, y, side_, side_}), draws);
    if (kind_ != "cifar-rotated") return part;
    return Rotated(part, draws.Uniform(-kMostDegrees, kMostDegrees));
  }

  static Image Flipped(Image image, Draws& draws) {
    if (draws.Choose(2) == 0) return image;
    for (std::size_t y = 0; y < image.height; ++y) {
      for (std::size_t x = 0; x < image.width / 2; ++x)
        std::swap_ranges(image.at(x, y), image.at(x, y) + 3, image.at(image.width - 1 - x, y));
    }
    return image;
  }

  // Converts interleaved pixels to planes.
  void Normalise(const Image& image, float* out) const {
    const std::size_t plane = side_ * side_;
    for (std::size_t i = 0; i < plane; ++i) {
      const std::uint8_t* from = image.pixels.data() + 3 * i;
      if (channels_ == 1) {  // weights of ITU-R 601, as in Pillow
        const auto grey =
            static_cast<float>((19595 * from[0] + 38470 * from[1] + 7471 * from[2] + 32768) >> 16);
        out[i] = (grey / 255.0f - pixels_.mean[0]) / pixels_.deviation[0];
        continue;
      }
      for (std::size_t c = 0; c < 3; ++c) {
        const float value = static_cast<float>(from[c]) / 255.0f;
        out[c * plane + i] = (value - pixels_.mean[c]) / pixels_.deviation[c];
      }
    }
  }

  std::size_t side_, channels_;
  std::shared_ptr<const PreparedData> data_;
  PreparedTaskConfig config_;
  std::string kind_;  // kind of augmentation
  Pixels pixels_;
  ForwardPass logits_;
};

std::unique_ptr<Task> Text(std::shared_ptr<const PreparedData> data,
                           const PreparedTaskConfig& config, ForwardPass logits) {
  const auto stream = [&](std::string_view name) {
    return TokenStream{data->count(name), [data, split = std::string(name)](
                                              std::size_t begin, std::span<std::int64_t> out) {
                         data->CopyTokens(split, begin, out);
                       }};
  };
  TextSource source{stream("train"), stream(data->evaluation_split()), data->vocabulary()};
  source.window = config.units_per_sample;
  source.to_the_end = true;
  source.columns = ColumnsOf(config.recipe, config.batch, config.world);
  if (config.recipe.metric_form == "as-shipped")
    source.one_of = static_cast<std::size_t>(config.world);
  return MakeTextTask(std::move(source), std::move(logits));
}

}  // namespace

std::unique_ptr<Task> MakePreparedTask(const ModelSize& size,
                                       std::shared_ptr<const PreparedData> data,
                                       PreparedTaskConfig config, ForwardPass logits) {
  return std::visit(
      [&](const auto& family) -> std::unique_ptr<Task> {
        using Family = std::remove_cvref_t<decltype(family)>;
        if constexpr (requires { family.data; }) {
          return std::make_unique<PreparedImages>(family.data, std::move(data), std::move(config),
                                                  std::move(logits));
        } else if constexpr (std::is_same_v<Family, DigitsResnetSize>) {
          constexpr ImageSize kDigits{
              .image = kDigitPixels, .channels = 1, .classes = kDigitClasses};
          SPARFUSE_REQUIRE(
              data->classes() == kDigitClasses,
              "digits-resnet has 10 classes, but the data has " + std::to_string(data->classes()));
          return std::make_unique<PreparedImages>(kDigits, std::move(data), std::move(config),
                                                  std::move(logits));
        } else if constexpr (std::is_same_v<Family, BertSize>) {
          return MakeWindowTask(std::move(data), family, std::move(logits));
        } else {
          return Text(std::move(data), config, std::move(logits));
        }
      },
      size);
}

}  // namespace sparfuse::workloads
