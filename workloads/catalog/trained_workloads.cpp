// Lists the workloads that train on real data here. Three are the project's own; the others are
// small siblings of the families that the papers train, built by the same code.

#include "workloads/catalog/workload_tables.hpp"

namespace sparfuse::workloads {
namespace {

constexpr ImageSize kDigits{.image = kDigitPixels, .channels = 1, .classes = kDigitClasses};
constexpr auto kWindow = static_cast<std::int64_t>(kTextWindow);

// These windows give a perplexity to half a percent. All of the validation text would take seconds.
constexpr std::size_t kEvaluatedWindows = 256;

constexpr std::size_t kTrainingCharacters = 3'930'957;  // of the text
constexpr std::size_t kTrainingWindows = (kTrainingCharacters - kTextWindow) / kTextWindow;
constexpr std::size_t kTrainingQuestions = 37'544;  // contexts of 20 of the text's training words

Recipe Sgd(double learning_rate) { return RecipeOf("sgd", learning_rate, 5e-4, 20, "cosine"); }

Recipe Adam(double learning_rate, double weight_decay, std::uint64_t warmup_steps) {
  Recipe recipe = RecipeOf("adam", learning_rate, weight_decay, warmup_steps, "cosine");
  recipe.beta2 = 0.99;
  return recipe;
}

// One worker with all defaults reaches `target` within `steps`. The siblings' targets are a little
// worse than the worst result of three seeds.
WorkloadDescriptor OnDigits(WorkloadDescriptor w, double target, std::uint64_t steps) {
  w.target = target;
  w.target_steps = steps;
  w.data_files = {{"digits", "digits/digits.bin", 3925064, 0xfc47c046u}};
  w.training_samples = 4000;
  return w;
}

WorkloadDescriptor OnText(WorkloadDescriptor w, std::size_t batch, double target,
                          std::uint64_t steps, std::size_t samples = kTrainingWindows) {
  w.batch_per_worker = batch;
  w.target = target;
  w.target_steps = steps;
  w.evaluation_samples = kEvaluatedWindows;
  w.data_files = {{"text", "text/text.bin", 4137977, 0x6938328bu}};
  w.training_samples = samples;
  return w;
}

void AddOwn(std::vector<WorkloadDescriptor>& table) {
  table.push_back(OnDigits(
      ImageWorkload(
          "digits-resnet",
          "a residual CNN with group normalisation classifies 5,000 handwritten digits (MNIST)",
          DigitsResnetSize{}, Sgd(0.02)),
      0.97, 500));
  table.push_back(
      OnText(TextWorkload("text-gpt",
                          "a pre-norm transformer with tied embeddings predicts the next character "
                          "of the King James Version",
                          GptSize{.vocabulary = kTextCharacters,
                                  .window = kWindow,
                                  .width = 128,
                                  .layers = 4,
                                  .heads = 4,
                                  .dropout = 0,
                                  .rows_are_outputs = true},
                          kTextWindow, Adam(2e-3, 0.01, 50)),
             8, 7.0, 1000));
  table.push_back(
      OnText(TextWorkload("text-lstm",
                          "a two-layer LSTM predicts the next character of the King James Version",
                          LstmSize{.vocabulary = kTextCharacters,
                                   .window = kWindow,
                                   .embedding = 64,
                                   .hidden = 256,
                                   .dropout = 0},
                          kTextWindow, Adam(3e-3, 0, 20)),
             8, 5.0, 1000));
  table.push_back(OnText(
      TextWorkload("text-trigram",
                   "an embedding of all 250,047 trigrams predicts the next character of the King "
                   "James Version; a batch touches about one trigram in a hundred",
                   NgramSize{.vocabulary = kTextCharacters, .window = kWindow}, kTextWindow,
                   Adam(3e-3, 0, 20)),
      32, 7.3, 1000));
  // Measured in steps 5 to 17 of two ranks.
  table.back().natural = NaturalSparsity{
      .measured = {{1, 0.00178}, {8, 0.00297}, {32, 0.00538}, {128, 0.00979}}, .row = 16};
}

void AddSiblingsOnDigits(std::vector<WorkloadDescriptor>& table) {
  table.push_back(Normalised(OnDigits(
      ImageWorkload(
          "resnet-small", "ResNet of three bottlenecks classifies MNIST digits",
          ResnetSize{.data = kDigits, .blocks = {1, 1, 1}, .width = 16, .strided_stem = true},
          Sgd(0.1)),
      0.95, 300)));
  table.push_back(Normalised(OnDigits(
      ImageWorkload(
          "vgg-small", "VGG of four convolutions with batch normalisation classifies MNIST digits",
          VggSize{
              .data = kDigits, .convolutions = {1, 1, 2}, .width = 8, .hidden = 128, .dropout = 0},
          Sgd(0.02)),
      0.95, 300)));
  table.push_back(OnDigits(
      ImageWorkload("vit-small", "ViT of three layers over 16 patches classifies MNIST digits",
                    VitSize{.data = kDigits,
                            .patch = 7,
                            .width = 64,
                            .layers = 3,
                            .heads = 4,
                            .expanded = 128,
                            .deviation = 0.05},
                    Adam(4e-3, 0.01, 20)),
      0.82, 600));
}

void AddSiblingsOnText(std::vector<WorkloadDescriptor>& table) {
  constexpr std::int64_t kWords = 37;  // a line of 16, its end, and a context of 20
  table.push_back(OnText(
      QuestionWorkload(
          "bert-small",
          "BERT of two layers finds, in a passage of the King James Version, the words that a "
          "question leaves out",
          BertSize{.vocabulary = 1024,
                   .window = kWords,
                   .positions = kWords,
                   .width = 64,
                   .layers = 2,
                   .heads = 4,
                   .expanded = 128,
                   .dropout = 0,
                   .deviation = 0.1},
          kWords, Adam(2e-3, 0.01, 50)),
      16, 0.46, 600, kTrainingQuestions));
  table.push_back(OnText(
      TextWorkload("gpt-small",
                   "GPT-2 of three layers predicts the next character of the King James Version",
                   GptSize{.vocabulary = kTextCharacters,
                           .window = kWindow,
                           .width = 96,
                           .layers = 3,
                           .heads = 4,
                           .dropout = 0,
                           .deviation = 0.1},
                   kTextWindow, Adam(3e-3, 0.01, 50)),
      8, 6.8, 600));
  table.push_back(OnText(
      TextWorkload("lstm-small",
                   "a two-layer LSTM of 128 predicts the next character of the King James Version",
                   LstmSize{.vocabulary = kTextCharacters,
                            .window = kWindow,
                            .embedding = 128,
                            .hidden = 128,
                            .dropout = 0},
                   kTextWindow, Adam(5e-3, 0, 20)),
      8, 5.3, 600));
  table.push_back(OnText(
      TextWorkload("transformer-small",
                   "a post-norm transformer of two layers predicts the next character of the King "
                   "James Version",
                   TransformerSize{.vocabulary = kTextCharacters,
                                   .window = kWindow,
                                   .width = 96,
                                   .expanded = 96,
                                   .layers = 2,
                                   .heads = 4,
                                   .dropout = 0},
                   kTextWindow, Adam(3e-3, 0.01, 50)),
      8, 6.5, 600));
}

}  // namespace

std::vector<WorkloadDescriptor> TrainedWorkloads() {
  std::vector<WorkloadDescriptor> table;
  AddOwn(table);
  AddSiblingsOnDigits(table);
  AddSiblingsOnText(table);
  return table;
}

}  // namespace sparfuse::workloads
