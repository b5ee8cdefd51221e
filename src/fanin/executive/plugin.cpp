#include "fanin/executive/plugin.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "fanin/base/thrown.hpp"

namespace fanin::executive {
namespace {

std::string linker_reason() {
  const char* reason = dlerror(); // of this thread's last failure
  return reason == nullptr ? "no reason given" : reason;
}

template <class Function>
Function* find_function(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

} // namespace

Result<> load_plugin(const std::string& path, PluginRegistry& registry) {
  // A name without a slash would be looked for in the system's folders and not here.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  std::error_code unknown; // the linker says why
  if (std::filesystem::is_fifo(file, unknown)) { // the linker would wait for a writer
    return fail(ErrorKind::not_found, fmt::format("plug-in {}: is a pipe, not a file", path));
  }
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(ErrorKind::not_found, fmt::format("plug-in {}: {}", path, linker_reason()));
  }
  const auto refuse = [&](ErrorKind kind, std::string reason) {
    dlclose(library); // nothing of it is in use yet
    return fail(kind, fmt::format("plug-in {}: {}", path, reason));
  };
  const auto abi = find_function<int()>(library, "fanin_plugin_interface");
  const auto entry = find_function<void(PluginRegistry&)>(library, "fanin_register");
  if (abi == nullptr || entry == nullptr) {
    return refuse(ErrorKind::unsupported,
                  fmt::format("it has no function {}: it is no plug-in of fanin, or has to be "
                              "compiled again with the headers of this version",
                              abi == nullptr ? "fanin_plugin_interface" : "fanin_register"));
  }
  if (const int built_for = abi(); built_for != plugin_abi) {
    return refuse(ErrorKind::unsupported,
                  fmt::format("was built for plug-in ABI {}, this is {}: compile it again with the "
                              "headers of this version",
                              built_for, plugin_abi));
  }
  try {
    entry(registry);
  } catch (...) {
    return fail(ErrorKind::internal, fmt::format("plug-in {}: {}", path, thrown().text));
  }
  if (!registry.result) {
    Error error = registry.result.error();
    registry.result = {};
    return fail(error.kind, fmt::format("plug-in {}: {}", path, error.text));
  }
  return {};
}

} // namespace fanin::executive
