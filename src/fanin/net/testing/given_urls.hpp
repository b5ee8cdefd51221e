// For the tests: networks that only some hosts have.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace fanin::net {

// FANIN_TEST_URLS="verbs://10.9.0.1 ofi+verbs://10.9.0.1"
inline std::vector<std::string> given_urls() {
  const char* const given = std::getenv("FANIN_TEST_URLS");
  std::istringstream words(given == nullptr ? "" : given);
  std::vector<std::string> urls;
  for (std::string url; words >> url;) urls.push_back(url);
  return urls;
}

// In the name of a test: "ofi_verbs".
inline std::string test_name(const std::string& url) {
  std::string name = url.substr(0, url.find(':'));
  for (char& character : name) {
    if (character == '+' || character == '-') character = '_';
  }
  return name;
}

} // namespace fanin::net
