// SPDX-License-Identifier: Apache-2.0

package cli

import "path/filepath"

// pluginName is what kubectl looks for in PATH when a person types `kubectl weir`.
const pluginName = "kubectl-weir"

// ProgramName is what a person types to run the program whose first argument is arg0.
func ProgramName(arg0 string) string {
	if filepath.Base(arg0) == pluginName {
		return "kubectl weir"
	}
	return "weir"
}
