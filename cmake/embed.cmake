# Writes files into a C++ source: cmake -D OUT=page_files.cpp -D "FILES=a;b" -P embed.cmake
# The function that it defines is declared in fanin/operation/page_files.hpp.
set(rows "")
set(arrays "")
set(number 0)
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char file${number}[] = {${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", {reinterpret_cast<const char*>(file${number}), sizeof file${number} - 1}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUT}" "#include \"fanin/operation/page_files.hpp\"

#include <array>

namespace fanin::operation {
namespace {
${arrays}} // namespace

std::span<const PageFile> page_files() {
  static const std::array<PageFile, ${number}> files{{
${rows}  }};
  return files;
}

} // namespace fanin::operation
")
