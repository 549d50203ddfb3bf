// Declares Task, a model with its data: the loss on a batch, and how good the model is on the test
// data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "workloads/data/data_file.hpp"
#include "workloads/data/prepared.hpp"
#include "workloads/models/forward_pass.hpp"
#include "workloads/optimizer/optimizer.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::workloads {

struct Batch {
  at::Tensor inputs;  // as a ForwardPass takes them
  // The targets of the logits: classes [batch], tokens [batch * window], or an answer's first and
  // last word [2, batch]; int64.
  at::Tensor targets;
  // Of texts that are read on: whether columns begin here, and no state is carried into it.
  bool begins = false;
};

class Task {
 public:
  virtual ~Task() = default;

  // Training samples of an epoch, over all ranks.
  virtual std::size_t training_samples() const = 0;

  // These training samples, in host memory. Variation by epoch (augmentation, starts of windows)
  // depends on `epoch_key` and the sample alone, so that a sample is the same on every rank.
  virtual Batch MakeBatch(std::span<const std::uint32_t> samples,
                          std::uint64_t epoch_key) const = 0;

  // Mean loss of a batch that is on the model's device: a scalar with its graph.
  virtual at::Tensor Loss(const Batch& batch, Dropout& dropout) const = 0;

  // See TrainingWorkload. Runs without a graph.
  virtual Evaluation Evaluate(std::size_t max_samples) = 0;
  virtual std::optional<double> UnigramBaseline() const { return std::nullopt; }
  // See TrainingWorkload.
  virtual std::string Predictions() const { return ""; }
};

// Of all of them: `logits` takes a batch in host memory or on its own device, and gives float32.

// Ten-class classification. Training images are shifted by up to one pixel each way.
std::unique_ptr<Task> MakeImageTask(ImageSet images, ForwardPass logits);

struct TokenStream {
  std::size_t size = 0;
  // Tokens [begin, begin + out.size()).
  std::function<void(std::size_t begin, std::span<std::int64_t> out)> copy;
};
struct TextSource {
  TokenStream train, test;
  std::size_t vocabulary_size = 0;
  std::size_t window = kTextWindow;
  bool to_the_end = false;  // a whole evaluation includes a last, shorter window
  std::size_t one_of = 1;   // evaluated is one window of so many, at random
  // In so many columns the training text is read from its beginning in each epoch, the state of
  // recurrent layers going on; 0: in windows at random, each from zero.
  std::size_t columns = 0;
};
TextSource SourceOf(TextSet text);

// Next-token prediction in windows of tokens that do not overlap. The begin of the first varies by
// epoch. Perplexity is exp(sum of losses / tokens), for any batch.
std::unique_ptr<Task> MakeTextTask(TextSource text, ForwardPass logits);

// Questions about the text, in words, with answers in the text. `size` gives the model's window and
// vocabulary. A tenth of the words are not among the 1,021 most frequent and look alike.
std::unique_ptr<Task> MakeQuestionTask(const TextSet& text, const BertSize& size,
                                       ForwardPass logits);

// Batches of the kind that the model of `size` takes, made up for each of `samples` samples. Cannot
// be evaluated.
std::unique_ptr<Task> MakeSyntheticTask(const ModelSize& size, std::size_t samples,
                                        ForwardPass logits);

// Columns of a text that is read on from step to step: one for each sample of a step. 0: the recipe
// carries no state.
inline std::size_t ColumnsOf(const Recipe& recipe, std::size_t batch, int world) {
  return recipe.state == "carried" ? batch * static_cast<std::size_t>(world) : 0;
}

// The needs of tasks on prepared data, except the data.
struct PreparedTaskConfig {
  Recipe recipe;
  std::size_t batch = 0;  // of a rank, which metric_form "as-shipped" divides the test set into
  int world = 1;          // the same
  int threads = 1;        // that decode a batch
  std::size_t units_per_sample = 1;
};

// Questions of prepared data, in windows of word pieces; windows without the answer have both its
// ends at the first piece. Evaluates F1 and exact match as SQuAD 1.1 does (answers.hpp).
std::unique_ptr<Task> MakeWindowTask(std::shared_ptr<const PreparedData> data, const BertSize& size,
                                     ForwardPass logits);

// Images or texts of a prepared folder, in the form that the model of `size` takes.
std::unique_ptr<Task> MakePreparedTask(const ModelSize& size,
                                       std::shared_ptr<const PreparedData> data,
                                       PreparedTaskConfig config, ForwardPass logits);

// Mean of the cross-entropies of an answer's first and last word, [2, batch], given logits
// [batch, window, 2].
inline at::Tensor AnswerLoss(const at::Tensor& logits, const at::Tensor& words,
                             at::Reduction::Reduction reduction) {
  const at::Tensor targets = words.to(logits.device());
  const at::Tensor first = at::cross_entropy_loss(logits.select(2, 0), targets[0], {}, reduction);
  const at::Tensor last = at::cross_entropy_loss(logits.select(2, 1), targets[1], {}, reduction);
  return (first + last) / 2;
}

}  // namespace sparfuse::workloads
