/* signal_safe_driver.c with launches that check each argument and the stack: with another value than launches.c
   passes, or a stack that is not aligned, they return CUDA_ERROR_ASSERT (710), and with a shared memory of 13 bytes
   CUDA_ERROR_INVALID_VALUE (1). The included cuLaunchKernel gets another name, so that ours can have its own. */
#define cuLaunchKernel launch_without_checks
#include "signal_safe_driver.c"
#undef cuLaunchKernel
#include "launches.h"

#define CHECKED(is_right, shared)                                                                                     \
    (!(is_right) || ((shared) != 16 && (shared) != 13) || (uintptr_t)__builtin_frame_address(0) % 16 != 0             \
         ? 710                                                                                                        \
         : (shared) == 13)

#define KERNEL(name)                                                                                                  \
    CUresult name(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,       \
                  unsigned shared, void *stream, void **parameters, void **extra)                                     \
    {                                                                                                                 \
        int is_right = function == &some_place && gx == GX && gy == GY && gz == GZ && bx == BX && by == BY &&         \
                       bz == BZ && stream == STREAM && parameters == PARAMETERS && extra == EXTRA;                    \
        return CHECKED(is_right, shared);                                                                             \
    }
KERNEL(cuLaunchKernel)
KERNEL(cuLaunchKernel_ptsz)

#define COOPERATIVE(name)                                                                                             \
    CUresult name(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,       \
                  unsigned shared, void *stream, void **parameters)                                                   \
    {                                                                                                                 \
        int is_right = function == &some_place && gx == GX && gy == GY && gz == GZ && bx == BX && by == BY &&         \
                       bz == BZ && stream == STREAM && parameters == PARAMETERS;                                      \
        return CHECKED(is_right, shared);                                                                             \
    }
COOPERATIVE(cuLaunchCooperativeKernel)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz)

#define WITH_CONFIGURATION(name)                                                                                      \
    CUresult name(const Configuration *configuration, void *function, void **parameters, void **extra)                \
    {                                                                                                                 \
        const unsigned *grid = configuration->grid, *block = configuration->block;                                    \
        int is_right = function == &some_place && grid[0] == GX && grid[1] == GY && grid[2] == GZ &&                  \
                       block[0] == BX && block[1] == BY && block[2] == BZ && configuration->stream == STREAM &&       \
                       parameters == PARAMETERS && extra == EXTRA;                                                    \
        return CHECKED(is_right, configuration->shared);                                                              \
    }
WITH_CONFIGURATION(cuLaunchKernelEx)
WITH_CONFIGURATION(cuLaunchKernelEx_ptsz)
