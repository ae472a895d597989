/* What no program should pass to NVTX, and what some do. Ends with 0, and the same output whoever listens. */
#include <nvtx3/nvToolsExt.h>
#include "driver.h"
#include <stdint.h>

static Cuda cuda;

int main(void)
{
    nvtxRangePushA(NULL);
    nvtxRangePushW(NULL);
    nvtxRangePushEx(NULL);
    nvtxRangePop();
    nvtxRangePop();
    nvtxRangePop();
    nvtxRangePop(); /* One too many. */
    cuda = cuda_start();
    printf("nothing open %d\n", nvtxRangePop() < 0);

    nvtxMarkA(NULL);
    nvtxMarkEx(NULL);
    nvtxRangeEnd(nvtxRangeStartA(NULL));
    nvtxRangeEnd(0);
    nvtxRangeEnd(UINT64_MAX);
    nvtxRangeEnd(0x123456789abcdef);
    nvtxRangeId_t id = nvtxRangeStartA("ended twice");
    nvtxRangeEnd(id);
    nvtxRangeEnd(id);

    nvtxEventAttributes_t attributes;
    memset(&attributes, 0xff, sizeof attributes);
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    nvtxRangePushEx(&attributes); /* A registered string that is none. */
    launch(cuda.first, NULL);
    nvtxRangePop();
    attributes.size = 12;
    nvtxRangePushEx(&attributes);
    nvtxRangePop();
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = NULL;
    nvtxDomainHandle_t nonsense[] = {(nvtxDomainHandle_t)8, (nvtxDomainHandle_t)UINTPTR_MAX,
                                     (nvtxDomainHandle_t)&attributes};
    for (int i = 0; i < 3; i++) {
        nvtxDomainRangePushEx(nonsense[i], &attributes);
        nvtxDomainRangePop(nonsense[i]);
        nvtxDomainDestroy(nonsense[i]);
        nvtxDomainRegisterStringA(nonsense[i], NULL);
    }
    nvtxDomainHandle_t destroyed = nvtxDomainCreateA("destroyed");
    attributes.message.ascii = "after its domain";
    nvtxDomainRangePushEx(destroyed, &attributes);
    nvtxDomainDestroy(destroyed);
    nvtxDomainRangePop(destroyed);
    nvtxDomainRangePushEx(destroyed, &attributes);
    launch(cuda.first, NULL);
    nvtxDomainRangePop(destroyed);

    char *name = malloc(100001);
    memset(name, 'x', 100000);
    name[100000] = 0;
    nvtxRangePushA(name);
    launch(cuda.first, NULL);
    nvtxRangePop();
    free(name);
    static const wchar_t wide[] = {0xd800, 0x110000, -1, 'w', 0};
    nvtxRangePushW(wide);
    nvtxRangePop();
    nvtxRangePushA("semi;colon\nnew\tline \xff\xfe");
    launch(cuda.first, NULL);
    nvtxRangePop();

    int ok = 1;
    for (int i = 0; i < 1000; i++)
        ok &= nvtxRangePushA("deep") == i;
    launch(cuda.first, NULL);
    for (int i = 999; i >= 0; i--)
        ok &= nvtxRangePop() == i;
    printf("levels %d\n", ok);
    OK(cuCtxSynchronize());
    return 0;
}
