// Collects the files that ranks need on hosts without a folder shared with the controller, and
// takes back the files that they wrote there.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"

namespace sparfuse::harness {

// The worker's path in a shipment. It is as deep as in an archive of scripts/bundle, whose worker
// looks for libraries in ../../lib of its own folder first: that is the shipment's lib.
inline constexpr const char* kShippedWorker = "bin/worker/sparfuse-worker";

struct ShippedFile {
  std::filesystem::path source;
  std::string name;  // in the shipment: "lib/libtorch_cpu.so", "data/digits/digits.bin"
  std::string hash;  // SHA-256 of the content
};

struct Shipment {
  std::vector<ShippedFile> files;
  bool has_open_mpi = false;  // its own, in the place of the nodes'

  // Hash of names and contents, twelve digits.
  std::string Id() const;

  // The files from LibTorch's folder, which a host with the same LibTorch has.
  std::vector<const ShippedFile*> OfTorch() const;
};

// The worker with its linked libraries, except those that every host has of its own: the C library,
// MPI with its libraries, drivers of cards. Also the existing files among `names`, paths below
// `data`. If OPAL_PREFIX names an archive of scripts/bundle, its Open MPI is included. Throws
// Error{kData} naming a library that is missing here, or a file whose link leads out of `data`.
Shipment Collect(const std::filesystem::path& worker, const std::filesystem::path& data,
                 const std::vector<std::string>& names);

// The data files of all workloads, as Collect takes them.
std::vector<std::string> DataFilesOf(const Catalog& catalog);

// The libraries in the output of ldd that are shipped, sorted. Throws as Collect.
std::vector<std::filesystem::path> ShippedLibraries(const std::string& ldd);

// A script that prints the files of the folders 0, 1, ... in `place`, except config.json, with
// their hashes.
std::string SendingResults(const std::string& place);

// Takes the files from the script's output into the directories of trials 0, 1, ..., through the
// folder `between`. Returns the missing or damaged files, of which nothing is taken; or "". Throws
// Error{kData} if this machine cannot write.
std::string TakeResults(const std::filesystem::path& printed, const std::filesystem::path& between,
                        const std::vector<std::filesystem::path>& trials);

}  // namespace sparfuse::harness
