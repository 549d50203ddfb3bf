# Copies to OUT/sparfuse what is installed of the headers beneath ROOT, those that plugins and programs
# with core in them include and all that these include, and writes their hash beside them. Includes become
# <sparfuse/...>.
cmake_minimum_required(VERSION 3.27)
set(waiting core/plugin/plugin.hpp baselines/composition.hpp baselines/plugin_library.hpp baselines/registry.hpp
    core/base/clock.hpp core/base/error.hpp core/base/random_stream.hpp core/base/thread_pool.hpp
    core/collective/algorithms.hpp core/cost/fit.hpp
    core/engine/live/live_engine.hpp core/engine/live/mass_check.hpp
    core/engine/model/model_engine.hpp core/engine/unit_strategy.hpp core/payload/accumulate.hpp
    core/payload/payload.hpp core/payload/sums.hpp core/transport/group.hpp
    core/transport/shaped/shaped.hpp core/transport/tcp/tcp.hpp core/transport/threads.hpp)
set(headers "")
while(waiting)
  list(POP_FRONT waiting header)
  if(header IN_LIST headers)
    continue()
  endif()
  list(APPEND headers ${header})
  file(READ ${ROOT}/${header} text)
  string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
  foreach(include ${includes})
    string(REGEX REPLACE "#include \"(.*)\"" "\\1" include "${include}")
    list(APPEND waiting ${include})
  endforeach()
endwhile()
list(SORT headers)
set(all "")
foreach(header ${headers})
  file(READ ${ROOT}/${header} text)
  string(SHA256 hash "${text}")
  string(APPEND all "${header} ${hash}\n")
  string(REGEX REPLACE "#include \"([^\"]+)\"" "#include <sparfuse/\\1>" text "${text}")
  file(CONFIGURE OUTPUT ${OUT}/sparfuse/${header} CONTENT "${text}" @ONLY)
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING "${hash}" 0 16 hash)
file(CONFIGURE OUTPUT ${OUT}/sparfuse/headers_hash.hpp CONTENT
     "// Made by CMake from the headers beside it.\n#pragma once\n\n#define SPARFUSE_HEADERS_HASH \"${hash}\"\n")
file(CONFIGURE OUTPUT ${OUT}/sparfuse/plugin.hpp CONTENT
     "// All that a plugin includes.\n#pragma once\n\n#include <sparfuse/headers_hash.hpp>\n\n#include <sparfuse/core/plugin/plugin.hpp>\n")
