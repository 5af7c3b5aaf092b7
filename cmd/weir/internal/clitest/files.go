// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"os"
	"testing"
	"time"
)

// Put replaces a file at once, so that a reader sees the old text or the new one.
func Put(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// Read reads a file.
func Read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Eventually calls ok until it returns nil. Its deadline is only a guard against hanging.
func Eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	var last error
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if last = ok(); last == nil {
			return
		}
	}
	t.Fatalf("%s: not so: %v", what, last)
}
