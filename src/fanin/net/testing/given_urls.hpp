// For the tests: networks that only some hosts have.
#pragma once

#include <cctype>
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

// In the name of a test, scheme and options: "ofi_verbs", "verbs_share_above_1".
inline std::string test_name(const std::string& url) {
  std::string name = url.substr(0, url.find(':'));
  if (const auto options = url.find('?'); options != std::string::npos) name += url.substr(options);
  for (char& character : name) {
    if (std::isalnum(static_cast<unsigned char>(character)) == 0) character = '_';
  }
  return name;
}

} // namespace fanin::net
