// One step of every family at paper size, of the models for which it takes seconds at most; the
// others are in tests/slow.
#include "tests/model_step.hpp"

namespace sparfuse {
namespace {

class ReadyOrder : public ::testing::TestWithParam<std::string> {};

TEST_P(ReadyOrder, IsTheLayerTables) { testing::ExpectAStepAsTheTableSays(GetParam(), 2, 1); }

INSTANTIATE_TEST_SUITE_P(PaperSize, ReadyOrder,
                         ::testing::Values("resnet20-cifar10", "resnet50-cifar100",
                                           "vgg16-cifar100", "lstm200-wikitext2",
                                           "transformer-wikitext2"),
                         [](const auto& info) { return testing::TestName(info.param); });

}  // namespace
}  // namespace sparfuse
