/// \file
/// Shared modules: parts of fanin that need a library which not every host has. They are shared
/// objects beside the library, opened when they are first needed. Where that library is missing,
/// everything else works. A build may have them linked in instead (docs/abi.md).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"

namespace fanin {

/// A function with C linkage of a module that is linked in.
struct LinkedFunction {
  std::string_view module;
  std::string_view name;
  void (*function)(); ///< of any type
};

/// Those of all modules that are linked in. CMake writes this function
/// (cmake/linked_modules.cpp.in).
[[nodiscard]] FANIN_INTERNAL_API std::span<const LinkedFunction> linked_functions() noexcept;

/// An open module. It stays open until the process ends, since its code may be in use until then.
class SharedModule {
public:
  /// The module NAME that is linked in; otherwise opens fanin_NAME.so in the folders of the
  /// environment variable FANIN_MODULE_PATH (separated by colons), then in the folder fanin/ beside
  /// the library. It may be called from any thread, and reads files. Errors: unsupported, if the
  /// module or a library that it needs is missing, or if it belongs to another commit of fanin. The
  /// text says which; the caller adds what to install.
  [[nodiscard]] FANIN_INTERNAL_API static Result<SharedModule> open(std::string_view name);

  /// The function of that name, with C linkage. Errors: unsupported, if the module has no such
  /// function.
  template <class Function>
  [[nodiscard]] Result<Function*> function(const char* name) const {
    auto found = find(name);
    if (!found) return std::unexpected(found.error());
    return reinterpret_cast<Function*>(*found);
  }

private:
  SharedModule(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  [[nodiscard]] FANIN_INTERNAL_API Result<void*> find(const char* name) const;

  void* handle_; // null: it is linked in
  std::string path_; // or its name
};

} // namespace fanin
