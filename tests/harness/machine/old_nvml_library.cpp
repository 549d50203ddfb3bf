// Plays a libnvidia-ml.so.1 that lacks most functions and knows one card by its name.
#include <cstring>

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned, void** device) {
  *device = reinterpret_cast<void*>(1);
  return 0;
}
int nvmlDeviceGetName(void*, char* name, unsigned size) {
  std::strncpy(name, "Old Card", size);
  return 0;
}
}
