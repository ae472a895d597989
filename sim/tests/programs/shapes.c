/* Rectangles and boxes of bytes, to and from arrays too. */
#include "sim.h"

struct Side { size_t x, y; unsigned type; const void *host; CUdeviceptr device; void *array; size_t pitch; };
struct Rectangle { struct Side source, target; size_t width, height; };
struct ArrayShape { size_t width, height; unsigned format, channels; };
CUresult cuMemcpy2D_v2(const struct Rectangle *), cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CUresult cuArrayCreate_v2(void **, const struct ArrayShape *), cuArrayDestroy(void *);
enum { HOST = 1, DEVICE = 2, ARRAY = 3 };

int main(void)
{
    start();
    enum { W = 100, H = 7 };
    unsigned char image[H][W], back[H][W];
    for (int i = 0; i < H * W; i++) image[i / W][i % W] = (unsigned char)(i * 7);
    CUdeviceptr memory;
    size_t pitch;
    OK(cuMemAllocPitch_v2(&memory, &pitch, W, H, 4));
    EQ(pitch, 512);
    struct Rectangle up = {{.type = HOST, .host = image, .pitch = W}, {.type = DEVICE, .device = memory, .pitch = pitch}, W, H};
    OK(cuMemcpy2D_v2(&up));
    void *array;
    OK(cuArrayCreate_v2(&array, &(struct ArrayShape){W, H, 1, 1}));
    struct Rectangle across = {{.type = DEVICE, .device = memory, .pitch = pitch}, {.type = ARRAY, .array = array}, W, H};
    OK(cuMemcpy2D_v2(&across));
    memset(back, 0, sizeof back);
    /* The inner part, from the array to the same place. */
    struct Rectangle down = {{.x = 3, .y = 2, .type = ARRAY, .array = array}, {.x = 3, .y = 2, .type = HOST, .host = back, .pitch = W}, 50, 4};
    OK(cuMemcpy2D_v2(&down));
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            int inside = x >= 3 && x < 53 && y >= 2 && y < 6;
            EQ(back[y][x], inside ? image[y][x] : 0);
        }
    up.height = H + 1; /* One row too many. */
    EQ(cuMemcpy2D_v2(&up), 1);
    OK(cuArrayDestroy(array));
    EQ(cuMemcpy2D_v2(&across), 400);
    return 0;
}
