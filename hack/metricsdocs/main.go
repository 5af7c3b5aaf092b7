// SPDX-License-Identifier: Apache-2.0

// Command metricsdocs writes docs/reference/metrics.md from package metrics.
//
//	go run ./hack/metricsdocs           write the page
//	go run ./hack/metricsdocs -check    only report whether it is current: status 1 if it is not
//
// Run it in the root of the source tree.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/weir-storage/weir/metrics"
)

const to = "docs/reference/metrics.md"

func main() {
	check := flag.Bool("check", false, "change nothing, and tell whether the page is current")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "metricsdocs: unknown argument %q: there is only the flag -check\n", flag.Arg(0))
		os.Exit(2)
	}
	text := page()
	old, err := os.ReadFile(to)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
	case bytes.Equal(old, text):
		return
	case *check:
		fmt.Printf("%s: not what package metrics gives: run make generate\n", to)
		os.Exit(1)
	default:
		err = os.WriteFile(to, text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "metricsdocs:", err)
		os.Exit(1)
	}
}

// intro is what people need to know before the tables.
const intro = `# Metrics

<!-- Written by hack/metricsdocs from package metrics. Change that, and run make generate. -->

Each process answers ` + "`/metrics`" + ` over TLS, for Prometheus. [Operations](../operations.md#metrics) says how it is reached, and by
whom. Besides the metrics below each has ` + "`go_*` and `process_*`" + `, and the operator what controller-runtime measures.

Names, labels and units stay as they are. Labels have few values, but for ` + "`volume`" + `: a process has metrics of at most %d volumes.
Operations on more of them are counted together as volume ` + "`%s`" + `. Of clients, paths and users there are no labels.
A volume has about %d series at its home, with three copies, and fewer elsewhere.
`

// seriesPerVolume is said in the intro; a test of gateway/meters counts.
const seriesPerVolume = 106

func page() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, intro, metrics.MaxVolumes, metrics.OtherVolumes, seriesPerVolume)
	for _, p := range []metrics.Part{metrics.Gateway, metrics.Operator, metrics.CSI, metrics.Gatekeeper, metrics.LentStore} {
		fmt.Fprintf(&b, "\n## Of the %s\n\n| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n", p)
		for _, d := range metrics.Catalog() {
			if !slices.Contains(d.Parts, p) {
				continue
			}
			labels := ""
			if len(d.Labels) > 0 {
				labels = "`" + strings.Join(d.Labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Kind, labels, strings.ReplaceAll(d.Help, "|", "\\|"))
		}
	}
	return b.Bytes()
}
