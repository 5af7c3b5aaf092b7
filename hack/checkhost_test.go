// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script runs a script of this folder with additions to the environment, and returns what it said
// on its standard error and its exit code.
func script(t *testing.T, env []string, name string, args ...string) (said string, code int) {
	t.Helper()
	// The go command keeps a test's result until a file that the test itself has read changes.
	for _, f := range []string{"check-host", "install-deps", "progress.sh", "../go.mod",
		"../test/e2e/stage/xstate/ptrace.c", "../test/e2e/stage/testdata/largestate.c"} {
		if _, err := os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return errs.String(), cmd.ProcessState.ExitCode()
}

// fit is a machine that has all that is needed.
var fit = []string{
	"WEIR_CHECK_UID=0", "WEIR_CHECK_SYSTEM=debian 12", "WEIR_CHECK_MACHINE=x86_64", "WEIR_CHECK_GO=1.26.0",
	"WEIR_CHECK_KERNEL=6.1.0-33-amd64",
	"WEIR_CHECK_PROCESSORS=2", "WEIR_CHECK_MEMORY=14500", "WEIR_CHECK_MEMORY_FREE=8000", "WEIR_CHECK_FREE=40000", "WEIR_CHECK_COLD=1",
}

func TestCheckHostFacts(t *testing.T) {
	tests := []struct {
		name string
		env  string
		kind string
		want string // what the one failure says, by its parts; empty: fit
	}{
		{"fit", "", "clusters", ""},
		{"fit for less", "WEIR_CHECK_MEMORY=4000", "bare", ""},
		{"no root", "WEIR_CHECK_UID=1000", "bare", "user: here user id 1000, needed root: |sudo"},
		{"other system", "WEIR_CHECK_SYSTEM=debian 11", "bare", "system: here debian 11, needed debian 12: "},
		{"other processor", "WEIR_CHECK_MACHINE=aarch64", "bare", "processor: here aarch64, needed x86_64: "},
		{"old Go", "WEIR_CHECK_GO=1.9.7", "bare", "go: here 1.9.7, needed 1.|install Go"},
		{"no Go", "WEIR_CHECK_GO=?", "bare", "go: here no go command that works, needed 1.|install Go"},
		{"old kernel", "WEIR_CHECK_KERNEL=5.4.0-1", "bare", "kernel: here Linux 5.4.0-1, needed Linux 5.10"},
		{"one processor", "WEIR_CHECK_PROCESSORS=1", "bare", "processors: here 1, needed 2: "},
		{"small memory", "WEIR_CHECK_MEMORY=14499", "clusters", "memory: here 14499 MiB, needed 14500 MiB: "},
		{"memory in use", "WEIR_CHECK_MEMORY_FREE=7999", "clusters", "memory that is free: here 7999 MiB, needed 8000 MiB: "},
		{"what cannot be measured", "WEIR_CHECK_MEMORY=?", "bare", "memory: here 0 MiB, needed "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			said, code := script(t, append(fit[:len(fit):len(fit)], test.env), "./check-host", "facts", test.kind)
			if test.want == "" {
				if code != 0 || strings.Contains(said, "check-host:") {
					t.Errorf("code %d, said %q, want that all is well", code, said)
				}
				return
			}
			for part := range strings.SplitSeq(test.want, "|") {
				if !strings.Contains(said, part) {
					t.Errorf("said %q, want %q in it", said, part)
				}
			}
			if code != 1 || strings.Count(said, "check-host:") != 2 {
				t.Errorf("code %d, said %q, want code 1 with one failure and a summary", code, said)
			}
		})
	}
	t.Run("full disk", func(t *testing.T) {
		said, code := script(t, append(fit[:len(fit):len(fit)], "WEIR_CHECK_FREE=1000"), "./check-host", "facts", "clusters")
		if code != 1 || !strings.Contains(said, "1000 MiB are free in ") || !strings.Contains(said, "set GOCACHE") {
			t.Errorf("code %d, said %q, want how much room is missing, where, and what to do", code, said)
		}
	})
	t.Run("wrong arguments", func(t *testing.T) {
		if said, code := script(t, nil, "./check-host", "facts"); code != 2 || !strings.Contains(said, "usage:") {
			t.Errorf("code %d, said %q, want the usage", code, said)
		}
	})
}

// TestCheckHostBoot boots guests on this machine: one that must come up, and some that cannot.
func TestCheckHostBoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces and virtual machines need root: run it with sudo")
	}
	if said, code := script(t, nil, "./install-deps"); code != 0 {
		t.Fatal(said)
	}
	if said, code := script(t, nil, "./check-host", "boot", "clusters"); code != 0 || !strings.Contains(said, "a guest boots") {
		t.Errorf("code %d, said %q, want that this machine can do all", code, said)
	}
	large := filepath.Join(t.TempDir(), "largestate.so")
	source := "../test/e2e/stage/testdata/largestate.c"
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", large, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, test := range []struct {
		name, env, want string
	}{
		{"registers too large", "WEIR_CHECK_UML=/usr/bin/linux.uml WEIR_CHECK_PRELOAD=" + large,
			"guest: here it cannot set registers, and panics, needed "},
		{"no User-Mode Linux", "WEIR_CHECK_UML=/nothing", "guest: here it ended with code 127, needed "},
		{"a kernel that says nothing", "WEIR_CHECK_UML=/bin/true", "guest: here it ended with code 0, needed "},
		{"no packet sockets", "WEIR_CHECK_PACKET=no", "packet sockets: here does not work: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			said, code := script(t, strings.Fields(test.env), "./check-host", "boot", "bare")
			if code != 1 || !strings.Contains(said, test.want) {
				t.Errorf("code %d, said %q, want code 1 and %q", code, said, test.want)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	const work = `. ./progress.sh
work() { echo 'go: downloading a v1'; echo example.test/p; echo 'go: downloading b v1'; echo 'note: more'; return "$1"; }
set -e
progress_begin group
progress_step program
progress_run work "$0"
progress_end`
	said, code := script(t, nil, "bash", "-c", work, "0")
	if code != 0 || !strings.HasPrefix(said, "group: done, 2 modules downloaded, 1 packages compiled, ") || strings.Count(said, "\n") != 1 {
		t.Errorf("success: code %d, said %q, want one line with counts", code, said)
	}
	said, code = script(t, nil, "bash", "-c", work, "3")
	if want := "go: downloading a v1\nexample.test/p\ngo: downloading b v1\nnote: more\n"; code != 3 || said != want {
		t.Errorf("failure: code %d, said %q, want code 3 and all that the command said", code, said)
	}
}
