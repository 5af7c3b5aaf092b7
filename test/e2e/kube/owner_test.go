// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weir-storage/weir/test/e2e/stage"
)

// victimEnv makes this test program, when it is started again, run a cluster until it is killed.
// Its value is the state folder.
const victimEnv = "WEIR_KUBE_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimEnv); dir != "" {
		c, err := Up(context.Background(), Config{Sites: []string{"a"}, Guests: []string{}, StateDir: dir, Progress: os.Stderr,
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(c.Stage.Prefix())
		select {}
	}
	os.Exit(m.Run())
}

// TestKilledOwner kills the program that runs a cluster. All its processes must end by themselves,
// and the next Up must remove the rest.
func TestKilledOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root: run it with sudo")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), victimEnv+"="+t.TempDir())
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	prefix := strings.TrimSpace(line)
	if err != nil || len(prefix) != 5 {
		t.Fatalf("victim said %q, %v", line, err)
	}
	if err := sweepGroups(); err != nil {
		t.Error(err)
	}
	group := groupPrefix + prefix + "-a"
	if len(groupFolders(group)) == 0 {
		t.Error("the sweep must spare a living cluster's cgroups")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if _, err := stage.Sweep(); err != nil {
		t.Error(err)
	}
	if err := sweepGroups(); err != nil { // which fails while there are processes
		t.Error(err)
	}
	if left := groupFolders(group); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
	if n := footprint(t, prefix); n > 0 {
		t.Errorf("processes with %d bytes are left over", n)
	}
}
