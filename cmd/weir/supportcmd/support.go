// SPDX-License-Identifier: Apache-2.0

// Package supportcmd has `weir support-bundle`: one file with what others need to find a fault,
// without secrets and without data of volumes.
package supportcmd

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
)

type options struct {
	file, kubeconfig, namespace string
	gather                      time.Duration
}

// Command is `weir support-bundle`.
func Command(sh *cli.Shell, connect access.Connector) *cobra.Command {
	var o options
	opener := access.NewOpener(sh.Getenv, connect)
	c := &cobra.Command{
		Use: "support-bundle [--file FILE]", Short: "Gather what others need to find a fault", Args: cli.Args(cobra.NoArgs),
		Long: "Writes one .tar.gz with the records of the registry, and what the gateways of your organization\n" +
			"tell: state, newest log, metrics, configuration and goroutines. With --kubeconfig also Weir's\n" +
			"objects, pods, their events and their logs. It has no keys, no passwords and no data of volumes.\n" +
			"It has names, addresses of clients, and the paths of files in lines about slow operations: look\n" +
			"at it before you give it away.",
		Example: "  weir support-bundle --config /etc/weir/weir.yaml\n  kubectl weir support-bundle --kubeconfig ~/.kube/config\n" +
			"  kubectl exec -n weir-system weir-gateway-0 -- weir support-bundle --file - > bundle.tar.gz",
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context(), sh, opener) },
	}
	opener.Flags(c)
	f := c.Flags()
	f.StringVar(&o.file, "file", "", "`FILE` to write, or - for the standard output; by default weir-support-TIME.tar.gz")
	f.StringVar(&o.kubeconfig, "kubeconfig", sh.Getenv("KUBECONFIG"), "`FILE` with the cluster's address [KUBECONFIG]")
	f.StringVar(&o.namespace, "namespace", "weir-system", "`NAMESPACE` in which the chart is installed, for --kubeconfig")
	f.DurationVar(&o.gather, "timeout", 2*time.Minute, "`TIME` after which what is there is written")
	return c
}

func (o *options) run(ctx context.Context, sh *cli.Shell, opener *access.Opener) (err error) {
	cl, noFederation := opener.Open()
	if noFederation != nil && o.kubeconfig == "" {
		return noFederation
	}
	name := "weir-support-" + sh.Now().UTC().Format("20060102T150405Z")
	path := o.file
	if path == "" {
		path = name + ".tar.gz"
	}
	out := sh.Out
	if path != "-" {
		f, ferr := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // for the caller's eyes first
		if ferr != nil {
			return fmt.Errorf("--file: %w: give the path of a file that is not there yet", ferr)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	b := newBundle(out, name, sh.Now)
	ctx, cancel := context.WithTimeout(ctx, o.gather)
	defer cancel()
	b.say("weir %s, %s", sh.Version, cli.Stamp(sh.Now()))
	if noFederation != nil {
		b.say("the federation is missing: %v", noFederation)
	} else {
		defer cl.Close()
		federationPart(ctx, b, cl, sh.Now())
	}
	if o.kubeconfig != "" {
		kubernetesPart(ctx, b, o.kubeconfig, o.namespace)
	}
	if err := b.close(); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	sh.Tell("%s: %d files. What is missing in it, and why, is in %s/bundle.txt.\n", path, b.files, name)
	return nil
}

// bundle is a .tar.gz that is being written. Its methods are for one goroutine.
type bundle struct {
	folder string
	now    func() time.Time
	zip    *gzip.Writer
	tar    *tar.Writer
	notes  strings.Builder // bundle.txt
	files  int
	err    error // the first of writing
}

func newBundle(to io.Writer, folder string, now func() time.Time) *bundle {
	z := gzip.NewWriter(to)
	return &bundle{folder: folder, now: now, zip: z, tar: tar.NewWriter(z)}
}

// say adds a line to bundle.txt.
func (b *bundle) say(format string, a ...any) { _, _ = fmt.Fprintf(&b.notes, format+"\n", a...) } // never fails

// put adds a file.
func (b *bundle) put(name string, data []byte) {
	if b.err != nil {
		return
	}
	b.files++
	b.err = b.tar.WriteHeader(&tar.Header{Name: b.folder + "/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: b.now()})
	if b.err == nil {
		_, b.err = b.tar.Write(data)
	}
}

// close adds bundle.txt, and ends the file.
func (b *bundle) close() error {
	b.put("bundle.txt", []byte(b.notes.String()))
	return errors.Join(b.err, b.tar.Close(), b.zip.Close())
}
