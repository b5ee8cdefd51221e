// For the tests: what a plug-in of another version looks like.
#include "fanin/executive/plugin.hpp"

extern "C" int fanin_plugin_interface();
extern "C" int fanin_plugin_interface() { return 1000; }

extern "C" void fanin_register(fanin::executive::PluginRegistry&) { __builtin_trap(); }
