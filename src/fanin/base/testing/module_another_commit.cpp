extern "C" const char* fanin_module_commit();
extern "C" const char* fanin_module_commit() { return "000000000000"; }
