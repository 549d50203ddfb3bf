# What the workloads are, without LibTorch. harness/ includes this where workloads/ is not built.
set(here ${CMAKE_CURRENT_LIST_DIR})
file(GLOB CATALOG_SOURCES CONFIGURE_DEPENDS ${here}/*.cpp ${here}/catalog/*.cpp ${here}/data/*.cpp
     ${here}/optimizer/*.cpp
     ${here}/recorded/*.cpp ${here}/models/*.cpp ${here}/weights/*.cpp)
list(FILTER CATALOG_SOURCES EXCLUDE REGEX "_forward\\.cpp$")
add_library(sparfuse_workload_catalog STATIC ${CATALOG_SOURCES})
if(SPARFUSE_WITH_CUDA)
  target_sources(sparfuse_workload_catalog PRIVATE ${here}/optimizer/optimizer.cu)
endif()
target_precompile_headers(sparfuse_workload_catalog REUSE_FROM sparfuse_core)
# Descriptions, and readers of small files; these files alone have loops over elements.
set(loops ${here}/data/image.cpp ${here}/data/sampler.cpp ${here}/optimizer/optimizer.cpp)
compile_quickly(sparfuse_workload_catalog)
compile_together(sparfuse_workload_catalog workloads/)
set_source_files_properties(${loops} PROPERTIES COMPILE_OPTIONS -O3)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)  # libjpeg-turbo: other decoders give other pixels
target_link_libraries(sparfuse_workload_catalog PUBLIC sparfuse_core PRIVATE JPEG::JPEG
                      OpenSSL::Crypto ZLIB::ZLIB nlohmann_json::nlohmann_json)
set_source_files_properties(${here}/data/data_file.cpp PROPERTIES COMPILE_DEFINITIONS
  "SPARFUSE_SOURCE_DIRECTORY=\"${CMAKE_SOURCE_DIR}\"")
