// SPDX-License-Identifier: Apache-2.0

/*
 * registers MODE keeps patterns in the vector registers of eight threads, two in each of four
 * processes, while they give way to each other, are preempted and get signals whose handler
 * overwrites vector registers. MODE is sse, avx or avx512. It prints
 *
 *   MODE rounds N switches N signals N mismatches N
 *
 * or "MODE missing" where the processor does not have it. A mismatch is a register that at the end
 * of a round is not what it was set to at the round's beginning; the first ones are told on the
 * standard error.
 *
 * The kernel of User-Mode Linux saves x87, SSE and AVX in a signal's frame (struct _xstate, 832
 * bytes), and not what AVX-512 added. So with avx512 the handler overwrites what SSE can reach, and
 * leaves the rest alone; with avx it overwrites all of the 256 bits.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { processes = 4, rounds = 150, turns = 10, spins = 20000 };
enum mode { sse, avx, avx512 };

static const char *names[] = {"sse", "avx", "avx512"};
static enum mode mode;
static struct { long rounds, switches, signals, mismatches; } *total; /* of all processes */

#define S(x) #x
#define EACH16(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15)
#define EACH32(f) EACH16(f) f(16) f(17) f(18) f(19) f(20) f(21) f(22) f(23) f(24) f(25) f(26) f(27) f(28) f(29) f(30) f(31)
#define EACHK(f) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#define LOAD_X(n) "movdqu " S(n) "*16(%[in]), %%xmm" S(n) "\n\t"
#define STORE_X(n) "movdqu %%xmm" S(n) ", " S(n) "*16(%[out])\n\t"
#define LOAD_Y(n) "vmovdqu " S(n) "*32(%[in]), %%ymm" S(n) "\n\t"
#define STORE_Y(n) "vmovdqu %%ymm" S(n) ", " S(n) "*32(%[out])\n\t"
#define LOAD_Z(n) "vmovdqu64 " S(n) "*64(%[in]), %%zmm" S(n) "\n\t"
#define STORE_Z(n) "vmovdqu64 %%zmm" S(n) ", " S(n) "*64(%[out])\n\t"
#define LOAD_K(n) "kmovw 2048+" S(n) "*2(%[in]), %%k" S(n) "\n\t"
#define STORE_K(n) "kmovw %%k" S(n) ", 2048+" S(n) "*2(%[out])\n\t"
#define ONES_X(n) "pcmpeqd %%xmm" S(n) ", %%xmm" S(n) "\n\t"
#define ONES_Y(n) "vpcmpeqd %%ymm" S(n) ", %%ymm" S(n) ", %%ymm" S(n) "\n\t"

/* In between, in the same block, so that no compiled code touches a register: give way, compute
 * long enough to be preempted now and then, and halfway send this thread a signal (tgkill). */
#define BETWEEN                                                                                    \
    "movl %[turns], %%r12d\n"                                                                      \
    "1:\tmovl $24, %%eax\n\tsyscall\n\t" /* sched_yield */                                         \
    "movl %[spins], %%r13d\n"                                                                      \
    "2:\tdecl %%r13d\n\tjnz 2b\n\t"                                                                \
    "cmpl %[middle], %%r12d\n\tjne 3f\n\t"                                                         \
    "movl $234, %%eax\n\tmovl %[pid], %%edi\n\tmovl %[tid], %%esi\n\tmovl $10, %%edx\n\tsyscall\n" \
    "3:\tdecl %%r12d\n\tjnz 1b\n\t"

#define HOLD(load, store)                                                                          \
    __asm__ volatile(load BETWEEN store                                                            \
                     :                                                                             \
                     : [in] "r"(in), [out] "r"(out), [turns] "i"(turns), [spins] "i"(spins),       \
                       [middle] "i"(turns / 2), [pid] "m"(pid), [tid] "m"(tid)                     \
                     : "rax", "rcx", "rdx", "rsi", "rdi", "r11", "r12", "r13", "memory", "cc", "xmm0", "xmm1", "xmm2",  \
                       "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")

static __thread volatile long signals;

static void overwrite(int sig)
{
    (void)sig;
    signals++;
    if (mode == avx)
        __asm__ volatile(EACH16(ONES_Y)::: "memory");
    else
        __asm__ volatile(EACH16(ONES_X)::: "memory");
}

static uint64_t next(uint64_t *x) /* xorshift64 */
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    return *x ^= *x << 17;
}

static void *hold(void *arg)
{
    static const size_t sizes[] = {16 * 16, 16 * 32, 32 * 64 + 8 * 2};
    size_t size = sizes[mode], shown = 0;
    unsigned char in[32 * 64 + 16], out[sizeof in];
    int pid = getpid(), tid = syscall(SYS_gettid);
    uint64_t seed = 0x9e3779b97f4a7c15u * (uint64_t)tid;
    struct rusage use;
    long mismatches = 0;

    (void)arg;
    for (int r = 0; r < rounds; r++) {
        for (size_t i = 0; i < sizeof in; i += 8) {
            uint64_t word = next(&seed);
            memcpy(in + i, &word, 8);
        }
        if (mode == avx512)
            memset(in + 2048, 0x50 + tid % 7, 2); /* k0 cannot be set; its slot stays as it is */
        memcpy(out, in, sizeof out);
        memset(out, 0, mode == avx512 ? 2048 : size);
        if (mode == sse)
            HOLD(EACH16(LOAD_X), EACH16(STORE_X));
        else if (mode == avx)
            HOLD(EACH16(LOAD_Y), EACH16(STORE_Y));
        else
            HOLD(EACH32(LOAD_Z) EACHK(LOAD_K), EACH32(STORE_Z) EACHK(STORE_K));
        for (size_t i = 0; i < size; i += 2)
            if (memcmp(in + i, out + i, 2)) {
                mismatches++;
                if (shown++ < 3)
                    fprintf(stderr, "thread %d round %d: bytes %zu and %zu are %02x%02x, were %02x%02x\n", tid, r, i, i + 1, out[i],
                            out[i + 1], in[i], in[i + 1]);
            }
        __atomic_add_fetch(&total->rounds, 1, __ATOMIC_RELAXED);
    }
    getrusage(RUSAGE_THREAD, &use);
    __atomic_add_fetch(&total->switches, use.ru_nvcsw + use.ru_nivcsw, __ATOMIC_RELAXED);
    __atomic_add_fetch(&total->signals, signals, __ATOMIC_RELAXED);
    __atomic_add_fetch(&total->mismatches, mismatches, __ATOMIC_RELAXED);
    return NULL;
}

static int process(void)
{
    pthread_t second;

    if (pthread_create(&second, NULL, hold, NULL) != 0)
        return 1;
    hold(NULL);
    return pthread_join(second, NULL) != 0;
}

int main(int argc, char **argv)
{
    int known = 0, failed = 0, status;
    pid_t pids[processes];

    __builtin_cpu_init();
    int have[] = {1, __builtin_cpu_supports("avx2"), __builtin_cpu_supports("avx512f")}; /* ONES_Y is AVX2 */
    for (int m = sse; argc == 2 && m <= avx512; m++)
        if (strcmp(argv[1], names[m]) == 0) {
            mode = m;
            known = 1;
        }
    if (!known) {
        fprintf(stderr, "usage: registers sse|avx|avx512\n");
        return 2;
    }
    if (!have[mode]) {
        printf("%s missing\n", names[mode]);
        return 0;
    }
    total = mmap(NULL, sizeof *total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (total == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    struct sigaction sa = {.sa_handler = overwrite, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &sa, NULL);
    for (int i = 0; i < processes; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(process());
    }
    /* Signals from outside, which also come while a thread computes. A process that has ended takes
     * them too, until it is waited for. */
    for (int left = processes; left > 0;) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        for (int i = 0; i < processes; i++) {
            if (pids[i] == 0)
                continue;
            if (waitpid(pids[i], &status, WNOHANG) == pids[i]) {
                failed |= status != 0;
                pids[i] = 0;
                left--;
            } else {
                kill(pids[i], SIGUSR1);
            }
        }
    }
    printf("%s rounds %ld switches %ld signals %ld mismatches %ld\n", names[mode], total->rounds, total->switches, total->signals,
           total->mismatches);
    return failed;
}
