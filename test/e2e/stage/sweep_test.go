// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// victimEnv makes this test program, when it is started again, build a stage and wait to be killed.
// Its value is the kind of the router.
const victimEnv = "WEIR_STAGE_VICTIM"

var bg = context.Background()

func TestMain(m *testing.M) {
	if how := os.Getenv(victimEnv); how != "" {
		beVictim(how)
	}
	os.Exit(m.Run())
}

// beVictim builds a stage, prints its prefix, and waits for a signal. On SIGTERM it takes the stage
// down and exits.
func beVictim(how string) {
	ctx, stop := signal.NotifyContext(bg, syscall.SIGTERM)
	defer stop()
	s, err := Up(ctx, Config{Sites: []string{"a", "b"}, Router: how})
	if err == nil {
		_, err = s.Site("a").Start("sleeper", s.Site("a").Command(bg, "bash", "-c", "sleep 1000 & wait"))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Prefix())
	<-ctx.Done()
	if err := s.Down(); err != nil {
		fmt.Println(err)
	}
	os.Exit(0)
}

func TestInterruptedOwner(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name, router string
		signal       syscall.Signal
		swept        bool
	}{
		{"SIGKILL", RouterUML, syscall.SIGKILL, true},
		{"SIGTERM", RouterHost, syscall.SIGTERM, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), victimEnv+"="+c.router)
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
			r := record{Prefix: prefix, StateDir: filepath.Join(os.TempDir(), "weir-stage-"+prefix), Temporary: true}
			if swept, err := Sweep(); err != nil || slices.Contains(swept, prefix) {
				t.Errorf("Sweep = %q, %v: it must spare a living stage", swept, err)
			}
			if left := r.leftovers(); len(left) < 5 { // 3 namespaces, 2 folders, processes
				t.Errorf("a living stage has only %q", left)
			}
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait() // what it left on the machine shows how it ended
			swept, err := Sweep()
			if err != nil || slices.Contains(swept, prefix) != c.swept {
				t.Errorf("Sweep = %q, %v, want stage %s in it: %v", swept, err, prefix, c.swept)
			}
			if left := r.leftovers(); len(left) > 0 {
				t.Errorf("left over: %q", left)
			}
		})
	}
}

// TestHostRouter tests a router without netem on the host's own kernel, next to another stage.
func TestHostRouter(t *testing.T) {
	needRoot(t)
	var stages []*Stage
	for range 2 {
		s, err := Up(bg, Config{Sites: []string{"a", "b", "c"}, Router: RouterHost, StateDir: t.TempDir(),
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Down(); err != nil {
				t.Error(err)
			}
			if left := s.Leftovers(); len(left) > 0 {
				t.Errorf("left over: %q", left)
			}
		})
		stages = append(stages, s)
	}
	testCuts(t, stages[0])
	if err := stages[0].Down(); err != nil {
		t.Error(err)
	}
	testCuts(t, stages[1])
}

func TestConfig(t *testing.T) {
	needRoot(t)
	for _, c := range []Config{
		{},
		{Sites: []string{"a", "a"}},
		{Sites: []string{"router"}},
		{Sites: []string{"A"}},
		{Sites: strings.Split("abcdefghi", "")},
		{Sites: []string{"a", "b"}, Router: "tape"},
	} {
		if s, err := Up(bg, c); err == nil {
			t.Errorf("Up took %+v", c)
			_ = s.Down()
		}
	}
}

func TestModuleRoot(t *testing.T) {
	root, err := ModuleRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "hack/tools/build")); err != nil {
		t.Error(err)
	}
	if root, err := ModuleRoot("/"); err == nil {
		t.Errorf("ModuleRoot(/) = %s", root)
	}
}

func needRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root: run it with sudo")
	}
}
