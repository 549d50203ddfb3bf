# Decides SPARFUSE_WITH_CUDA from SPARFUSE_CUDA (AUTO, ON, OFF) and, where it is on, enables the CUDA
# language and sets NCCL_INCLUDE_DIR, NCCL_LIBRARY and CUBLAS_LIBRARY.
#
# AUTO needs a card, a toolkit of version 13, NCCL, and (with LibTorch) the CUDA libraries that
# LibTorch was built with; a message says which of these is missing. ON compiles without a card too,
# and makes each of the others an error.

file(GLOB SPARFUSE_NVIDIA_WHEELS ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia)

# Sets `result` to "" or to the reason why this machine cannot build with CUDA.
function(sparfuse_why_no_cuda result)
  set(${result} "" PARENT_SCOPE)
  if(SPARFUSE_CUDA STREQUAL "AUTO")  # nothing would run what takes minutes to compile
    execute_process(COMMAND python3 ${CMAKE_SOURCE_DIR}/scripts/why_no_gpu.py
                    OUTPUT_VARIABLE why_no_gpu OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(why_no_gpu)
      set(${result} "no card is seen (${why_no_gpu}); SPARFUSE_CUDA=ON compiles it nevertheless"
          PARENT_SCOPE)
      return()
    endif()
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(SPARFUSE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin
                 PATHS /usr/local/cuda/bin DOC "CUDA compiler")
    if(SPARFUSE_NVCC)
      set(CMAKE_CUDA_COMPILER ${SPARFUSE_NVCC} CACHE FILEPATH "CUDA compiler" FORCE)
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(${result} "no CUDA compiler (nvcc)" PARENT_SCOPE)
    return()
  endif()
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND OR CUDAToolkit_VERSION VERSION_LESS 13)
    set(${result} "the toolkit of ${CMAKE_CUDA_COMPILER} is not of version 13 \
(found '${CUDAToolkit_VERSION}')" PARENT_SCOPE)
    return()
  endif()
  # LibTorch's own NCCL first: one process must not load two.
  find_path(NCCL_INCLUDE_DIR nccl.h PATHS ${SPARFUSE_NVIDIA_WHEELS} PATH_SUFFIXES nccl/include
            NO_DEFAULT_PATH)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY libnccl.so.2 PATHS ${SPARFUSE_NVIDIA_WHEELS} PATH_SUFFIXES nccl/lib
               NO_DEFAULT_PATH)
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_TARGET_DIR}/lib)
  if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
    set(${result} "NCCL (nccl.h, libnccl) is not found" PARENT_SCOPE)
    return()
  endif()
  if(SPARFUSE_TORCH AND SPARFUSE_NVIDIA_WHEELS
     AND NOT EXISTS ${SPARFUSE_NVIDIA_WHEELS}/cudnn/lib/libcudnn.so.9)
    set(${result} "LibTorch's CUDA libraries are not in .venv (./scripts/setup installs them where \
it finds a toolkit)" PARENT_SCOPE)
  endif()
endfunction()

if(SPARFUSE_CUDA STREQUAL "OFF")
  set(SPARFUSE_WITH_CUDA OFF)
else()
  sparfuse_why_no_cuda(WHY_NO_CUDA)
  if(WHY_NO_CUDA STREQUAL "")
    set(SPARFUSE_WITH_CUDA ON)
  elseif(SPARFUSE_CUDA STREQUAL "AUTO")
    set(SPARFUSE_WITH_CUDA OFF)
    message(STATUS "sparfuse: built without CUDA: ${WHY_NO_CUDA}")
  else()
    message(FATAL_ERROR "SPARFUSE_CUDA is ${SPARFUSE_CUDA}, but ${WHY_NO_CUDA}")
  endif()
endif()
if(SPARFUSE_WITH_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    # What CUDA 13 can compile for, and PTX for what comes.
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 90)
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # one runtime in a process: LibTorch uses it too
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  find_package(CUDAToolkit 13 REQUIRED)
  # Of cuBLAS, too, LibTorch's own first: beside LibTorch a process would load the toolkit's libcublas
  # and LibTorch's libcublasLt. In a folder of their own, because the CUDA runtime, which lies with
  # them, is the toolkit's, and each executable has one order of folders for all of its libraries.
  find_library(SPARFUSE_CUBLAS libcublas.so.13 PATHS ${SPARFUSE_NVIDIA_WHEELS}
               PATH_SUFFIXES cu13/lib NO_DEFAULT_PATH)
  set(CUBLAS_LIBRARY CUDA::cublas)
  if(SPARFUSE_CUBLAS)
    get_filename_component(folder ${SPARFUSE_CUBLAS} DIRECTORY)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cublas)
    foreach(library libcublas.so.13 libcublasLt.so.13)
      file(CREATE_LINK ${folder}/${library} ${CMAKE_BINARY_DIR}/cublas/${library} SYMBOLIC)
    endforeach()
    set(CUBLAS_LIBRARY ${CMAKE_BINARY_DIR}/cublas/libcublas.so.13)
  endif()
  # As for the host, no fused multiply-add: a device selects what the host selects.
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--fmad=false>")
endif()
