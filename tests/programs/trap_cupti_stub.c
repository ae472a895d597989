/* A libcupti that refuses to subscribe with the error in STUB_SUBSCRIBE, or takes everything but the kind in STUB_REFUSES
 * and never delivers a record. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

int cuptiGetVersion(uint32_t *version) { *version = 130001; return 0; }
int cuptiGetResultString(int result, const char **text) { (void)result; *text = "an error of the stub"; return 0; }
int cuptiGetTimestamp(uint64_t *now_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return 0;
}
int cuptiSubscribe(void **subscriber, void *callback, void *data)
{
    const char *error = getenv("STUB_SUBSCRIBE");
    (void)callback, (void)data;
    *subscriber = (void *)8;
    return error ? atoi(error) : 0;
}
int cuptiUnsubscribe(void *subscriber) { (void)subscriber; return 0; }
int cuptiEnableCallback(uint32_t on, void *subscriber, int domain, uint32_t id) { (void)on, (void)subscriber, (void)domain, (void)id; return 0; }
int cuptiEnableDomain(uint32_t on, void *subscriber, int domain) { (void)on, (void)subscriber, (void)domain; return 0; }
int cuptiActivityRegisterCallbacks(void *requested, void *completed) { (void)requested, (void)completed; return 0; }
int cuptiActivityEnable(int kind)
{
    const char *refused = getenv("STUB_REFUSES");
    return refused && atoi(refused) == kind ? 11 : 0;
}
int cuptiActivityDisable(int kind) { (void)kind; return 0; }
int cuptiActivityFlushAll(uint32_t forced) { (void)forced; return 0; }
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, void **record) { (void)buffer, (void)bytes, (void)record; return 12; }
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) { (void)context, (void)stream; *dropped = 0; return 0; }
int cuptiActivityGetAttribute(int attribute, size_t *size, void *value) { (void)attribute, (void)size, (void)value; return 1; }
int cuptiActivitySetAttribute(int attribute, size_t *size, void *value) { (void)attribute, (void)size, (void)value; return 1; }
