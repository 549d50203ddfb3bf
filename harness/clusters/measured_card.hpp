// Lets a declared cluster have the times of a card that was measured: `card = "NAME"`.
#pragma once

#include <string>

#include "harness/clusters/profile_folders.hpp"
#include "harness/records/profile.hpp"

namespace sparfuse::harness {

// What a file of results/profiles has of one rank alone on its machine.
struct MeasuredCard {
  std::string name;  // of the file
  std::string kind;  // of its numbers: KindOfAll
  std::string hardware;
  ProfileOutcomes outcomes;

  // The outcome of the cell's workload, options, batch and threads; null if there is none.
  const ProfileOutcome* Of(const CellConfig& config) const;
  // The command that measures what the cell needs into the file.
  std::string MeasureCommand(const CellConfig& config) const;
};

// Reads results/profiles/NAME.json. Throws Error{kConfig} where there is no such file, or none with
// one rank alone; Error{kData} as ReadProfiles.
MeasuredCard ReadCard(const ProfileFolders& profiles, const std::string& name);

// Factors of a cell's `inputs` on what a card does, by their groups; 1 each by default.
struct CardFactors {
  double compute = 1;   // seconds of forward and backward
  double sparsify = 1;  // seconds of selections and encodings
  double memory = 1;    // bandwidth
  double kernel = 1;    // seconds of the smallest kernel: of what a curve begins with
};

// What a step of the card's workload takes with the factors.
BackwardTimes BackwardOfCard(const ProfileOutcome& outcome, const CardFactors& factors);
// Puts kernels of the card into the place of declared ones: packing, averages, decompression,
// sums of collectives, dispatch, and the selections and encodings that were measured. Others stay.
void PutKernelsOfCard(const ProfileOutcome& outcome, const CardFactors& factors, Profile& profile);

}  // namespace sparfuse::harness
