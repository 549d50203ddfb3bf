// Tells the trials of a store from the trials of all other stores.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/store/store_lock.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// Eight hexadecimal digits that stand in the ids of new trials: of the store, by a number that it
// draws once and keeps in results/store.json, and of the system that runs them. Says nothing about
// either. Throws Error{kData} where store.json is no file of this kind or cannot be written.
std::string OriginOf(const StoreLock& lock, const std::filesystem::path& results,
                     const std::string& system_hash);

// Whether the store whose results folder this is ran the trial, which may have come back to it.
bool RanHere(const TrialRow& trial, const std::filesystem::path& results);

// Live trials whose ranks were on several hosts say of these what one host is, and not which they
// are or what lies between them. So those that another store ran are of a system of their own, with
// all that it ran on such a host: this makes "HASH@ORIGIN" of their rows' system_hash. results: of
// the store that the rows are read by, whose own stay as they are; "" where none of them is.
//
// Two stores also count blocks from 0 on machines that are alike. So the rows' `store` and
// `block_apart` say which trials were of one block: of a system's stores one keeps its numbers, the
// reading one where it has any, and the others' go on after them. What is modelled or imported has
// blocks that mean the same everywhere, and stays.
void TellStoresApart(std::vector<TrialRow>& rows, const std::filesystem::path& results);

}  // namespace sparfuse::harness
