// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// testOneProcessor checks that a machine stays on the processor that it was started on.
func testOneProcessor(t *testing.T, m *machine) {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(m.proc.Pid(), &cpus); err != nil || cpus.Count() != 1 {
		t.Errorf("the machine may use %d processors, %v, want one", cpus.Count(), err)
	}
}

// hostFlag says whether this machine's processor has a flag of /proc/cpuinfo.
func hostFlag(t *testing.T, flag string) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\nflags")
	line, _, _ := strings.Cut(rest, "\n")
	for _, f := range strings.Fields(line) {
		if f == flag {
			return true
		}
	}
	return false
}

// testRegisters runs testdata/registers.c in a machine, in each mode that the processor has.
func testRegisters(t *testing.T, m *machine) {
	t.Logf("this processor has amx_tile: %v, avx2: %v, avx512f: %v",
		hostFlag(t, "amx_tile"), hostFlag(t, "avx2"), hostFlag(t, "avx512f"))
	// A machine that runs already looks for new names only: compile where it has not looked.
	program := filepath.Join(m.shared(), "registers")
	if err := compileC(bounded(t), program, "testdata/registers.c", "-static", "-pthread"); err != nil {
		t.Fatal(err)
	}
	for mode, flag := range map[string]string{"sse": "sse2", "avx": "avx2", "avx512": "avx512f"} {
		id, err := m.startScript("/x/registers " + mode)
		if err != nil {
			t.Fatal(err)
		}
		res, err := m.finish(bounded(t), id)
		if err != nil || res.Code != 0 {
			t.Fatalf("registers %s: %+v, %v", mode, res, err)
		}
		if !hostFlag(t, flag) {
			if res.Stdout != mode+" missing\n" {
				t.Errorf("registers %s on a processor without %s: %+v", mode, flag, res)
			}
			continue
		}
		t.Log(strings.TrimSpace(res.Stdout))
		var rounds, switches, signals, mismatches int
		_, err = fmt.Sscanf(res.Stdout, mode+" rounds %d switches %d signals %d mismatches %d", &rounds, &switches, &signals, &mismatches)
		if err != nil {
			t.Fatalf("registers %s: %+v, %v", mode, res, err)
		}
		// Each round has a signal, and yields ten times: without those it would prove nothing. How
		// often another thread then runs is up to the guest's scheduler.
		if rounds != 1200 || switches < 200 || signals < rounds {
			t.Errorf("registers %s: %s, want 1200 rounds, 200 switches and 1200 signals at least", mode, res.Stdout)
		}
		if mismatches != 0 {
			t.Errorf("registers %s: %d of %d rounds' words changed:\n%s", mode, mismatches, rounds, res.Stderr)
		}
	}
}

// testLargeState boots machines on a host that behaves as one with a larger register state does
// (testdata/largestate.c): without ptrace.so none comes up, and with it registers are right.
// They run this system's own kernel, which sets registers by ptrace.
func testLargeState(t *testing.T, s *Stage) {
	large := filepath.Join(t.TempDir(), "largestate.so")
	if err := compileC(bounded(t), large, "testdata/largestate.c", "-shared", "-fPIC"); err != nil {
		t.Fatal(err)
	}
	boot := func(name, preload string) (*machine, error) {
		ns := s.Site("a").ns
		m := &machine{name: ns + "-" + name, ns: ns, dir: filepath.Join(s.Dir(), name), mem: 128, run: s.run, kernel: system(preload)}
		return m, m.start(bounded(t))
	}
	if m, err := boot("unaided", large); err == nil {
		m.kill()
		t.Error("a machine came up on a processor whose state it cannot set: largestate.c does not do what it is there for")
	} else if !strings.Contains(err.Error(), "the machine has ended") {
		t.Errorf("a machine without ptrace.so: %v, want that it has ended", err)
	}
	m, err := boot("aided", s.kernel.preload+":"+large)
	if err != nil {
		t.Fatal(err)
	}
	defer m.kill()
	testRegisters(t, m)
}

// TestPtraceLibrary checks ptrace.so against this machine's own kernel: testdata/tracer.c sets a
// child's registers from a buffer that is too short for the processor's state.
func TestPtraceLibrary(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("there is no gcc: run hack/install-deps")
	}
	t.Setenv("WEIR_CACHE", t.TempDir())
	library, err := ptraceLibrary(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	again, err := ptraceLibrary(bounded(t))
	if err != nil || again != library {
		t.Errorf("the second time: %s, %v, want %s", again, err, library)
	}
	tracer := filepath.Join(t.TempDir(), "tracer")
	if err := compileC(bounded(t), tracer, "testdata/tracer.c"); err != nil {
		t.Fatal(err)
	}
	bare, err := run(bounded(t), "", tracer)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(bare, "small\n") && strings.Count(bare, "refused 14\n") != 3 {
		t.Errorf("the kernel took a short buffer, so this test proves nothing: %q", bare)
	}
	aided, err := run(bounded(t), "", "env", "LD_PRELOAD="+library, tracer)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.ReplaceAll(aided, "small\n", ""); got != "done\n" {
		t.Errorf("with %s: %q, want only done", filepath.Base(library), aided)
	}
}

func TestCompilerMissing(t *testing.T) {
	t.Setenv("WEIR_CACHE", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	_, err := ptraceLibrary(bounded(t))
	if err == nil || !strings.Contains(err.Error(), "run hack/install-deps") {
		t.Errorf("without a compiler: %v, want an error that says how to get one", err)
	}
}
