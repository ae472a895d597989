/* Two threads work for 200 requests, each in a range whose name carries the request's span, in every form that NVTX has for
   names. The Nth launch has N blocks; stdout says for each: [blocks, "trace id", "span id"], empty outside of requests.
   Built with NVIDIA's headers. */
#include <nvtx3/nvToolsExt.h>
#include "driver.h"
#include <pthread.h>
#include <stdatomic.h>
#include <wchar.h>

static Cuda cuda;
static atomic_uint numbers, requests;
static pthread_mutex_t said = PTHREAD_MUTEX_INITIALIZER;

static void launch_for(unsigned request)
{
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    unsigned number = ++numbers;
    OK(cuLaunchKernel(cuda.first, number, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    pthread_mutex_lock(&said);
    if (request)
        printf("[%u, \"0000000000000abc%016x\", \"00000000f%07x\"]\n", number, request, request);
    else
        printf("[%u, \"\", \"\"]\n", number);
    pthread_mutex_unlock(&said);
}

static void push(unsigned request)
{
    char name[200];
    wchar_t wide[200];
    const char *form = request % 3 ? "request traceparent=00-0000000000000abc%016x-00000000f%07x-01"
                                   : "request, user=%3$u, TraceParent: 00-0000000000000abc%1$016x-00000000f%2$07x-01";
    snprintf(name, sizeof name, form, request, request, 7u);
    nvtxEventAttributes_t attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    switch (request % 4) {
    case 0:
        nvtxRangePushA(name);
        break;
    case 1:
        swprintf(wide, 200, L"%s", name);
        nvtxRangePushW(wide);
        break;
    case 2:
        nvtxRangePushEx(&attributes);
        break;
    default:
        attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
        attributes.message.registered = nvtxDomainRegisterStringA(NULL, name);
        nvtxDomainRangePushEx(NULL, &attributes);
    }
}

static void *worker(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(cuda.context));
    unsigned request;
    while ((request = ++requests) <= 200) {
        launch_for(0);
        push(request);
        launch_for(request);
        nvtxRangePushA("forward");
        launch_for(request);
        nvtxRangePop();
        launch_for(request);
        nvtxRangePop();
        launch_for(0);
    }
    return NULL;
}

int main(void)
{
    /* More than there is room for names. */
    for (unsigned request = 1000; request < 41000; request++) {
        push(4 * request);
        nvtxRangePop();
    }
    cuda = cuda_start();
    pthread_t threads[2];
    for (int at = 0; at < 2; at++)
        pthread_create(&threads[at], NULL, worker, NULL);
    for (int at = 0; at < 2; at++)
        pthread_join(threads[at], NULL);
    nvtxRangePushA("named at last");
    launch_for(0);
    nvtxRangePop();
    OK(cuCtxSynchronize());
    return 0;
}
