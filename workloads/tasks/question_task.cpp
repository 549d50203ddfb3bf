// Asks questions about the King James text whose answers lie in it, as SQuAD's do. The question is
// a line with a few words left out, and the context holds this line somewhere. The answer is where
// the missing words begin and end in the context.
#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "workloads/data/sampler.hpp"
#include "workloads/tasks/task.hpp"

namespace sparfuse::workloads {
namespace {

constexpr std::size_t kLine = 16;             // words, the missing ones included
constexpr std::size_t kQuestion = kLine + 1;  // the line and its end
// The first tokens. Tokens from kFirstWord on are words, the most frequent first.
constexpr std::int64_t kEnd = 0, kGap = 1, kRareWord = 2, kFirstWord = 3;

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '\''; }

struct Words {
  std::vector<std::int64_t> tokens;
  std::size_t train_count = 0;
};

Words WordsOf(const TextSet& text, std::int64_t vocabulary) {
  std::unordered_map<std::string, std::size_t> numbers;  // numbers of words, in order of appearance
  std::vector<std::size_t> counts, sequence;
  Words words;
  std::string word;
  const std::span<const std::uint8_t> characters = text.tokens();
  for (std::size_t i = 0; i <= characters.size(); ++i) {
    if (i == text.train_count) words.train_count = sequence.size();
    const char c =
        i < characters.size() ? static_cast<char>(text.vocabulary()[characters[i]]) : ' ';
    if (IsLetter(c)) {
      word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!word.empty()) {
      const std::size_t number = numbers.emplace(word, numbers.size()).first->second;
      if (number == counts.size()) counts.push_back(0);
      ++counts[number];
      sequence.push_back(number);
      word.clear();
    }
  }
  std::vector<std::size_t> by_count(counts.size());
  std::iota(by_count.begin(), by_count.end(), std::size_t{0});
  std::stable_sort(by_count.begin(), by_count.end(),
                   [&](std::size_t a, std::size_t b) { return counts[a] > counts[b]; });
  std::vector<std::int64_t> tokens(counts.size(), kRareWord);
  for (std::size_t rank = 0; rank < by_count.size(); ++rank) {
    const std::int64_t token = kFirstWord + static_cast<std::int64_t>(rank);
    if (token < vocabulary) tokens[by_count[rank]] = token;
  }
  for (const std::size_t number : sequence) words.tokens.push_back(tokens[number]);
  return words;
}

struct Question {
  std::size_t begin = 0;   // first word of the context, in the text
  std::size_t line = 0;    // first word of the line, counted from `begin`
  std::size_t first = 0;   // first word of the answer, counted from `begin`
  std::size_t length = 0;  // words of the answer
};

class QuestionTask final : public Task {
  static constexpr std::size_t kEvaluationBatch = 64;
  static constexpr std::size_t kLongestAnswer = 4;  // words

 public:
  QuestionTask(const TextSet& text, const BertSize& size, ForwardPass logits)
      : words_(WordsOf(text, size.vocabulary)),
        window_(static_cast<std::size_t>(size.window)),
        context_(window_ - kQuestion),
        logits_(std::move(logits)) {
    const std::size_t validation = words_.tokens.size() - words_.train_count;
    if (words_.train_count < 2 * context_ || validation < context_) {
      SPARFUSE_THROW(kData, "text: " + std::to_string(words_.train_count) + " training words of " +
                                std::to_string(words_.tokens.size()) +
                                " are too few for contexts of " + std::to_string(context_));
    }
  }

  // Contexts do not overlap. The first begins at a place that varies by epoch.
  std::size_t training_samples() const override {
    return (words_.train_count - context_) / context_;
  }

  Batch MakeBatch(std::span<const std::uint32_t> samples, std::uint64_t epoch_key) const override {
    const std::size_t start = RandomBits(epoch_key, 0) % context_;
    std::vector<Question> questions;
    for (const std::uint32_t sample : samples) {
      questions.push_back(Ask(start + sample * context_, RandomBits(epoch_key, sample + 1)));
    }
    return {Encode(questions), Answers(questions)};
  }

  at::Tensor Loss(const Batch& batch, Dropout& dropout) const override {
    return AnswerLoss(logits_(batch.inputs, dropout), batch.targets, at::Reduction::Mean);
  }

  Evaluation Evaluate(std::size_t max_samples) override {
    const at::NoGradGuard no_graph;
    constexpr std::uint64_t kEvaluationKey = 1;  // all seeds ask the same questions
    const std::size_t available = (words_.tokens.size() - words_.train_count) / context_;
    const std::size_t total = max_samples == 0 ? available : std::min(available, max_samples);
    double loss = 0, f1 = 0;
    for (std::size_t begin = 0; begin < total; begin += kEvaluationBatch) {
      std::vector<Question> questions;
      for (std::size_t i = begin; i < std::min(begin + kEvaluationBatch, total); ++i) {
        // Spreads the contexts evenly, so that a part of them is a fair sample of the text.
        const std::size_t context = i * available / total;
        questions.push_back(
            Ask(words_.train_count + context * context_, RandomBits(kEvaluationKey, context)));
      }
      Dropout none;
      const at::Tensor logits = logits_(Encode(questions), none).to(at::kCPU).contiguous();
      loss += AnswerLoss(logits, Answers(questions), at::Reduction::Sum).item<double>();
      for (std::size_t i = 0; i < questions.size(); ++i) {
        f1 += F1(questions[i], logits.const_data_ptr<float>() + i * window_ * 2);
      }
    }
    const auto samples = static_cast<double>(total);
    return {f1 / samples, loss / samples, total};
  }

 private:
  // The answer lies within the line and never at its ends.
  Question Ask(std::size_t begin, std::uint64_t bits) const {
    Question question;
    question.begin = begin;
    question.length = 1 + bits % kLongestAnswer;
    question.line = (bits >> 16) % (context_ - kLine + 1);
    question.first = question.line + 1 + (bits >> 32) % (kLine - question.length - 1);
    return question;
  }

  // Encodes the line with a gap for each missing word, its end, and the context: see ForwardPass.
  at::Tensor Encode(const std::vector<Question>& questions) const {
    const auto batch = static_cast<std::int64_t>(questions.size());
    at::Tensor encoded = at::empty({2, batch, static_cast<std::int64_t>(window_)}, at::kLong);
    encoded.select(0, 1).fill_(1).narrow(1, 0, kQuestion).fill_(0);
    std::int64_t* out = encoded.mutable_data_ptr<std::int64_t>();
    for (const Question& question : questions) {
      const std::int64_t* context = words_.tokens.data() + question.begin;
      std::copy_n(context + question.line, kLine, out);
      std::fill_n(out + (question.first - question.line), question.length, kGap);
      out += kLine;
      *out++ = kEnd;
      out = std::copy(context, context + context_, out);
    }
    return encoded;
  }

  // The positions of the answers' first and last words.
  static at::Tensor Answers(const std::vector<Question>& questions) {
    const auto batch = static_cast<std::int64_t>(questions.size());
    at::Tensor places = at::empty({2, batch}, at::kLong);
    std::int64_t* firsts = places.mutable_data_ptr<std::int64_t>();
    std::int64_t* lasts = firsts + batch;
    for (const Question& question : questions) {
      *firsts++ = static_cast<std::int64_t>(kQuestion + question.first);
      *lasts++ = static_cast<std::int64_t>(kQuestion + question.first + question.length - 1);
    }
    return places;
  }

  // F1 of the best-scoring span against the answer's: twice the words in both, over the sum of the
  // words in each. `logits` are [window, 2].
  double F1(const Question& question, const float* logits) const {
    std::size_t best_first = 0, best_end = 1;
    float best = -std::numeric_limits<float>::infinity();
    for (std::size_t first = 0; first < context_; ++first) {
      for (std::size_t end = first + 1; end <= std::min(first + kLongestAnswer, context_); ++end) {
        const float score = logits[2 * (kQuestion + first)] + logits[2 * (kQuestion + end - 1) + 1];
        if (score > best) {
          best = score;
          best_first = first;
          best_end = end;
        }
      }
    }
    const std::size_t from = std::max(best_first, question.first);
    const std::size_t to = std::min(best_end, question.first + question.length);
    if (to <= from) return 0;
    return 2.0 * static_cast<double>(to - from) /
           static_cast<double>(best_end - best_first + question.length);
  }

  const Words words_;
  const std::size_t window_;
  const std::size_t context_;
  const ForwardPass logits_;
};

}  // namespace

std::unique_ptr<Task> MakeQuestionTask(const TextSet& text, const BertSize& size,
                                       ForwardPass logits) {
  return std::make_unique<QuestionTask>(text, size, std::move(logits));
}

}  // namespace sparfuse::workloads
