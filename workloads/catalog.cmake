# What the workloads are, without LibTorch. harness/ includes this where workloads/ is not built.
set(here ${CMAKE_CURRENT_LIST_DIR})
file(GLOB CATALOG_LAYERS CONFIGURE_DEPENDS ${here}/layers*.cpp)
add_library(sparfuse_workload_catalog STATIC ${CATALOG_LAYERS} ${here}/catalog.cpp ${here}/data_file.cpp
            ${here}/description.cpp ${here}/optimizer.cpp ${here}/paper_workloads.cpp ${here}/sampler.cpp
            ${here}/trained_workloads.cpp ${here}/workload_tables.cpp)
if(SPARFUSE_WITH_CUDA)
  target_sources(sparfuse_workload_catalog PRIVATE ${here}/optimizer.cu)
endif()
target_link_libraries(sparfuse_workload_catalog PUBLIC sparfuse_core)
set_source_files_properties(${here}/data_file.cpp PROPERTIES COMPILE_DEFINITIONS
  "SPARFUSE_SOURCE_DIRECTORY=\"${CMAKE_SOURCE_DIR}\"")
