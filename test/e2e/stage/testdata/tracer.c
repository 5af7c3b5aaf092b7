// SPDX-License-Identifier: Apache-2.0

/*
 * tracer sets the vector registers of a child the way User-Mode Linux does it, from a buffer that
 * is shorter than the processor's state, and looks what the child has then. It prints one line per
 * finding and "done" at the end.
 *
 *   refused E    PTRACE_SETREGSET with a short buffer failed with errno E
 *   wrong WHAT   it worked, and WHAT is not as it should be
 *   small        this processor's state is no longer than the short buffer
 */
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHORT 576 /* x87, SSE and the header: what is cut off begins with AVX's upper halves */
#define XMM0 160  /* offset of xmm0 */

static volatile long known = -1; /* a word for PEEK: it looks like an error */
static unsigned char before[32], after[32];

static void wrong(const char *what) { printf("wrong %s (errno %d)\n", what, errno); }

static void require(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static int child(int avx)
{
    require(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
    for (int i = 0; i < 32; i++)
        before[i] = i + 1;
    if (avx)
        __asm__ volatile("vmovdqu %1, %%ymm0\n\tint3\n\tvmovdqu %%ymm0, %0" : "=m"(after) : "m"(before) : "memory");
    else
        __asm__ volatile("movdqu %1, %%xmm0\n\tint3\n\tmovdqu %%xmm0, %0" : "=m"(after) : "m"(before) : "memory");
    for (int i = 0; i < 16; i++)
        if (after[i] != 0xa5)
            return 2;
    if (avx && memcmp(after + 16, before + 16, 16))
        return 3;
    return 0;
}

/* peeks checks glibc's convention: the word is the return value, and errno tells of an error. */
static void peeks(pid_t pid)
{
    errno = 0;
    if (ptrace(PTRACE_PEEKDATA, pid, (void *)&known, NULL) != -1 || errno != 0)
        wrong("PEEK of a word that is -1");
    if (ptrace(PTRACE_POKEDATA, pid, (void *)&known, (void *)0x1234567890) != 0)
        wrong("POKE");
    if (ptrace(PTRACE_PEEKDATA, pid, (void *)&known, NULL) != 0x1234567890)
        wrong("PEEK of what was poked");
    errno = 0;
    if (ptrace(PTRACE_PEEKDATA, pid, (void *)8, NULL) != -1 || errno != EIO)
        wrong("PEEK of an address that is not there");
}

/* try_once runs a child to its stop, sets xmm0 from a short buffer whose XSTATE_BV lacks the bits in
 * without and has those in with, and lets it go on. */
static void try_once(uint64_t without, uint64_t with)
{
    unsigned char cut[SHORT];
    static unsigned char full[64 << 10];
    int avx = __builtin_cpu_supports("avx"), status;

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(child(avx));
    require(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status), "stop of the child");
    peeks(pid);

    struct iovec all = {full, sizeof full};
    require(ptrace(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &all) == 0, "PTRACE_GETREGSET");
    if (all.iov_len <= SHORT)
        puts("small");
    struct iovec iov = {cut, sizeof cut};
    require(ptrace(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &iov) == 0, "PTRACE_GETREGSET, short");
    if (iov.iov_len != SHORT || memcmp(cut, full, SHORT))
        wrong("a short PTRACE_GETREGSET");
    memset(cut + XMM0, 0xa5, 16);
    uint64_t bv;
    memcpy(&bv, cut + 512, 8);
    bv = (bv & ~without) | with | 2; /* bit 1: SSE is not in its initial state */
    memcpy(cut + 512, &bv, 8);

    errno = 4711;
    if (ptrace(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &iov) != 0) {
        printf("refused %d\n", errno);
        kill(pid, 9);
    } else {
        if (errno != 4711 || iov.iov_len != SHORT || iov.iov_base != cut)
            wrong("errno or iov after a success");
        iov.iov_len = 500; /* without a header: refused by the kernel, whoever asks */
        if (ptrace(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &iov) != -1 || errno == 4711)
            wrong("SETREGSET without a header");
        all.iov_len = sizeof full; /* longer than the state, as the caller's is on most processors */
        if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &all) != 0)
            wrong("GETREGSET afterwards");
        size_t n = all.iov_len;
        all.iov_len = sizeof full;
        if (ptrace(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &all) != 0 || all.iov_len != n)
            wrong("SETREGSET from a long buffer");
    }
    ptrace(PTRACE_CONT, pid, NULL, NULL);
    require(waitpid(pid, &status, 0) == pid, "end of the child");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        wrong("xmm0: not what was set");
    else if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
        wrong("upper half of ymm0: not what the child had");
    else if (!WIFSIGNALED(status) && WEXITSTATUS(status) != 0)
        wrong("the child's end");
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    try_once(0, 0);
    try_once(4, 0);                    /* as if the buffer came from a task that never used AVX */
    try_once(0, (uint64_t)1 << 18);    /* and from one that used AMX, for which this child has no permission */
    puts("done");
    return 0;
}
