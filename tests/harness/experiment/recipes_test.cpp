// Tests recipes by name: each file is complete, and a cell gets its values.
#include <gtest/gtest.h>

#include <set>

#include "harness/catalog/recipe_file.hpp"
#include "tests/support/experiment_text.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

TEST(Recipes, EachNamesItsSourceAndIsOfItsWorkloadsKeys) {
  std::set<std::string> names;
  for (const NamedRecipe& recipe : NamedRecipes()) {
    EXPECT_TRUE(names.insert(recipe.name).second) << recipe.name;
    EXPECT_FALSE(recipe.source.empty()) << recipe.name;
    EXPECT_GT(recipe.batch_per_worker, 0) << recipe.name;
    EXPECT_FALSE(recipe.recipe.empty()) << recipe.name;
  }
  for (const char* name :
       {"cifar100-resnet50", "cifar100-resnet152", "cifar100-vgg16", "cifar100-vgg19",
        "imagenet-resnet152", "imagenet-vgg19", "imagenet-vit-base", "squad-bert-base",
        "squad-bert-large", "wikitext103-gpt2-small", "wikitext103-gpt2-large", "wikitext2-lstm",
        "wikitext2-transformer"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Recipes, ThoseAsShippedDifferInTheirFaultsAlone) {
  const std::map<std::string, std::set<std::string>> faults = {
      {"cifar100-resnet50", {"metric_form"}},
      {"squad-bert-large", {"schedule_span", "epochs"}},
      {"wikitext103-gpt2-large", {"metric_form"}}};
  for (const auto& [name, keys] : faults) {
    json right = FindRecipe(name).recipe;
    json shipped = FindRecipe(name + "-as-shipped").recipe;
    for (const std::string& key : keys) {
      EXPECT_NE(right.value(key, json()), shipped.value(key, json())) << name << " " << key;
      right.erase(key);
      shipped.erase(key);
    }
    EXPECT_EQ(right, shipped) << name;
    EXPECT_EQ(FindRecipe(name).workload, FindRecipe(name + "-as-shipped").workload);
  }
}

TEST(Recipes, AFileIsCheckedWithItsLine) {
  const auto error = [](const std::string& text) {
    return testing::ErrorOf([&] { ParseRecipeFile("a/b.toml", text, {}); });
  };
  const std::string good =
      "name = \"b\"\ntitle = \"t\"\nsource = \"s\"\nworkload = \"digits-resnet\"\n[recipe]\n";
  EXPECT_EQ(error(good), "no error");
  EXPECT_SAYS(error("name = \"c\"\n" + good.substr(11)), "a/b.toml:1: name = \"c\"");
  EXPECT_SAYS(error(good + "momentun = 1\n"), "did you mean \"momentum\"");
  EXPECT_SAYS(error("like = \"d\"\n" + good), "like = \"d\"");
}

std::string WithRecipe(const std::string& recipe, const std::string& more = "") {
  return "id = \"t\"\n[defaults]\nmode = \"measured\"\nmethod = \"dense\"\nworkers = 8\nrecipe = " +
         recipe + "\n" + more;
}
CellConfig FirstCell(const std::string& text) {
  const Catalog catalog = BuiltInCatalog();
  return ParseExperiment(TomlFile::Parse(text, "file.toml"), catalog, "/nonexistent")
      .parts.at(0)
      .cells.at(0)
      .config;
}

TEST(Recipes, ANameGivesWorkloadBatchAndKeys) {
  const CellConfig config = FirstCell(WithRecipe("\"cifar100-resnet50\""));
  EXPECT_EQ(config.workload, "resnet50-cifar100");
  EXPECT_EQ(config.batch_per_worker, 32);
  EXPECT_EQ(StringOption(config.recipe, "boundaries"), "30 60");
  EXPECT_DOUBLE_EQ(DoubleOption(config.recipe, "learning_rate"), 0.0125);
  EXPECT_TRUE(BoolOption(config.recipe, "learning_rate_per_worker"));
}

TEST(Recipes, ACellChangesKeysAndSaysItsOwn) {
  const CellConfig config = FirstCell(WithRecipe(
      "{ name = \"cifar100-resnet50\", epochs = 2 }",
      "batch_per_worker = 16\nkind = \"convergence\"\ndata = \"cifar100-that-nobody-has\"\n"));
  EXPECT_EQ(config.batch_per_worker, 16);
  EXPECT_DOUBLE_EQ(DoubleOption(config.recipe, "epochs"), 2);
  EXPECT_EQ(config.steps, 2 * 391);  // 50,000 / (8 * 16), with the smaller last step
  EXPECT_EQ(config.evaluate_every, 391);
  EXPECT_EQ(config.data, "cifar100-that-nobody-has");
  EXPECT_EQ(config.data_id, "");
}

TEST(Recipes, MistakesAreNamed) {
  const Catalog catalog = BuiltInCatalog();
  const auto error = [&](const std::string& text) { return ErrorOf(text, catalog); };
  EXPECT_SAYS(error(WithRecipe("\"cifar100-resnet51\"")), "did you mean \"cifar100-resnet50\"");
  EXPECT_SAYS(error(WithRecipe("{ name = \"cifar100-resnet50\", epoch = 2 }")),
              "did you mean \"epochs\"");
  EXPECT_SAYS(error(WithRecipe("7")), "expected a table or a name");
  EXPECT_SAYS(error(WithRecipe("\"cifar100-resnet50\"", "kind = \"convergence\"\n")), "made up");
  EXPECT_SAYS(error(WithRecipe("\"cifar100-resnet50\"", "data = \"a/b\"\n")), "sparfuse data list");
  EXPECT_SAYS(error(WithRecipe("\"cifar100-resnet50\"", "data_id = \"0123456789abcdef\"\n")),
              "data_id without data");
}

// Stored trials keep their identity: a key that came with recipes does not change it at its
// default.
TEST(Recipes, KeysThatCameLaterChangeNoIdentity) {
  const CellConfig config = FirstCell(
      "id = \"t\"\n[defaults]\nmode = \"measured\"\nmethod = \"dense\"\nworkers = 2\n"
      "workload = \"digits-resnet\"\n");
  json stored = ToJson(config);
  for (const char* key : {"data", "data_id", "weights", "weights_id"}) stored.erase(key);
  const std::set<std::string> before = {"optimizer",    "learning_rate", "momentum", "beta2",
                                        "weight_decay", "warmup_steps",  "schedule"};
  json recipe = json::object();
  for (const auto& [key, value] : stored["recipe"].items()) {
    if (before.contains(key)) recipe[key] = value;
  }
  stored["recipe"] = recipe;
  EXPECT_EQ(ConfigHash(stored), ConfigHash(config));
}

}  // namespace
}  // namespace sparfuse::harness
