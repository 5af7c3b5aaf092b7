// SPDX-License-Identifier: Apache-2.0

package supportcmd_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/supportcmd"
	"github.com/weir-storage/weir/cmd/weir/volumecmd"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// fake is a gateway with these files.
type fake struct {
	forwardpb.UnimplementedForwardServer
	parts [][2]string
	err   error
}

func (f *fake) Diagnose(_ *forwardpb.DiagnoseRequest, to forwardpb.Forward_DiagnoseServer) error {
	for _, p := range f.parts {
		if err := to.Send(&forwardpb.DiagnosePart{Name: p[0], Data: []byte(p[1])}); err != nil {
			return err
		}
	}
	return f.err
}

// unpack returns the files of a bundle, without its folder.
func unpack(t *testing.T, from io.Reader) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		if _, twice := out[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		out[name] = string(text)
	}
}

// TestBundle: a bundle has what the registry and the gateways know, says what is missing, and has
// no keyring.
func TestBundle(t *testing.T) {
	b := clitest.New(t, func(sh *cli.Shell, connect access.Connector) []*cobra.Command {
		return []*cobra.Command{supportcmd.Command(sh, connect), volumecmd.Command(sh, connect)}
	})
	for _, s := range []string{"ams", "utr", "del", "fra"} {
		b.Site(s, "SURF")
	}
	b.Serve(map[string]forwardpb.ForwardServer{
		"ams-1": &fake{parts: [][2]string{{"log.txt", "one "}, {"log.txt", "two"}, {"metrics.txt", "m"}}},
		"utr-1": &fake{parts: [][2]string{{"log.txt", "l"}}, err: errors.New("no more")},
		"del-1": &fake{parts: [][2]string{{"../../etc/passwd", "bad"}}},
	})
	manifest := filepath.Join(t.TempDir(), "volume.yaml")
	if err := os.WriteFile(manifest, []byte(clitest.Manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitOK, "", "", "volume", "create", "-f", manifest, "--wait", "0")
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	b.Want(cli.ExitOK, "bundle.txt", "", "support-bundle", "--file", path, "--kubeconfig", "")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 {
		t.Error(i.Mode(), err)
	}
	files := unpack(t, bytes.NewReader(text))
	for name, want := range map[string]string{
		"registry/sites.json": `"ams-1"`, "registry/volumes.json": `"data"`, "registry/controls.json": "{}", "status.json": `"data"`,
		"registry/admissions/ams.json": "", "registry/head.json": "", "registry/lost.json": "", "gateways/ams-1/log.txt": "one two",
		"gateways/ams-1/metrics.txt": "m", "gateways/utr-1/log.txt": "l",
	} {
		if got, ok := files[name]; !ok || !strings.Contains(got, want) {
			t.Errorf("%s (there: %v): %s", name, ok, got)
		}
	}
	for _, want := range []string{"weir of a test", "gateways/utr-1 is missing, or a part of it: no more",
		`a file named "../../etc/passwd"`, "gateways/fra-1 is missing"} {
		if !strings.Contains(files["bundle.txt"], want) {
			t.Errorf("%q is not in\n%s", want, files["bundle.txt"])
		}
	}
	all, err := b.Registry.ListVolumes(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	ring, _, err := b.Registry.GetKeyring(t.Context(), all[0].Volume.UUID)
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range files {
		for _, wrapped := range ring.Wrapped {
			if strings.Contains(file, base64.StdEncoding.EncodeToString(wrapped)) {
				t.Errorf("%s has a wrapped key", name)
			}
		}
	}
	b.Want(cli.ExitError, "give the path of a file that is not there yet", "", "support-bundle", "--file", path, "--kubeconfig", "")
	_, out, errs := b.Run("", "support-bundle", "--file", "-", "--kubeconfig", "/is/not/there")
	if files := unpack(t, strings.NewReader(out)); !strings.Contains(files["bundle.txt"], "kubernetes is missing") {
		t.Errorf("%s%s", files["bundle.txt"], errs)
	}
}
