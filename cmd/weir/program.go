// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"

	"github.com/spf13/cobra"
)

// pluginName is what kubectl looks for in PATH when a person types `kubectl weir`.
const pluginName = "kubectl-weir"

// programName is what a person types to run the program whose first argument is arg0.
func programName(arg0 string) string {
	if filepath.Base(arg0) == pluginName {
		return "kubectl weir"
	}
	return "weir"
}

// name is what a person typed.
func (sh *shell) name() string { return programName(sh.arg0) }

// called makes usage texts say what a person typed.
func (sh *shell) called(root *cobra.Command) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: sh.name()}
}
