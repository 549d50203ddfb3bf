// Finds answers in the contexts of prepared questions, which are cut into windows of word pieces.
//
// Source: the SQuAD program that BERT's authors publish and the papers' programs follow. It takes
// the best 20 first and last pieces of each window, and answers of at most 30 pieces. A piece
// counts only in the window that gives it the most context. Of all windows of a question, the best
// one wins.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "workloads/data/answers.hpp"
#include "workloads/tasks/task.hpp"

namespace sparfuse::workloads {
namespace {

constexpr std::size_t kBest = 20;

// A record: pieces (u16), a flag for each whether this window gives it the best context (u8), and
// six u32.
struct Window {
  std::span<const std::uint8_t> record;
  std::size_t window = 0;
  enum Field { kLength, kQuestionLength, kFirst, kLast, kQuestion, kSkipped };

  std::int64_t Piece(std::size_t i) const {
    std::uint16_t piece = 0;
    std::memcpy(&piece, record.data() + 2 * i, sizeof piece);
    return piece;
  }
  bool IsBest(std::size_t i) const { return record[2 * window + i] != 0; }
  std::uint32_t Get(Field field) const {
    std::uint32_t value = 0;
    std::memcpy(&value, record.data() + 3 * window + 4 * field, sizeof value);
    return value;
  }
};

// Indices of the largest of every second value, the best first. Of equal values the first wins.
std::vector<std::size_t> BestOf(const float* values, std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t kept = std::min(kBest, count);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](std::size_t a, std::size_t b) {
                      return values[2 * a] != values[2 * b] ? values[2 * a] > values[2 * b] : a < b;
                    });
  order.resize(kept);
  return order;
}

class WindowTask final : public Task {
  static constexpr std::size_t kEvaluationBatch = 32;  // windows
  static constexpr std::size_t kLongestAnswer = 30;    // pieces

 public:
  WindowTask(std::shared_ptr<const PreparedData> data, const BertSize& size, ForwardPass logits)
      : data_(std::move(data)),
        window_(static_cast<std::size_t>(size.window)),
        logits_(std::move(logits)),
        key_(ReadAnswerKey(data_->Key("test"))) {
    if (data_->meta().window != window_) {
      SPARFUSE_THROW(kConfig, "the data has windows of " + std::to_string(data_->meta().window) +
                                  " pieces, but the workload needs " + std::to_string(window_) +
                                  ": `sparfuse data prepare NAME --window " +
                                  std::to_string(window_) + "` makes them");
    }
    for (const AskedQuestion& question : key_.questions) {
      std::vector<std::vector<std::string>> answers;
      for (const std::string& answer : question.answers) answers.push_back(WordsThatCount(answer));
      answers_.push_back(std::move(answers));
    }
    for (std::size_t i = 0; i < data_->count("test"); ++i) {
      const std::size_t question = WindowOf("test", i).Get(Window::kQuestion);
      if (question >= answers_.size())
        SPARFUSE_THROW(kData, "test.records: a window of question " + std::to_string(question) +
                                  ", of " + std::to_string(answers_.size()));
      if (first_window_.size() <= question) first_window_.resize(question + 1, i);
    }
    first_window_.resize(answers_.size(), data_->count("test"));
    first_window_.push_back(data_->count("test"));
  }

  std::size_t training_samples() const override { return data_->count("train"); }

  Batch MakeBatch(std::span<const std::uint32_t> samples, std::uint64_t) const override {
    return Make("train", std::vector<std::size_t>(samples.begin(), samples.end()));
  }

  at::Tensor Loss(const Batch& batch, Dropout& dropout) const override {
    return AnswerLoss(logits_(batch.inputs, dropout), batch.targets, at::Reduction::Mean);
  }

  // Evaluates `max_samples` questions with all their windows.
  Evaluation Evaluate(std::size_t max_samples) override {
    const at::NoGradGuard no_graph;
    const std::size_t available = answers_.size();
    const std::size_t total = max_samples == 0 ? available : std::min(available, max_samples);
    std::vector<std::size_t> windows;
    for (std::size_t i = 0; i < total; ++i) {
      const std::size_t question = i * available / total;
      for (std::size_t w = first_window_[question]; w < first_window_[question + 1]; ++w)
        windows.push_back(w);
    }
    std::vector<Found> found(available);
    double loss = 0;
    for (std::size_t begin = 0; begin < windows.size(); begin += kEvaluationBatch) {
      const std::size_t end = std::min(begin + kEvaluationBatch, windows.size());
      const std::vector<std::size_t> some(windows.begin() + static_cast<std::ptrdiff_t>(begin),
                                          windows.begin() + static_cast<std::ptrdiff_t>(end));
      const Batch batch = Make("test", some);
      Dropout none;
      const at::Tensor logits = logits_(batch.inputs, none).to(at::kCPU).contiguous();
      loss += AnswerLoss(logits, batch.targets, at::Reduction::Sum).item<double>();
      for (std::size_t i = 0; i < some.size(); ++i) {
        const Window window = WindowOf("test", some[i]);
        Look(window, logits.const_data_ptr<float>() + i * 2 * window_,
             found[window.Get(Window::kQuestion)]);
      }
    }
    double f1 = 0, exact = 0;
    predictions_.clear();
    for (std::size_t i = 0; i < total; ++i) {
      const std::size_t question = i * available / total;
      const AnswerScore score = Score(question, found[question]);
      f1 += score.f1;
      exact += score.exact_match;
    }
    const auto questions = static_cast<double>(total);
    return {.metric = f1 / questions,
            .loss = loss / static_cast<double>(windows.size()),
            .samples = total,
            .exact_match = exact / questions};
  }

  std::string Predictions() const override { return PredictionsText(predictions_); }

 private:
  // The best answer so far, as pieces of the context.
  struct Found {
    float score = -std::numeric_limits<float>::infinity();
    std::size_t first = 0, last = 0;
    bool any = false;
  };

  Window WindowOf(std::string_view split, std::size_t number) const {
    const Window window{data_->Record(split, number), window_};
    const bool whole = window.record.size() == 3 * window_ + 24;
    if (!whole || window.Get(Window::kLength) > window_ ||
        window.Get(Window::kQuestionLength) + 3 > window.Get(Window::kLength) ||
        window.Get(Window::kFirst) >= window_ || window.Get(Window::kLast) >= window_) {
      SPARFUSE_THROW(kData, std::string(split) + ".records: window " + std::to_string(number) +
                                " is malformed; expected " + std::to_string(window_) + " pieces");
    }
    return window;
  }

  // Makes a batch in the form of ForwardPass.
  Batch Make(std::string_view split, const std::vector<std::size_t>& numbers) const {
    const auto n = static_cast<std::int64_t>(numbers.size());
    at::Tensor inputs = at::zeros({3, n, static_cast<std::int64_t>(window_)}, at::kLong);
    at::Tensor places = at::empty({2, n}, at::kLong);
    std::int64_t* const pieces = inputs.mutable_data_ptr<std::int64_t>();
    std::int64_t* const segments = pieces + numbers.size() * window_;
    std::int64_t* const there = segments + numbers.size() * window_;
    std::int64_t* const ends = places.mutable_data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const Window window = WindowOf(split, numbers[i]);
      const std::size_t length = window.Get(Window::kLength);
      for (std::size_t p = 0; p < window_; ++p) pieces[i * window_ + p] = window.Piece(p);
      const std::size_t context = window.Get(Window::kQuestionLength) + 2;
      std::fill(segments + i * window_ + context, segments + i * window_ + length, 1);
      std::fill(there + i * window_, there + i * window_ + length, 1);
      ends[i] = window.Get(Window::kFirst);
      ends[numbers.size() + i] = window.Get(Window::kLast);
    }
    return {std::move(inputs), std::move(places)};
  }

  // Updates `found` from a window. `logits` are [window, 2].
  void Look(const Window& window, const float* logits, Found& found) const {
    const std::size_t length = window.Get(Window::kLength);
    const std::size_t context = window.Get(Window::kQuestionLength) + 2;
    const std::vector<std::size_t> firsts = BestOf(logits, length);
    const std::vector<std::size_t> lasts = BestOf(logits + 1, length);
    for (const std::size_t first : firsts) {
      if (first < context || first + 1 >= length || !window.IsBest(first)) continue;
      for (const std::size_t last : lasts) {
        if (last < first || last + 1 >= length || last - first + 1 > kLongestAnswer) continue;
        const float score = logits[2 * first] + logits[2 * last + 1];
        if (found.any && score <= found.score) continue;
        const std::size_t skipped = window.Get(Window::kSkipped);
        found = {score, first - context + skipped, last - context + skipped, true};
      }
    }
  }

  // Scores an answer, and keeps its text for the predictions.
  AnswerScore Score(std::size_t question, const Found& found) {
    const AskedQuestion& asked = key_.questions[question];
    std::string text, normal;
    if (found.any) {
      const QuestionContext& context = key_.contexts[asked.context];
      if (found.last >= context.pieces.size()) {
        SPARFUSE_THROW(kData, "test.records: a window of question " + asked.id + " has piece " +
                                  std::to_string(found.last) + " of its context's " +
                                  std::to_string(context.pieces.size()));
      }
      const TextPiece &first = context.pieces[found.first], &last = context.pieces[found.last];
      text = context.text.substr(first.begin, last.end - first.begin);
      normal = context.normal.substr(first.normal_begin, last.normal_end - first.normal_begin);
    }
    predictions_[asked.id] = text;
    const std::vector<std::string> words = WordsThatCount(normal);
    AnswerScore best;
    for (const std::vector<std::string>& answer : answers_[question]) {
      const AnswerScore score = ScoreAnswer(words, answer);
      best.f1 = std::max(best.f1, score.f1);
      best.exact_match = std::max(best.exact_match, score.exact_match);
    }
    return best;
  }

  const std::shared_ptr<const PreparedData> data_;
  const std::size_t window_;
  const ForwardPass logits_;
  const AnswerKey key_;
  std::vector<std::vector<std::vector<std::string>>> answers_;  // words, by question
  std::vector<std::size_t> first_window_;           // by question, and one entry after the last
  std::map<std::string, std::string> predictions_;  // by id of the question
};

}  // namespace

std::unique_ptr<Task> MakeWindowTask(std::shared_ptr<const PreparedData> data, const BertSize& size,
                                     ForwardPass logits) {
  return std::make_unique<WindowTask>(std::move(data), size, std::move(logits));
}

}  // namespace sparfuse::workloads
