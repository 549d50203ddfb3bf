// Names the image of the container that this process runs in.
#pragma once

#include <filesystem>
#include <string>

namespace sparfuse::harness {

// SPARFUSE_IMAGE, else what podman (/run/.containerenv: "NAME@ID" where it tells) or Apptainer (the
// file's name) says; "unknown" in a container of which nobody says more; "" outside of one. root:
// where files of the system are looked for.
std::string ContainerImage(const std::filesystem::path& root = "/");

}  // namespace sparfuse::harness
