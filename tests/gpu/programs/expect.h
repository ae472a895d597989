// What a test program counted by hand, printed in the one form that scripts/gpu-test reads.
#ifndef GPUTRACE_TEST_EXPECT_H
#define GPUTRACE_TEST_EXPECT_H
#include <stdio.h>
#include <stdlib.h>

struct expect {
  long launches, captured_launches, graph_launches, kernel_calls, graph_node_calls, copies, memsets;
};

static inline void print_expect(const struct expect *e) {
  printf("EXPECT launches=%ld captured_launches=%ld graph_launches=%ld kernel_calls=%ld graph_node_calls=%ld copies=%ld memsets=%ld\n",
         e->launches, e->captured_launches, e->graph_launches, e->kernel_calls, e->graph_node_calls, e->copies, e->memsets);
  fflush(stdout);
}

// Any failed call ends the program: exit code 3 is never asked for by a test.
#define CHECK(call) check_call((int)(call), __FILE__, __LINE__, #call)
static inline void check_call(int status, const char *file, int line, const char *call) {
  if (status == 0) return;
  fprintf(stderr, "%s:%d: %s failed: error %d\n", file, line, call, status);
  exit(3);
}
#endif
