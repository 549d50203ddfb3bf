// Makes transport `mpi`: ranks are processes that mpirun or srun started; Open MPI, host memory.
#pragma once

#include <memory>
#include <string>

#include "core/transport/communicator.hpp"

namespace sparfuse {

// Makes the world of this process. Initialises MPI if it is not initialised; call it once, on the
// communication thread. `ranks_per_node` declares the topology. Every MPI error is Error{kComm}
// naming the call, the peer and MPI's reason. Messages of 2^31 bytes or more are
// Error{kUnsupported}.
//
// If all ranks are on one host and may read one another's memory, Idle blocks until a message
// comes. Elsewhere, and during a native all-reduce, Idle cannot block. It yields a while, then
// sleeps for 2 % of the time since the last completion, between 20 and 200 us, which bounds the
// delay of a late poll.
std::unique_ptr<Communicator> MakeMpiWorld(int ranks_per_node);

// The version of the loaded library, as "Open MPI v4.1.4", also before MPI is initialised.
std::string MpiLibraryVersion();

// Declares that the run ended well on all ranks. Destroying the world then calls MPI_Finalize,
// after which communicators split from it may only be destroyed. Any thread may call it. Without
// this call MPI is not finalised and the process must exit with an error, because MPI_Finalize
// would wait for ranks that are stuck or gone.
void FinalizeMpiOnClose();

}  // namespace sparfuse
