// SPDX-License-Identifier: Apache-2.0

// Package playbill is the frame of a demonstration: titles with times, facts that it repeats at the
// end, and an end that leaves nothing behind.
package playbill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Play is a demonstration while it runs. One goroutine uses it.
type Play struct {
	begin time.Time
	facts []string
}

// Title begins a scene.
func (p *Play) Title(format string, a ...any) {
	fmt.Printf("\n[%5.1f s] %s\n", time.Since(p.begin).Seconds(), fmt.Sprintf(format, a...))
}

// Fact prints what happened, now and at the end.
func (p *Play) Fact(format string, a ...any) {
	f := fmt.Sprintf(format, a...)
	p.facts = append(p.facts, f)
	fmt.Println("  " + f)
}

// Facts prints all facts.
func (p *Play) Facts() {
	p.Title("What happened")
	for _, f := range p.facts {
		fmt.Println("  - " + f)
	}
}

// Indent sets a text off from titles and facts.
func Indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ") + "\n"
}

// Run is the main function of a demonstration. state is a folder. Run removes it when act returns
// nil. Otherwise it keeps the folder and prints its name. Ctrl-C ends the context.
func Run(act func(ctx context.Context, p *Play, state string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := &Play{begin: time.Now()}
	if err := run(ctx, p, act); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
	fmt.Printf("\nDone in %.0f s.\n", time.Since(p.begin).Seconds())
}

func run(ctx context.Context, p *Play, act func(ctx context.Context, p *Play, state string) error) error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and virtual machines need root: run it with sudo")
	}
	state, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		return err
	}
	if err := act(ctx, p, state); err != nil {
		fmt.Fprintln(os.Stderr, "demo: logs are kept in", state)
		return err
	}
	return os.RemoveAll(state)
}

// Keep says how to use what was built, if KEEP is in the environment, and waits for Ctrl-C.
func Keep(ctx context.Context, how func()) {
	if os.Getenv("KEEP") == "" {
		return
	}
	how()
	<-ctx.Done()
}
