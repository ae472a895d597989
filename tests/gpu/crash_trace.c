// Preloaded behind gputrace when a traced program has died from a signal, to say where: the faulting frames and the
// addresses that the libraries of interest were mapped at, on stderr. There is no gdb where the GPU is.
#define _GNU_SOURCE
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void died(int signal_number) {
  static const char head[] = "\n== crash_trace: frames ==\n", maps_head[] = "== crash_trace: maps ==\n";
  void *frames[64];
  (void)!write(2, head, sizeof head - 1);
  backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
  (void)!write(2, maps_head, sizeof maps_head - 1);
  int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  char text[65536], line[512];
  size_t used = 0;
  ssize_t got;
  while ((got = read(maps, text, sizeof text)) > 0)
    for (ssize_t i = 0; i < got; i++) {
      if (used < sizeof line - 1) line[used++] = text[i];
      if (text[i] != '\n') continue;
      line[used] = 0;
      if (strstr(line, "gputrace") || strstr(line, "libcu")) (void)!write(2, line, used);
      used = 0;
    }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

__attribute__((constructor)) static void watch(void) {
  static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};
  static char stack[1 << 18];
  stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
  void *warm[4];
  backtrace(warm, 4);  // Loads the unwinder now: loading it inside the handler could deadlock.
  sigaltstack(&alternate, NULL);
  for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
    struct sigaction action = {.sa_handler = died, .sa_flags = SA_ONSTACK | SA_RESETHAND};
    sigaction(signals[i], &action, NULL);
  }
}
