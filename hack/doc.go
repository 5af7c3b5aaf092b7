// SPDX-License-Identifier: Apache-2.0

// Package hack holds no code, only scripts for developers: see README.md. Its tests run those
// scripts.
package hack
