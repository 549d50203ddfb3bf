#include "harness/store/origin.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

std::string DrawnId() {
  std::random_device draw;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", static_cast<std::uint32_t>(draw()));
  return id;
}

std::string StoreId(const std::filesystem::path& results) {
  const std::filesystem::path file = results / "store.json";
  if (!SomethingIsAt(file)) WriteFileDurably(file, json{{"store_id", DrawnId()}}.dump(1) + "\n");
  const json stored = ReadJsonFile(file);
  const json id = stored.is_object() ? stored.value("store_id", json()) : json();
  if (!id.is_string() || id.get_ref<const std::string&>().size() != 32) {
    SPARFUSE_THROW(kData,
                   fmt::format("{}: store_id: expected 32 digits; move the file away, and new "
                               "trials get another origin",
                               file.string()));
  }
  return id;
}

std::string OriginBy(const std::string& store_id, const std::string& system_hash) {
  return Sha256Hex(store_id + "\n" + system_hash).substr(0, 8);
}

// The id of the store; "" for no folder, or one into which no trial ran.
std::string KnownStoreId(const std::filesystem::path& results) {
  return !results.empty() && SomethingIsAt(results / "store.json") ? StoreId(results) : "";
}

bool IsOwn(const TrialRow& row, const std::string& store_id) {
  if (row.origin.empty()) return row.original_id.empty();
  return !store_id.empty() && row.origin == OriginBy(store_id, row.system_hash);
}

// Sets the store to which each row's block belongs. is_own: whether the reading store ran the row.
void NameStores(std::vector<TrialRow>& rows, const std::vector<bool>& is_own) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    TrialRow& row = rows[i];
    row.store.clear();
    if (is_own[i] || row.mode == "modelled" || row.imported()) continue;
    row.store = row.original_id.empty() ? row.origin : "early";
  }
}

// Renumbers the blocks of a system's stores, except the first store's, so that all differ.
void TellBlocksApart(std::vector<TrialRow>& rows) {
  std::map<std::string, std::map<std::string, std::map<int, int>>> systems;  // number by block
  for (const TrialRow& row : rows)
    systems[row.system_hash][row.store].emplace(row.block, row.block);
  for (auto& [system, stores] : systems) {
    const std::map<int, int> first = stores.begin()->second;
    int next = 0;
    for (auto store = std::next(stores.begin()); store != stores.end(); ++store) {
      for (auto& [block, number] : store->second) {
        while (first.contains(next)) ++next;
        number = next++;
      }
    }
  }
  for (TrialRow& row : rows) {
    const int number = systems.at(row.system_hash).at(row.store).at(row.block);
    row.block_apart = number == row.block ? std::nullopt : std::optional(number);
  }
}

}  // namespace

std::string OriginOf(const StoreLock&, const std::filesystem::path& results,
                     const std::string& system_hash) {
  return OriginBy(StoreId(results), system_hash);
}

bool RanHere(const TrialRow& trial, const std::filesystem::path& results) {
  return IsOwn(trial, KnownStoreId(results));
}

void TellStoresApart(std::vector<TrialRow>& rows, const std::filesystem::path& results) {
  const std::string own = KnownStoreId(results);
  std::set<std::string> apart;  // origins that count as separate systems
  std::vector<bool> is_own;
  for (const TrialRow& row : rows) is_own.push_back(IsOwn(row, own));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TrialRow& row = rows[i];
    if (is_own[i] || row.origin.empty() || row.mode == "modelled" || row.imported()) continue;
    if (!apart.contains(row.origin) && HostsOf(row) > 1) apart.insert(row.origin);
  }
  for (TrialRow& row : rows) {
    if (apart.contains(row.origin)) row.system_hash += "@" + row.origin;
  }
  NameStores(rows, is_own);
  TellBlocksApart(rows);
}

}  // namespace sparfuse::harness
