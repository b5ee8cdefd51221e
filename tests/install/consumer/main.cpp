#include <cstdio>

#include <fanin/version.hpp>

int main() {
  const auto commit = fanin::version_commit();
  std::printf("fanin %s (%.*s)\n", fanin::version.data(), static_cast<int>(commit.size()),
              commit.data());
  return commit.empty() ? 1 : 0;
}
