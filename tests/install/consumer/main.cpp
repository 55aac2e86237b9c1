#include <iostream>

#include "spillway/core/bytes.hpp"

int main() {
  const spillway::Bytes bytes = spillway::parse_bytes("8 GiB");
  std::cout << "consumer: " << spillway::to_string(bytes) << '\n';
}
