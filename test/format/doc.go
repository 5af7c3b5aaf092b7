// SPDX-License-Identifier: Apache-2.0

// Package format has no code. Its test has an engine write a volume, puts the objects into a store
// that is a directory, and reads them with docs/weirread.py, which shares no code with Weir. What
// that shows must be what the engine shows. So docs/format.md, which the program follows, says
// enough for somebody without Weir.
//
// The test needs python3 with the packages of Debian that hack/install-deps installs.
package format
