// The files of the page (page/), which are in the command.
#pragma once

#include <span>
#include <string_view>

namespace fanin::operation {

struct PageFile {
  std::string_view name; // without folder
  std::string_view content;
};

// CMake writes this function (cmake/embed.cmake).
[[nodiscard]] std::span<const PageFile> page_files();

} // namespace fanin::operation
