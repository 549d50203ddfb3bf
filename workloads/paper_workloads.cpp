// The models of the papers at the papers' size. Batches, windows and recipes are those of the
// SAFusion and SSFusion repositories' scripts (resnet20: gTop-k's and MG-WFBP's; lstm200: ADTopk's)
// for their eight workers, whose learning rates are the base rate times eight. Where these clip
// gradients, or follow a validation loss, our recipes do not.
#include <string>
#include <utility>

#include "workloads/workload_tables.hpp"

namespace sparfuse {
namespace {

// Training samples of the data sets.
constexpr std::size_t kCifar = 50000;
constexpr std::size_t kImageNet = 1281167;
constexpr std::size_t kSquad = 87599;                  // questions of version 1.1
constexpr std::size_t kWikiText2Tokens = 2088628;      // words
constexpr std::size_t kWikiText103Tokens = 103227021;  // words
constexpr std::size_t kWikiText103Pieces = 117920140;  // GPT-2's tokens

constexpr std::int64_t kWikiText2Words = 33278;
constexpr std::int64_t kWikiText103Words = 267735;
constexpr std::int64_t kGptVocabulary = 50257;
constexpr std::int64_t kBertVocabulary = 30528;  // 30,522, padded to a multiple of eight

constexpr ImageSize kCifar10Images{.image = 32, .classes = 10};
constexpr ImageSize kCifar100Images{.image = 32, .classes = 100};
constexpr ImageSize kImageNetImages{.image = 224, .classes = 1000};

WorkloadDescriptor Images(std::string name, std::string summary, ModelSize model,
                          std::size_t samples, std::string small, const Recipe& recipe) {
  WorkloadDescriptor w;
  w.name = std::move(name);
  w.summary = std::move(summary);
  w.kind_of_data = "images";
  w.model = std::move(model);
  w.unit = "images";
  w.batch_per_worker = 32;
  w.metric = "accuracy";
  w.synthetic_samples = samples;
  w.small = std::move(small);
  w.options = OptionsWith(recipe);
  return w;
}

WorkloadDescriptor Text(std::string name, std::string summary, ModelSize model, std::size_t window,
                        std::size_t batch, std::size_t tokens, std::string small,
                        const Recipe& recipe) {
  WorkloadDescriptor w;
  w.name = std::move(name);
  w.summary = std::move(summary);
  w.kind_of_data = "text";
  w.model = std::move(model);
  w.unit = "tokens";
  w.units_per_sample = window;
  w.batch_per_worker = batch;
  w.metric = "perplexity";
  w.higher_is_better = false;
  w.synthetic_samples = tokens / window;
  w.small = std::move(small);
  w.options = OptionsWith(recipe);
  return w;
}

// SGD; five epochs of warm-up at eight workers of batch 32.
Recipe ConvolutionRecipe(std::size_t samples) {
  return {.optimizer = "sgd",
          .learning_rate = 0.1,
          .momentum = 0.9,
          .beta2 = 0.999,
          .weight_decay = 5e-5,
          .warmup_steps = 5 * (samples / 256),
          .schedule = "staircase"};
}

Recipe AdamRecipe(double learning_rate, double weight_decay, std::uint64_t warmup_steps,
                  std::string schedule) {
  return {.optimizer = "adam",
          .learning_rate = learning_rate,
          .momentum = 0.9,
          .beta2 = 0.999,
          .weight_decay = weight_decay,
          .warmup_steps = warmup_steps,
          .schedule = std::move(schedule)};
}

void AddResnets(std::vector<WorkloadDescriptor>& table) {
  struct Depth {
    const char* layers;
    std::vector<std::int64_t> blocks;
  };
  const Depth depths[] = {{"50", {3, 4, 6, 3}}, {"101", {3, 4, 23, 3}}, {"152", {3, 8, 36, 3}}};
  Recipe small = ConvolutionRecipe(kCifar);
  small.weight_decay = 1e-4;
  table.push_back(Images(
      "resnet20-cifar10", "ResNet-20 for CIFAR-10",
      ResnetSize{.data = kCifar10Images, .blocks = {3, 3, 3}, .bottleneck = false, .width = 16},
      kCifar, "digits-resnet", small));
  for (const auto& [layers, blocks] : depths) {
    table.push_back(Images(std::string("resnet") + layers + "-cifar100",
                           std::string("ResNet-") + layers + " for CIFAR-100, stem of 3x3 kernels",
                           ResnetSize{.data = kCifar100Images, .blocks = blocks}, kCifar,
                           "digits-resnet", ConvolutionRecipe(kCifar)));
  }
  for (const auto& [layers, blocks] : depths) {
    table.push_back(
        Images(std::string("resnet") + layers + "-imagenet",
               std::string("ResNet-") + layers + " for ImageNet",
               ResnetSize{.data = kImageNetImages, .blocks = blocks, .strided_stem = true},
               kImageNet, "digits-resnet", ConvolutionRecipe(kImageNet)));
  }
}

void AddVggs(std::vector<WorkloadDescriptor>& table) {
  struct Depth {
    const char* layers;
    std::vector<std::int64_t> convolutions;
  };
  const Depth depths[] = {{"16", {2, 2, 3, 3, 3}}, {"19", {2, 2, 4, 4, 4}}};
  for (const auto& [layers, convolutions] : depths) {
    table.push_back(Images(std::string("vgg") + layers + "-cifar100",
                           std::string("VGG-") + layers + " with batch normalisation for CIFAR-100",
                           VggSize{.data = kCifar100Images, .convolutions = convolutions}, kCifar,
                           "digits-resnet", ConvolutionRecipe(kCifar)));
  }
  for (const auto& [layers, convolutions] : depths) {
    table.push_back(Images(std::string("vgg") + layers + "-imagenet",
                           std::string("VGG-") + layers + " with batch normalisation for ImageNet",
                           VggSize{.data = kImageNetImages, .convolutions = convolutions},
                           kImageNet, "digits-resnet", ConvolutionRecipe(kImageNet)));
  }
}

void AddVits(std::vector<WorkloadDescriptor>& table) {
  const Recipe recipe = AdamRecipe(5e-5, 0, 0, "linear");
  table.push_back(Images(
      "vit-base-imagenet", "ViT-B/16 for ImageNet",
      VitSize{.data = kImageNetImages, .width = 768, .layers = 12, .heads = 12, .expanded = 3072},
      kImageNet, "digits-resnet", recipe));
  table.push_back(Images(
      "vit-large-imagenet", "ViT-L/16 for ImageNet",
      VitSize{.data = kImageNetImages, .width = 1024, .layers = 24, .heads = 16, .expanded = 4096},
      kImageNet, "digits-resnet", recipe));
}

void AddBerts(std::vector<WorkloadDescriptor>& table) {
  const auto add = [&](const char* name, const char* summary, std::int64_t width,
                       std::int64_t layers, std::uint64_t epochs) {
    constexpr std::int64_t kWindow = 384;
    WorkloadDescriptor w;
    w.name = name;
    w.summary = summary;
    w.kind_of_data = "questions";
    w.model = BertSize{.vocabulary = kBertVocabulary,
                       .window = kWindow,
                       .positions = 512,
                       .width = width,
                       .layers = layers,
                       .heads = width / 64,
                       .expanded = 4 * width};
    // The papers' "sequences" per second are tokens: 4 x 384 of them to a step of one worker.
    w.unit = "tokens";
    w.units_per_sample = kWindow;
    w.batch_per_worker = 4;
    w.metric = "f1";
    w.synthetic_samples = kSquad;
    w.small = "text-gpt";
    // A tenth of all steps warms up, at eight workers.
    w.options = OptionsWith(AdamRecipe(3e-5, 0.01, kSquad / 32 * epochs / 10, "linear"));
    table.push_back(std::move(w));
  };
  add("bert-base-squad", "BERT-base, uncased, for SQuAD 1.1", 768, 12, 3);
  add("bert-large-squad", "BERT-large, uncased, for SQuAD 1.1", 1024, 24, 30);
}

void AddGpts(std::vector<WorkloadDescriptor>& table) {
  const auto add = [&](const char* name, const char* summary, std::int64_t width,
                       std::int64_t layers) {
    constexpr std::int64_t kWindow = 1024;
    table.push_back(Text(name, summary,
                         GptSize{.vocabulary = kGptVocabulary,
                                 .window = kWindow,
                                 .width = width,
                                 .layers = layers,
                                 .heads = width / 64},
                         kWindow, 2, kWikiText103Pieces, "text-gpt",
                         AdamRecipe(5e-5, 0, 0, "linear")));
  };
  add("gpt2-small-wikitext103", "GPT-2 small for WikiText-103", 768, 12);
  add("gpt2-medium-wikitext103", "GPT-2 medium for WikiText-103", 1024, 24);
  add("gpt2-large-wikitext103", "GPT-2 large for WikiText-103", 1280, 36);
}

void AddWordModels(std::vector<WorkloadDescriptor>& table) {
  table.push_back(
      Text("lstm-wikitext2", "a word-level LSTM of two layers of 500 for WikiText-2",
           LstmSize{.vocabulary = kWikiText2Words, .window = 70, .embedding = 500, .hidden = 500},
           70, 80, kWikiText2Tokens, "text-lstm", AdamRecipe(8e-3, 1.2e-6, 0, "constant")));
  table.push_back(Text("lstm200-wikitext2", "a word-level LSTM of two layers of 200 for WikiText-2",
                       LstmSize{.vocabulary = kWikiText2Words,
                                .window = 35,
                                .embedding = 200,
                                .hidden = 200,
                                .dropout = 0.2},
                       35, 20, kWikiText2Tokens, "text-lstm",
                       {.optimizer = "sgd",
                        .learning_rate = 2.0,
                        .momentum = 0,
                        .beta2 = 0.999,
                        .weight_decay = 0,
                        .warmup_steps = 0,
                        .schedule = "constant"}));
  constexpr std::int64_t kWindow = 100;
  const Recipe recipe = AdamRecipe(0.016, 1.2e-5, 100, "constant");
  table.push_back(Text("transformer-wikitext2",
                       "a word-level transformer of eight layers for WikiText-2",
                       TransformerSize{.vocabulary = kWikiText2Words, .window = kWindow}, kWindow,
                       64, kWikiText2Tokens, "text-gpt", recipe));
  table.push_back(Text("transformer-wikitext103",
                       "a word-level transformer of eight layers for WikiText-103",
                       TransformerSize{.vocabulary = kWikiText103Words, .window = kWindow}, kWindow,
                       64, kWikiText103Tokens, "text-gpt", recipe));
}

}  // namespace

std::vector<WorkloadDescriptor> PaperWorkloads() {
  std::vector<WorkloadDescriptor> table;
  AddResnets(table);
  AddVggs(table);
  AddVits(table);
  AddBerts(table);
  AddGpts(table);
  AddWordModels(table);
  return table;
}

}  // namespace sparfuse
