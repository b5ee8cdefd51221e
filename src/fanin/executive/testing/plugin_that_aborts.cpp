// A plug-in for the tests that ends the process that loads it.
#include <cstdlib>

#include "fanin/executive/plugin.hpp"

FANIN_PLUGIN_ABI

extern "C" void fanin_register(fanin::executive::PluginRegistry&) { std::abort(); }
