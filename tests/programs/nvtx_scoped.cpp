/* The C++ interface: scopes, domains by type, registered strings that are made once. */
#include <nvtx3/nvtx3.hpp>

extern "C" {
#include "driver.h"
}

struct library {
    static constexpr char const *name{"a C++ library"};
};
struct its_name {
    static constexpr char const *message{"registered once"};
};

static Cuda cuda;

static void work()
{
    nvtx3::scoped_range_in<library> range{nvtx3::registered_string_in<library>::get<its_name>()};
    launch(cuda.first, nullptr);
    launch(cuda.first, nullptr);
}

int main()
{
    cuda = cuda_start();
    nvtx3::scoped_range whole{"whole"};
    work();
    {
        nvtx3::unique_range unique{"unique"};
        work();
    }
    OK(cuCtxSynchronize());
    return 0;
}
