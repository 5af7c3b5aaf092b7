// SPDX-License-Identifier: Apache-2.0

/*
 * ptrace.so is preloaded into User-Mode Linux (linux.uml), and into nothing else.
 *
 * A User-Mode-Linux kernel runs guest programs in processes that it traces. Before it lets one go
 * on it sets the vector registers with PTRACE_SETREGSET, NT_X86_XSTATE. Debian's kernel 6.1 does
 * that from a buffer of 2696 bytes (FP_SIZE), which was the largest state that processors had.
 * The host's kernel takes exactly the size of its own processor's state and answers EFAULT to
 * anything shorter. Intel's AMX made that 11008 bytes: there every guest panics at its first
 * program.
 *
 * So this ptrace completes the request. It reads the traced thread's full state, lays the
 * caller's bytes over it and sets the full state. All other requests go to glibc's ptrace as they
 * are. It does so on every host, also where the caller's buffer is large enough, so that every
 * run tests it.
 *
 * Layout (Intel SDM volume 1, 13.4, standard format): 512 bytes of FXSAVE, a header of 64 bytes
 * whose first word is XSTATE_BV, then one area per state component. A clear bit of XSTATE_BV says
 * that the component is in its initial state, whatever its area holds.
 *
 * Which XSTATE_BV is right? The caller keeps one buffer per guest thread, and guest threads share
 * traced threads, so its buffer may come from another moment than the state that we read.
 *   - A component that lies whole within the caller's bytes is the caller's: bytes and bit.
 *   - Any other component is the traced thread's: bytes and bit stay as they were just read. The
 *     caller's bit for it says nothing, since its bytes were cut off. Mixing the two would
 *     resurrect stale bytes, or ask for a component that the traced thread has no permission for,
 *     which the kernel refuses with EINVAL.
 * What is not the caller's is not switched between guest threads that share a traced thread. In
 * practice that is AMX alone (tile configuration at 2752, tile data at 2816). A guest program
 * cannot use that: Linux wants arch_prctl(ARCH_REQ_XCOMP_PERM) first, and a User-Mode-Linux
 * kernel does not know that call.
 *
 * The caller's stack is a guest kernel's stack of 16 KiB, and its heap is not glibc's: so the
 * full state lives in a mapping of our own. It is made once and then used again. A call that
 * comes while another one uses it makes a mapping for itself, so threads and signal handlers need
 * no lock.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define HEADER 512      /* offset of XSTATE_BV */
#define AREAS 576       /* end of the header: component areas follow */
#define ROOM (64 << 10) /* of a full state; the largest known one has 11008 bytes */

typedef long ptrace_t(enum __ptrace_request, ...);

static ptrace_t *next; /* glibc's ptrace */

/* Area of each state component beyond x87 and SSE; size 0: this processor does not have it. */
static struct {
    size_t offset, size;
} area[64];

__attribute__((constructor)) static void prepare(void)
{
    unsigned a, b, c, d;

    next = (ptrace_t *)dlsym(RTLD_NEXT, "ptrace");
    if (!next)
        abort(); /* cannot be: glibc has it */
    if (__get_cpuid_max(0, NULL) < 0xd)
        return;
    __cpuid_count(0xd, 0, a, b, c, d);
    uint64_t user = a | (uint64_t)d << 32; /* components that XCR0 may enable */
    for (int i = 2; i < 63; i++) {
        if (!(user >> i & 1))
            continue;
        __cpuid_count(0xd, i, a, b, c, d);
        area[i].size = a;
        area[i].offset = b;
    }
}

static unsigned char *spare; /* mapping that no call uses */

static unsigned char *take(void)
{
    unsigned char *m = __atomic_exchange_n(&spare, NULL, __ATOMIC_ACQ_REL);

    if (!m) {
        m = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m == MAP_FAILED)
            m = NULL;
    }
    return m;
}

static void give(unsigned char *m)
{
    unsigned char *none = NULL;
    int err = errno;

    if (!__atomic_compare_exchange_n(&spare, &none, m, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        munmap(m, ROOM);
    errno = err;
}

/* overlay lays the caller's bytes, at least AREAS of them, over a full state of n bytes. */
static void overlay(unsigned char *full, size_t n, const struct iovec *caller)
{
    size_t len = caller->iov_len < n ? caller->iov_len : n;
    size_t whole = len; /* bytes of the caller's that are no part of a component that was cut */
    uint64_t within = 3, mine, theirs; /* x87 and SSE are in the first 512 bytes */

    for (int i = 2; i < 63; i++) {
        size_t end = area[i].offset + area[i].size;

        if (!area[i].size)
            continue;
        if (end <= len)
            within |= (uint64_t)1 << i;
        else if (area[i].offset < whole)
            whole = area[i].offset;
    }
    memcpy(&mine, full + HEADER, sizeof mine);
    memcpy(full, caller->iov_base, whole);
    memcpy(&theirs, full + HEADER, sizeof theirs);
    theirs = (theirs & within) | (mine & ~within);
    memcpy(full + HEADER, &theirs, sizeof theirs);
}

/* set_xstate is PTRACE_SETREGSET, NT_X86_XSTATE. A shorter iov_len stays: all of it was taken. */
static long set_xstate(pid_t pid, struct iovec *caller)
{
    void *note = (void *)NT_X86_XSTATE;
    unsigned char *full = caller->iov_len < AREAS ? NULL : take();
    long ret;

    if (!full) /* without a header, or without memory, the kernel's own answer is the right one */
        return next(PTRACE_SETREGSET, pid, note, caller);
    struct iovec iov = {full, ROOM};
    ret = next(PTRACE_GETREGSET, pid, note, &iov);
    if (ret == 0 && iov.iov_len >= AREAS && iov.iov_len < ROOM) {
        overlay(full, iov.iov_len, caller);
        ret = next(PTRACE_SETREGSET, pid, note, &iov);
    } else if (ret == 0) { /* a state that we do not know */
        ret = next(PTRACE_SETREGSET, pid, note, caller);
    }
    if (ret == 0 && caller->iov_len > iov.iov_len)
        caller->iov_len = iov.iov_len; /* as the kernel tells it */
    give(full);
    return ret;
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list ap;
    pid_t pid;
    void *addr, *data;

    va_start(ap, request);
    pid = va_arg(ap, pid_t);
    addr = va_arg(ap, void *);
    data = va_arg(ap, void *);
    va_end(ap);
    if (request == PTRACE_SETREGSET && addr == (void *)NT_X86_XSTATE && data)
        return set_xstate(pid, data);
    return next(request, pid, addr, data);
}
