// From the configuration to what the builder's rooms understand.
#pragma once

#include "fanin/builder/system.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/source/settings.hpp"

namespace fanin::executive {

[[nodiscard]] builder::System make_system(const config::Configuration& configuration,
                                          RunNumber run);

[[nodiscard]] source::SourceSettings
make_source_settings(const config::Configuration& configuration, const config::Source& source);

} // namespace fanin::executive
