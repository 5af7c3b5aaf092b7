// SPDX-License-Identifier: Apache-2.0

package dir_test

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/cachepool/pooltest"
)

func config(path string) dir.Config {
	return dir.Config{Path: path, Gateway: pooltest.Gateway, Limit: pooltest.Limit, Random: rand.Reader}
}

func open(t *testing.T, cfg dir.Config) *dir.Pool {
	t.Helper()
	p, err := dir.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestSuite(t *testing.T) {
	pooltest.Run(t, func(t *testing.T) pooltest.Harness {
		path := filepath.Join(t.TempDir(), "new", "pool")
		return pooltest.Harness{Open: func() (cachepool.Pool, error) {
			p, err := dir.Open(config(path))
			if err != nil {
				return nil, err
			}
			return p, nil
		}}
	})
}

// TestHolder is the other process of TestLockIsBetweenProcesses.
func TestHolder(t *testing.T) {
	path := os.Getenv("WEIR_TEST_HOLD_POOL")
	if path == "" {
		return // it is a process of that test, and no test of its own
	}
	open(t, config(path))
	fmt.Println("held")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func TestLockIsBetweenProcesses(t *testing.T) {
	path := t.TempDir()
	holder := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	holder.Env = append(os.Environ(), "WEIR_TEST_HOLD_POOL="+path)
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_, err = dir.Open(config(path))
	if !errors.Is(err, cachepool.ErrLocked) {
		t.Fatalf("error %v, want locked", err)
	}
	for _, w := range []string{path, fmt.Sprintf("process %d", holder.Process.Pid), "stop that gateway"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %s", err, w)
		}
	}
	// A process that is killed gives its lock back.
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	_ = stdin.Close()
	if p := open(t, config(path)); p.Boot() != 2 {
		t.Errorf("boot %d, want 2", p.Boot())
	}
}

func TestForeignGateway(t *testing.T) {
	path := t.TempDir()
	if err := open(t, config(path)).Close(); err != nil {
		t.Fatal(err)
	}
	cfg := config(path)
	cfg.Gateway = "utr-1"
	_, err := dir.Open(cfg)
	if !errors.Is(err, cachepool.ErrForeign) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "ams-1") ||
		!strings.Contains(err.Error(), "utr-1") {
		t.Fatalf("error %v, want foreign", err)
	}
	if p := open(t, config(path)); p.Boot() != 2 {
		t.Errorf("boot %d, want 2", p.Boot())
	}
}

// An identity that cannot be trusted is not kept (protocol-3); one of a later release is not thrown
// away.
func TestDamagedIdentity(t *testing.T) {
	for _, tt := range []struct {
		text string
		err  error
	}{
		{"", nil},
		{"{", nil},
		{`{"version":1,"gateway":"ams-1","incarnation":"xx","boot":3}`, nil},
		{`{"version":2,"gateway":"ams-1","other":1}`, cachepool.ErrInvalid},
	} {
		path := t.TempDir()
		p := open(t, config(path))
		old := p.Incarnation()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, "pool.json")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := dir.Open(config(path))
		if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
			t.Errorf("%q: error %v, want %v", tt.text, err, tt.err)
		}
		if err != nil {
			if left, _ := os.ReadFile(file); string(left) != tt.text {
				t.Errorf("%q was replaced by %q", tt.text, left)
			}
			continue
		}
		if p.Incarnation() == old || p.Boot() != 1 {
			t.Errorf("%q: incarnation %v, boot %d after %v", tt.text, p.Incarnation(), p.Boot(), old)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLimitFromFileSystem(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Limit = 0
	if st := open(t, cfg).Room().Status(); st.Limit <= 0 {
		t.Fatalf("room is %+v", st)
	}
}

// What the metadata store keeps in folders of its own counts, and is not listed.
func TestFolders(t *testing.T) {
	path := t.TempDir()
	p := open(t, config(path))
	d, err := p.Volume("v")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(d.Path(), "meta"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Path(), "meta", "x"), []byte("1234567"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := d.List(); err != nil || len(got) != 0 {
		t.Fatalf("listed %v, %v", got, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if st := open(t, config(path)).Room().Status(); st.Used != 7 {
		t.Fatalf("room is %+v", st)
	}
}
