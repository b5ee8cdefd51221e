#include "fanin/base/shared_module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "fanin/base/try.hpp"
#include "fanin/version.hpp"

namespace fanin {
namespace {

std::vector<std::string> module_folders() {
  std::vector<std::string> folders;
  if (const char* given = std::getenv("FANIN_MODULE_PATH"); given != nullptr) {
    for (std::string_view rest = given; !rest.empty();) {
      const auto colon = rest.find(':');
      if (colon != 0) folders.emplace_back(rest.substr(0, colon));
      rest.remove_prefix(colon == std::string_view::npos ? rest.size() : colon + 1);
    }
  }
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&version_commit), &library) != 0) {
    const std::string_view file = library.dli_fname;
    const auto slash = file.rfind('/');
    folders.push_back(std::string(slash == std::string_view::npos ? "." : file.substr(0, slash)) +
                      "/fanin");
  }
  return folders;
}

std::string linker_says() {
  const char* reason = dlerror(); // of this thread's last failure
  return reason == nullptr ? "no reason given" : reason;
}

} // namespace

Result<SharedModule> SharedModule::open(std::string_view name) {
  const auto is_of_module = [name](const LinkedFunction& linked) { return linked.module == name; };
  if (std::ranges::any_of(linked_functions(), is_of_module)) {
    return SharedModule{nullptr, std::string(name)};
  }
  const std::vector<std::string> folders = module_folders();
  for (const std::string& folder : folders) {
    const std::string path = fmt::format("{}/fanin_{}.so", folder, name);
    if (access(path.c_str(), F_OK) != 0) continue;
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return fail(ErrorKind::unsupported, linker_says());
    SharedModule module{handle, path};
    const auto commit = FANIN_TRY(module.function<const char*()>("fanin_module_commit"));
    if (const std::string_view found = commit(); found != version_commit()) {
      return fail(ErrorKind::unsupported,
                  fmt::format("{} belongs to commit {} of fanin, this is {}: install both together",
                              path, found, version_commit()));
    }
    return module;
  }
  return fail(ErrorKind::unsupported,
              fmt::format("fanin was built or installed without fanin_{}.so "
                          "(looked in {})",
                          name, fmt::join(folders, ", ")));
}

Result<void*> SharedModule::find(const char* name) const {
  if (handle_ == nullptr) {
    for (const LinkedFunction& linked : linked_functions()) {
      if (linked.module == path_ && linked.name == name) {
        return reinterpret_cast<void*>(linked.function);
      }
    }
  } else if (void* const found = dlsym(handle_, name); found != nullptr) {
    return found;
  }
  return fail(ErrorKind::unsupported, fmt::format("{} has no function {}", path_, name));
}

} // namespace fanin
