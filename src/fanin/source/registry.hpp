/// \file
/// The table of source types by name. Types are registered explicitly: the built-in ones in one
/// table, those of a plug-in by its entry function (plugin.hpp).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/source/settings.hpp"
#include "fanin/source/source.hpp"

namespace fanin::source {

/// Makes a source from its settings, without touching a network or a device; start() does that.
/// Errors of kind usage name key and reason (SettingsReader); others say what is missing.
using SourceFactory = std::function<Result<std::unique_ptr<Source>>(const SourceSettings&)>;

class FANIN_API Registry {
public:
  /// Errors: usage, if there is a type of that name already.
  [[nodiscard]] Result<> add(std::string type, SourceFactory factory);
  /// Errors: usage for an unknown type (the text names the known ones), and errors of the factory.
  /// An exception of a factory becomes an error.
  [[nodiscard]] Result<std::unique_ptr<Source>> make(const SourceSettings& settings) const;
  [[nodiscard]] std::vector<std::string> types() const;

private:
  std::map<std::string, SourceFactory, std::less<>> factories_;
};

/// Registers emulator, hld, sls and receive.
FANIN_API void add_built_in_sources(Registry& registry);

} // namespace fanin::source
