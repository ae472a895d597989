/* Three streams, two of them with names, and work in flight in each when the program is killed. */
#include <nvtx3/nvToolsExtCuda.h>
#include <signal.h>

/* Long enough to be in flight at the end on any machine. */
static const char *const LENGTHY = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                   ".visible .entry lengthy(.param .u64 unused)\n{\n"
                                   "// sim.duration_ns = 20000000000\n ret;\n}\n";

int main(void)
{
    cuda_start();
    CUmodule module;
    CUfunction lengthy;
    OK(cuModuleLoadData(&module, LENGTHY));
    OK(cuModuleGetFunction(&lengthy, module, "lengthy"));
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
        launch(lengthy, streams[i]);
    raise(SIGKILL);
    return 0;
}
