/* Loads a cubin as the first argument says, and launches the kernels that the others name, twice each. The image is gone
 * as soon as it is loaded. "lies" loads one that ends where memory does and claims to go on. */
#include "driver.h"
#include <elf.h>
#include <sys/mman.h>
#include <sys/stat.h>

CUresult cuModuleLoad(CUmodule *module, const char *path);
CUresult cuLibraryLoadData(void **library, const void *image, void *options, void *values, unsigned count,
                           void *library_options, void *library_values, unsigned library_count);
CUresult cuLibraryGetKernel(void **kernel, void *library, const char *name);

static void lie(char *image)
{
    Elf64_Ehdr *header = (Elf64_Ehdr *)image;
    Elf64_Shdr *sections = (Elf64_Shdr *)(image + header->e_shoff);
    const char *names = image + sections[header->e_shstrndx].sh_offset;
    for (int i = 1; i < header->e_shnum; i++)
        if (strcmp(names + sections[i].sh_name, ".debug_line") == 0)
            sections[i].sh_size = 200 << 10;
}

int main(int argc, char **argv)
{
    const char *form = argv[1], *path = argv[2];
    Cuda cuda = cuda_start();
    FILE *file = fopen(path, "rb");
    struct stat about;
    if (argc < 4 || !file || stat(path, &about) != 0)
        return 9;
    size_t bytes = about.st_size, room = (bytes + 4095) / 4096 * 4096;
    char *pages = mmap(NULL, room + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* Headers are aligned by eight. */
    char *image = pages + (room - bytes) / 8 * 8;
    if (pages == MAP_FAILED || mprotect(pages + room, 4096, PROT_NONE) != 0 || fread(image, 1, bytes, file) != bytes)
        return 9;
    fclose(file);

    CUmodule module;
    void *library = NULL;
    if (strcmp(form, "lies") == 0)
        lie(image);
    if (strcmp(form, "file") == 0)
        OK(cuModuleLoad(&module, path));
    else if (strcmp(form, "library") == 0)
        OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    else
        OK(cuModuleLoadData(&module, image));
    munmap(pages, room + 4096);

    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    int in_graph = strcmp(form, "graph") == 0;
    OK(cuStreamCreate(&stream, 0));
    if (in_graph)
        OK(cuStreamBeginCapture_v2(stream, 0));
    for (int i = 3; i < argc; i++) {
        CUfunction function;
        if (library)
            OK(cuLibraryGetKernel((void **)&function, library, argv[i]));
        else
            OK(cuModuleGetFunction(&function, module, argv[i]));
        launch(function, stream);
        launch(function, stream);
    }
    if (in_graph) {
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cuGraphLaunch(exec, stream));
    }
    launch(cuda.first, stream);
    OK(cuCtxSynchronize());
    return 0;
}
