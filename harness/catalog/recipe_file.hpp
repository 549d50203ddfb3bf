// Reads the files of named recipes, workloads/recipes/KIND/NAME.toml, embedded in the program: how
// a published program trains a workload. An experiment says recipe = "NAME".
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baselines/registry.hpp"

namespace sparfuse::harness {

struct NamedRecipe {
  std::string name, title, source;
  std::string differs;  // "" or what is otherwise than in the source, a sentence each
  std::string like;     // another recipe, whose keys this one changes; ""
  std::string workload;
  std::string data;  // the data set that it was published with, as people call it
  int workers = 1;   // that it was published with
  int batch_per_worker = 0;
  double target = 0;  // of the metric: what its source reaches with dense gradients; 0: not said
  nlohmann::json recipe = nlohmann::json::object();  // as a cell gives it
};

// All of them, by name. Throws Error{kConfig} with file and line.
const std::vector<NamedRecipe>& NamedRecipes();
// Throws Error{kConfig} with the nearest known name.
const NamedRecipe& FindRecipe(std::string_view name);

// A file for tests. base: what `like` may name.
NamedRecipe ParseRecipeFile(std::string_view path, std::string_view text,
                            std::span<const NamedRecipe> base);

std::span<const EmbeddedMethod> RecipeFiles();

}  // namespace sparfuse::harness
