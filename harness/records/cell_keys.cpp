#include "harness/records/cell_keys.hpp"

#include <algorithm>

#include "harness/files/canonical.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/records/given_record.hpp"

namespace sparfuse::harness {
namespace {

template <class Wanted>
std::vector<std::string> NamesWhere(const Wanted& wanted) {
  std::vector<std::string> names;
  for (const KeyInfo& key : KeysOf<CellConfig>()) {
    if (wanted(key)) names.emplace_back(key.name);
  }
  return names;
}

bool IsOfMethod(const KeyInfo& key) { return key.cell.part != CellRole::Part::kSetting; }

}  // namespace

std::span<const GivenKey> GivenKeysOfCells() {
  static const std::vector<GivenKey> kKeys = GivenKeysOf(KeysOf<CellConfig>());
  return kKeys;
}

std::vector<std::string> CellKeyNames() {
  return NamesWhere([](const KeyInfo& key) { return !key.computed; });
}

const GivenKey* FindCellKey(std::string_view name) {
  const auto keys = GivenKeysOfCells();
  const auto found = std::ranges::find(keys, name, &GivenKey::name);
  return found == keys.end() ? nullptr : &*found;
}

std::string WhatIsWrong(std::string_view key, const nlohmann::json& value) {
  const auto found = std::ranges::find_if(KeysOf<CellConfig>(),
                                          [&](const KeyInfo& each) { return each.name == key; });
  return found->WhatIsWrong(value);
}

std::span<const std::string> MethodKeys() {
  static const std::vector<std::string> kKeys = NamesWhere(IsOfMethod);
  return kKeys;
}

std::span<const std::string> SparsityKeys() {
  static const std::vector<std::string> kKeys =
      NamesWhere([](const KeyInfo& key) { return key.cell.part == CellRole::Part::kSparsity; });
  return kKeys;
}

std::span<const std::string> LaunchKeys() {
  static const std::vector<std::string> kKeys =
      NamesWhere([](const KeyInfo& key) { return key.cell.launch; });
  return kKeys;
}

std::span<const std::string> PanelKeys() {
  static const std::vector<std::string> kKeys = [] {
    std::vector<const KeyInfo*> keys;
    for (const KeyInfo& key : KeysOf<CellConfig>()) {
      const bool named_by_method = key.cell.part == CellRole::Part::kMethod && !key.cell.is_told();
      if (!key.computed && !named_by_method) keys.push_back(&key);
    }
    std::ranges::stable_sort(keys, {}, [](const KeyInfo* key) { return key->cell.telling; });
    std::vector<std::string> names;
    for (const KeyInfo* key : keys) names.emplace_back(key->name);
    return names;
  }();
  return kKeys;
}

std::string CanonicalWithout(nlohmann::json config, std::span<const std::string> keys) {
  for (const std::string& key : keys) config.erase(key);
  return CanonicalJson(config);
}

}  // namespace sparfuse::harness
