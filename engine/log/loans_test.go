// SPDX-License-Identifier: Apache-2.0

package log

import "testing"

// What was noted of loans is there after a loss of power, and so is that there are none any more.
func TestLoans(t *testing.T) {
	for seed := range uint64(10) {
		s := newSetup(seed)
		l := s.mustOpen(t)
		if l.Loans() {
			t.Fatal("a new log has loans")
		}
		must(t, l.NoteLoans())
		must(t, l.NoteLoans())
		for range 2 {
			s.disk.Crash()
			if l = s.mustOpen(t); !l.Loans() {
				t.Fatalf("seed %d: it is forgotten that leases were lent", seed)
			}
		}
		must(t, l.ForgetLoans())
		if l.Loans() {
			t.Fatal("it is not forgotten")
		}
		s.disk.Kill()
		l = s.mustOpen(t)
		must(t, l.NoteLoans())
		s.disk.Crash()
		if l = s.mustOpen(t); !l.Loans() {
			t.Fatalf("seed %d: it is forgotten that leases were lent again", seed)
		}
	}
}
