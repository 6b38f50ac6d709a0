/*
 * For LD_PRELOAD of user-mode Linux: Debian's sets the registers of its processes in the size that processors had when it
 * was written, which the kernel refuses where there are more of them (AMX). Here they are filled up to the size it wants.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PEEK_FIRST = 1, PEEK_LAST = 3, GET_REGISTERS = 0x4204, SET_REGISTERS = 0x4205, X86_XSTATE = 0x202 };

long ptrace(int request, ...) {
  va_list arguments;
  va_start(arguments, request);
  pid_t pid = va_arg(arguments, pid_t);
  void *address = va_arg(arguments, void *);
  void *data = va_arg(arguments, void *);
  va_end(arguments);
  if (request == SET_REGISTERS && (long)address == X86_XSTATE) {
    static char buffer[1 << 16] __attribute__((aligned(64)));
    const struct iovec *given = data;
    struct iovec whole = {buffer, sizeof buffer};
    if (syscall(SYS_ptrace, GET_REGISTERS, pid, address, &whole) < 0) return -1;
    memcpy(buffer, given->iov_base, given->iov_len < whole.iov_len ? given->iov_len : whole.iov_len);
    return syscall(SYS_ptrace, request, pid, address, &whole);
  }
  /* The C library's own returns what was peeked at; the kernel writes it. */
  long word;
  int peeks = request >= PEEK_FIRST && request <= PEEK_LAST;
  long result = syscall(SYS_ptrace, request, pid, address, peeks ? (void *)&word : data);
  if (result < 0 || !peeks) return result;
  errno = 0;
  return word;
}
