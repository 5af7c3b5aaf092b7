// SPDX-License-Identifier: Apache-2.0

// Package layout has no code. Its tests look at the source tree as a whole: who imports whom (the
// table in table_test.go), packages have comments and stay small, files begin with the licence and
// stay short, lines stay narrow, code uses what is exported, no mark of unfinished work is left,
// and links in the documentation lead somewhere.
//
// Where a rule does not fit, it has a list of exceptions, each with its reason. An exception that
// is no longer needed fails.
//
// # To add a package
//
// Add its row to the table, in the same change: what of this project its code may import, and
// nothing more than it needs. The table is a finer form of that in docs/design/architecture.md.
// When a row needs an import that contradicts that page, change the page first.
package layout
