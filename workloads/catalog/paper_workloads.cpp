// Lists the models of the papers at the papers' size. Batches, windows and recipes follow the
// scripts of the SAFusion and SSFusion repositories for their eight workers. resnet20 follows
// gTop-k and MG-WFBP, lstm200 follows ADTopk. The scripts' learning rates are the base rate times
// eight. Where the scripts clip gradients or follow a validation loss, our recipes do not.
#include <string>
#include <utility>

#include "workloads/catalog/workload_tables.hpp"

namespace sparfuse::workloads {
namespace {

// Numbers of training samples of the data sets.
constexpr std::size_t kCifar = 50000;
constexpr std::size_t kImageNet = 1281167;
constexpr std::size_t kSquad = 87599;  // questions of version 1.1
// Words. GPT-2 divides some of them into several tokens, which these epochs leave out.
constexpr std::size_t kWikiText2Tokens = 2088628;
constexpr std::size_t kWikiText103Tokens = 103227021;

constexpr std::int64_t kWikiText2Words = 33278;
constexpr std::int64_t kWikiText103Words = 267735;
constexpr std::int64_t kGptVocabulary = 50257;
constexpr std::int64_t kBertVocabulary = 30528;  // 30,522, padded to a multiple of eight

constexpr ImageSize kCifar10Images{.image = 32, .classes = 10};
constexpr ImageSize kCifar100Images{.image = 32, .classes = 100};
constexpr ImageSize kImageNetImages{.image = 224, .classes = 1000};

// Makes the workload train on made-up data with as many samples as the data set has. `small` names
// the sibling workload that has real data.
WorkloadDescriptor MadeUp(WorkloadDescriptor w, std::size_t batch, std::size_t samples,
                          std::string small) {
  w.batch_per_worker = batch;
  w.synthetic_samples = w.training_samples = samples;
  w.small = std::move(small);
  return w;
}

// SGD with five warm-up epochs of eight workers at batch 32.
Recipe ConvolutionRecipe(std::size_t samples) {
  return RecipeOf("sgd", 0.1, 5e-5, 5 * (samples / 256), "staircase");
}

struct Depth {
  const char* layers;
  std::vector<std::int64_t> stages;  // blocks or convolutions in each stage
};

struct Images {
  const char* suffix;
  const char* name;
  ImageSize size;
  std::size_t samples;
};

constexpr Images kDataSets[] = {{"-cifar100", "CIFAR-100", kCifar100Images, kCifar},
                                {"-imagenet", "ImageNet", kImageNetImages, kImageNet}};

void AddConvolutional(std::vector<WorkloadDescriptor>& table) {
  const auto add = [&](const std::string& name, const std::string& summary, ModelSize model,
                       const Recipe& recipe, std::size_t samples, const char* small) {
    table.push_back(Normalised(
        MadeUp(ImageWorkload(name, summary, std::move(model), recipe), 32, samples, small)));
  };
  const auto add_resnet20 = [&](const char* name, const char* summary, std::int64_t width) {
    Recipe recipe = ConvolutionRecipe(kCifar);
    recipe.weight_decay = 1e-4;
    add(name, summary,
        ResnetSize{
            .data = kCifar10Images, .blocks = {3, 3, 3}, .bottleneck = false, .width = width},
        recipe, kCifar, "resnet-small");
  };
  add_resnet20("resnet20-cifar10", "ResNet-20 for CIFAR-10", 16);
  add_resnet20("resnet20-half-cifar10",
               "ResNet-20 of half the width for CIFAR-10, for processors; 2,000 images evaluate it",
               8);
  table.back().evaluation_samples = 2000;
  const Depth resnets[] = {{"50", {3, 4, 6, 3}}, {"101", {3, 4, 23, 3}}, {"152", {3, 8, 36, 3}}};
  const Depth vggs[] = {{"16", {2, 2, 3, 3, 3}}, {"19", {2, 2, 4, 4, 4}}};
  for (const Images& data : kDataSets) {
    const bool large = data.size.image > 100;
    for (const Depth& depth : resnets) {
      add(std::string("resnet") + depth.layers + data.suffix,
          std::string("ResNet-") + depth.layers + " for " + data.name,
          ResnetSize{.data = data.size, .blocks = depth.stages, .strided_stem = large},
          ConvolutionRecipe(data.samples), data.samples, "resnet-small");
    }
  }
  for (const Images& data : kDataSets) {
    for (const Depth& depth : vggs) {
      add(std::string("vgg") + depth.layers + data.suffix,
          std::string("VGG-") + depth.layers + " with batch normalisation for " + data.name,
          VggSize{.data = data.size, .convolutions = depth.stages}, ConvolutionRecipe(data.samples),
          data.samples, "vgg-small");
    }
  }
}

void AddVits(std::vector<WorkloadDescriptor>& table) {
  const auto add = [&](const char* name, const char* summary, std::int64_t width,
                       std::int64_t layers) {
    table.push_back(MadeUp(ImageWorkload(name, summary,
                                         VitSize{.data = kImageNetImages,
                                                 .width = width,
                                                 .layers = layers,
                                                 .heads = width / 64,
                                                 .expanded = 4 * width},
                                         RecipeOf("adam", 5e-5, 0, 0, "linear")),
                           32, kImageNet, "vit-small"));
  };
  add("vit-base-imagenet", "ViT-B/16 for ImageNet", 768, 12);
  add("vit-large-imagenet", "ViT-L/16 for ImageNet", 1024, 24);
}

void AddBerts(std::vector<WorkloadDescriptor>& table) {
  const auto add = [&](const char* name, const char* summary, std::size_t window,
                       std::int64_t width, std::int64_t layers, std::int64_t heads,
                       const Recipe& recipe, std::size_t questions) {
    table.push_back(MadeUp(QuestionWorkload(name, summary,
                                            BertSize{.vocabulary = kBertVocabulary,
                                                     .window = static_cast<std::int64_t>(window),
                                                     .positions = 512,
                                                     .width = width,
                                                     .layers = layers,
                                                     .heads = heads,
                                                     .expanded = 4 * width},
                                            window, recipe),
                           4, questions, "bert-small"));
  };
  const auto of_squad = [](std::uint64_t epochs) {
    const std::uint64_t steps = kSquad / 32 * epochs;  // with eight workers; a tenth are warm-up
    return RecipeOf("adam", 3e-5, 0.01, steps / 10, "linear");
  };
  // The papers' "sequences" per second are tokens: a step of one worker processes 4 x 384 tokens.
  add("bert-base-squad", "BERT-base, uncased, for SQuAD 1.1", 384, 768, 12, 12, of_squad(3),
      kSquad);
  add("bert-large-squad", "BERT-large, uncased, for SQuAD 1.1", 384, 1024, 24, 16, of_squad(30),
      kSquad);
  // A model that two cores can fine-tune. It has the size of all-MiniLM-L6-v2 and answers questions
  // of short contexts.
  constexpr std::size_t kQuestions = 22694;  // training questions that WordNet's examples give
  add("minilm-questions",
      "MiniLM of six layers for questions in SQuAD's form, for processors; 400 windows evaluate it",
      96, 384, 6, 12, RecipeOf("adam", 1e-4, 0.01, 20, "linear"), kQuestions);
  table.back().evaluation_samples = 400;
}

void AddGpts(std::vector<WorkloadDescriptor>& table) {
  constexpr std::size_t kWindow = 1024;
  const auto add = [&](const char* name, const char* summary, std::int64_t width,
                       std::int64_t layers) {
    table.push_back(MadeUp(TextWorkload(name, summary,
                                        GptSize{.vocabulary = kGptVocabulary,
                                                .window = kWindow,
                                                .width = width,
                                                .layers = layers,
                                                .heads = width / 64},
                                        kWindow, RecipeOf("adam", 5e-5, 0, 0, "linear")),
                           2, kWikiText103Tokens / kWindow, "gpt-small"));
  };
  add("gpt2-small-wikitext103", "GPT-2 small for WikiText-103", 768, 12);
  add("gpt2-medium-wikitext103", "GPT-2 medium for WikiText-103", 1024, 24);
  add("gpt2-large-wikitext103", "GPT-2 large for WikiText-103", 1280, 36);
}

void AddLstms(std::vector<WorkloadDescriptor>& table) {
  const auto add = [&](const char* name, const char* summary, std::int64_t width, double dropout,
                       std::size_t window, std::size_t batch, const Recipe& recipe,
                       bool tied = false) {
    table.push_back(MadeUp(TextWorkload(name, summary,
                                        LstmSize{.vocabulary = kWikiText2Words,
                                                 .window = static_cast<std::int64_t>(window),
                                                 .embedding = width,
                                                 .hidden = width,
                                                 .dropout = dropout,
                                                 .tied = tied},
                                        window, recipe),
                           batch, kWikiText2Tokens / window, "lstm-small"));
  };
  add("lstm-wikitext2", "a word-level LSTM of two layers of 500 for WikiText-2", 500, 0.5, 70, 80,
      RecipeOf("adam", 8e-3, 1.2e-6, 0, "constant"));
  add("lstm1500-wikitext2",
      "a word-level LSTM of two layers of 1,500 for WikiText-2, its decoder tied to its embedding",
      1500, 0.65, 70, 80, RecipeOf("adam", 8e-3, 1.2e-6, 0, "constant"), /*tied=*/true);
  Recipe small = RecipeOf("sgd", 2.0, 0, 0, "constant");
  small.momentum = 0;
  add("lstm200-wikitext2", "a word-level LSTM of two layers of 200 for WikiText-2", 200, 0.2, 35,
      20, small);
}

void AddTransformers(std::vector<WorkloadDescriptor>& table) {
  constexpr std::size_t kWindow = 100;
  const auto add = [&](const char* name, const char* summary, std::int64_t words,
                       std::size_t tokens) {
    table.push_back(
        MadeUp(TextWorkload(name, summary, TransformerSize{.vocabulary = words, .window = kWindow},
                            kWindow, RecipeOf("adam", 0.016, 1.2e-5, 100, "constant")),
               64, tokens / kWindow, "transformer-small"));
  };
  add("transformer-wikitext2", "a word-level transformer of eight layers for WikiText-2",
      kWikiText2Words, kWikiText2Tokens);
  add("transformer-wikitext103", "a word-level transformer of eight layers for WikiText-103",
      kWikiText103Words, kWikiText103Tokens);
}

}  // namespace

std::vector<WorkloadDescriptor> PaperWorkloads() {
  std::vector<WorkloadDescriptor> table;
  AddConvolutional(table);
  AddVits(table);
  AddBerts(table);
  AddGpts(table);
  AddLstms(table);
  AddTransformers(table);
  return table;
}

}  // namespace sparfuse::workloads
