/* Ranges of every kind around launches, and on stdout what NVTX returned. Built with NVIDIA's headers, or against the
   library of version 2 (-DVERSION_2). */
#ifdef VERSION_2
#include <nvToolsExt.h>
#else
#include <nvtx3/nvToolsExt.h>
#endif
#include "driver.h"
#include <wchar.h>

static Cuda cuda;

static void launches(int count)
{
    for (int i = 0; i < count; i++)
        launch(cuda.first, NULL);
}

static nvtxEventAttributes_t attributes_of(const char *name)
{
    nvtxEventAttributes_t attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.colorType = NVTX_COLOR_ARGB;
    attributes.color = 0xff3366cc;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    return attributes;
}

int main(void)
{
    printf("before %d\n", nvtxRangePushA("before the driver"));
    printf("closed %d\n", nvtxRangePushA("closed before the driver"));
    printf("closed %d\n", nvtxRangePop());
    nvtxRangeId_t early = nvtxRangeStartA("started early");
    cuda = cuda_start();
    launches(1);

    printf("outer %d\n", nvtxRangePushA("outer"));
    launches(3);
    printf("inner %d\n", nvtxRangePushW(L"inn\u00e9r \U0001f600"));
    launches(2);
    printf("inner %d\n", nvtxRangePop());

    nvtxDomainHandle_t domain = nvtxDomainCreateA("library");
    nvtxEventAttributes_t attributes = attributes_of(NULL);
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = nvtxDomainRegisterStringA(domain, "registered");
    printf("domain %d\n", nvtxDomainRangePushEx(domain, &attributes));
    launches(4);
    /* Domains have stacks of their own: what was pushed first ends first. */
    printf("outer %d\n", nvtxRangePop());
    launches(5);
    printf("domain %d\n", nvtxDomainRangePop(domain));

    attributes = attributes_of("with attributes");
    printf("attributes %d\n", nvtxRangePushEx(&attributes));
    launches(6);
    nvtxRangeId_t late = nvtxRangeStartEx(&attributes);
    nvtxMarkA("a moment");
    nvtxMarkEx(&attributes);
    printf("attributes %d\n", nvtxRangePop());
    nvtxRangeEnd(late);
    nvtxRangeEnd(early);
    printf("numbers %d\n", early != late && early != 0 && late != 0);

    for (int step = 0; step < 300; step++) {
        char name[32];
        snprintf(name, sizeof name, "step %d", step);
        nvtxRangePushA(name);
        launches(1);
        nvtxRangePop();
    }
    nvtxRangePushA("left open");
    launches(7);
    nvtxDomainDestroy(domain);
    OK(cuCtxSynchronize());
    return 0;
}
