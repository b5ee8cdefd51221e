/// \file
/// A user's own program that runs on the loop of one of the event builder's processes: a monitor, a
/// filter, a bridge. It comes from a plug-in (fanin/executive/plugin.hpp) and is described in the
/// configuration as an [[application]].
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "fanin/base/log.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/link.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/source/settings.hpp"

namespace fanin::executive {

class Application {
public:
  virtual ~Application() = default;
  /// On the loop's thread, as are all calls. Errors end the process.
  [[nodiscard]] virtual Result<> start() = 0;
  /// The run is over, or the user wants an end: finish; ended() says when. Must not block.
  virtual void stop() = 0;
  [[nodiscard]] virtual bool ended() const = 0;
};

struct ApplicationContext {
  net::Loop* loop = nullptr;
  net::TransportSet* transports = nullptr;
  LogFunction log;
  /// Its own keys: for source::SettingsReader, which names file, line and key in errors.
  source::SourceSettings settings;
};

using ApplicationFactory =
    std::function<Result<std::unique_ptr<Application>>(const ApplicationContext& context)>;

class ApplicationRegistry {
public:
  /// Errors: usage, if there is an application of that type already.
  [[nodiscard]] Result<> add(std::string type, ApplicationFactory factory) {
    if (!factories_.try_emplace(type, std::move(factory)).second) {
      return fail(ErrorKind::usage, "there is an application of type \"" + type + "\" already");
    }
    return {};
  }
  [[nodiscard]] const ApplicationFactory* find(const std::string& type) const { // null: none
    const auto found = factories_.find(type);
    return found == factories_.end() ? nullptr : &found->second;
  }

private:
  std::map<std::string, ApplicationFactory> factories_;
};

} // namespace fanin::executive
