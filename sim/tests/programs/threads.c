/* Eight threads launch at once while records are taken: each launch has its record and an id of its own. */
#include "sim.h"

enum { THREADS = 8, LAUNCHES = 2000 };

static void *work(void *unused)
{
    (void)unused;
    CUstream stream;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
    for (int i = 0; i < LAUNCHES; i++) OK(launch(brief, i % 2 ? stream : NULL));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

int main(void)
{
    start();
    start_client();
    OK(cuptiActivityEnable(CONCURRENT_KERNEL));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    OK(cuCtxSynchronize());
    OK(cuptiActivityFlushAll(0));
    EQ(record_count, THREADS * LAUNCHES);
    /* One may have been asked for that nothing came into. */
    CHECK(buffers_requested - buffers_completed <= 1);
    uint8_t *seen = calloc(THREADS * LAUNCHES, 1);
    uint32_t lowest = UINT32_MAX;
    for (size_t i = 0; i < record_count; i++)
        if (word(records[i], 92) < lowest) lowest = word(records[i], 92);
    for (size_t i = 0; i < record_count; i++) {
        CHECK(word(records[i], 92) - lowest < THREADS * LAUNCHES);
        EQ(seen[word(records[i], 92) - lowest]++, 0);
        EQ(quad(records[i], 24) - quad(records[i], 16), BRIEF_NS);
    }
    return 0;
}
