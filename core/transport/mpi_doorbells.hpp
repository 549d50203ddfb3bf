// Declares the doorbells with which ranks of one host end one another's sleep.
#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <vector>

#include "core/transport/sleep.hpp"

namespace sparfuse {

// Doorbells in memory that the ranks of a host share. MPI has no way to block on several requests
// beside a time and a caller's wish, and looks taken in a loop are taken from the computation: a
// sender rings instead.
//
// That is enough only where a rank that is rung completes a message in one look: where all ranks
// are on one host and large messages are copied by the receiver from the sender's memory. Elsewhere
// `complete()` is false, and what is in flight must be looked at again and again.
class MpiDoorbells {
 public:
  // Collective over `world`; MPI is initialised.
  explicit MpiDoorbells(MPI_Comm world);

  bool complete() const { return complete_; }
  // Null where there is none.
  Doorbell* of(int world_rank) const {
    return bells_.empty() ? nullptr : bells_[static_cast<std::size_t>(world_rank)];
  }
  void Ring(int world_rank) {
    if (complete_) bells_[static_cast<std::size_t>(world_rank)]->Ring();
  }

 private:
  std::vector<Doorbell*> bells_;  // by world rank
  bool complete_ = false;
};

}  // namespace sparfuse
