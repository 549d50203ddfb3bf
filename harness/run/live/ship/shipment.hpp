// Collects the files that ranks need on hosts without a folder shared with the controller, and
// takes back the files that they wrote there.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"

namespace sparfuse::harness {

// Where the worker lies in a shipment. As deep as in an archive of scripts/bundle, whose worker
// looks for libraries in ../../lib of its own folder before anywhere else: that is the shipment's.
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

  // Those that lie beside LibTorch's own: what a host with the same LibTorch has.
  std::vector<const ShippedFile*> OfTorch() const;
};

// The worker with the libraries that it is linked with, but for what every host has of its own: the
// C library, MPI and what it brings, drivers of cards; and of `names`, paths beneath `data`, the
// files that are there. Where OPAL_PREFIX names an archive of scripts/bundle its Open MPI goes
// along. Throws Error{kData} naming a library that is missing here, or a file that a link takes
// out of `data`.
Shipment Collect(const std::filesystem::path& worker, const std::filesystem::path& data,
                 const std::vector<std::string>& names);

// Of all workloads, as Collect takes them.
std::vector<std::string> DataFilesOf(const Catalog& catalog);

// The libraries in what ldd prints that are shipped, sorted. Throws as Collect.
std::vector<std::filesystem::path> ShippedLibraries(const std::string& ldd);

// A script: prints the files of the folders 0, 1, ... in `place`, but for config.json, with their
// hashes.
std::string SendingResults(const std::string& place);

// Takes them out of what the script printed, by way of the folder `between`, into the directories
// of trials 0, 1, ... Returns what is missing or damaged, of which nothing is taken; or "". Throws
// Error{kData} where this machine cannot write.
std::string TakeResults(const std::filesystem::path& printed, const std::filesystem::path& between,
                        const std::vector<std::filesystem::path>& trials);

}  // namespace sparfuse::harness
