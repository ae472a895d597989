// Launches from functions with C++'s kinds of names.
extern "C" {
#include "driver.h"
}

static Cuda cuda;
static volatile int sink;

namespace simulation {
namespace {
template <typename Number> __attribute__((noinline)) void relax(Number value)
{
    launch(cuda.first, nullptr);
    sink += static_cast<int>(value);
}
} // namespace

struct Grid {
    int cells;
    __attribute__((noinline)) bool operator<(const Grid &other) const
    {
        relax<double>(other.cells);
        sink++;
        return cells < other.cells;
    }
    __attribute__((noinline)) void step(const char *, int)
    {
        auto inside = [this](int more) __attribute__((noinline)) {
            sink += *this < Grid{cells + more};
        };
        inside(1);
        sink++;
    }
};
} // namespace simulation

int main()
{
    cuda = cuda_start();
    simulation::Grid{3}.step("x", 1);
    OK(cuCtxSynchronize());
    return sink > 0 ? 0 : 1;
}
