// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// OutputFlag adds -o to a command. The command calls CheckOutput before it does anything.
func OutputFlag(c *cobra.Command, to *string) {
	c.Flags().StringVarP(to, "output", "o", "", "`FORM` of the output: json, or nothing for a table")
}

// CheckOutput returns a UsageError for a value of -o that does not exist.
func CheckOutput(form string) error {
	if form != "" && form != "json" {
		return Usage("-o %q: write json, or leave it out for a table", form)
	}
	return nil
}

// WriteJSON writes v as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Table is text in columns. The first row is its head.
type Table struct{ rows [][]string }

// Row adds a row.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Write writes the rows with their columns aligned.
func (t *Table) Write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range t.rows {
		if _, err := fmt.Fprintln(tw, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// With is name with its site in parentheses. An empty site is left out.
func With(name, site string) string {
	if site == "" {
		return name
	}
	return name + " (" + site + ")"
}

// Stamp is a time as output shows it: RFC 3339, in UTC.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Span formats a time in seconds.
func Span(s float64) string {
	if s < 0.05 {
		return "0s"
	}
	if s < 60 {
		return fmt.Sprintf("%.1fs", s)
	}
	return fmt.Sprintf("%dm%02ds", int(s)/60, int(s)%60)
}

// Bytes formats an amount of bytes, with one decimal.
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < 4 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}

// Terminal reports whether a person sees what is written to w, as it is written.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	s, err := f.Stat()
	return err == nil && s.Mode()&os.ModeCharDevice != 0
}
