// Makes transport `mpi`: ranks are processes that mpirun or srun started; Open MPI, host memory.
#pragma once

#include <memory>
#include <string>

#include "core/transport/communicator.hpp"

namespace sparfuse {

// The world of this process. Initialises MPI if nobody has; call it on the communication thread,
// once. `ranks_per_node` declares the topology. Every MPI error is Error{kComm} naming the call,
// the peer and MPI's reason. Messages of 2^31 bytes or more are Error{kUnsupported}.
//
// Where all ranks are on one host and may read one another's memory, Idle blocks until a message
// comes. Elsewhere, and while a native all-reduce is under way, it has nothing to block on: it
// yields a while, then sleeps for 2 % of the time since the last completion, between 20 and 200 us,
// which bounds what a late look costs.
std::unique_ptr<Communicator> MakeMpiWorld(int ranks_per_node);

// "Open MPI v4.1.4", of the library that this process has loaded, also before MPI is initialised.
std::string MpiLibraryVersion();

// Says that the run ended well on all ranks: destroying the world then calls MPI_Finalize, after
// which communicators split from it may only be destroyed. Callable on any thread. Without it MPI
// is left as it is and the process must exit with an error, because MPI_Finalize would wait for
// ranks that are stuck or gone.
void FinalizeMpiOnClose();

}  // namespace sparfuse
