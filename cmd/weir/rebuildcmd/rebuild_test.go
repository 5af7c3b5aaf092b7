// SPDX-License-Identifier: Apache-2.0

package rebuildcmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation/keyring"
)

const testID = "3f9c02d7-0000-4000-8000-000000000001"

func tree(sh *cli.Shell, connect access.Connector) []*cobra.Command {
	o := access.NewOpener(sh.Getenv, connect)
	c := cli.Group(&cobra.Command{Use: "volume"}, Command(sh, o))
	o.Flags(c)
	return []*cobra.Command{c}
}

// TestRebuild runs the command without a registry, on a store with one segment that has no records.
func TestRebuild(t *testing.T) {
	b := clitest.New(t, tree)
	b.Site("ams", "SURF")
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := b.Keys["ams"]
	text, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	write("site.key", text)
	ring, _, err := keyring.New(testID, map[string][]byte{"ams": key.Public()}, bytes.NewReader(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(ring)
	if err != nil {
		t.Fatal(err)
	}
	rings := write("keyring.json", text)
	cfg := write("gateway.yaml", []byte("site: ams\ngateway: g\nsiteKey: site.key\nstore: {dir: objects}\npool: {path: pool}\n"))

	run := func(code int, says string, args ...string) {
		t.Helper()
		b.Want(code, says, "", append([]string{"volume", "rebuild", testID, "--config", cfg}, args...)...)
	}
	run(cli.ExitUsage, "say where to")
	run(cli.ExitUsage, "--pool with --store-dir", "--pool", "--store-dir", dir)
	run(cli.ExitError, "no such file", "--keyring", rings, "--to", filepath.Join(dir, "to"), "--store-dir", filepath.Join(dir, "none"))
	run(cli.ExitError, "the store has nothing of volume", "--keyring", rings, "--to", filepath.Join(dir, "to"))
	b.Want(cli.ExitError, "name the volume by its UUID", "", "volume", "rebuild", "data", "--config", cfg, "--keyring", rings, "--pool")

	// The folder of a store may have a segment without its start.
	write("objects/"+segment.Name(segment.VolumeID{0x3f, 0x9c, 2, 0xd7, 6: 0x40, 8: 0x80, 15: 1}, 1, segment.Hash{1}), make([]byte, 200))
	run(cli.ExitError, "restore these objects", "--keyring", rings, "--to", filepath.Join(dir, "to"))
	left, err := filepath.Glob(filepath.Join(dir, ".weir-rebuild-*"))
	if err != nil || len(left) > 0 {
		t.Fatalf("%q are left, %v", left, err)
	}
}
