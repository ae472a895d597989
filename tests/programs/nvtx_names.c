/* Three streams, two of them with names, and work in flight in each when the program is killed. */
#include <nvtx3/nvToolsExtCuda.h>
#include <signal.h>

int main(void)
{
    Cuda cuda = cuda_start();
    CUstream streams[3];
    nvtxResourceAttributes_t copies;
    memset(&copies, 0, sizeof copies);
    copies.version = NVTX_VERSION;
    copies.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
    copies.identifierType = NVTX_RESOURCE_TYPE_CUDA_STREAM;
    copies.messageType = NVTX_MESSAGE_TYPE_ASCII;
    copies.message.ascii = "the copies";
    for (int i = 0; i < 3; i++)
        OK(cuStreamCreate(&streams[i], 1));
    nvtxNameCuStreamA(streams[0], "the kernels");
    nvtxNameCuStreamA((CUstream)0x123450, "a stream that is none");
    nvtxNameCuStreamA(NULL, NULL);
    copies.identifier.pValue = streams[1];
    nvtxDomainResourceDestroy(nvtxDomainResourceCreate(NULL, &copies));
    for (int i = 0; i < 3; i++)
        launch(cuda.second, streams[i]);
    raise(SIGKILL);
    return 0;
}
