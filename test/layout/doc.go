// SPDX-License-Identifier: Apache-2.0

// Package layout has no code: its tests look at the source tree as a whole. They check who imports
// whom (the table in table_test.go), that packages are described and files begin with their
// licence, that files stay short, that no mark of unfinished work was left behind, and that the
// documentation's links lead somewhere.
//
// # To add a package
//
// Add its row to the table, in the same change: what of this project its code may import, and
// nothing more than it needs. The table is docs/design/architecture.md's, in finer grain; when a
// row needs an import that contradicts that page, the page is changed first.
package layout
