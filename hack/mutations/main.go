// SPDX-License-Identifier: Apache-2.0

// Command mutations plants known mistakes in a copy of the source tree, one at a time, and checks
// that a test finds each of them. A rule is not tested if no test finds its mistake.
//
//	go run ./hack/mutations [NAME...]     without names: all of hack/mutations/*.mutation
//
// The command never changes the tree itself. A mistake is CAUGHT when the test that its file names
// fails, and SURVIVED when that test passes. It is BROKEN when it shows nothing: its old text is
// not there exactly once, the mutated code does not build, or the test fails without the mistake
// too. The exit code is 0 only if all are CAUGHT. A test that hangs on a mistake has caught it.
//
// # Format of NAME.mutation
//
//	# What the rule is, and what would go wrong.
//	rule: protocol-2
//	package: ./replica/protocol
//	run: TestRandomSchedules
//	args: -seeds 300
//
//	=== replica/protocol/home.go
//	--- old
//	text that is in the file exactly once
//	--- new
//	text instead
//	--- end
//
// One or more edits, each of whole lines. An empty new text removes the lines.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) (ok bool, err error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return false, fmt.Errorf("find source tree: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	all, err := load(root, names)
	if err != nil {
		return false, err
	}
	tmp, err := os.MkdirTemp("", "weir-mutations-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := copyTree(ctx, root, tmp); err != nil {
		return false, err
	}
	b := bench{dir: tmp, healthy: make(map[string]string)}
	ok = true
	for _, m := range all {
		start := time.Now()
		v := b.try(ctx, m)
		if err := ctx.Err(); err != nil {
			return false, err
		}
		ok = ok && v.word == caught
		fmt.Printf("%-8s  rule %-11s  %5.1f s  %-30s  %s\n", v.word, m.rule, time.Since(start).Seconds(), m.name, v.why)
	}
	return ok, nil
}

// load reads the mutations with these names, or all of them.
func load(root string, names []string) ([]mutation, error) {
	files, err := filepath.Glob(filepath.Join(root, "hack/mutations/*.mutation"))
	if err != nil {
		return nil, err
	}
	var all []mutation
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".mutation")
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		m, err := parse(name, string(text))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f, err)
		}
		all = append(all, m)
	}
	for _, n := range names {
		if !slices.ContainsFunc(all, func(m mutation) bool { return m.name == n }) {
			return nil, fmt.Errorf("no mutation %s: names are those of hack/mutations/*.mutation", n)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("hack/mutations has no *.mutation")
	}
	return all, nil
}

// copyTree copies what git would commit, as it is now.
func copyTree(ctx context.Context, from, to string) error {
	ls := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	ls.Dir = from
	list, err := ls.Output()
	if err != nil {
		return fmt.Errorf("list source files: %w: run this in a clone", err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, not committed yet
		}
		if err != nil {
			return err
		}
		info, err := os.Stat(filepath.Join(from, name))
		if err != nil {
			return err
		}
		dst := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(dst, text, info.Mode().Perm()|0o600); err != nil { // tests run programs of hack/tools
			return err
		}
	}
	return nil
}

const (
	caught   = "CAUGHT"
	survived = "SURVIVED"
	broken   = "BROKEN"
)

type verdict struct{ word, why string }

// bench is the copy in which mutations are tried.
type bench struct {
	dir     string
	healthy map[string]string // test command: what is wrong with it before any mutation; "" for nothing
}

// try plants m, runs its test, and restores the copy.
func (b *bench) try(ctx context.Context, m mutation) verdict {
	key := m.pkg + " " + m.run + " " + strings.Join(m.args, " ")
	if _, ok := b.healthy[key]; !ok {
		b.healthy[key] = ""
		if out, err := b.test(ctx, m); err != nil {
			b.healthy[key] = "the test fails without the mistake too: " + firstFailure(out)
		}
	}
	if why := b.healthy[key]; why != "" {
		return verdict{broken, why}
	}
	for _, e := range m.edits {
		path := filepath.Join(b.dir, e.file)
		before, err := os.ReadFile(path)
		if err != nil {
			return verdict{broken, err.Error()}
		}
		if n := strings.Count(string(before), e.old); n != 1 {
			return verdict{broken, fmt.Sprintf("%s has the old text %d times: bring the mutation up to date", e.file, n)}
		}
		defer func() { _ = os.WriteFile(path, before, 0o644) }() // the copy was written a moment ago
		after := strings.Replace(string(before), e.old, e.new, 1)
		if err := os.WriteFile(path, []byte(after), 0o644); err != nil {
			return verdict{broken, err.Error()}
		}
	}
	build := exec.CommandContext(ctx, "go", "test", "-trimpath", "-vet=off", "-run", "^$", m.pkg)
	build.Dir = b.dir
	if out, err := build.CombinedOutput(); err != nil {
		return verdict{broken, "does not build: " + firstFailure(out)}
	}
	out, err := b.test(ctx, m)
	switch {
	case err == nil:
		return verdict{survived, "by " + m.run}
	case bytes.Contains(out, []byte("panic: test timed out")):
		return verdict{caught, "test hangs"}
	case bytes.Contains(out, []byte("--- FAIL: "+m.run)), bytes.Contains(out, []byte("panic: ")):
		return verdict{caught, firstFailure(out)}
	}
	return verdict{broken, "another test failed: " + firstFailure(out)}
}

func (b *bench) test(ctx context.Context, m mutation) ([]byte, error) {
	args := append([]string{"test", "-trimpath", "-vet=off", "-count=1", "-timeout", "3m", "-run", "^" + m.run + "$", m.pkg}, m.args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.dir
	out, err := cmd.CombinedOutput()
	if err == nil && bytes.Contains(out, []byte("no tests to run")) {
		return out, fmt.Errorf("%s has no test %s", m.pkg, m.run)
	}
	return out, err
}

// firstFailure picks the line of a test's output that says most in few words.
func firstFailure(out []byte) string {
	lines := strings.Split(string(out), "\n")
	for _, telling := range []string{"_test.go:", "panic: ", "no tests to run", ".go:", "FAIL"} {
		for _, l := range lines {
			if strings.Contains(l, telling) {
				l = strings.TrimSpace(l)
				if r := []rune(l); len(r) > 120 {
					l = string(r[:117]) + "..."
				}
				return l
			}
		}
	}
	return "no output"
}
