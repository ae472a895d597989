// What gputrace sees of PyTorch's caching allocator, under the same symbol: a function of libc10 that
// libc10_cuda calls under its lock for each block. Compiled twice, as PyTorch is: with -DC10 as libc10, else as
// libc10_cuda; and with -DLOADED as a library whose constructor takes a block. -DOTHER_TYPES gives the function
// another argument.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

namespace c10 {
enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
struct Device {
    DeviceType type;
    int8_t index = -1;
};
#ifdef OTHER_TYPES
using Reserved = int;
#else
using Reserved = size_t;
#endif
__attribute__((visibility("default"))) void reportMemoryUsageToProfiler(void *, int64_t, size_t, Reserved, Device);
}

#if defined C10

static std::atomic<long> calls, bytes, device;

void c10::reportMemoryUsageToProfiler(void *, int64_t size, size_t allocated, Reserved reserved, Device on)
{
    // The sum of everything that arrives, so that no argument can be lost.
    calls++, bytes += size + (long)allocated + (long)reserved, device += (long)on.type * 100 + on.index;
}

extern "C" void reported(long out[3]) { out[0] = calls, out[1] = bytes, out[2] = device; }

// Of the host's memory, while a profiler runs; from the library itself.
extern "C" void host_alloc(size_t size)
{
    c10::reportMemoryUsageToProfiler(&calls, (int64_t)size, size, 0, {c10::DeviceType::CPU});
}

#elif defined LOADED

extern "C" void *block_alloc(size_t);
extern "C" void in_constructor();
__attribute__((constructor)) static void loaded() { in_constructor(), block_alloc(512); }

#else

extern "C" int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern "C" int cuMemAlloc_v2(uint64_t *, size_t);

static const size_t SEGMENT = 20 << 20;
static std::recursive_mutex lock;
static std::map<uint64_t, size_t> blocks, free_pieces;
static long allocated, peak, reserved, calls, bytes;
static std::atomic<bool> is_in_constructor;

static void report(uint64_t address, int64_t size)
{
    c10::Reserved now = (c10::Reserved)reserved;
    calls++, bytes += size + allocated + (long)now;
    c10::reportMemoryUsageToProfiler((void *)address, size, (size_t)allocated, now, {c10::DeviceType::CUDA, 0});
}

static bool grow(size_t length)
{
    uint64_t segment;
    if (cuMemAlloc_v2(&segment, length))
        return false;
    reserved += (long)length;
    free_pieces[segment] = length;
    return true;
}

// With a first segment: other threads have no context.
extern "C" int start()
{
    void *context;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || !grow(SEGMENT);
}

extern "C" void *block_alloc(size_t size)
{
    std::lock_guard<std::recursive_mutex> held(lock);
    auto fits = [=](auto &piece) { return piece.second >= size; };
    auto piece = std::find_if(free_pieces.begin(), free_pieces.end(), fits);
    if (piece == free_pieces.end()) {
        if (!grow(size > SEGMENT ? size : SEGMENT))
            return nullptr;
        piece = std::find_if(free_pieces.begin(), free_pieces.end(), fits);
    }
    auto [address, length] = *piece;
    free_pieces.erase(piece);
    if (length > size)
        free_pieces[address + size] = length - size;
    blocks[address] = size;
    allocated += (long)size;
    peak = allocated > peak ? allocated : peak;
    report(address, (int64_t)size);
    return (void *)address;
}

// Pieces are not joined: the tests count on it.
extern "C" void block_free(void *block)
{
    std::lock_guard<std::recursive_mutex> held(lock);
    auto found = blocks.find((uint64_t)block);
    size_t size = found->second;
    blocks.erase(found);
    free_pieces[(uint64_t)block] = size;
    allocated -= (long)size;
    report((uint64_t)block, -(int64_t)size);
}

// What it counts itself: allocated, peak, reserved, calls, and the sum of their arguments.
extern "C" void stats(long out[5])
{
    out[0] = allocated, out[1] = peak, out[2] = reserved, out[3] = calls, out[4] = bytes;
}

// As if a call were lost: the allocator's total changes without a report.
extern "C" void drift(long by) { allocated += by; }

extern "C" void in_constructor() { is_in_constructor = true; }

// The first call of all comes while another thread holds the loader's lock and waits for ours.
extern "C" int first_call_while_loading(const char *library)
{
    lock.lock();
    std::thread loader([=] { dlopen(library, RTLD_NOW | RTLD_LOCAL); });
    while (!is_in_constructor)
        usleep(1000);
    usleep(50000);
    void *block = block_alloc(1024);
    lock.unlock();
    loader.join();
    return block ? 0 : 1;
}

#endif
