// How long CUPTI's subscription takes while threads launch, in a bare program:
//
//   cupti_subscribe THREADS first|again free|held TIMES
//
// first: nobody has subscribed before the launches begin, so that of TIMES subscriptions the first one is the
// process's first; again: the program has subscribed once before, and ended that.
// free: launches go on meanwhile; held: they wait from before the subscription until after it, a second at most.
// Prints for each subscription how many ms passed until no launch was under way (0 if free), what it and its end
// took, and how many launches a second there were with the subscriber and without.
#define _GNU_SOURCE
#include "driver_min.h"
#include "../cupti_load.h"
#include "../cupti_min.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MOST = 64, PHASE_US = 200000 };

static driver_handle context;
static atomic_bool is_over, is_held;
static struct { _Alignas(64) atomic_bool is_inside; atomic_ulong launches; } threads[THREADS_MOST];
static int thread_count;

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void *launch_on(void *number) {
  size_t own = (size_t)number;
  CHECK(cuCtxSetCurrent(context));
  while (!is_over) {
    threads[own].is_inside = true;
    double until = now_ms() + 1000;
    while (is_held && now_ms() < until) {
      threads[own].is_inside = false;
      usleep(20);
      threads[own].is_inside = true;
    }
    launch(tick_function, 0);
    threads[own].is_inside = false;
    threads[own].launches++;
  }
  return NULL;
}

// true: lets no launch begin, and waits until none is under way; false: lets them begin again.
static void hold(bool is_wanted) {
  is_held = is_wanted;
  for (int i = 0; is_wanted && i < thread_count; i++)
    while (threads[i].is_inside) usleep(20);
}

static double launches_a_second(void) {
  unsigned long before = 0, after = 0;
  double begin = now_ms();
  for (int i = 0; i < thread_count; i++) before += threads[i].launches;
  usleep(PHASE_US);
  for (int i = 0; i < thread_count; i++) after += threads[i].launches;
  return (double)(after - before) * 1e3 / (now_ms() - begin);
}

static void called_back(void *user, int domain, uint32_t id, const callback_data *data) {
  (void)user, (void)domain, (void)id, (void)data;
}

int main(int argc, char **argv) {
  if (argc < 5 || (thread_count = atoi(argv[1])) < 1 || thread_count > THREADS_MOST) return 3;
  bool again = !strcmp(argv[2], "again"), held = !strcmp(argv[3], "held");
  load_driver();
  void *library = load_cupti(), *subscriber;
  if (!library) return 3;
  int (*subscribe)(void **, void *, void *) = (int (*)(void **, void *, void *))dlsym(library, "cuptiSubscribe");
  int (*unsubscribe)(void *) = (int (*)(void *))dlsym(library, "cuptiUnsubscribe");
  if (!subscribe || !unsubscribe) return 3;
  start_device();
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  launch(tick_function, 0);
  CHECK(cuCtxSynchronize());
  if (again) {
    CHECK(subscribe(&subscriber, (void *)called_back, NULL));
    CHECK(unsubscribe(subscriber));
  }
  pthread_t ids[THREADS_MOST];
  for (size_t i = 0; i < (size_t)thread_count; i++) CHECK(pthread_create(&ids[i], NULL, launch_on, (void *)i));
  usleep(PHASE_US);
  for (int times = atoi(argv[4]); times > 0; times--) {
    double without = launches_a_second(), begin = now_ms();
    if (held) hold(true);
    double quiet = now_ms();
    CHECK(subscribe(&subscriber, (void *)called_back, NULL));
    double subscribed = now_ms();
    if (held) hold(false);
    double with = launches_a_second(), end = now_ms();
    CHECK(unsubscribe(subscriber));
    printf("quiet after %.2f ms, subscribed in %.2f ms, ended in %.2f ms; launches a second without %.0f, with %.0f\n", quiet - begin, subscribed - quiet, now_ms() - end, without, with);
    fflush(stdout);
  }
  is_over = true;
  for (int i = 0; i < thread_count; i++) pthread_join(ids[i], NULL);
  return 0;
}
