// SPDX-License-Identifier: Apache-2.0

/*
 * largestate is preloaded after ptrace.so and stands in for a host whose processor has a state
 * larger than this one's, as AMX makes it: PTRACE_GETREGSET, NT_X86_XSTATE gives 8 KiB more, from
 * offset 4096 or so, and PTRACE_SETREGSET takes only the whole and answers EFAULT to less.
 *
 * What is more belongs to a component of its own, number 62, of which each traced process has other
 * contents, and every second one has it in its initial state. They must come back as they were
 * given: else the answer is EINVAL.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define MORE 8192
#define COMPONENT ((uint64_t)1 << 62)

typedef long ptrace_t(enum __ptrace_request, ...);

static unsigned char state[64 << 10];

static uint64_t bit(pid_t pid) { return pid & 1 ? COMPONENT : 0; }

long ptrace(enum __ptrace_request request, ...)
{
    static ptrace_t *next;
    va_list ap;

    if (!next)
        next = (ptrace_t *)dlsym(RTLD_NEXT, "ptrace");
    va_start(ap, request);
    pid_t pid = va_arg(ap, pid_t);
    void *addr = va_arg(ap, void *), *data = va_arg(ap, void *);
    va_end(ap);
    if ((request != PTRACE_GETREGSET && request != PTRACE_SETREGSET) || addr != (void *)NT_X86_XSTATE)
        return next(request, pid, addr, data);

    struct iovec *caller = data, real = {state, sizeof state - MORE - 4096};
    long ret = next(PTRACE_GETREGSET, pid, addr, &real);
    if (ret != 0)
        return ret;
    size_t n = real.iov_len, begin = n > 4096 ? n : 4096, all = begin + MORE;
    size_t len = caller->iov_len < all ? caller->iov_len : all;
    uint64_t bv;
    if (request == PTRACE_GETREGSET) {
        memset(state + n, 0, begin - n);
        memset(state + begin, pid & 0xff, MORE);
        memcpy(&bv, state + 512, 8);
        bv |= bit(pid);
        memcpy(state + 512, &bv, 8);
        memcpy(caller->iov_base, state, len);
        caller->iov_len = len;
        return 0;
    }
    if (len < all) {
        errno = EFAULT;
        return -1;
    }
    memcpy(state, caller->iov_base, len);
    memcpy(&bv, state + 512, 8);
    for (size_t i = begin; i < all; i++)
        if (state[i] != (pid & 0xff) || (bv & COMPONENT) != bit(pid)) {
            errno = EINVAL;
            return -1;
        }
    bv &= ~COMPONENT;
    memcpy(state + 512, &bv, 8);
    real.iov_len = n;
    ret = next(PTRACE_SETREGSET, pid, addr, &real);
    caller->iov_len = len;
    return ret;
}
