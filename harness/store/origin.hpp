// Tells the trials of a store from the trials of all other stores.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/store/store_lock.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// Eight hexadecimal digits in the ids of new trials. They identify the store, by a number that it
// draws once and keeps in results/store.json, and the system that runs the trials. They reveal
// nothing about either. Throws Error{kData} if store.json is not such a file or cannot be written.
std::string OriginOf(const StoreLock& lock, const std::filesystem::path& results,
                     const std::string& system_hash);

// Whether the store with this results folder ran the trial; the trial may have left and come back.
bool RanHere(const TrialRow& trial, const std::filesystem::path& results);

// Separates systems and blocks of different stores. A live trial with ranks on several hosts
// describes one host, but neither identifies the hosts nor describes the network between them. So
// trials from another store belong to a system of their own, together with all trials of that store
// on such a host: their rows get "HASH@ORIGIN" as system_hash. results: of the store that reads the
// rows, whose own rows stay unchanged; "" if none is its own.
//
// Two stores also count blocks from 0 on machines that are alike. So the rows' `store` and
// `block_apart` say which trials were of one block. Of a system's stores one keeps its numbers, the
// reading one if it has any, and the numbers of the others follow. Modelled and imported results
// stay, because their blocks mean the same everywhere.
void TellStoresApart(std::vector<TrialRow>& rows, const std::filesystem::path& results);

}  // namespace sparfuse::harness
