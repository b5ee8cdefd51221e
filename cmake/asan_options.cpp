// In each test under AddressSanitizer. A test is linked to the object files of the library, and a shared module that it
// opens brings the library itself, of which it uses nothing: the same names twice, of the same size, are no fault there.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options(); // NOLINT
extern "C" const char* __asan_default_options() { return "detect_odr_violation=1"; } // NOLINT
