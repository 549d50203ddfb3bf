#include "harness/catalog/recipe_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/records/given_record.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

template <>
RecordKeys KeysOf<NamedRecipe>() {
  using R = NamedRecipe;
  static constexpr auto kKeys = KeyTable<R>(
      Given<&R::name>("name", "", "the file's name"),
      Given<&R::title>("title", "", "the training in one line"),
      Given<&R::source>("source", "\"\"", "the program of this training"),
      Given<&R::differs>("differs", "\"\"", "differences from the source"),
      Given<&R::like>("like", "\"\"", "the recipe that this one varies"),
      Given<&R::workload>("workload", "\"\"", "a name of `sparfuse list workloads`"),
      Given<&R::data>("data", "\"\"", "the data set"),
      Given<&R::workers>("workers", "1", "the source's number of workers", {.range = {1, 65536}}),
      Given<&R::batch_per_worker>("batch_per_worker", "0", "batch of a worker",
                                  {.range = {0, 1e6}}),
      Given<&R::target>("target", "0", "metric that the source reaches with dense gradients",
                        {.range = {0, 1e9}}),
      Given<&R::recipe>("recipe", "{}", "keys of the workload's recipe", {.type = "table"}));
  return kKeys;
}

NamedRecipe ParseRecipeFile(std::string_view path, std::string_view text,
                            std::span<const NamedRecipe> base) {
  const TomlFile file = TomlFile::Parse(text, std::string(path));
  NamedRecipe recipe;
  if (const nlohmann::json* like = file.Find("/like"); like != nullptr && like->is_string()) {
    const auto found = std::ranges::find(base, like->get<std::string>(), &NamedRecipe::name);
    if (found == base.end()) file.FailValue("/like", "a recipe that varies no other one");
    recipe = *found;
  }
  nlohmann::json keys = recipe.recipe;
  ReadTable(file, "", "recipe", recipe);
  keys.update(recipe.recipe);
  recipe.recipe = std::move(keys);
  if (recipe.source.empty())
    file.Fail("/name", "source is missing: expected the program of this training");
  const std::string stem = std::filesystem::path(path).stem().string();
  if (recipe.name != stem) file.FailValue("/name", fmt::format("the file's name, \"{}\"", stem));
  try {
    ResolveOptions("[recipe]", RecipeOf(workloads::FindWorkload(recipe.workload)),
                   OptionsFromJson("[recipe]", recipe.recipe));
  } catch (const Error& error) {
    file.Fail("/recipe", error.what());
  }
  return recipe;
}

const std::vector<NamedRecipe>& NamedRecipes() {
  static const std::vector<NamedRecipe> kRecipes = [] {
    std::vector<NamedRecipe> recipes;
    for (const bool variants : {false, true}) {
      const std::size_t base = recipes.size();
      for (const EmbeddedMethod& file : RecipeFiles()) {
        if (file.path.ends_with("-as-shipped.toml") != variants) continue;
        recipes.push_back(ParseRecipeFile(file.path, file.toml, std::span(recipes).first(base)));
      }
    }
    std::ranges::sort(recipes, {}, &NamedRecipe::name);
    return recipes;
  }();
  return kRecipes;
}

const NamedRecipe& FindRecipe(std::string_view name) {
  std::vector<std::string> known;
  for (const NamedRecipe& recipe : NamedRecipes()) {
    if (recipe.name == name) return recipe;
    known.push_back(recipe.name);
  }
  SPARFUSE_THROW(kConfig, fmt::format("unknown recipe \"{}\"{}", name, Suggestion(name, known)));
}

}  // namespace sparfuse::harness
