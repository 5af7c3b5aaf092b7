// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/stage"
)

// Scene is a bed with one volume "v", as tests use it. Its methods fail the test when something
// goes wrong.
type Scene struct {
	T    *testing.T
	Ctx  context.Context // ends before the test run does
	Bed  *Bed
	Tool string // the program that runs in guests
}

// NewScene brings a bed up and makes the volume that the manifest describes.
func NewScene(t *testing.T, cfg Config, manifest string) *Scene {
	t.Helper()
	b := Test(t, cfg)
	ctx, cancel := context.WithTimeout(context.Background(), 14*time.Minute)
	t.Cleanup(cancel)
	tool, err := b.Tool(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Create(ctx, b.cfg.Sites[0], manifest); err != nil {
		t.Fatal(err)
	}
	return &Scene{T: t, Ctx: ctx, Bed: b, Tool: tool}
}

// Machine is a guest that has the volume mounted at Dir.
type Machine struct {
	*stage.Guest
	Dir   string
	scene *Scene
}

// Machine boots a guest at a site and mounts the volume there, from that site's gateway.
func (s *Scene) Machine(site, name string) *Machine {
	s.T.Helper()
	g, err := s.Bed.Site(site).Guest(s.Ctx, name)
	if err != nil {
		s.T.Fatal(err)
	}
	dir, err := s.Bed.Site(site).Mount(s.Ctx, g, "v")
	if err != nil {
		s.T.Fatal(err)
	}
	return &Machine{g, dir, s}
}

// Do runs a script that must succeed, and returns what it printed.
func (m *Machine) Do(script string) string {
	m.scene.T.Helper()
	out, err := m.Output(m.scene.Ctx, script)
	if err != nil {
		m.scene.T.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(out)
}

// Begin starts a command that takes a STOP file last and runs until Finish; both are named by name.
func (m *Machine) Begin(name, command string) *Work {
	m.scene.T.Helper()
	return Begin(m.scene.Ctx, m.scene.T, m.Guest, name, command)
}

// Verify checks that the file has all lines that `guesttool write` put in the record.
func (m *Machine) Verify(file, record string) {
	m.scene.T.Helper()
	m.scene.T.Log(m.Do(m.scene.Tool + " verify " + file + " " + record))
}

// Await waits until the volume's state, as a site sees it, satisfies ok, and returns it.
func (s *Scene) Await(site string, ok func(Status) bool) Status {
	s.T.Helper()
	st, err := s.Bed.Await(s.Ctx, site, "v", ok)
	if err != nil {
		s.T.Fatal(err)
	}
	return st
}
