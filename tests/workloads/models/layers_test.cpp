// Tests the layer tables against published numbers of the same models, and against the arrays of
// the SAFusion and SSFusion repositories.
#include "workloads/models/layers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <variant>

#include "tests/support/errors.hpp"
#include "workloads/catalog/catalog.hpp"
#include "workloads/data/prepared.hpp"
#include "workloads/models/model_sizes.hpp"

namespace sparfuse::workloads {
namespace {

std::size_t NumelOf(const LayerTable& table, const std::string& name) {
  for (const LayerTensor& tensor : table.tensors) {
    if (tensor.name == name) return tensor.numel;
  }
  ADD_FAILURE() << "no tensor " << name;
  return 0;
}

std::vector<std::size_t> Sizes(const LayerTable& table) {
  std::vector<std::size_t> sizes;
  for (const LayerTensor& tensor : table.tensors) sizes.push_back(tensor.numel);
  return sizes;
}

std::vector<std::size_t> Sorted(std::vector<std::size_t> sizes) {
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

TEST(Layers, AreNamedOnceAndWhole) {
  for (const WorkloadDescriptor& workload : Workloads()) {
    const LayerTable& table = LayersOf(workload.name);
    EXPECT_EQ(&table, &LayersOf(workload.name)) << "computed twice";
    std::set<std::string> names(table.without_gradient.begin(), table.without_gradient.end());
    double multiplied = 0;  // elements; those of an embedding are looked up
    for (const LayerTensor& tensor : table.tensors) {
      if (tensor.macs > 0) multiplied += static_cast<double>(tensor.numel);
      EXPECT_TRUE(names.insert(tensor.name).second) << workload.name << ": " << tensor.name;
      std::size_t numel = 1;
      for (const std::int64_t extent : tensor.shape) numel *= static_cast<std::size_t>(extent);
      EXPECT_EQ(tensor.numel, numel) << workload.name << ": " << tensor.name;
      EXPECT_GT(tensor.numel, 0u) << workload.name << ": " << tensor.name;
    }
    EXPECT_GT(table.macs(), multiplied / 2) << workload.name;
  }
}

TEST(Layers, NameTheNearestWorkload) {
  testing::ExpectError(FailureKind::kConfig, {"\"resnet50-imagenet\""},
                       [&] { LayersOf("resnet50-imagnet"); });
}

// Published parameter counts of the same models. BERT's counts are compared with Hugging Face's
// BertModel, which has the pooler, no head and 30,522 words: see below.
TEST(Layers, HaveAsManyParametersAsPublished) {
  const std::map<std::string, std::size_t> published = {
      // torchvision's documentation of its pre-trained models
      {"resnet50-imagenet", 25557032},
      {"resnet101-imagenet", 44549160},
      {"resnet152-imagenet", 60192808},
      {"vgg16-imagenet", 138365992},
      {"vgg19-imagenet", 143678248},
      {"vit-base-imagenet", 86567656},
      {"vit-large-imagenet", 304326632},
      // Hugging Face's gpt2, gpt2-medium and gpt2-large
      {"gpt2-small-wikitext103", 124439808},
      {"gpt2-medium-wikitext103", 354823168},
      {"gpt2-large-wikitext103", 774030080},
      // Y. Idelbayev's ResNet-20 for CIFAR-10, with shortcuts that have no parameters ("0.27M")
      {"resnet20-cifar10", 269722},
      {"resnet20-half-cifar10", 68050},
      // the planners' arrays in the SAFusion and SSFusion repositories
      {"resnet50-cifar100", 23705252},
      {"resnet101-cifar100", 42697380},
      {"resnet152-cifar100", 58341028},
      {"vgg16-cifar100", 34015396},
      {"vgg19-cifar100", 39327652},
      {"lstm-wikitext2", 37319278},
      {"transformer-wikitext2", 34367678},
      {"transformer-wikitext103", 222167735}};
  for (const auto& [name, parameters] : published) {
    EXPECT_EQ(LayersOf(name).numel(), parameters) << name;
  }
}

TEST(Layers, OfBertAreThoseOfBertModelAndAHead) {
  const std::map<std::string, std::size_t> published = {{"bert-base-squad", 109482240},
                                                        {"bert-large-squad", 335141888},
                                                        {"minilm-questions", 22713216}};
  for (const auto& [name, bert_model] : published) {
    const LayerTable& table = LayersOf(name);
    const std::size_t width = NumelOf(table, "embeddings.LayerNorm.bias");
    const std::size_t head = 2 * width + 2;
    const std::size_t pooler = width * width + width;
    const std::size_t padding = 6 * width;  // 30,528 words: 30,522 and six for alignment
    EXPECT_EQ(table.numel() - head + pooler - padding, bert_model) << name;
    EXPECT_EQ(table.without_gradient,
              (std::vector<std::string>{"pooler.dense.weight", "pooler.dense.bias"}));
  }
}

// torchvision states multiply-accumulates in units of 10^9, including the products of attention.
TEST(Layers, MultiplyAsOftenAsPublished) {
  const std::map<std::string, double> published = {
      {"resnet50-imagenet", 4.089},  {"resnet101-imagenet", 7.801}, {"resnet152-imagenet", 11.514},
      {"vgg16-imagenet", 15.470},    {"vgg19-imagenet", 19.632},    {"vit-base-imagenet", 17.564},
      {"vit-large-imagenet", 61.555}};
  for (const auto& [name, billions] : published) {
    EXPECT_NEAR(LayersOf(name).macs() / 1e9, billions, 0.001) << name;
  }
  // By hand: 12 layers of 384 tokens, each 12 * 768^2 for its matrices and 2 * 384 * 768 for
  // attention; then 2 * 768 for the answer's ends.
  EXPECT_EQ(LayersOf("bert-base-squad").macs(),
            12 * 384.0 * (12 * 768.0 * 768 + 2 * 384.0 * 768) + 384 * 2 * 768.0);
  // 35 words through two layers of 800 gates, each with 200 inputs and 200 outputs, and a decoder.
  EXPECT_EQ(LayersOf("lstm200-wikitext2").macs(), 35 * (2 * 2 * 800 * 200.0 + 33278 * 200.0));
}

// The number of tensors in the repositories' planners; for GPT-2 and ViT, in Hugging Face's models.
TEST(Layers, AreAsManyTensorsAsPublished) {
  const std::map<std::string, std::size_t> published = {
      {"resnet50-cifar100", 161},      {"resnet101-cifar100", 314}, {"resnet152-cifar100", 467},
      {"resnet50-imagenet", 161},      {"resnet101-imagenet", 314}, {"resnet152-imagenet", 467},
      {"vgg16-cifar100", 58},          {"vgg19-cifar100", 70},      {"lstm-wikitext2", 11},
      {"gpt2-small-wikitext103", 148}, {"vit-base-imagenet", 200},  {"bert-base-squad", 199}};
  for (const auto& [name, tensors] : published) {
    EXPECT_EQ(LayersOf(name).tensors.size(), tensors) << name;
  }
}

// The repositories' arrays are the registration reversed. Within an operation, our order is
// autograd's, which differs for norms and for convolutions with a bias.
TEST(Layers, OfResnet50AreTheReferencesArrayUpToTheOrderWithinAnOperation) {
  std::vector<std::size_t> forward = {1728, 64, 64};
  std::size_t in = 64;
  const std::size_t blocks[] = {3, 4, 6, 3};
  for (std::size_t stage = 0, w = 64; stage < 4; ++stage, w *= 2) {
    for (std::size_t block = 0; block < blocks[stage]; ++block) {
      for (const std::size_t size : {in * w, w, w, 9 * w * w, w, w, 4 * w * w, 4 * w, 4 * w}) {
        forward.push_back(size);
      }
      if (block == 0) forward.insert(forward.end(), {in * 4 * w, 4 * w, 4 * w});
      in = 4 * w;
    }
  }
  forward.insert(forward.end(), {204800, 100});
  std::reverse(forward.begin(), forward.end());
  // A norm's weight and bias have equal sizes, and in both arrays the bias of the only linear layer
  // comes first.
  EXPECT_EQ(Sizes(LayersOf("resnet50-cifar100")), forward);
}

TEST(Layers, OfVggStartAndEndAsTheReferencesArray) {
  const std::vector<std::size_t> sizes = Sizes(LayersOf("vgg16-cifar100"));
  EXPECT_EQ(std::vector(sizes.begin(), sizes.begin() + 6),
            (std::vector<std::size_t>{100, 409600, 4096, 16777216, 4096, 2097152}));
  // A convolution's weight comes before its bias; the reference has [.., 64, 64, 64, 1728].
  EXPECT_EQ(std::vector(sizes.end() - 4, sizes.end()),
            (std::vector<std::size_t>{64, 64, 1728, 64}));
}

TEST(Layers, OfWordModelsHaveTheReferencesSizes) {
  EXPECT_EQ(Sorted(Sizes(LayersOf("lstm-wikitext2"))),
            Sorted({33278, 16639000, 2000, 2000, 1000000, 1000000, 2000, 2000, 1000000, 1000000,
                    16639000}));
  std::vector<std::size_t> reference = {33278, 13311200, 13311200};
  for (int layer = 0; layer < 8; ++layer) {
    for (const std::size_t size :
         {400, 400, 400, 400, 400, 160000, 400, 160000, 400, 160000, 1200, 480000}) {
      reference.push_back(size);
    }
  }
  EXPECT_EQ(Sorted(Sizes(LayersOf("transformer-wikitext2"))), Sorted(reference));
}

TEST(Layers, OfBertBaseHaveTheReferencesSizesWithoutThePooler) {
  std::vector<std::size_t> reference = {2, 1536, 768, 768, 1536, 393216, 23445504};
  for (int layer = 0; layer < 12; ++layer) {
    for (const std::size_t size : {768, 768, 768, 2359296, 3072, 2359296, 768, 768, 768, 589824,
                                   768, 589824, 768, 589824, 768, 589824}) {
      reference.push_back(size);
    }
  }
  EXPECT_EQ(Sorted(Sizes(LayersOf("bert-base-squad"))), Sorted(reference));
}

// Data decides how many rows an embedding and a head have; BERT's are padded to a multiple of
// eight.
TEST(ModelForData, HasTheClassesOrTheVocabularyOfTheData) {
  PreparedMeta data;
  data.classes = {"cat", "cow", "dog"};
  data.vocabulary = 30;
  const auto changed = [&](const ModelSize& size) { return ModelForData(size, data); };
  EXPECT_EQ(std::get<VggSize>(changed(VggSize{})).data.classes, 3);
  EXPECT_EQ(std::get<LstmSize>(changed(LstmSize{.vocabulary = 63, .hidden = 7})).vocabulary, 30);
  EXPECT_EQ(std::get<LstmSize>(changed(LstmSize{.vocabulary = 63, .hidden = 7})).hidden, 7);
  EXPECT_EQ(std::get<BertSize>(changed(BertSize{.vocabulary = 8})).vocabulary, 32);
}

}  // namespace
}  // namespace sparfuse::workloads
