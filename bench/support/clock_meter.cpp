#include "support/clock_meter.hpp"

#include <chrono>

#include <dlfcn.h>

#include "spillway/core/error.hpp"

namespace spillway::bench {
namespace {

constexpr auto kBetween = std::chrono::milliseconds(5);

// Of NVML's interface, which is C and stable; its header is not in torch's wheel.
constexpr int kSuccess = 0;
constexpr int kSmClock = 1;
constexpr unsigned kPowerInstant = 186;  // A field: milliwatts.
constexpr unsigned long long kPowerCap = 0x4;

struct FieldValue {
  unsigned field = 0;
  unsigned scope = 0;
  long long timestamp = 0;
  long long latency = 0;
  unsigned type = 0;
  int result = 0;
  union {
    double number;
    unsigned whole;
    unsigned long long bits;
  } value{};
};

[[noreturn]] void fail(const std::string& what) {
  throw DeviceError("bench", "reading the GPU's clock: " + what +
                                 "; NVML comes with the driver; without it the clock is unknown");
}

}  // namespace

class ClockMeter::Nvml {
 public:
  explicit Nvml(const std::string& pci_bus)
      : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) fail(::dlerror());
    find(init_, "nvmlInit_v2");
    find(shutdown_, "nvmlShutdown");
    find(by_bus_, "nvmlDeviceGetHandleByPciBusId_v2");
    find(clock_, "nvmlDeviceGetClockInfo");
    find(reasons_, "nvmlDeviceGetCurrentClocksThrottleReasons");
    find(fields_, "nvmlDeviceGetFieldValues");
    if (const int code = init_(); code != kSuccess) fail("nvmlInit gave " + std::to_string(code));
    if (const int code = by_bus_(pci_bus.c_str(), &device_); code != kSuccess) {
      shutdown_();
      fail("NVML knows no GPU " + pci_bus + " (" + std::to_string(code) + ")");
    }
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() { shutdown_(); }  // Does not unload the library: others in this process may use it.

  /// Adds one sample; none if the GPU does not report it.
  void add_to(ClockReading& sums) const {
    unsigned megahertz = 0;
    unsigned long long reasons = 0;
    FieldValue power;
    power.field = kPowerInstant;
    if (clock_(device_, kSmClock, &megahertz) != kSuccess) return;
    if (reasons_(device_, &reasons) != kSuccess) return;
    if (fields_(device_, 1, &power) != kSuccess || power.result != kSuccess) return;
    sums.clock += megahertz;
    sums.power += static_cast<double>(power.value.whole) / 1e3;
    sums.capped += (reasons & kPowerCap) != 0 ? 1 : 0;
    ++sums.samples;
  }

 private:
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (function == nullptr) fail(std::string("NVML has no ") + name);
  }

  void* library_;
  void* device_ = nullptr;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*by_bus_)(const char*, void**) = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*reasons_)(void*, unsigned long long*) = nullptr;
  int (*fields_)(void*, int, FieldValue*) = nullptr;
};

ClockMeter::ClockMeter(const std::string& pci_bus) : nvml_(std::make_unique<Nvml>(pci_bus)) {}

ClockMeter::~ClockMeter() {
  stopped_ = true;
  if (thread_.joinable()) thread_.join();
}

void ClockMeter::start() {
  stopped_ = true;
  if (thread_.joinable()) thread_.join();
  sums_ = ClockReading();
  stopped_ = false;
  thread_ = std::thread([this] { sample(); });
}

ClockReading ClockMeter::stop() {
  stopped_ = true;
  if (thread_.joinable()) thread_.join();
  ClockReading mean = sums_;
  if (mean.samples == 0) fail("no sample between start and stop; the GPU may not report its power");
  mean.clock /= mean.samples;
  mean.power /= mean.samples;
  mean.capped /= mean.samples;
  return mean;
}

void ClockMeter::sample() {
  while (!stopped_) {
    nvml_->add_to(sums_);
    std::this_thread::sleep_for(kBetween);
  }
}

}  // namespace spillway::bench
